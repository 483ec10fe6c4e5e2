"""The bounds that prove a proof file's claim, as it describes them: rules, and trees of ReLU splits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from relucert.checker.entries import as_list, as_text, require
from relucert.checker.packing import Whole, unpack, unpack_floats

RULES = ("interval", "fast-lin", "crown")
SLOPE_BITS = 20  # behind the point, of slopes in a file
SCALE_ZERO = 2**15  # what is added to scales in a file, where no number is negative
MOST_TREES = 2  # of a neuron's bound: that of an ascent, and that of a program

Scope = Literal["all", "inner", "signs"]


@dataclass(frozen=True)
class BoundingRule:
    """How all neurons are bounded, layer after layer, each from the bounds that the same rule gave those before.

    Attributes:
        name: One of `RULES`.
        scope: Which neurons after the first layer of ReLUs are bounded by lines: "all"; those that are unstable by IBP
            ("signs"); these, and all of pre-activations on which no other one depends ("inner"). The neurons of smooth
            activations always are.
        slopes: By the value of a smooth activation, the slopes of lines around it: one table for both lines, or one for
            those below and one for those above.
    """

    name: str
    scope: Scope
    slopes: Mapping[int, Sequence[Sequence[float]]] = field(default_factory=dict, compare=False)


class TreeLeaf(NamedTuple):
    """A leaf of a tree.

    Attributes:
        form: The number of the tree.
        leaf: The number of the leaf.
        signs: The columns of the neurons that it is split by, each with 1 (active) or -1 (inactive).
        multipliers: How many times each of these neurons is subtracted (beta), in units of 2**-scale.
        scale: A whole number.
    """

    form: int
    leaf: int
    signs: tuple[tuple[int, int], ...]
    multipliers: tuple[int, ...]
    scale: int


@dataclass(frozen=True, eq=False)
class Trees:
    """One tree of ReLU splits per form. Its leaves are subdomains, in which some neurons have known signs.

    The column of a neuron is its index among all neurons that have slopes.

    Attributes:
        nodes: The nodes of all trees, one tree after the other, each before its two subtrees, the active one first: 0
            for a leaf, else 1 plus the column of the neuron that it is split by.
        slopes: The slopes of lower lines in units of 2**-20, for every leaf those of all neurons before the form's
            value: (leaves, neurons).
        multipliers: The multipliers of the split neurons, leaf after leaf, each from the root downwards.
        scales: One for each leaf, the power of two by which its multipliers are divided.
    """

    nodes: Whole
    slopes: Whole
    multipliers: Whole
    scales: Whole

    def leaves(self, count: int) -> Iterator[TreeLeaf]:
        """The leaves of `count` trees; refuses trees that are cut off, and nodes or multipliers beyond them."""
        nodes, width = iter(self.nodes.tolist()), self.slopes.shape[1]
        multipliers, scales = self.multipliers.tolist(), self.scales.tolist()
        leaf = used = 0
        for form in range(count):
            waiting: list[tuple[tuple[int, int], ...]] = [()]
            while waiting:
                signs, node = waiting.pop(), next(nodes, None)
                require(node is not None, "a tree is cut off")
                if node:
                    require(node <= width, "a node is split by a neuron that has no slopes there")
                    require(all(column != node - 1 for column, _ in signs), "a node is split by one neuron twice")
                    waiting += [(*signs, (node - 1, sign)) for sign in (-1, 1)]
                    continue
                leaf_multipliers = tuple(multipliers[used : used + len(signs)])
                require(len(leaf_multipliers) == len(signs), "a leaf has no multipliers")
                yield TreeLeaf(form, leaf, signs, leaf_multipliers, scales[leaf])
                leaf, used = leaf + 1, used + len(signs)
        require(next(nodes, None) is None, "there are more trees than forms")
        require(used == len(multipliers), "there are more multipliers than known signs")


@dataclass(frozen=True, eq=False)
class NeuronTrees:
    """Trees about bounds of single neurons of a pre-activation, each with the sign 1 or, for its negative, -1."""

    neurons: list[int]
    signs: list[int]
    trees: Trees


@dataclass(frozen=True, eq=False)
class RelaxationEntry:
    """The rules and trees by which a proof bounds neurons and rows.

    Attributes:
        rules: A neuron's bound is the best of those by the rules and by its trees.
        neurons: By pre-activation, in order, the neurons that have slopes.
        hidden: By pre-activation, the trees that bound single neurons.
        rows: One tree for each row of the claim; None: the lines of the only rule bound the rows.
        ranges: By the value of a smooth activation, between which two slopes, lists of one per neuron, those of trees
            lie: trees have shares, 0 for the first and 1 for the second.
    """

    rules: list[BoundingRule]
    neurons: dict[int, list[int]]
    hidden: dict[int, NeuronTrees]
    rows: Trees | None
    ranges: Mapping[int, tuple[list[float], list[float]]] = field(default_factory=dict)

    @property
    def columns(self) -> list[tuple[int, int]]:
        """All neurons that have slopes: the pre-activation, and the index in it."""
        return [(value, neuron) for value, neurons in self.neurons.items() for neuron in neurons]

    @property
    def nodes(self) -> int:
        """The number of nodes of the rows' trees."""
        return 0 if self.rows is None else len(self.rows.nodes)


def by_rule(rule: BoundingRule) -> RelaxationEntry:
    """The relaxation by which one rule bounds all neurons and rows."""
    return RelaxationEntry([rule], {}, {}, None)


def read_relaxation(entry: dict[str, Any]) -> RelaxationEntry:
    """Every entry of the right kind and length; whether its neurons are those of a network is not checked here."""
    require(set(entry) - {"ranges"} == {"rules", "neurons", "hidden", "rows"}, "its relaxation has other entries")
    rules = [_rule(rule) for rule in as_list(entry["rules"])]
    require(len(set(rules)) == len(rules), "a rule stands twice")
    neurons = {int(value): unpack(as_text(numbers), 4).tolist() for value, numbers in entry["neurons"].items()}
    require(list(neurons) == sorted(neurons), "its neurons are not in the order of the network")
    hidden = {}
    for text, trees in entry["hidden"].items():
        width = sum(len(numbers) for value, numbers in neurons.items() if value < int(text))
        bound_numbers = unpack(as_text(trees["sides"]), 4)
        counts = np.unique(bound_numbers, return_counts=True)[1]
        require(bool((counts <= MOST_TREES).all()), f"a bound of a neuron has more than {MOST_TREES} trees")
        forest = {name: packed for name, packed in trees.items() if name != "sides"}
        signs = np.where(bound_numbers % 2 == 0, 1, -1).tolist()
        hidden[int(text)] = NeuronTrees((bound_numbers // 2).tolist(), signs, _trees(forest, width))
    total = sum(len(numbers) for numbers in neurons.values())
    rows = None if entry["rows"] is None else _trees(entry["rows"], total)
    require(bool(rules) and (rows is not None or len(rules) == 1), "its rows have neither trees nor one rule")
    require(rows is not None or not hidden, "its rows have no trees, and its neurons have some")
    ranges = {int(value): _range(as_list(tables)) for value, tables in entry.get("ranges", {}).items()}
    return RelaxationEntry(rules, neurons, hidden, rows, ranges)


def _range(tables: list[Any]) -> tuple[list[float], list[float]]:
    least, largest = (_numbers(table) for table in tables)
    return least, largest


def _rule(entry: dict[str, Any]) -> BoundingRule:
    require(set(entry) - {"slopes"} in ({"rule", "scope"}, {"rule", "by_intervals"}), "a rule has other entries")
    require(entry["rule"] in RULES, "a rule is none that is known")
    return BoundingRule(entry["rule"], scope_of(entry), smooth_slopes_of(entry))


def smooth_slopes_of(entry: dict[str, Any]) -> dict[int, list[list[float]]]:
    """The `slopes` of a rule."""
    tables_by_value = entry.get("slopes", {}).items()
    slopes = {int(value): [_numbers(table) for table in as_list(tables)] for value, tables in tables_by_value}
    require(all(len(tables) in (1, 2) for tables in slopes.values()), "a rule has neither one nor two lists of slopes")
    return slopes


def _numbers(text: Any) -> list[float]:
    numbers = unpack_floats(as_text(text))
    require(all(math.isfinite(number) for number in numbers), "a slope is no number")
    return numbers


def scope_of(entry: dict[str, Any]) -> Scope:
    """The scope of a rule; files of earlier versions say in its place whether inner neurons go by intervals first."""
    if "by_intervals" in entry:
        require(type(entry["by_intervals"]) is bool, "by_intervals is neither true nor false")
        return "inner" if entry["by_intervals"] else "all"
    require(entry["scope"] in ("all", "signs"), "the scope of a rule is none that is known")
    return "all" if entry["scope"] == "all" else "signs"


def _trees(entry: dict[str, Any], width: int) -> Trees:
    require(set(entry) == {"nodes", "slopes", "multipliers", "scales"}, "trees have other entries")
    nodes, slopes = unpack(as_text(entry["nodes"]), 4), unpack(as_text(entry["slopes"]), 3)
    multipliers, scales = unpack(as_text(entry["multipliers"]), 4), unpack(as_text(entry["scales"]), 2) - SCALE_ZERO
    leaves = int((nodes == 0).sum())
    require(len(scales) == leaves and len(slopes) == leaves * width, "leaves have not one slope for every neuron each")
    require(not slopes.size or int(slopes.max()) <= 1 << SLOPE_BITS, "a slope is above 1")
    return Trees(nodes, slopes.reshape(leaves, width), multipliers, scales)
