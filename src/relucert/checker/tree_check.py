"""Bounds by rules and by trees of ReLU splits: a proof's relaxation, computed anew in fixed point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import islice

import torch
from torch import Tensor

from relucert.checker.claim import RadiusClaim
from relucert.checker.entries import require
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.lines import BOUND_BITS, SLOPE_BITS, ChosenLines, IntegerInterval, on_grid
from relucert.checker.noise import activation_error
from relucert.checker.relaxation import FixedRelaxation
from relucert.checker.rules import ValueBounds, rule_bounds, rule_lines
from relucert.checker.trees import NeuronTrees, RelaxationEntry, TreeLeaf, Trees
from relucert.network import Network

SIGNLESS = "a node is split by the sign of a neuron of a smooth activation"
NUMBERS = 2**22  # entries of the tables of leaves that are bounded at once, which bounds memory


@dataclass(eq=False)
class TreeCheck:
    """Checks the trees of a proof over a region, by the relaxation that the proof describes.

    Attributes:
        relaxation: The network over the region.
        described: The rules and trees of the proof.
        rows: The forms on the outputs that are to be positive, (rows, classes) in float64.
        offsets: The offsets that are added to the rows.
        inference: The precision that the network is evaluated in.
        progress: Called with the number of leaves done, and with that of all leaves.
    """

    relaxation: FixedRelaxation
    described: RelaxationEntry
    rows: Tensor
    offsets: Sequence[Fraction]
    inference: str = "real"
    progress: Callable[[int, int], None] | None = None
    done: int = 0
    bounds: dict[int, IntegerInterval] = field(default_factory=dict)

    @classmethod
    def of(
        cls, network: Network, claim: RadiusClaim, described: RelaxationEntry,
        progress: Callable[[int, int], None] | None = None,
    ) -> TreeCheck:  # fmt: skip
        """The check of a claim about an image."""
        region = FixedRegion.ball(claim.image, claim.norm, claim.radius, claim.box, claim.scale)
        rows = torch.tensor(claim.rows, dtype=torch.float64)
        offsets = [Fraction(offset) for offset in claim.offsets]
        relaxation = FixedRelaxation.of(network, region)
        if claim.activation_ulps is not None:
            relaxation = replace(relaxation, error=activation_error(claim.inference, claim.activation_ulps))
        require(relaxation.error is None or bool(relaxation.smooth), "it has units of activations that there are not")
        return cls(relaxation, described, rows, offsets, claim.inference, progress)

    def __post_init__(self) -> None:
        network = self.relaxation.network
        for value, neurons in self.described.neurons.items():
            valid = value in network.preactivations and all(0 <= neuron < network.sizes[value] for neuron in neurons)
            require(valid and len(set(neurons)) == len(neurons), "it has slopes of neurons that the network lacks")
        for value, entry in self.described.hidden.items():
            valid = value in network.preactivations and all(neuron < network.sizes[value] for neuron in entry.neurons)
            require(valid, "it has trees about neurons that the network does not have")
        for rule in self.described.rules:
            relaxed = set() if rule.name == "interval" else set(self.relaxation.smooth)
            require(set(rule.slopes) <= relaxed, "a rule has slopes of activations that need none")
        self.columns = self.described.columns
        self.relus: dict[int, list[int]] = {value: [] for value in network.preactivations}
        for value, node in network.steps():
            if node.operation.name == "relu":
                self.relus[node.inputs[0]].append(value)
        self._check_ranges()
        trees = [entry.trees for entry in self.described.hidden.values()]
        trees += [] if self.described.rows is None else [self.described.rows]
        self.leaves = sum(len(forest.scales) for forest in trees)

    def _check_ranges(self) -> None:
        """Refuses trees whose ranges of slopes are not those of all neurons of all smooth activations."""
        network, ranges, smooth = self.relaxation.network, self.described.ranges, self.relaxation.smooth
        needed = set() if self.described.rows is None else set(smooth)
        require(set(ranges) == needed, "it has no ranges of the slopes of smooth activations, or of others")
        for value, tables in ranges.items():
            source, size = network.source(value), network.sizes[value]
            fits = all(len(table) == size for table in tables)
            require(fits, f"value {value} has another number of neurons than ranges")
            listed = self.described.neurons.get(source, []) == list(range(size))
            alone = not self.relus[source] and len(self._smooth_on(source)) == 1
            require(listed and alone, f"the neurons before the activation at value {value} have no slopes of their own")

    def margins(self) -> list[Fraction]:
        """Lower bounds of the rows, plus their offsets."""
        network = self.relaxation.network
        ruled = [rule_bounds(self.relaxation, rule, self.inference) for rule in self.described.rules]
        value_bounds = ValueBounds(self.relaxation, self.inference, self.described.rules[0])
        self.relaxation, self.bounds = value_bounds.relaxation, value_bounds.bounds

        def hidden(value: int) -> IntegerInterval:
            interval = reduce(IntegerInterval.met, [bounds[value] for bounds in ruled])
            trees = self.described.hidden.get(value)
            return interval if trees is None else self._improved(value, interval, trees)

        value_bounds.run(hidden)
        if self.described.rows is None:
            lines = rule_lines(self.relaxation, self.bounds, self.described.rules[0])
            least = self.relaxation.least(network.output, self.rows, self.bounds, lines)
        else:
            least = self._least(network.output, self.rows, self.described.rows)
        return [Fraction(number, 1 << BOUND_BITS) + offset for number, offset in zip(least, self.offsets, strict=True)]

    def _improved(self, value: int, interval: IntegerInterval, entry: NeuronTrees) -> IntegerInterval:
        """Intersects bounds with those that trees prove of single neurons."""
        neurons = torch.tensor(entry.neurons, dtype=torch.long)
        forms = torch.zeros(len(neurons), self.relaxation.network.sizes[value], dtype=torch.float64)
        forms[torch.arange(len(neurons)), neurons] = torch.tensor(entry.signs, dtype=torch.float64)
        return interval.raised(entry.neurons, entry.signs, self._least(value, forms, entry.trees))

    def _least(self, value: int, forms: Tensor, trees: Trees) -> list[int]:
        """The least bound over the leaves of every form's tree, integers over 2**64."""
        least: dict[int, int] = {}
        leaves = trees.leaves(len(forms))
        step = max(1, NUMBERS // (1 + sum(self.relaxation.network.sizes[: value + 1])))
        while chunk := list(islice(leaves, step)):
            lines = self._lines(value, trees, chunk)
            leaf_forms = forms[torch.tensor([leaf.form for leaf in chunk])]
            bounds = self.relaxation.least(value, leaf_forms, self.bounds, lines)
            for leaf, number in zip(chunk, bounds, strict=True):
                least[leaf.form] = min(number, least.get(leaf.form, number))
            self.done += len(chunk)
            if self.progress is not None:
                self.progress(self.done, self.leaves)
        require(len(least) == len(forms), "a form has no tree")
        return [least[form] for form in range(len(forms))]

    def _lines(self, value: int, trees: Trees, leaves: Sequence[TreeLeaf]) -> ChosenLines:
        """The slopes, signs and multipliers of a chunk of leaves."""
        sizes, count = self.relaxation.network.sizes, len(leaves)
        leaf_slopes = torch.from_numpy(trees.slopes[[leaf.leaf for leaf in leaves]])
        slopes: dict[int, Tensor] = {}
        smooth: dict[int, tuple[Tensor, Tensor]] = {}
        first = 0
        for source in self.bounds:
            neurons = self.described.neurons.get(source, [])
            table = torch.full((count if neurons else 1, sizes[source]), -1, dtype=torch.int64)
            if neurons:
                table[:, neurons] = leaf_slopes[:, first : first + len(neurons)]
            first += len(neurons)
            slopes |= dict.fromkeys(self.relus[source], table if neurons else table[0])
            smooth |= {value: self._between(value, table) for value in self._smooth_on(source)}
        signs: dict[int, Tensor] = {}
        multipliers: dict[int, Tensor] = {}
        for row, leaf in enumerate(leaves):
            for (column, sign), units in zip(leaf.signs, leaf.multipliers, strict=True):
                source, neuron = self.columns[column]
                require(bool(self.relus[source]), SIGNLESS)
                if source not in signs:
                    signs[source] = torch.zeros(count, sizes[source], dtype=torch.int64)
                    multipliers[self.relus[source][0]] = torch.zeros(count, sizes[source], dtype=torch.float64)
                signs[source][row, neuron] = sign
                multipliers[self.relus[source][0]][row, neuron] = units * 2.0**-leaf.scale
        return ChosenLines(slopes, signs, multipliers, smooth=smooth)

    def _smooth_on(self, source: int) -> list[int]:
        return [value for value in self.relaxation.smooth if self.relaxation.network.source(value) == source]

    def _between(self, value: int, shares: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes of lines around a smooth activation, by shares over 2**20: (leaves, size)."""
        least, largest = torch.tensor(self.described.ranges[value], dtype=torch.float64)
        table = least + shares.double() * 2.0**-SLOPE_BITS * (largest - least)
        slopes = on_grid(torch.cat([least[None], largest[None], table]))[2:]
        return slopes, slopes


def check_rows(margins: Sequence[Fraction]) -> None:
    """Refuses a proof one of whose rows is not above zero."""
    for row, least in enumerate(margins):
        require(least > 0, f"row {row} is not proven to be positive")
