"""Inputs as pictures: how flat inputs are arranged and scaled to be drawn, and small PNG files of them."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relucert.answers.certificates import Exact, UpperBound
from relucert.errors import InputError
from relucert.network import Network

COLOURS = 3  # channels of a coloured picture
FACTORS = (1000, 500, 200, 100, 50, 20, 10, 5, 2)  # by which perturbations are magnified
GREY, COLOUR = 0, 2  # PNG's numbers for them
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


def answer_row(network: Network, images: Tensor, answer: UpperBound | Exact) -> dict[str, Any]:
    """An answer's row of a run file, with a picture of its witness; images: (count, size), those asked about."""
    distance = answer.distance if isinstance(answer, UpperBound) else answer.upper
    witness = answer.witness if distance else None  # the image itself needs no picture
    return answer.to_json() | recorded(network, images[answer.image], witness, answer.box)


def magnification(largest: float) -> int:
    """A round factor by which a perturbation, as a share of the pixels' range, stays visible and within it."""
    return next((factor for factor in FACTORS if factor * largest <= 0.5), 1)


def address(shape: Sequence[int], pixels: bytes) -> str:
    """The data address of a picture; shape: (rows, columns) or (rows, columns, 3), pixels: as many bytes."""
    rows, columns = shape[:2]
    width = len(pixels) // rows
    lines = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(rows))
    header = struct.pack(">IIBBBBB", columns, rows, 8, COLOUR if len(shape) == 3 else GREY, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, data) for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    )
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of the format: the length of its data, its name of four letters, the data, a checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
