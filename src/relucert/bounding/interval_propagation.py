"""Interval bound propagation (IBP): the intervals of every value from those before it, in one pass from the input.

What comes after the last activations is folded into the property's rows, which are then bounded as a whole. In a ball
that is no box, affine functions of the input are bounded by their dual norms, and intervals begin at the first
activations; or at a first convolution with very many neurons, whose dual norms are those of its few kernels.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import bound_forms
from relucert.bounding.interval import Bounds, Centred, Interval, affine_image, image, propagate
from relucert.bounding.layerwise import enclose
from relucert.bounding.noise import rounds
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN, FLAT
from relucert.network import INPUT, Affine, Convolution, Network

ROW_BYTES = 2**24  # of the rows that are pulled back at once
MANY_NEURONS = 2**17  # of a convolution of the input: the dual norm of each neuron's own form would take seconds


def interval_bounds(network: Network, region: Region, arithmetic: Arithmetic, wanted: Collection[int]) -> Bounds:
    """Bounds of the wanted values; network and region are in the arithmetic's dtype.

    An interval is dropped once the last operation that needs it is done.
    """
    shared = _large_convolutions(network)
    bounded = {INPUT} if region.norm.body == "box" else _bounded_by_norms(network, shared) | shared
    bounds: Bounds = {}
    intervals: dict[int, Centred] = {}
    start = ReferencePath(network, region, {}, FAST_LIN, arithmetic)
    for value, dropped in network.schedule(wanted, bounded):
        if value in bounded:
            interval = _within_kernel_norms(start, value) if value in shared else enclose(start, value)
            intervals[value] = Centred.of(interval, arithmetic)
        else:
            operands = [intervals[source] for source in network.node(value).inputs]
            intervals[value] = image(network, value, operands, arithmetic)
            interval = intervals[value].interval(arithmetic)
        if value in wanted:
            bounds[value] = interval
        for source in dropped:
            del intervals[source]
    return bounds


def _large_convolutions(network: Network) -> set[int]:
    """The convolutions of the input with very many neurons."""
    return {
        value
        for value, node in network.steps()
        if isinstance(node.operation, Convolution)
        and node.inputs == (INPUT,)
        and network.sizes[value] > MANY_NEURONS
        and not rounds(network, value)
    }


def _bounded_by_norms(network: Network, shared: Collection[int]) -> set[int]:
    """The affine functions of the input that do not depend on these convolutions."""
    functions = {INPUT}
    for value, node in network.steps():
        if isinstance(node.operation, Affine) and value not in shared and functions.issuperset(node.inputs):
            functions.add(value)
    return functions


def _within_kernel_norms(path: ReferencePath, value: int) -> Interval:
    """Bounds of a convolution of the input from the dual norms of its kernels; within a box also from the box.

    Neurons whose window reaches beyond the image have a part of their kernel only: their bounds are loose by that.
    """
    network, region, arithmetic = path.network, path.region, path.arithmetic
    operation = network.node(value).operation
    assert isinstance(operation, Convolution)
    reference = Centred(region.reference, torch.zeros_like(region.reference))
    centre, rounding = affine_image(network, value, [reference], arithmetic)
    lengths = region.norm.dual_bound(operation.weight.flatten(1), 1, arithmetic)
    if region.scale is not None:
        lengths = lengths * region.scale.amax()
    reach = (region.radius[:, None] * lengths).repeat_interleave(network.sizes[value] // len(lengths), 1)
    ball = Centred(centre, arithmetic.above(reach + rounding, 3)).interval(arithmetic)
    return ball if region.box is None else ball.meet(propagate(network, region, {}, value, arithmetic))


def interval_margins(
    network: Network, region: Region, prop: Property, bounds: Bounds, arithmetic: Arithmetic
) -> Tensor:
    """Lower bounds of the property's rows, (batch, rows), from the bounds of the nearest pre-activations.

    Rows are pulled back to the last activations, whose outputs are intervals, and where none come before to the input.
    """
    path = ReferencePath(network, region, bounds, FLAT, arithmetic)
    largest = max(network.sizes[value] for value in network.ancestors((network.output,), network.activations))
    step = max(1, ROW_BYTES // (len(prop) * largest * prop.rows.element_size()))
    margins = [
        bound_forms(path, network.output, rows, offsets=offsets).lower
        for rows, offsets in zip(prop.rows.split(step, 1), prop.offsets.split(step, 1), strict=True)
    ]
    return torch.cat(margins, 1)
