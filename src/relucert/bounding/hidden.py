"""Bounds of the hidden layers (intermediate bounds), by whichever driver takes fewer multiplications."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds, TracedBounds, meet, propagate
from relucert.bounding.layerwise import enclose
from relucert.bounding.narrow import bound_sources
from relucert.bounding.reference import ReducedPath, ReferencePath
from relucert.bounding.relaxers import CROWN, FAST_LIN, Relaxer
from relucert.bounding.signs import bound_signs
from relucert.bounding.window_zonotopes import WindowZonotopes
from relucert.network import Network


class TimedBounds(NamedTuple):
    """Proven bounds of every pre-activation, and the seconds that they took."""

    bounds: Bounds
    seconds: float

    def meet(self, other: TimedBounds) -> TimedBounds:
        """The intersection with further bounds of the same."""
        return TimedBounds(meet(self.bounds, other.bounds), self.seconds + other.seconds)


def cheap_bounds(network: Network, region: Region, arithmetic: Arithmetic) -> TimedBounds:
    """The bounds of every pre-activation: the intersection of Fast-Lin's and CROWN's."""
    started = time.monotonic()
    parallel = TimedBounds(hidden_bounds(network, region, FAST_LIN, arithmetic), 0.0)
    adaptive = TimedBounds(hidden_bounds(network, region, CROWN, arithmetic), time.monotonic() - started)
    return parallel.meet(adaptive)


def hidden_bounds(network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic) -> Bounds:
    """Bounds of every pre-activation by a relaxer: forward, or by intervals and, for unknown signs, backward."""
    if not network.preactivations:
        return {}
    if relaxer.parallel and network.suits_forward:
        return forward(network, region, relaxer, arithmetic, network.preactivations)
    reduced = ReducedPath(network, region, relaxer, arithmetic)
    bounds, tight = reduced.all_bounds, dict[int, Tensor]()
    zonotopes, all_pulled = None, arithmetic.recorded or relaxer.flat  # as proof files say that they are
    # By lines that are not parallel zonotopes only tell signs, as those of smooth activations never are.
    if not all_pulled and (relaxer.parallel or network.rectifiers_only):
        zonotopes = WindowZonotopes(network, region, relaxer if relaxer.parallel else FAST_LIN, arithmetic)
    for value in network.preactivations:
        numbers = network.pull_counts[value].numbers if value in network.pull_counts else None
        sources = Bounds() if all_pulled else bound_sources(reduced, value)
        path = reduced.path
        if value in network.narrow_sources and not all_pulled:
            bounds[value] = propagate(path.network, region, path.bounds, value, arithmetic, ends=sources)
        elif not network.activation_depths[value]:
            bounds[value] = enclose(path, value, numbers=numbers)
        else:
            prior = propagate(path.network, region, path.bounds, value, arithmetic, ends=sources)
            unstable = ~network.stable(value, *prior)
            if zonotopes is None or not zonotopes.suit(value, unstable, bounds):
                bounds[value], tight[value] = bound_signs(path, value, prior, numbers=numbers)
            else:
                by_zonotope = prior.meet(zonotopes.interval(value, bounds), unstable)
                if relaxer.parallel:
                    bounds[value], tight[value] = by_zonotope, torch.stack([unstable, unstable], 1)
                else:
                    prior = prior.meet(by_zonotope, unstable & network.stable(value, *by_zonotope))
                    bounds[value], tight[value] = bound_signs(path, value, prior, numbers=numbers)
        reduced.add(value, bounds[value], cut=value != network.preactivations[-1])
    return TracedBounds(bounds, tight, reduced)


def reference_path(
    network: Network, region: Region, hidden: Bounds, relaxer: Relaxer, arithmetic: Arithmetic
) -> ReferencePath:
    """The path with these hidden bounds: the one that they were found on, where that was by the same lines."""
    reduced = hidden.reduced if isinstance(hidden, TracedBounds) else None
    if reduced is not None and reduced.whole is network and reduced.path.region is region:
        unchanged = all(reduced.all_bounds[value] is interval for value, interval in hidden.items())
        if unchanged and reduced.path.relaxer is relaxer and reduced.path.arithmetic is arithmetic:
            return reduced.path
    return ReferencePath(network, region, hidden, relaxer, arithmetic)
