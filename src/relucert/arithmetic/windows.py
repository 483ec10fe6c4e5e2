"""Linear forms on images as windows of coefficients.

A neuron of a convolution depends on a small window of the image before it, so its form has few coefficients that are
not zero. Windows store these alone, and know where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relucert.arithmetic.forms import LinearForms, Rows, Shape

Pair = tuple[int, int]  # vertical, horizontal


class Places(NamedTuple):
    """Where forms lie on an image: rows and columns, (forms,) each."""

    rows: Tensor
    columns: Tensor


@dataclass(frozen=True, eq=False)
class Windows(LinearForms):
    """Coefficients on windows of an image: (batch or 1, forms, height, width, channels).

    In memory, forms lie next to each other and positions far apart: forms are many, and everything that is done to one
    coefficient is done to that of all forms.

    Attributes:
        places: A form's window begins at `stride * place - offset`, which may lie outside the image; None: every
            window is the whole image.
        stride: Vertical and horizontal.
        offset: Vertical and horizontal.
        masked: Whether coefficients outside the image are zero. They never count.
    """

    places: Places | None = None
    stride: Pair = (1, 1)
    offset: Pair = (0, 0)
    masked: bool = True

    @classmethod
    def whole(cls, rows: Tensor, shape: Shape) -> Windows:
        """Windows that cover the whole image, from all coefficients: (batch or 1, forms, size)."""
        return cls(rows.unflatten(-1, shape).movedim(-3, -1), shape)

    @classmethod
    def units(cls, neurons: Tensor, shape: Shape, dtype: torch.dtype) -> Windows:
        """The forms that are single coordinates, by their flat positions (count,)."""
        _, height, width = shape
        channel, position = neurons // (height * width), neurons % (height * width)
        chosen = (torch.arange(shape[0])[:, None] == channel).to(dtype)
        return cls(from_columns(chosen[None, None, :, :, None]), shape, Places(position // width, position % width))

    def pick(self, chosen: Tensor) -> Windows:
        columns = to_columns(self.coefficients).index_select(3, chosen)
        places = None if self.places is None else Places(*(numbers[chosen] for numbers in self.places))
        return replace(self, coefficients=from_columns(columns), places=places)

    def replaced(self, coefficients: Tensor) -> Windows:
        return replace(self, coefficients=coefficients, masked=True)

    @property
    def height(self) -> int:
        return self.coefficients.shape[2]

    @property
    def width(self) -> int:
        return self.coefficients.shape[3]

    def rows(self) -> Tensor:
        return self.spread_out().coefficients.movedim(-1, -3).flatten(2)

    def stored(self) -> Tensor:
        numbers = self.mask().coefficients
        return numbers.flatten(2) if numbers.stride(-1) == 1 else to_columns(numbers).flatten(0, 2).permute(2, 1, 0)

    def dot(self, vector: Tensor) -> Tensor:
        if self._is_matrix:
            return self._product(self.coefficients, vector)
        return _total(self.coefficients * self.local(vector))

    def absolute_dot(self, vector: Tensor) -> Tensor:
        if self._is_matrix:
            return self._product(self.coefficients.abs(), vector)
        return _total((self.coefficients * self.local(vector)).abs_())

    def absolute_totals(self) -> Tensor:
        """The sum of all forms' absolute coefficients at each coordinate: (batch or 1, size)."""
        assert self.places is not None
        batch, size = len(self.coefficients), self.shape[0] * self.shape[1] * self.shape[2]
        numbers, places = to_columns(self.coefficients).abs().flatten(), self._map_places
        if batch > 1:
            places = (places.long()[:, None] * batch + torch.arange(batch)).flatten()
        totals = numbers.new_zeros((size + 1) * batch).index_add_(0, places, numbers)
        return totals.view(-1, batch)[:size].T

    def dot_by_sign(self, vector: Tensor, negative_vector: Tensor) -> Tensor:
        if self._is_matrix:
            return super().dot_by_sign(vector, negative_vector)
        return _total(self.times_by_sign(vector, negative_vector).coefficients)

    @property
    def _is_matrix(self) -> bool:
        """Whether all windows are the same and lie in memory as one matrix."""
        return self.places is None and len(self.coefficients) == 1 and self.coefficients.stride(1) == 1

    def _product(self, coefficients: Tensor, vector: Tensor) -> Tensor:
        """The values at a map of the forms with these coefficients, which are a matrix: (batch, forms)."""
        channels_last: Tensor = vector.unflatten(-1, self.shape).movedim(-3, -1).flatten(1)
        return channels_last @ to_columns(coefficients).flatten(0, 2).squeeze(-1)

    def aligned(self, factors: Tensor) -> tuple[Windows, Tensor]:
        if factors.ndim != 3:
            return self, factors
        return self.spread_out(), factors.unflatten(-1, self.shape).movedim(-3, -1)

    def over(self, divisors: Tensor) -> Windows:
        return self.mapped(lambda numbers: numbers / self.local(divisors, outside=1.0))

    def plus(self, other: LinearForms) -> LinearForms:
        if isinstance(other, Rows):
            return other.plus(self)
        assert isinstance(other, Windows)
        if self.places is None or other.places is None or not self.lies_like(other):
            return self.spread_out().mapped(lambda numbers: numbers + other.spread_out().coefficients)
        offset = max(self.offset[0], other.offset[0]), max(self.offset[1], other.offset[1])
        bottom = max(self.height - self.offset[0], other.height - other.offset[0])
        right = max(self.width - self.offset[1], other.width - other.offset[1])
        large, small = (self, other) if self.terms >= other.terms else (other, self)
        rows = offset[0] - large.offset[0], bottom + large.offset[0] - large.height
        columns = offset[1] - large.offset[1], right + large.offset[1] - large.width
        total = _padded(large.coefficients, rows, columns)
        total = total.expand(max(len(total), len(small.coefficients)), *total.shape[1:]).clone()
        top, left = offset[0] - small.offset[0], offset[1] - small.offset[1]
        total[:, :, top : top + small.height, left : left + small.width] += small.coefficients
        return replace(self, coefficients=total, offset=offset, masked=self.masked and other.masked).fitted()

    def lies_like(self, other: Windows) -> bool:
        """Whether the windows of both lie at the same places, but for their offsets."""
        assert self.places is not None
        assert other.places is not None
        return self.stride == other.stride and all(map(torch.equal, self.places, other.places))

    def moved(self, coefficients: Tensor, shape: Shape, stride: Pair, padding: Pair) -> Windows:
        """The windows that a convolution's transpose makes of these: on its input, of this shape."""
        (down, across), (top, left) = stride, padding
        if self.places is None:
            below, beside = shape[1] + top - coefficients.shape[2], shape[2] + left - coefficients.shape[3]
            return Windows(_padded(coefficients, (-top, below), (-left, beside)), shape)
        placed = Windows(
            coefficients, shape, self.places, (self.stride[0] * down, self.stride[1] * across),
            (self.offset[0] * down + top, self.offset[1] * across + left), masked=False,
        )  # fmt: skip
        return placed.fitted()

    def relocated(self, indices: Tensor, shape: Shape) -> Windows | None:
        """The same forms on another image, of which the coordinates of this one are picked.

        Args:
            indices: For each coordinate of this image, counted flat, the one of the other image; beyond the last: none.
            shape: Of the other image.

        Returns:
            The forms in windows that hold all that is picked; None where these would be as large as the image.
        """
        (channels, height, width), count, batch = shape, self.count, len(self.coefficients)
        size = channels * height * width
        padded = torch.cat([indices, indices.new_full((1,), size)])
        picked = padded.index_select(0, self._map_places).view(-1, count)
        inside = picked < size
        rows, columns = picked % (height * width) // width, picked % width
        corners, extents = [], []
        for places, length in ((rows, height), (columns, width)):
            begins = torch.where(inside, places, length).amin(0)
            extents.append(max(1, int((torch.where(inside, places, -1).amax(0) - begins).max()) + 1))
            corners.append(begins)
        if extents[0] * extents[1] >= height * width:
            return None
        position = (rows - corners[0]) * extents[1] + columns - corners[1]
        target = (position * channels + picked // (height * width)) * count + torch.arange(count)
        total = extents[0] * extents[1] * channels * count
        target = torch.where(inside, target, total)[..., None] * batch + torch.arange(batch)
        numbers = to_columns(self.coefficients).flatten()
        sums = numbers.new_zeros((total + 1) * batch).index_add(0, target.flatten(), numbers)
        windows = sums[: total * batch].view(*extents, channels, count, batch)
        return Windows(from_columns(windows), shape, Places(*corners))

    def fitted(self) -> Windows:
        """The same forms, as whole images where their windows are larger than those."""
        return self.spread_out() if self.height * self.width >= self.shape[1] * self.shape[2] else self

    def mask(self) -> Windows:
        """The windows with zeros outside the image."""
        if self.masked:
            return self
        return self.times(self.coefficients.new_ones(1, self.shape[0] * self.shape[1] * self.shape[2]))

    def spread_out(self) -> Windows:
        """The same forms with whole images as their windows."""
        if self.places is None:
            return self
        columns = to_columns(self.coefficients)
        _, _, channels, forms, batch = columns.shape
        padded = functional.pad(columns.flatten(0, 1), (0, 0, 0, 0, 0, 0, 0, 1))  # what lies outside is the last one
        integer = torch.int32 if padded.numel() <= torch.iinfo(torch.int32).max else torch.int64
        steps = [
            torch.arange(self.shape[1 + axis], dtype=integer)[:, None] - begins.to(integer)
            for axis, begins in enumerate(self.begins)
        ]
        rows, across = ((step >= 0) & (step < size) for step, size in zip(steps, columns.shape[:2], strict=True))
        inside = rows[:, None] & across
        position = torch.where(inside, steps[0][:, None] * self.width + steps[1], self.height * self.width)
        firsts = position * (channels * forms) + torch.arange(forms, dtype=integer)  # (height, width, forms)
        places = firsts[:, :, None] + torch.arange(0, channels * forms, forms, dtype=integer)[:, None]
        numbers = padded.flatten() if batch == 1 else padded.flatten(0, 2)
        spread = numbers.index_select(0, places.flatten()).view(*places.shape, batch)
        return Windows(from_columns(spread), self.shape)

    def local(self, vector: Tensor, outside: float = 0.0) -> Tensor:
        """The part of a map in every window: (batch or 1, forms or 1, height, width, channels)."""
        if self.places is None:
            whole: Tensor = vector.unflatten(-1, self.shape).movedim(-3, -1)
            return whole[:, None]
        padded = torch.cat([vector, vector.new_full((len(vector), 1), outside)], 1)
        source = padded[0] if len(padded) == 1 else padded.T.contiguous()
        size = self.height, self.width, self.shape[0], self.count, len(padded)
        return from_columns(source.index_select(0, self._map_places).view(size))

    def spread(self, vector: Tensor) -> Tensor:
        if self.places is not None:
            return self.local(vector)
        columns = to_columns(self.local(vector))
        return from_columns(columns.expand(-1, -1, -1, self.count, -1).contiguous())

    @cached_property
    def _map_places(self) -> Tensor:
        """Where the window of each form lies on a map that has one number more, for what is outside:
        (height * width * channels * forms,)."""
        rows, columns = (
            torch.arange(self.coefficients.shape[2 + axis], dtype=torch.int32)[:, None] + begins.to(torch.int32)
            for axis, begins in enumerate(self.begins)
        )
        image = self.shape[1] * self.shape[2]
        outside = self.shape[0] * image
        rows = torch.where((rows >= 0) & (rows < self.shape[1]), rows * self.shape[2], outside)
        columns = torch.where((columns >= 0) & (columns < self.shape[2]), columns, outside)
        channel = torch.arange(0, outside, image, dtype=torch.int32)[:, None]
        return ((rows[:, None] + columns)[:, :, None] + channel).clamp_(max=outside).flatten()

    @property
    def begins(self) -> tuple[Tensor, Tensor]:
        """The row and the column where each form's window begins: (forms,) each."""
        assert self.places is not None
        return (
            self.stride[0] * self.places.rows - self.offset[0],
            self.stride[1] * self.places.columns - self.offset[1],
        )


def to_columns(coefficients: Tensor) -> Tensor:
    """Coefficients of windows as they lie in memory: (height, width, channels, forms, batch)."""
    return coefficients.permute(2, 3, 4, 1, 0)


def from_columns(columns: Tensor) -> Tensor:
    """The inverse of `to_columns`."""
    return columns.permute(4, 3, 0, 1, 2)


def _total(numbers: Tensor) -> Tensor:
    """The sums over windows: (batch, forms)."""
    return numbers.sum((-3, -2, -1))


def _padded(coefficients: Tensor, rows: Pair, columns: Pair) -> Tensor:
    """Windows with zeros before and after their rows and columns; negative numbers cut, also all that there was."""
    if rows == columns == (0, 0):
        return coefficients
    if max(*rows, *columns) > 0:
        ends = [max(end, 0) for end in (0, 0, 0, 0, 0, 0, *columns, *rows)]
        coefficients = from_columns(functional.pad(to_columns(coefficients), ends))
    (top, bottom), (left, right) = ((-min(ends[0], 0), min(ends[1], 0) or None) for ends in (rows, columns))
    return coefficients[:, :, top:bottom, left:right]
