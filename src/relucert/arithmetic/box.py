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


class Box(NamedTuple):
    """The lowest and the highest valid value of every coordinate: (size,) each, in float64; infinite: no limit."""

    low: Tensor
    high: Tensor

    def __repr__(self) -> str:
        alike = isinstance(self.given[0], float)
        low, high = float(self.low.min()), float(self.high.max())
        return f"Box({len(self.low)} coordinates, {'each' if alike else 'all'} within {low:g} to {high:g})"

    def cast(self, dtype: torch.dtype) -> Box:
        return Box(self.low.to(dtype), self.high.to(dtype))

    @property
    def given(self) -> tuple[float, float] | tuple[Tensor, Tensor]:
        """The box as users give it: two numbers, or where coordinates differ two tensors (size,)."""
        if bool((self.low == self.low[0]).all() and (self.high == self.high[0]).all()):
            return float(self.low[0]), float(self.high[0])
        return self.low, self.high

    def contains(self, points: Tensor) -> Tensor:
        """Whether all coordinates of points (..., size) are valid: (...)."""
        return ((points >= self.low) & (points <= self.high)).all(-1)


def check_inside(points: Tensor, box: Box | None) -> None:
    """Refuses points (batch, size) that are no valid inputs themselves."""
    if box is None or bool((inside := box.contains(points)).all()):
        return
    low, high = box.given
    ends = "outside the box" if isinstance(low, Tensor) else f"outside the box from {low:g} to {high:g}"
    raise InputError(
        f"image {int((~inside).int().argmax())} has pixels {ends}: "
        "pass box=(low, high) for the valid inputs, or box=None (--box, --no-box)"
    )


def parse_box(given: object, shape: tuple[int, ...]) -> Box | None:
    """None, two numbers, or two arrays of the input's shape, the lowest values first."""
    if given is None or isinstance(given, Box):
        return given
    ends = tuple(given) if isinstance(given, (tuple, list)) else ()
    if len(ends) != 2:
        raise InputError(f"a box is a pair, the lowest and the highest valid values, not {type(given).__name__}")
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


def parse_scale(given: object, shape: tuple[int, ...]) -> Tensor | None:
    """None, or an array of the input's shape with finite numbers >= 0, not all of them 0."""
    if given is None:
        return None
    scale = _array(given, shape, "a scale")
    if not is_scale(scale, (scale.shape,)) or not bool(scale.any()):
        raise InputError("a scale has finite numbers >= 0, and at least one above 0")
    return scale


def is_scale(given: object, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether it is a tensor of one of some shapes, with finite numbers >= 0."""
    if not isinstance(given, Tensor) or given.layout != torch.strided or given.is_meta or given.is_complex():
        return False
    if tuple(given.shape) not in shapes:
        return False
    return bool(((given >= 0) & given.isfinite()).all())


def _array(given: object, shape: tuple[int, ...], what: str) -> Tensor:
    """Numbers of the input's shape, or flat, as float64 (size,)."""
    try:
        numbers = given.detach().cpu() if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
        if numbers.is_complex():
            raise TypeError
        flat = numbers.double().flatten()
    except (TypeError, ValueError, RuntimeError):
        dtype = getattr(given, "dtype", type(given).__name__)
        raise InputError(f"{what} is an array of numbers of the input's shape {shape}, not of {dtype}") from None
    if tuple(numbers.shape) not in (shape, (int(np.prod(shape)),)):
        raise InputError(f"{what} has the input's shape {shape}, not {tuple(numbers.shape)}")
    return flat.clone()
