"""Inputs as pictures: how flat numbers are arranged and scaled to be looked at."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from relucert.errors import InputError

COLOURS = 3
Shape = tuple[int, int, int]


def shape_of(shape: tuple[int, ...]) -> Shape:
    """Colours, rows and columns; a flat input counts as a square, grey or with its three colours one after another."""
    if len(shape) == 3 and shape[0] in (1, COLOURS):
        return (shape[0], shape[1], shape[2])
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 1:
        for colours in (1, COLOURS):
            side = math.isqrt(shape[0] // colours)
            if colours * side * side == shape[0]:
                return (colours, side, side)
    raise InputError(f"can't draw inputs of shape {shape}: they are no grey or three-coloured pictures")


def limits(image: Tensor, witness: Tensor, box: tuple[float, float] | None) -> tuple[float, float]:
    """What is drawn black and white: the ends of the box, or without one the least and the largest pixel."""
    return box or (float(min(image.min(), witness.min())), float(max(image.max(), witness.max())))


def arranged(pixels: Tensor, shape: Shape) -> NDArray[np.float64]:
    """Numbers from 0 to 1, flat, as rows by columns, by colours if there are any."""
    planes: NDArray[np.float64] = pixels.clamp(0, 1).reshape(shape).numpy()
    return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1)
