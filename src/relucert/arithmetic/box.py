"""The valid inputs and the scale of a region, as users give them and as tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from relucert.common.numbers import number_above, number_below
from relucert.common.valid import is_number
from relucert.errors import InputError

FIXED = 2.0**-48  # share of a coordinate's size up to which the width of a box is but rounding


class Box(NamedTuple):
    """The lowest and the highest valid value of every coordinate: (size,) each, in float64; infinite: no limit."""

    low: Tensor
    high: Tensor

    def __repr__(self) -> str:
        alike = isinstance(self.simplified[0], float)
        low, high = float(self.low.min()), float(self.high.max())
        return f"Box({len(self.low)} coordinates, {'each' if alike else 'all'} within {low:g} to {high:g})"

    def cast(self, dtype: torch.dtype) -> Box:
        return Box(self.low.to(dtype), self.high.to(dtype))

    @property
    def simplified(self) -> tuple[float, float] | tuple[Tensor, Tensor]:
        """The box as two numbers where all coordinates have the same ends, else as two tensors (size,)."""
        if bool((self.low == self.low[0]).all() and (self.high == self.high[0]).all()):
            return float(self.low[0]), float(self.high[0])
        return self.low, self.high

    @property
    def moving(self) -> Tensor:
        """Which coordinates the box lets move, by more than its rounding outwards: (..., size)."""
        width = self.high - self.low
        return width.isinf() | (width > FIXED * torch.maximum(self.low.abs(), self.high.abs()))

    def contains(self, points: Tensor) -> Tensor:
        """Whether all coordinates of points (..., size) are valid: (...)."""
        return ((points >= self.low) & (points <= self.high)).all(-1)


def check_inside(points: Tensor, box: Box | None) -> None:
    """Refuses points (batch, size) that are no valid inputs themselves."""
    if box is None or bool((inside := box.contains(points)).all()):
        return
    low, high = box.simplified
    ends = "outside the box" if isinstance(low, Tensor) else f"outside the box from {low:g} to {high:g}"
    raise InputError(
        f"image {int((~inside).int().argmax())} has pixels {ends}: "
        "pass box=(low, high) for the valid inputs, or box=None (--box, --no-box)"
    )


def parse_box(box: object, shape: tuple[int, ...]) -> Box | None:
    """Checks a box and makes tensors of it: None, two numbers, or two arrays of the input's shape, lowest first."""
    if box is None or isinstance(box, Box):
        return box
    ends = tuple(box) if isinstance(box, (tuple, list)) else ()
    if len(ends) != 2:
        raise InputError(f"a box is a pair, the lowest and the highest valid values, not {type(box).__name__}")
    if all(isinstance(end, str) or is_number(end) for end in ends):
        low_end, high_end = ends
        lowest, highest = number_below(low_end, "a box's end"), number_above(high_end, "a box's end")
        if not -np.inf < lowest < highest < np.inf:
            raise InputError(f"a box is a least and a larger largest pixel, both finite, not {(lowest, highest)}")
        return Box(*(torch.full((int(np.prod(shape)),), end, dtype=torch.float64) for end in (lowest, highest)))
    low, high = (_array(end, shape, "a box's end") for end in ends)
    if not bool((low <= high).all()):
        raise InputError("a box has a highest value below the lowest, or one that is no number")
    return Box(low, high)


def parse_scale(numbers: object, shape: tuple[int, ...]) -> Tensor | None:
    """Checks a scale: None, or an array of the input's shape with finite numbers >= 0, not all of them 0."""
    if numbers is None:
        return None
    scale = _array(numbers, shape, "a scale")
    if not is_scale(scale, (scale.shape,)) or not bool(scale.any()):
        raise InputError("a scale has finite numbers >= 0, and at least one above 0")
    return scale


def is_scale(scale: object, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether a scale is a tensor of one of these shapes, with finite numbers >= 0."""
    if not isinstance(scale, Tensor) or scale.layout != torch.strided or scale.is_meta or scale.is_complex():
        return False
    if tuple(scale.shape) not in shapes:
        return False
    return bool(((scale >= 0) & scale.isfinite()).all())


def _array(numbers: object, shape: tuple[int, ...], subject: str) -> Tensor:
    """Makes a float64 tensor (size,) of numbers in the input's shape, or flat; `subject` names them in errors."""
    try:
        array = numbers.detach().cpu() if isinstance(numbers, Tensor) else torch.from_numpy(np.array(numbers))
        if array.is_complex():
            raise TypeError
        flat = array.double().flatten()
    except (TypeError, ValueError, RuntimeError):
        dtype = getattr(numbers, "dtype", type(numbers).__name__)
        raise InputError(f"{subject} is an array of numbers of the input's shape {shape}, not of {dtype}") from None
    if tuple(array.shape) not in (shape, (int(np.prod(shape)),)):
        raise InputError(f"{subject} has the input's shape {shape}, not {tuple(array.shape)}")
    return flat.clone()
