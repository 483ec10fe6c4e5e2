"""Bounds of all pre-activations in the order of the graph, by a rule such as CROWN's: its lines follow from bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import torch
from torch import Tensor

from relucert.checker.activations import is_activation
from relucert.checker.entries import require
from relucert.checker.fixed_point import Fixed
from relucert.checker.lines import BOUND_BITS, ChosenLines, IntegerInterval, adaptive, on_grid
from relucert.checker.noise import PRECISIONS, check_evaluation, noise
from relucert.checker.relaxation import FixedRelaxation
from relucert.checker.trees import BoundingRule
from relucert.network import Network


class ValueBounds:
    """The bounds of pre-activations as far as they are known, and with them the noise of the values before.

    Attributes:
        relaxation: The network over a region, with the noise of all values so far.
        bounds: By pre-activation.
    """

    def __init__(self, relaxation: FixedRelaxation, inference: str, rule: BoundingRule) -> None:
        """inference: what the network is evaluated in; rule: whose lines bound values that are no pre-activations."""
        self._noise: dict[int, Fixed] = {}
        self.relaxation = replace(relaxation, noise=self._noise)
        self.bounds: dict[int, IntegerInterval] = {}
        self._precision, self._rule = PRECISIONS[inference], rule
        if self._precision is not None:
            check_evaluation(relaxation.network, inference, self._precision)
            accounted = relaxation.error is not None or not relaxation.smooth
            require(accounted, "it does not say what evaluations of activations may be off")

    def run(self, hidden: Callable[[int], IntegerInterval]) -> None:
        """Bounds all pre-activations in order, each by a function that may use the bounds before it."""
        network = self.relaxation.network
        for value in range(network.output + 1):
            if value in self.relaxation.layers and self._precision is not None:
                lost = noise(network.node(value), self.relaxation.layers[value], self._sizes, self._precision)
                if lost is not None:
                    self._noise[value] = lost
            if value in network.preactivations:
                self.bounds[value] = hidden(value)

    def _sizes(self, value: int) -> list[Fraction]:
        """How large the coordinates of a value may be in absolute value, as it is computed."""
        if value == 0:
            return self.relaxation.region.sizes
        network = self.relaxation.network
        node = network.node(value)
        if node.operation.name == "relu":
            return [Fraction(max(0, high), 1 << BOUND_BITS) for high in self.bounds[node.inputs[0]].upper]
        if value in self.relaxation.smooth:
            sizes = self.relaxation.enclosed(value, self.bounds).sizes
            return [Fraction(size, 1 << BOUND_BITS) for size in sizes]
        interval = self.bounds.get(value)
        if interval is None:
            lines = rule_lines(self.relaxation, self.bounds, self._rule)
            interval = self.relaxation.enclose(value, self.bounds, lines)
            interval = interval.met(self.relaxation.enclose(value, self.bounds, ChosenLines(flat=True)))
        ends = zip(interval.lower, interval.upper, strict=True)
        return [Fraction(max(-low, high), 1 << BOUND_BITS) for low, high in ends]


def rule_bounds(relaxation: FixedRelaxation, rule: BoundingRule, inference: str) -> dict[int, IntegerInterval]:
    """The bounds of every pre-activation by a rule, each from those before it."""
    value_bounds = ValueBounds(relaxation, inference, rule)
    value_bounds.run(lambda value: _hidden(value_bounds.relaxation, value, value_bounds.bounds, rule))
    return value_bounds.bounds


def rule_lines(relaxation: FixedRelaxation, bounds: dict[int, IntegerInterval], rule: BoundingRule) -> ChosenLines:
    """The lines of all activations whose bounds are known."""
    if rule.name == "interval":
        return ChosenLines(flat=True)
    steps = [(value, node) for value, node in relaxation.network.steps() if is_activation(node)]
    intervals = {value: bounds[node.inputs[0]] for value, node in steps if node.inputs[0] in bounds}
    smooth = {value: rule_slopes(relaxation, rule, value) for value in intervals if value in relaxation.smooth}
    require(rule.name in ("fast-lin", "crown"), f"the rule {rule.name} has no lines that are known")
    adaptives = intervals.items() if rule.name == "crown" else ()
    slopes = {value: adaptive(interval) for value, interval in adaptives if value not in smooth}
    return ChosenLines(slopes, smooth=smooth)


def rule_slopes(relaxation: FixedRelaxation, rule: BoundingRule, value: int) -> tuple[Tensor, Tensor]:
    """The slopes that a rule gives for the lines below and above a smooth activation."""
    tables, size = rule.slopes.get(value), relaxation.network.sizes[value]
    require(tables is not None, f"the rule {rule.name} has no slopes of the activation at value {value}")
    assert tables is not None
    require(all(len(table) == size for table in tables), f"value {value} has another number of neurons than of slopes")
    below, above = (on_grid(torch.tensor(table, dtype=torch.float64)) for table in (tables[0], tables[-1]))
    return below, above


def _hidden(
    relaxation: FixedRelaxation, value: int, bounds: dict[int, IntegerInterval], rule: BoundingRule
) -> IntegerInterval:
    """The bounds of a pre-activation, by the rule's lines, or by intervals where these tell a neuron's sign."""
    network = relaxation.network
    lines = rule_lines(relaxation, bounds, rule)
    every = rule.scope == "all" or (rule.scope == "inner" and value in _last(network))
    if every or not network.activation_depths[value]:
        return relaxation.enclose(value, bounds, lines)
    interval = relaxation.enclose(value, bounds, ChosenLines(flat=True))
    if any(network.source(activation) == value for activation in relaxation.smooth):
        return interval.met(relaxation.enclose(value, bounds, lines))
    if rule.scope == "signs":
        return relaxation.settle(value, bounds, lines, interval)
    neurons = interval.unstable.nonzero().flatten().tolist()
    return interval.replaced(neurons, relaxation.enclose(value, bounds, lines, neurons)) if neurons else interval


def _last(network: Network) -> set[int]:
    """The pre-activations on which no other one depends."""
    before: set[int] = set()
    for value in network.preactivations:
        before |= network.ancestors((value,)) - {value}
    return set(network.preactivations) - before
