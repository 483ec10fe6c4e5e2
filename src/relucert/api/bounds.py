"""`relucert.bounds`: two-sided bounds of every neuron."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relucert.answers.certificates import parse_rounding
from relucert.api.certifiers import ARITHMETICS
from relucert.arithmetic.norm import NormLike
from relucert.arithmetic.region import Region, check_region
from relucert.arithmetic.rigor import check_subnormals
from relucert.bounding.forward import forward
from relucert.bounding.interval import Interval
from relucert.bounding.interval_propagation import interval_bounds
from relucert.bounding.layerwise import backward
from relucert.bounding.relaxers import RELAXERS
from relucert.common import names
from relucert.common.names import ArithmeticName, FormName, InferenceName, RelaxerName
from relucert.common.numbers import NumberLike
from relucert.errors import InputError
from relucert.inputs.loading import load
from relucert.network import find_inference
from relucert.network.batching import INTERVAL
from relucert.query.plausible import warn_of_range
from relucert.query.questions import prepare
from relucert.query.types import BoxLike, ImagesLike, NetworkLike, ScaleLike

FORMS: dict[FormName, Any] = {"forward": forward, "backward": backward}


def bounds(
    network: NetworkLike,
    region: Region | ImagesLike,
    *,
    radius: NumberLike | Tensor | None = None,
    norm: NormLike | None = None,
    method: RelaxerName = "fast-lin",
    form: FormName = "forward",
    arithmetic: ArithmeticName = "rigorous",
    inference: InferenceName = "real",
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> list[Interval]:
    """Two-sided bounds of every neuron: one Interval (batch, size) for each value before a ReLU, then the output.

    Args:
        network: A Network, a torch.nn.Module, a file or a zoo name.
        region: The images, one row each, with a radius; or a region as `relucert.Region.around` makes it, where box and
            scale may be given as well.
        radius: Around the images: one for all, or one for each.
        norm: Of the radius, as for `certify` ("inf").
        method: "fast-lin", "interval" with the forward form alone, or "crown" with the backward form alone.
        form: "forward" (a zonotope carried from the input) or "backward" (the paper's recursion).
        arithmetic: "rigorous" (rounding included) or "float" (rounding ignored).
        inference: What the network is evaluated in, as for `certify`: what is bounded are the computed values.
        box: The valid inputs, as for `certify`.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        input_shape: Of one image, where the network does not tell it.
    """
    direction, relaxer = names.FORMS.find(form), names.RELAXERS.find(method)
    if relaxer == INTERVAL and direction != "forward":
        raise InputError(f"interval bounds are carried forward: leave form={form!r} out")
    rounding, evaluation = ARITHMETICS[parse_rounding(arithmetic)], find_inference(inference)
    if isinstance(region, Region):
        if radius is not None or norm is not None:
            raise InputError("a region has its radius and its norm already: give them with images")
        loaded = load(network, input_shape=input_shape).evaluated_in(evaluation)
    else:
        if radius is None:
            raise InputError("bounds are about a region: give images and their radius, or a relucert.Region")
        prepared = prepare(network, region, None, input_shape)
        loaded = prepared.network.evaluated_in(evaluation)
        region = Region.around(prepared.images, radius, "inf" if norm is None else norm)
    region = check_region(region, box, scale, loaded.input_shape)
    warn_of_range(loaded, region.points)
    if rounding.rigorous:
        check_subnormals()
    with torch.inference_mode():
        cast, inside = loaded.cast(rounding.dtype), region.cast(rounding.dtype)
        if relaxer == INTERVAL:
            intervals = interval_bounds(cast, inside, rounding, (*loaded.preactivations, loaded.output))
        else:
            intervals = FORMS[direction](cast, inside, RELAXERS[relaxer], rounding, (loaded.output,))
    return [intervals[value] for value in sorted(intervals)]
