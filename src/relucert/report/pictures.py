"""Inputs as pictures: how flat inputs are arranged and scaled to be drawn."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relucert.errors import InputError
from relucert.network import Network

COLOURS = 3  # channels of a coloured picture
Shape = tuple[int, int, int]


def shape_of(network: Network) -> Shape:
    """Colours, rows and columns of a network's inputs.

    A flat one is what the network says it is, else a square, grey or with its colours one after another.
    """
    shape = network.picture_shape or network.input_shape
    if len(shape) == 3 and shape[0] in (1, COLOURS):
        return (shape[0], shape[1], shape[2])
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 1:
        for colours in (1, COLOURS):
            width = math.isqrt(shape[0] // colours)
            if colours * width * width == shape[0]:
                return (colours, width, width)
    raise InputError(f"can't draw inputs of shape {shape}: they are no grey or three-coloured pictures")


def limits(image: Tensor, witness: Tensor, box: Sequence[Any] | None) -> tuple[Tensor, Tensor]:
    """What is drawn black and white, for all pixels or for each: the ends of the box, else the extreme pixels.

    Args:
        image, witness: Flat, (size,).
        box: None, or the lowest and the highest valid value: two numbers, or one number per pixel each; where they
            are infinite, the least and the largest pixel count instead.

    Returns:
        The lower and the higher limit, each of shape (), (1,) or (size,), in float64.
    """
    pixels = torch.stack([image.double(), witness.double()])
    lowest, highest = pixels.min(), pixels.max()
    if box is None:
        return lowest, highest
    low, high = (torch.as_tensor(end, dtype=torch.float64).flatten() for end in box)
    low, high = torch.where(low.isfinite(), low, lowest), torch.where(high.isfinite(), high, highest)
    return low, torch.where(high > low, high, low + 1)  # a pixel with a single valid value is drawn black


def arranged(pixels: Tensor, shape: Shape) -> NDArray[np.float64]:
    """Flat numbers from 0 to 1 as (rows, columns), or (rows, columns, colours) if there are any."""
    planes: NDArray[np.float64] = pixels.clamp(0, 1).reshape(shape).numpy()
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1)


def recorded(network: Network, image: Tensor, witness: Tensor | None, box: Sequence[Any] | None) -> dict[str, Any]:
    """What a row of a run file says of a witness: a `picture`, or nothing where inputs are no pictures.

    image: (size,).
    """
    try:
        shape = shape_of(network)
    except InputError:
        return {}
    if witness is None:
        return {}
    flat = witness.double().flatten()
    low, high = limits(image, flat, box)
    drawn = [arranged((pixels - low) / (high - low), shape) for pixels in (image.double(), flat)]
    original, adversarial = (
        base64.b64encode((255 * pixels).round().astype("uint8").tobytes()).decode() for pixels in drawn
    )
    return {"picture": {"shape": list(drawn[0].shape), "original": original, "adversarial": adversarial}}
