"""The forward driver: a zonotope is propagated from the input through the network, as in DeepZ.

With Fast-Lin's relaxer the bounds are those of the paper's Algorithm 1 (see docs/fast-lin.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from typing_extensions import assert_never

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds, Interval, activation_bounds, propagate
from relucert.bounding.relaxers import Relaxation, Relaxer
from relucert.bounding.zonotope import Zonotope, ZonotopeSteps
from relucert.common.deadline import check_time
from relucert.errors import InputError
from relucert.network import INPUT, Activation, Affine, Network


class Driver(Protocol):
    """Concretises a zonotope, and relaxes an activation."""

    def measure(self, value: int, zonotope: Zonotope) -> Interval:
        """Concretises: the bounds of a value, from its zonotope."""

    def relax(self, value: int, bounds: Interval) -> Relaxation:
        """Parallel lines around the activation that computes a value, from the bounds of its pre-activation."""


def forward(
    network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic, wanted: tuple[int, ...]
) -> Bounds:
    """Bounds of every wanted value and of every pre-activation before it, by a relaxer with parallel lines.

    Network and region are in the arithmetic's dtype.
    """
    if not relaxer.parallel:
        raise InputError("the forward form needs a relaxation with one slope for both lines; use the backward form")
    return propagate_zonotope(network, region, arithmetic, wanted, PlainDriver(network, relaxer, arithmetic))


@dataclass(frozen=True)
class PlainDriver:
    """The plain driver: a value has the bounds of its zonotope, an activation the relaxer's lines."""

    network: Network
    relaxer: Relaxer
    arithmetic: Arithmetic

    def measure(self, value: int, zonotope: Zonotope) -> Interval:
        return zonotope.interval(self.arithmetic)

    def relax(self, value: int, bounds: Interval) -> Relaxation:
        return self.relaxer(self.network.activations[value], bounds, self.arithmetic)


def propagate_zonotope(
    network: Network, region: Region, arithmetic: Arithmetic, wanted: tuple[int, ...], driver: Driver,
    whole: bool = False, most_symbols: int | None = None,
) -> Bounds:  # fmt: skip
    """Propagates a zonotope through the network. Raises TimeUp between two steps once time is over.

    Args:
        whole: Whether the driver needs the coefficients of every value that it measures.
        most_symbols: How many symbols a zonotope may have, about; an activation gets half of what is left of them, for
            its widest relaxations, and the others count as errors (order reduction).
    """
    steps = ZonotopeSteps(network, region, arithmetic, network.inference.rounds or most_symbols is not None)
    values: dict[int, Zonotope] = {}
    bounds: Bounds = {}
    for value, dropped in network.schedule(wanted):
        check_time()
        if value == INPUT:
            values[value] = steps.input()
        elif isinstance(operation := network.node(value).operation, Affine):
            values[value] = steps.affine(value, values, bounds, keep=whole or value not in dropped)
        elif isinstance(operation, Activation):
            source = network.source(value)
            room = None if most_symbols is None else max(0, most_symbols - values[source].symbols) // 2
            values[value] = steps.activation(value, values[source], driver.relax(value, bounds[source]), room)
        else:
            assert_never(operation)
        if value in wanted or value in network.preactivations:
            bounds[value] = driver.measure(value, values[value])
            if network.steep and not arithmetic.recorded:
                bounds[value] = _within_domains(network, region, bounds, value, arithmetic)
        for source in dropped:
            del values[source]
    return bounds


def _within_domains(network: Network, region: Region, bounds: Bounds, value: int, arithmetic: Arithmetic) -> Interval:
    """The bounds of a value; by intervals, too, where a zonotope leaves the domain of an activation that follows, as
    that of a sum of exponentials may leave the reciprocal's."""
    interval = bounds[value]
    left = torch.zeros_like(interval.lower, dtype=torch.bool)
    for activation in network.activations:
        if network.source(activation) == value:
            left |= activation_bounds(network, bounds, activation, arithmetic).lower.isnan()
    if not bool(left.any()):
        return interval
    return interval.meet(propagate(network, region, bounds, value, arithmetic), left)
