"""Bounds of all neurons over many boxes of few inputs, by forward lines and back-substitution, or by zonotopes.

Only pairs of box and neuron that the lines leave unstable are pulled back. Where that is costly, as in convolutions,
whose neurons are many, zonotopes are carried forward instead: one column per input and per unstable neuron.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import bound_forms
from relucert.bounding.forward import PlainDriver, propagate_zonotope
from relucert.bounding.interval import Interval
from relucert.bounding.lines import ForwardLines, shares_of
from relucert.bounding.reference import PickedPath, ReferencePath
from relucert.bounding.relaxers import CROWN, FAST_LIN
from relucert.bounding.zonotope import Zonotope
from relucert.network import INPUT, Network
from relucert.network.work import backward_work

MOST_CUT_INPUTS = 12  # that may move
MOST_COVERED_INPUTS = 4  # the same, of a ball that is covered by boxes
NEURONS_PER_INPUT = 4  # at least, for cuts to be worth it
PULLED_FROM = 2  # ReLUs before a value whose unstable neurons are pulled back; lines are tight before it
PAIR_BYTES = 2**22  # of the forms that are pulled back at once
LINE_BYTES = 2**28  # of the lines of boxes that are bounded at once
COLUMN_BYTES = 2**31  # of all columns of a zonotope, for the largest value
SMALL_WORK = 10**9  # multiplications that pull all neurons of a box back, up to which that is done in any case
LEAST_COLUMNS = 512  # of a zonotope, however large the network is
MOST_BOXES = 512  # at once
BOX_COLUMNS = 2048  # that zonotopes of boxes have room for, where several are bounded at once


def suits_cuts(network: Network, region: Region) -> bool:
    """Whether a region has so few inputs that cutting them is cheaper than splitting by neurons.

    All relaxations of a box get narrower with every cut, but as many cuts as there are inputs make one level. Balls of
    other norms are covered by boxes, where some activation is no ReLU: its splits never end.
    """
    neurons = sum(network.sizes[value] for value in network.preactivations)
    most = MOST_CUT_INPUTS
    if region.norm.body != "box":
        most = 0 if network.rectifiers_only else MOST_COVERED_INPUTS
    return region.moving <= most and region.moving * NEURONS_PER_INPUT <= neurons


@dataclass(frozen=True, eq=False)
class BoxBounds:
    """Bounds over regions that are boxes.

    Attributes:
        path: The reference path, with bounds of all pre-activations.
        moving: The numbers of the inputs that move, (moving,).
        shares: From a pre-activation to how much of each neuron's range is due to each of them: (batch, moving, size).
    """

    path: ReferencePath
    moving: Tensor
    shares: Callable[[int], Tensor]


def box_bounds(network: Network, region: Region, arithmetic: Arithmetic) -> BoxBounds:
    """Bounds of every pre-activation over boxes, by lines and back-substitution or, where that is costly, zonotopes."""
    if _suits_lines(network):
        return line_bounds(network, region, arithmetic)
    return zonotope_bounds(network, region, arithmetic)


def _suits_lines(network: Network) -> bool:
    """Whether back-substitution, which gives tighter bounds, is cheap: even if all neurons are unstable, or at all."""
    return network.suits_forward or backward_work(network) <= SMALL_WORK


def boxes_at_once(network: Network, moving: int) -> int:
    """How many boxes are bounded at once, of which so many inputs move."""
    if _suits_lines(network):
        return boxes_of_lines(network, moving)
    return max(1, min(MOST_BOXES, COLUMN_BYTES // (8 * BOX_COLUMNS * max(network.sizes))))


def boxes_of_lines(network: Network, moving: int) -> int:
    """How many boxes are bounded at once by lines on so many moving inputs."""
    return max(1, min(MOST_BOXES, LINE_BYTES // (32 * (moving + 2) * sum(network.sizes))))


def line_bounds(
    network: Network, region: Region, arithmetic: Arithmetic, *, moving: Tensor | None = None, pulled: bool = True
) -> BoxBounds:
    """Bounds of every pre-activation: by lines, for unstable pairs of box and neuron by CROWN's back-substitution.

    Args:
        moving: The inputs that lines have coefficients on, as in `ForwardLines`.
        pulled: Whether anything is pulled back.
    """
    path = ReferencePath(network, region, {}, CROWN, arithmetic)
    lines = ForwardLines(path, moving)
    for value in network.preactivations:
        interval = lines.of(value).interval(arithmetic)
        if pulled and network.activation_depths[value] >= PULLED_FROM:
            interval = pulled_bounds(path, value, interval)
        path.bounds[value] = interval
    return BoxBounds(path, lines.moving, lines.shares)


def zonotope_bounds(network: Network, region: Region, arithmetic: Arithmetic) -> BoxBounds:
    """Bounds of every pre-activation by zonotopes of at most so many columns as memory has room for."""
    moving = region.moving_inputs
    driver = _ShareKeeper(network, FAST_LIN, arithmetic, region.spans(arithmetic).largest[:, moving], moving)
    columns = max(LEAST_COLUMNS, COLUMN_BYTES // (arithmetic.dtype.itemsize * len(region.radius) * max(network.sizes)))
    bounds = propagate_zonotope(network, region, arithmetic, network.preactivations, driver, most_symbols=columns)
    return BoxBounds(ReferencePath(network, region, bounds, CROWN, arithmetic), moving, driver.shares.__getitem__)


@dataclass(frozen=True)
class _ShareKeeper(PlainDriver):
    """Notes how much of each neuron's range is due to each moving input, by the value that is measured; nothing where
    the zonotope has no coefficients, as that of the last pre-activation.

    spans: the half-widths of the moving inputs, (batch, moving); moving: their numbers.
    """

    spans: Tensor
    moving: Tensor
    shares: dict[int, Tensor] = field(default_factory=dict)

    def measure(self, value: int, zonotope: Zonotope) -> Interval:
        if INPUT in zonotope.blocks:
            coefficients = zonotope.widen(zonotope.blocks[INPUT])[:, self.moving]
            self.shares[value] = shares_of(coefficients * self.spans[..., None])
        else:
            self.shares[value] = zonotope.centre.new_zeros(*self.spans.shape, zonotope.centre.shape[-1])
        return super().measure(value, zonotope)


def pulled_bounds(path: ReferencePath, value: int, interval: Interval) -> Interval:
    """Improves known bounds of unstable pairs of box and neuron by back-substitution."""
    unstable = ~path.network.stable(value, *interval)
    return improved(path, interval, unstable, lambda picked, _, units: bound_forms(picked, value, units).lower)


def improved(
    path: ReferencePath, interval: Interval, wanted: Tensor, bound: Callable[[PickedPath, Tensor, Tensor], Tensor]
) -> Interval:
    """Improves bounds of some pairs of box and neuron, a mask (boxes, neurons), as many at once as memory allows.

    bound: From the path in the boxes of pairs, these boxes, (pairs,), and forms that are 1 and -1 at the neuron,
        (pairs, 2, neurons), to lower bounds of both, (pairs, 2).
    """
    boxes, neurons = wanted.nonzero().unbind(1)
    lower, upper = (ends.clone() for ends in interval)
    step = max(1, PAIR_BYTES // (16 * max(path.network.sizes)))
    for some, columns in zip(boxes.split(step), neurons.split(step), strict=True):
        if not len(some):
            continue
        units = torch.nn.functional.one_hot(columns, lower.shape[1]).to(lower.dtype)
        below, above = bound(PickedPath(path, some), some, torch.stack([units, -units], 1)).unbind(1)
        lower[some, columns] = torch.fmax(lower[some, columns], below)
        upper[some, columns] = torch.fmin(upper[some, columns], -above)
    return Interval(lower, upper)
