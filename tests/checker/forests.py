"""The trees of proof files, taken apart and put together again, for tests that change them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relucert.checker.packing import pack, unpack
from relucert.checker.trees import SCALE_ZERO


@dataclass(frozen=True)
class Leaf:
    """multipliers: one for every split on the way from the root."""

    slopes: list[int]
    multipliers: list[int]
    scale: int


@dataclass(frozen=True)
class Split:
    place: int
    halves: tuple[Tree, Tree]


Tree = Leaf | Split


def grown(entry: dict[str, str]) -> list[Tree]:
    """All trees of an entry of a file."""
    nodes, scales = unpack(entry["nodes"], 4).tolist(), unpack(entry["scales"], 2).tolist()
    slopes = unpack(entry["slopes"], 3).reshape(len(scales), -1).tolist()
    multipliers = unpack(entry["multipliers"], 4).tolist()

    def grow(depth: int) -> Tree:
        node = nodes.pop(0)
        if node:
            return Split(node - 1, (grow(depth + 1), grow(depth + 1)))
        taken = [multipliers.pop(0) for _ in range(depth)]
        return Leaf(slopes.pop(0), taken, scales.pop(0) - SCALE_ZERO)

    trees = []
    while nodes:
        trees.append(grow(0))
    return trees


def written(trees: list[Tree]) -> dict[str, str]:
    """The entry of such trees."""
    nodes: list[int] = []
    leaves: list[Leaf] = []

    def visit(tree: Tree) -> None:
        if isinstance(tree, Leaf):
            nodes.append(0)
            leaves.append(tree)
        else:
            nodes.append(tree.place + 1)
            for half in tree.halves:
                visit(half)

    for tree in trees:
        visit(tree)
    flat = {
        "nodes": (nodes, 4), "scales": ([leaf.scale + SCALE_ZERO for leaf in leaves], 2),
        "slopes": ([slope for leaf in leaves for slope in leaf.slopes], 3),
        "multipliers": ([number for leaf in leaves for number in leaf.multipliers], 4),
    }  # fmt: skip
    return {name: pack(np.asarray(numbers, dtype=np.int64), width) for name, (numbers, width) in flat.items()}


def change_rows(document: dict[str, Any], change: Any) -> None:
    """Puts other trees into the place of those about the rows."""
    relaxation = document["relaxation"]
    relaxation["rows"] = written(change(grown(relaxation["rows"])))


def first_split(trees: list[Tree]) -> int:
    """The first tree that is split."""
    return next(place for place, tree in enumerate(trees) if isinstance(tree, Split))


def each_leaf(tree: Tree, change: Any) -> Tree:
    """A tree with other leaves."""
    if isinstance(tree, Leaf):
        changed: Leaf = change(tree)
        return changed
    first, second = tree.halves
    return replace(tree, halves=(each_leaf(first, change), each_leaf(second, change)))


def swapped(tree: Tree) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    first, second = tree.halves
    return replace(tree, halves=(swapped(second), swapped(first)))


def without_root(tree: Tree) -> Tree:
    """The half of a tree in which its first neuron is not negative, in the place of the whole."""
    assert isinstance(tree, Split)
    return each_leaf(tree.halves[0], lambda leaf: replace(leaf, multipliers=leaf.multipliers[1:]))
