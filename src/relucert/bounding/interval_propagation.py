"""Interval bound propagation (IBP): the intervals of every value from those before it, in one pass from the input.

What comes after the last activations is folded into the property's rows, which are then bounded as a whole. In a ball
that is no box, affine functions of the input are bounded by their dual norms, and intervals begin at the first
activations.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import bound_forms, enclose
from relucert.bounding.interval import Bounds, Centred, affine_image
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN, FLAT
from relucert.network import INPUT, Activation, Affine, Network

ROW_BYTES = 2**24  # of the rows that are pulled back at once


def interval_bounds(network: Network, region: Region, arithmetic: Arithmetic, wanted: Collection[int]) -> Bounds:
    """Bounds of the wanted values; network and region are in the arithmetic's dtype.

    An interval is dropped once the last operation that needs it is done.
    """
    depths = network.activation_depths
    known = [INPUT] if region.norm.body == "box" else [value for value, depth in enumerate(depths) if not depth]
    bounds: Bounds = {}
    intervals: dict[int, Centred] = {}
    start = ReferencePath(network, region, {}, FAST_LIN, arithmetic)
    for value, dropped in network.schedule(wanted, known):
        if value in known:
            interval = enclose(start, value)
            intervals[value] = Centred.of(interval, arithmetic)
        else:
            node = network.node(value)
            operands = [intervals[source] for source in node.inputs]
            if isinstance(node.operation, Affine):
                intervals[value] = affine_image(network, value, operands, arithmetic)
            elif isinstance(node.operation, Activation):
                before = operands[0].interval(arithmetic)
                intervals[value] = Centred.activated(node.operation, before, arithmetic)
            else:
                assert_never(node.operation)
            interval = intervals[value].interval(arithmetic)
        if value in wanted:
            bounds[value] = interval
        for source in dropped:
            del intervals[source]
    return bounds


def interval_margins(
    network: Network, region: Region, prop: Property, bounds: Bounds, arithmetic: Arithmetic
) -> Tensor:
    """Lower bounds of the property's rows, (batch, rows), from the bounds of the nearest pre-activations.

    Rows are pulled back to the last activations, whose outputs are intervals, and where none come before to the input.
    """
    path = ReferencePath(network, region, bounds, FLAT, arithmetic)
    largest = max(network.sizes[value] for value in network.ancestors((network.output,), network.activations))
    step = max(1, ROW_BYTES // (len(prop) * largest * prop.rows.element_size()))
    parts = [
        bound_forms(path, network.output, rows, offsets=offsets).lower
        for rows, offsets in zip(prop.rows.split(step, 1), prop.offsets.split(step, 1), strict=True)
    ]
    return torch.cat(parts, 1)
