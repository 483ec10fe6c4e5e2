"""Bounds of all neurons over many boxes of few inputs: forward lines, then back-substitution.

Only pairs of box and neuron that the lines leave unstable are pulled back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import bound_forms
from relucert.bounding.interval import Interval
from relucert.bounding.lines import ForwardLines
from relucert.bounding.reference import PickedPath, ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.network import Network

PULLED_FROM = 2  # ReLUs before a value whose unstable neurons are pulled back; lines are tight before it
PAIR_BYTES = 2**22  # of the forms that are pulled back at once


@dataclass(frozen=True, eq=False)
class BoxBounds:
    """Over regions that are boxes: lines of every value, and the reference path with bounds of all pre-activations."""

    lines: ForwardLines
    path: ReferencePath


def box_bounds(network: Network, region: Region, arithmetic: Arithmetic) -> BoxBounds:
    """Bounds of every pre-activation: by lines, for unstable pairs of box and neuron by CROWN's back-substitution."""
    path = ReferencePath(network, region, {}, CROWN, arithmetic)
    lines = ForwardLines(path)
    for value in network.preactivations:
        interval = lines.of(value).interval(arithmetic)
        if network.activation_depths[value] >= PULLED_FROM:
            interval = pulled_bounds(path, value, interval)
        path.bounds[value] = interval
    return BoxBounds(lines, path)


def pulled_bounds(path: ReferencePath, value: int, interval: Interval) -> Interval:
    """Improves known bounds of unstable pairs of box and neuron by back-substitution."""
    network = path.network
    boxes, neurons = (~network.stable(value, *interval)).nonzero().unbind(1)
    lower, upper = (ends.clone() for ends in interval)
    step = max(1, PAIR_BYTES // (16 * max(network.sizes)))
    for some, columns in zip(boxes.split(step), neurons.split(step), strict=True):
        if not len(some):
            continue
        units = torch.nn.functional.one_hot(columns, network.sizes[value]).to(lower.dtype)
        picked = PickedPath(path, some)
        below, above = bound_forms(picked, value, torch.stack([units, -units], 1)).lower.unbind(1)
        lower[some, columns] = torch.fmax(lower[some, columns], below)
        upper[some, columns] = torch.fmin(upper[some, columns], -above)
    return Interval(lower, upper)
