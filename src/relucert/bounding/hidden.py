"""Bounds of the hidden layers (intermediate bounds), by whichever driver takes fewer multiplications."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.forward import forward
from relucert.bounding.interval import Bounds, TracedBounds, propagate
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReducedPath, ReferencePath
from relucert.bounding.relaxers import FAST_LIN, Relaxer
from relucert.bounding.signs import bound_signs
from relucert.bounding.window_zonotopes import WindowZonotopes
from relucert.network import Network


def hidden_bounds(network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic) -> Bounds:
    """Bounds of every pre-activation by a relaxer: forward, or by intervals and, for unknown signs, backward."""
    if not network.preactivations:
        return {}
    if relaxer.parallel and network.suits_forward:
        return forward(network, region, relaxer, arithmetic, network.preactivations)
    bounds, tight = Bounds(), dict[int, Tensor]()
    reduced = ReducedPath(network, region, relaxer, arithmetic)
    zonotopes = None
    # By lines that are not parallel zonotopes only tell signs, as those of smooth activations never are. Proof files
    # say that neurons are pulled back, and that no other lines tell their signs.
    if not (arithmetic.recorded or relaxer.flat) and (relaxer.parallel or network.rectifiers_only):
        zonotopes = WindowZonotopes(network, region, relaxer if relaxer.parallel else FAST_LIN, arithmetic)
    for value in network.preactivations:
        numbers = network.pull_counts[value].numbers if value in network.pull_counts else None
        if not network.activation_depths[value]:
            bounds[value] = enclose(reduced.path, value, numbers=numbers)
        else:
            prior = propagate(reduced.path.network, region, reduced.path.bounds, value, arithmetic)
            unstable = ~network.stable(value, *prior)
            if zonotopes is None or not zonotopes.suit(value, unstable, bounds):
                bounds[value], tight[value] = bound_signs(reduced.path, value, prior, numbers=numbers)
            else:
                by_zonotope = prior.meet(zonotopes.interval(value, bounds), unstable)
                if relaxer.parallel:
                    bounds[value], tight[value] = by_zonotope, torch.stack([unstable, unstable], 1)
                else:
                    prior = prior.meet(by_zonotope, unstable & network.stable(value, *by_zonotope))
                    bounds[value], tight[value] = bound_signs(reduced.path, value, prior, numbers=numbers)
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
