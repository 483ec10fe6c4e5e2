"""Bounds of the hidden layers (intermediate bounds), by whichever driver takes fewer multiplications."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds, TracedBounds, propagate
from relucert.bounding.layerwise import enclose
from relucert.bounding.reduced_path import ReducedPath
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import Relaxer
from relucert.bounding.signs import bound_signs
from relucert.bounding.window_zonotopes import WindowZonotopes
from relucert.network import Network


def hidden_bounds(network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic) -> Bounds:
    """Bounds of every pre-activation by a relaxer: forward, or backward as far as it takes to tell signs."""
    if not network.preactivations:
        return {}
    if relaxer.parallel and network.suits_forward:
        return forward(network, region, relaxer, arithmetic, network.preactivations)
    return _signed(network, region, relaxer, arithmetic)


def _signed(network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic) -> TracedBounds:
    """Bounds that tell signs of every pre-activation, layer after layer, by intervals first."""
    bounds, tight = Bounds(), dict[int, Tensor]()
    reduced = ReducedPath(network, region, relaxer, arithmetic)
    # Proof files say that neurons are pulled back, and only until their signs are known.
    ahead = relaxer.parallel and not relaxer.flat and not arithmetic.recorded
    zonotopes = WindowZonotopes(network, region, relaxer, arithmetic) if ahead else None
    for value in network.preactivations:
        numbers = network.pull_counts[value].numbers if value in network.pull_counts else None
        if network.activation_depths[value]:
            by_intervals = propagate(reduced.path.network, region, reduced.path.bounds, value, arithmetic)
            unstable = ~network.stable(value, *by_intervals)
            if zonotopes is not None and zonotopes.suit(value, unstable, bounds):
                neurons = torch.arange(network.sizes[value])
                bounds[value] = by_intervals.replaced(neurons, zonotopes.interval(value, bounds), unstable)
                tight[value] = torch.stack([unstable, unstable], 1)
            else:
                bounds[value], tight[value] = bound_signs(reduced.path, value, by_intervals, numbers=numbers)
        else:
            bounds[value] = enclose(reduced.path, value, numbers=numbers)
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
