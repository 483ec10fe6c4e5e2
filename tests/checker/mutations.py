"""Changes of a proof by branch and bound, each of which makes it prove nothing."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from relucert.checker.claim import image_digest
from relucert.checker.packing import pack, unpack
from tests.checker.forests import (
    Leaf,
    Split,
    Tree,
    change_rows,
    each_leaf,
    swapped,
    without_root,
    written,
)

Mutation = Callable[[dict[str, Any]], None]


def move(document: dict[str, Any], values: list[float]) -> None:
    """Puts another image there, with the SHA-256 that is its own."""
    document["image"] |= {"values": values, "sha256": image_digest(values)}


def drop_a_node(document: dict[str, Any]) -> None:
    trees = document["relaxation"]["rows"]
    trees["nodes"] = pack(unpack(trees["nodes"], 4)[:-1], 4)


def drop_a_leaf(document: dict[str, Any]) -> None:
    """The last one, with all that belongs to it."""
    trees = document["relaxation"]["rows"]
    leaves = len(unpack(trees["scales"], 2))
    slopes = unpack(trees["slopes"], 3)
    trees["nodes"] = pack(unpack(trees["nodes"], 4)[:-1], 4)
    trees["slopes"] = pack(slopes[: -(len(slopes) // leaves)], 3)
    trees["scales"] = pack(unpack(trees["scales"], 2)[:-1], 2)


def skip_a_half(document: dict[str, Any]) -> None:
    change_rows(document, lambda trees: [without_root(tree) if isinstance(tree, Split) else tree for tree in trees])


def leave_a_tree_out(document: dict[str, Any]) -> None:
    change_rows(document, lambda trees: trees[:-1])


def one_more_tree(document: dict[str, Any]) -> None:
    change_rows(document, lambda trees: [*trees, trees[-1]])


def a_multiplier_more(document: dict[str, Any]) -> None:
    trees = document["relaxation"]["rows"]
    trees["multipliers"] = pack(np.append(unpack(trees["multipliers"], 4), 0), 4)


def a_multiplier_less(document: dict[str, Any]) -> None:
    trees = document["relaxation"]["rows"]
    trees["multipliers"] = pack(unpack(trees["multipliers"], 4)[:-1], 4)


def swap_halves(document: dict[str, Any]) -> None:
    change_rows(document, lambda trees: [swapped(tree) for tree in trees])


def wrong_neurons(document: dict[str, Any]) -> None:
    """Every split by the neuron whose number comes next."""
    count = sum(len(unpack(text, 4)) for text in document["relaxation"]["neurons"].values())

    def next_ones(tree: Tree) -> Tree:
        if not isinstance(tree, Split):
            return tree
        first, second = tree.halves
        return Split((tree.place + 1) % count, (next_ones(first), next_ones(second)))

    change_rows(document, lambda trees: [next_ones(tree) for tree in trees])


def twice_by_one_neuron(document: dict[str, Any]) -> None:
    def doubled(tree: Tree) -> Tree:
        if not isinstance(tree, Split):
            return tree
        first, second = (
            each_leaf(half, lambda leaf: replace(leaf, multipliers=[0, *leaf.multipliers])) for half in (tree, tree)
        )
        return Split(tree.place, (first, second))

    change_rows(document, lambda trees: [doubled(tree) for tree in trees])


def unknown_neuron(document: dict[str, Any]) -> None:
    change_rows(
        document, lambda trees: [Split(1000, tree.halves) if isinstance(tree, Split) else tree for tree in trees]
    )


def neurons_of_another_network(document: dict[str, Any]) -> None:
    neurons = document["relaxation"]["neurons"]
    value = next(iter(neurons))
    numbers = unpack(neurons[value], 4)
    neurons[value] = pack(numbers + 1000, 4)


def neurons_twice(document: dict[str, Any]) -> None:
    neurons = document["relaxation"]["neurons"]
    value = next(value for value, text in neurons.items() if len(unpack(text, 4)) > 1)
    numbers = unpack(neurons[value], 4)
    numbers[1] = numbers[0]
    neurons[value] = pack(numbers, 4)


def neurons_of_no_relu(document: dict[str, Any]) -> None:
    neurons = document["relaxation"]["neurons"]
    document["relaxation"]["neurons"] = {
        "0" if place == 0 else value: text for place, (value, text) in enumerate(neurons.items())
    }


def trees_of_unknown_neurons(document: dict[str, Any]) -> None:
    for trees in document["relaxation"]["hidden"].values():
        trees["sides"] = pack(unpack(trees["sides"], 4) + 1000, 4)
    if not document["relaxation"]["hidden"]:
        document["relaxation"]["hidden"] = {"1": {"sides": pack(np.array([2000]), 4), **written([Leaf([], [], 0)])}}


def raise_the_radius(document: dict[str, Any]) -> None:
    document["radius"] *= 1.001


def raise_it_with_other_slopes(document: dict[str, Any]) -> None:
    document["radius"] *= 1.001
    chance = random.Random(0)

    def other(leaf: Leaf) -> Leaf:
        return replace(leaf, slopes=[chance.randrange(2**20 + 1) for _ in leaf.slopes])

    change_rows(document, lambda trees: [each_leaf(tree, other) for tree in trees])


def change_the_label(document: dict[str, Any]) -> None:
    document["rows"][0] = [-number for number in document["rows"][0]]


def no_margin(document: dict[str, Any]) -> None:
    document["rows"][0] = [0.0] * len(document["rows"][0])


def a_larger_margin(document: dict[str, Any]) -> None:
    document["offsets"] = [offset - 0.05 for offset in document["offsets"]]


def a_row_without_offset(document: dict[str, Any]) -> None:
    document["offsets"].pop()


def one_more_row(document: dict[str, Any]) -> None:
    document["rows"].append(document["rows"][0])
    document["offsets"].append(0.0)


def everything_moves_farther(document: dict[str, Any]) -> None:
    document["scale"] = [1.02] * len(document["image"]["values"])


def a_negative_scale(document: dict[str, Any]) -> None:
    document["scale"] = [-1.0] * len(document["image"]["values"])


def a_short_scale(document: dict[str, Any]) -> None:
    document["scale"] = [0.0]


def a_box_upside_down(document: dict[str, Any]) -> None:
    document["box"].reverse()


def a_short_box(document: dict[str, Any]) -> None:
    document["box"][0].pop()


def a_stronger_norm(document: dict[str, Any]) -> None:
    assert document["norm"] == "inf"
    move(document, [pixel + 0.3 for pixel in document["image"]["values"]])
    document["box"] = None


def unknown_norm(document: dict[str, Any]) -> None:
    document["norm"] = 3.0


def truth_for_a_norm(document: dict[str, Any]) -> None:
    document["norm"] = True


def image_outside(document: dict[str, Any]) -> None:
    move(document, [99.0, *document["image"]["values"][1:]])


def short_image(document: dict[str, Any]) -> None:
    move(document, document["image"]["values"][:-1])


def another_image(document: dict[str, Any]) -> None:
    document["image"]["values"][0] = math.nextafter(document["image"]["values"][0], 0.0)


def another_digest(document: dict[str, Any]) -> None:
    document["image"]["sha256"] = document["network"]["sha256"]


def no_index(document: dict[str, Any]) -> None:
    del document["image"]["index"]


def an_index_below_zero(document: dict[str, Any]) -> None:
    document["image"]["index"] = -1


def truth_for_an_index(document: dict[str, Any]) -> None:
    document["image"]["index"] = True


def an_image_as_before(document: dict[str, Any]) -> None:
    document["image"] = document["image"]["values"]


def change_leaves(document: dict[str, Any], change: Callable[[Leaf], Leaf]) -> None:
    change_rows(document, lambda trees: [each_leaf(tree, change) for tree in trees])


def no_multipliers(document: dict[str, Any]) -> None:
    change_leaves(document, lambda leaf: replace(leaf, multipliers=[0] * len(leaf.multipliers)))


def huge_multipliers(document: dict[str, Any]) -> None:
    """Such as a negative one would be in four bytes."""
    change_leaves(document, lambda leaf: replace(leaf, multipliers=[2**32 - 1] * len(leaf.multipliers), scale=0))


def steep_slopes(document: dict[str, Any]) -> None:
    change_leaves(document, lambda leaf: replace(leaf, slopes=[2**20 + 1] * len(leaf.slopes)))


def short_slopes(document: dict[str, Any]) -> None:
    trees = document["relaxation"]["rows"]
    trees["slopes"] = pack(unpack(trees["slopes"], 3)[:-1], 3)


def no_base64(document: dict[str, Any]) -> None:
    document["relaxation"]["rows"]["slopes"] += "~~~~"


def numbers_in_a_list(document: dict[str, Any]) -> None:
    document["relaxation"]["rows"]["nodes"] = [0]


def no_rules(document: dict[str, Any]) -> None:
    document["relaxation"]["rules"] = []


def an_unknown_rule(document: dict[str, Any]) -> None:
    document["relaxation"]["rules"][0]["rule"] = "trust me"


def only_intervals(document: dict[str, Any]) -> None:
    document["relaxation"] = {
        "rules": [{"rule": "interval", "scope": "all"}], "neurons": {}, "hidden": {}, "rows": None,
    }  # fmt: skip


def another_inference(document: dict[str, Any]) -> None:
    document["inference"] = "float64"


def infinite_radius(document: dict[str, Any]) -> None:
    document["radius"] = math.inf


def another_format(document: dict[str, Any]) -> None:
    document["format"] = "relucert proof 3"


def another_key(document: dict[str, Any]) -> None:
    document["trust"] = "me"


def one_more_class(document: dict[str, Any]) -> None:
    document["rows"][0].append(0.0)


MUTATIONS = [
        drop_a_node, drop_a_leaf, skip_a_half, leave_a_tree_out, one_more_tree, a_multiplier_more, a_multiplier_less,
        swap_halves, wrong_neurons, twice_by_one_neuron, unknown_neuron, neurons_of_another_network, neurons_twice,
        neurons_of_no_relu, trees_of_unknown_neurons, raise_the_radius, raise_it_with_other_slopes, change_the_label,
        no_margin, a_larger_margin, a_row_without_offset, one_more_row, everything_moves_farther, a_negative_scale,
        a_short_scale, a_box_upside_down, a_short_box, a_stronger_norm, unknown_norm, truth_for_a_norm, image_outside,
        short_image, no_multipliers, huge_multipliers, steep_slopes, short_slopes, no_base64, numbers_in_a_list,
        no_rules, an_unknown_rule, only_intervals, another_inference, infinite_radius, another_format, another_key,
        one_more_class, another_image, another_digest, no_index, an_index_below_zero, truth_for_an_index,
        an_image_as_before,
]  # fmt: skip
