"""Proofs by linear relaxation whose lines follow from a rule: everything is computed anew from the question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import torch

from relucert.checker.document import BoundProof
from relucert.checker.fixed_point import Fixed
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.lines import BOUND_BITS, Interval, Lines, adaptive
from relucert.checker.noise import PRECISIONS, Precision, check_evaluation, noise, rounds
from relucert.checker.relaxation import Relaxation
from relucert.network import Network


@dataclass(frozen=True, eq=False)
class RuleBounds:
    """What the rule of a proof says of a network over the proof's region.

    Attributes:
        bounds: Those of every pre-activation.
    """

    relaxation: Relaxation
    proof: BoundProof
    bounds: dict[int, Interval]

    @classmethod
    def of(cls, network: Network, proof: BoundProof) -> RuleBounds:
        """Value by value in the order of the graph: what comes before one is known."""
        region = FixedRegion.ball(proof.image, proof.norm, proof.radius, proof.box, proof.scale)
        precision = PRECISIONS[proof.inference]
        if precision is not None:
            check_evaluation(network, proof.inference, precision)
        added: dict[int, Fixed] = {}
        relaxation = replace(Relaxation.of(network, region), noise=added)
        found = cls(relaxation, proof, {})
        for value in range(network.output + 1):
            if value in relaxation.layers and precision is not None:
                found._add_noise(value, added, precision)
            if value in network.rectified:
                found.bounds[value] = _hidden(relaxation, value, found.bounds, proof)
        return found

    def _add_noise(self, value: int, added: dict[int, Fixed], precision: Precision) -> None:
        node = self.relaxation.network.nodes[value - 1]
        if not rounds(node, precision):
            return
        sizes = [self._sizes(source) for source in node.inputs]
        lost = noise(node, self.relaxation.layers[value], sizes, precision)
        if lost is not None:
            added[value] = lost

    def _sizes(self, value: int) -> list[Fraction]:
        """How large the coordinates of a value may be in absolute value, as it is computed."""
        if value == 0:
            return self.relaxation.region.sizes
        network = self.relaxation.network
        node = network.nodes[value - 1]
        if node.operation.name == "relu":
            return [Fraction(max(0, high), 1 << BOUND_BITS) for high in self.bounds[node.inputs[0]].upper]
        interval = self.bounds.get(value)
        if interval is None:
            lines = _lines(network, self.bounds, self.proof.rule)
            interval = self.relaxation.enclose(value, self.bounds, lines)
            interval = interval.met(self.relaxation.enclose(value, self.bounds, Lines(flat=True)))
        ends = zip(interval.lower, interval.upper, strict=True)
        return [Fraction(max(-low, high), 1 << BOUND_BITS) for low, high in ends]

    def margins(self) -> list[Fraction]:
        """Lower bounds of the proof's rows, plus their offsets."""
        network = self.relaxation.network
        rows = torch.tensor(self.proof.rows, dtype=torch.float64)
        lines = _lines(network, self.bounds, self.proof.rule)
        least = self.relaxation.least(network.output, rows, self.bounds, lines)
        return [
            Fraction(number, 1 << BOUND_BITS) + Fraction(offset)
            for number, offset in zip(least, self.proof.offsets, strict=True)
        ]


def least_margins(network: Network, proof: BoundProof) -> list[Fraction]:
    """Lower bounds of the proof's rows, plus their offsets, over its region."""
    return RuleBounds.of(network, proof).margins()


def _hidden(relaxation: Relaxation, value: int, bounds: dict[int, Interval], proof: BoundProof) -> Interval:
    """The bounds of a pre-activation, by the rule's lines, or by intervals where these tell a neuron's sign."""
    network = relaxation.network
    lines = _lines(network, bounds, proof.rule)
    if not proof.by_intervals or not network.relu_depths[value] or value in _last(network):
        return relaxation.enclose(value, bounds, lines)
    interval = relaxation.enclose(value, bounds, Lines(flat=True))
    neurons = interval.unstable.nonzero().flatten().tolist()
    return interval.replaced(neurons, relaxation.enclose(value, bounds, lines, neurons)) if neurons else interval


def _lines(network: Network, bounds: dict[int, Interval], rule: str) -> Lines:
    if rule != "crown":
        return Lines(flat=rule == "interval")
    slopes = {
        value: adaptive(bounds[node.inputs[0]])
        for value, node in network.steps()
        if node.operation.name == "relu" and node.inputs[0] in bounds
    }
    return Lines(slopes)


def _last(network: Network) -> set[int]:
    """The pre-activations on which no other one depends."""
    before: set[int] = set()
    for value in network.rectified:
        before |= network.ancestors((value,)) - {value}
    return set(network.rectified) - before
