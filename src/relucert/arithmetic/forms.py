"""Linear forms on one value of a network: rows of coefficients, or windows of them on images.

A neuron of a convolution depends on a small window of the image before it, so its form has few coefficients that are
not zero. Windows store these alone, channels last, and know where they lie.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import Self

from relucert.common.slicing import slices

Shape = tuple[int, ...]
Pair = tuple[int, int]  # vertical, horizontal


@dataclass(frozen=True, eq=False)
class LinearForms(ABC):
    """Coefficients (batch or 1, forms, ...) of linear forms on a value of the shape `shape`, without the batch.

    Maps are vectors of the value's size, one per batch member: (batch or 1, size).
    """

    coefficients: Tensor
    shape: Shape

    @property
    def count(self) -> int:
        return self.coefficients.shape[1]

    @property
    def terms(self) -> int:
        """How many coefficients a form stores."""
        return self.coefficients[0, 0].numel()

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The forms with a function, which maps 0 to 0, applied to every coefficient."""
        return replace(self, coefficients=function(self.coefficients))

    @abstractmethod
    def rows(self) -> Tensor:
        """All coefficients: (batch or 1, forms, size)."""

    @abstractmethod
    def stored(self) -> Tensor:
        """The coefficients that may differ from zero, in any order: (batch or 1, forms, terms)."""

    @abstractmethod
    def dot(self, vector: Tensor) -> Tensor:
        """The forms' values at a map: (batch, forms)."""

    @abstractmethod
    def absolute_dot(self, vector: Tensor) -> Tensor:
        """The values at a map of the forms with absolute coefficients: (batch, forms)."""

    @abstractmethod
    def times(self, factors: Tensor) -> LinearForms:
        """Every coefficient times a map."""

    @abstractmethod
    def times_by_sign(self, positive: Tensor, negative: Tensor) -> LinearForms:
        """Positive coefficients times one map, negative ones times another."""

    @abstractmethod
    def aligned(self, factors: Tensor) -> tuple[LinearForms, Tensor]:
        """The same forms, and factors of each form's own laid out as their coefficients are: given like these, or as
        (batch, forms, size)."""

    @abstractmethod
    def local(self, vector: Tensor) -> Tensor:
        """A map where the coefficients are: it broadcasts to them."""

    @abstractmethod
    def over(self, divisors: Tensor) -> LinearForms:
        """Every coefficient divided by a map."""

    @abstractmethod
    def plus(self, other: LinearForms) -> LinearForms:
        """The sums of forms and forms on the same value."""


@dataclass(frozen=True, eq=False)
class Rows(LinearForms):
    """All coefficients of every form, flat: (batch or 1, forms, size)."""

    def rows(self) -> Tensor:
        return self.coefficients

    def stored(self) -> Tensor:
        return self.coefficients

    def dot(self, vector: Tensor) -> Tensor:
        return _products(self.coefficients, vector)

    def absolute_dot(self, vector: Tensor) -> Tensor:
        return torch.cat([_products(part.abs(), vector) for part in slices(self.coefficients, 1)], 1)

    def times(self, factors: Tensor) -> Rows:
        return replace(self, coefficients=self.coefficients * factors[:, None])

    def times_by_sign(self, positive: Tensor, negative: Tensor) -> Rows:
        return replace(self, coefficients=_by_sign(self.coefficients, positive[:, None], negative[:, None]))

    def aligned(self, factors: Tensor) -> tuple[Rows, Tensor]:
        return self, factors

    def local(self, vector: Tensor) -> Tensor:
        return vector[:, None]

    def over(self, divisors: Tensor) -> Rows:
        return replace(self, coefficients=self.coefficients / divisors[:, None])

    def plus(self, other: LinearForms) -> Rows:
        return replace(self, coefficients=self.coefficients + other.rows())


@dataclass(frozen=True, eq=False)
class Places:
    """Where forms lie on an image: rows and columns, (forms,) each."""

    rows: Tensor
    columns: Tensor

    @cached_property
    def ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least and the largest row, and column."""
        (top, bottom), (left, right) = (side.aminmax() for side in (self.rows, self.columns))
        return (int(top), int(bottom)), (int(left), int(right))


@dataclass(frozen=True, eq=False)
class Windows(LinearForms):
    """Coefficients on windows of an image: (batch or 1, forms, height, width, channels).

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
        """From all coefficients: (batch or 1, forms, size)."""
        return cls(rows.unflatten(-1, shape).movedim(-3, -1), shape)

    @classmethod
    def units(cls, neurons: Tensor, shape: Shape, dtype: torch.dtype) -> Windows:
        """The forms that are single coordinates, by their flat positions (count,)."""
        _, height, width = shape
        channel, position = neurons // (height * width), neurons % (height * width)
        chosen = functional.one_hot(channel, shape[0]).to(dtype)
        return cls(chosen[None, :, None, None], shape, Places(position // width, position % width))

    def rows(self) -> Tensor:
        return self.spread_out().coefficients.movedim(-1, -3).flatten(2)

    def stored(self) -> Tensor:
        return self.mask().coefficients.flatten(2)

    def dot(self, vector: Tensor) -> Tensor:
        return (self.coefficients * self.local(vector)).sum((-3, -2, -1))

    def absolute_dot(self, vector: Tensor) -> Tensor:
        return (self.coefficients.abs() * self.local(vector)).sum((-3, -2, -1))

    def aligned(self, factors: Tensor) -> tuple[Windows, Tensor]:
        if factors.ndim != 3:
            return self, factors
        return self.spread_out(), factors.unflatten(-1, self.shape).movedim(-3, -1)

    def times(self, factors: Tensor) -> Windows:
        return replace(self, coefficients=self.coefficients * self.local(factors), masked=True)

    def times_by_sign(self, positive: Tensor, negative: Tensor) -> Windows:
        scaled = _by_sign(self.coefficients, self.local(positive), self.local(negative))
        return replace(self, coefficients=scaled, masked=True)

    def over(self, divisors: Tensor) -> Windows:
        return self.mapped(lambda numbers: numbers / self.local(divisors, outside=1.0))

    def plus(self, other: LinearForms) -> LinearForms:
        if isinstance(other, Rows):
            return other.plus(self)
        assert isinstance(other, Windows)
        if self.places is None or other.places is None or self.stride != other.stride:
            return self.spread_out().mapped(lambda numbers: numbers + other.spread_out().coefficients)
        ends = [max(one.coefficients.shape[2 + axis] - one.offset[axis] for one in (self, other)) for axis in range(2)]
        offset = max(self.offset[0], other.offset[0]), max(self.offset[1], other.offset[1])
        parts = []
        for one in (self, other):
            before = offset[0] - one.offset[0], offset[1] - one.offset[1]
            after = [ends[axis] + one.offset[axis] - one.coefficients.shape[2 + axis] for axis in range(2)]
            parts.append(functional.pad(one.coefficients, (0, 0, before[1], after[1], before[0], after[0])))
        joined = replace(self, coefficients=parts[0] + parts[1], offset=offset, masked=self.masked and other.masked)
        return joined.fitted()

    def moved(self, coefficients: Tensor, shape: Shape, stride: Pair, padding: Pair) -> Windows:
        """The windows that a convolution's transpose makes of these: on its input, of this shape."""
        if self.places is None:
            height, width = coefficients.shape[2:4]
            top, left = padding
            room = shape[1] - (height - top), shape[2] - (width - left)
            cut = functional.pad(coefficients, (0, 0, -left, room[1], -top, room[0]))
            return Windows(cut, shape)
        (down, across), (top, left) = stride, padding
        placed = Windows(
            coefficients, shape, self.places, (self.stride[0] * down, self.stride[1] * across),
            (self.offset[0] * down + top, self.offset[1] * across + left), masked=False,
        )  # fmt: skip
        return placed.fitted()

    def fitted(self) -> Windows:
        """The same forms, as whole images where their windows are larger than those."""
        height, width = self.coefficients.shape[2:4]
        return self.spread_out() if height * width >= self.shape[1] * self.shape[2] else self

    def mask(self) -> Windows:
        """The windows with zeros outside the image."""
        if self.masked:
            return self
        return self.times(self.coefficients.new_ones(1, self.shape[0] * self.shape[1] * self.shape[2]))

    def spread_out(self) -> Windows:
        """The same forms with whole images as their windows."""
        if self.places is None:
            return self
        padded = functional.pad(self.coefficients, (0, 0, 0, 1, 0, 1))  # what lies outside a window is its last row
        steps = []
        for axis, places in enumerate((self.places.rows, self.places.columns)):
            begins = self.stride[axis] * places - self.offset[axis]
            length = self.coefficients.shape[2 + axis]
            step = torch.arange(self.shape[1 + axis]) - begins[:, None]
            steps.append(torch.where((step >= 0) & (step < length), step, length))
        forms = torch.arange(self.count)[:, None, None]
        return Windows(padded[:, forms, steps[0][:, :, None], steps[1][:, None]], self.shape)

    def local(self, vector: Tensor, outside: float = 0.0) -> Tensor:
        """The part of a map in every window: (batch or 1, forms or 1, height, width, channels)."""
        image: Tensor = vector.unflatten(-1, self.shape).movedim(-3, -1)
        if self.places is None:
            return image[:, None]
        begins, margins = [], []
        for axis, places in enumerate((self.places.rows, self.places.columns)):
            least, largest = (self.stride[axis] * end - self.offset[axis] for end in self.places.ends[axis])
            length = self.coefficients.shape[2 + axis]
            before = max(0, -least)
            begins.append(self.stride[axis] * places + (before - self.offset[axis]))
            margins.append((before, max(0, largest + length - self.shape[1 + axis])))
        padded = functional.pad(image, (0, 0, *margins[1], *margins[0]), value=outside).contiguous()
        height, width = self.coefficients.shape[2:4]
        windows = padded.unfold(1, height, 1).unfold(2, width, 1)  # (batch, begins, begins, channels, height, width)
        chosen: Tensor = windows.movedim(3, -1)[:, begins[0], begins[1]]
        return chosen


def _by_sign(numbers: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Each number times one of the factors, rounded once: the other product is 0."""
    return torch.addcmul(numbers.clamp(max=0) * negative, numbers.clamp(min=0), positive)


def _products(forms: Tensor, vectors: Tensor) -> Tensor:
    """The products of forms (batch or 1, forms, size) and vectors (batch or 1, size): (batch, forms)."""
    if len(forms) == 1:
        return vectors @ forms[0].T
    return (forms @ vectors[..., None]).squeeze(-1)
