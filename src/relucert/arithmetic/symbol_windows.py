"""Symbols of a zonotope on an image, each with its coefficients in a window.

A pixel, or the error of one neuron, moves only a small part of the next few images. So a symbol is stored like a
linear form on the image that it moves: `Windows` hold the columns of the matrix whose rows are the neurons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.arithmetic.windows import Pair, Places, Windows, from_columns, to_columns

NEURON_BYTES = 2**22  # of windows of neurons that are made at once


class Lane(NamedTuple):
    """Along one axis, the neurons that symbols in a row meet at one place of their windows."""

    neurons: slice
    symbols: slice


class Extent(NamedTuple):
    """The size of windows on an image of this shape."""

    height: int
    width: int
    image: Shape

    @property
    def numbers(self) -> int:
        return self.height * self.width * self.image[0]


class RowSlices(NamedTuple):
    """The same part of one row of the image, in the windows of some symbols.

    Attributes:
        row: On the image.
        column: Where the part begins, which may lie outside the image.
        width: Of the part.
        coefficients: (symbols, width * channels).
        symbols: Which ones, counted with the batch: (symbols,).
    """

    row: int
    column: int
    width: int
    coefficients: Tensor
    symbols: Tensor


@dataclass(frozen=True)
class ReceptiveField:
    """The pixels of an image of this shape that a neuron depends on: a window that begins at `stride * place - offset`,
    vertically and horizontally."""

    shape: Shape
    stride: Pair = (1, 1)
    offset: Pair = (0, 0)
    size: Pair = (1, 1)

    def convolved(self, stride: Pair, padding: Pair, extent: Pair) -> ReceptiveField:
        """The receptive field of a convolution of these neurons."""
        (down, across), (top, left), (height, width) = self.stride, self.offset, self.size
        offset = top + down * padding[0], left + across * padding[1]
        size = height + down * (extent[0] - 1), width + across * (extent[1] - 1)
        return ReceptiveField(self.shape, (down * stride[0], across * stride[1]), offset, size)

    def joined(self, other: ReceptiveField) -> ReceptiveField:
        """The receptive field of sums of neurons and others, of the same stride."""
        top, left = map(max, self.offset, other.offset)
        bottom, right = (max(one.size[axis] - one.offset[axis] for one in (self, other)) for axis in range(2))
        return replace(self, offset=(top, left), size=(top + bottom, left + right))


@dataclass(frozen=True, eq=False)
class SymbolWindows:
    """Coefficients of symbols on an image of this shape.

    Attributes:
        groups: Windows of stride 1; in each, all symbols lie at the same phase of the strides on their way.
        symbols: By group, which symbols these are, (symbols of the group,), ascending. Others have no coefficients.
        count: The number of all symbols.
        shape: Of the image.
        field: Where the symbols are all pixels of an image, in order, what the neurons depend on.
    """

    groups: tuple[Windows, ...]
    symbols: tuple[Tensor, ...]
    count: int
    shape: Shape
    field: ReceptiveField | None

    @classmethod
    def units(cls, positions: Tensor | None, scale: Tensor | None, shape: Shape, dtype: torch.dtype) -> SymbolWindows:
        """Symbols that move one number of an image each.

        Args:
            positions: The flat positions of these numbers, ascending, (count,); None: all of them.
            scale: How far they are moved, (batch or 1, count); None: by 1.
        """
        field = ReceptiveField(shape) if positions is None else None
        if positions is None:
            positions = torch.arange(shape[0] * shape[1] * shape[2])
        windows = Windows.units(positions, shape, dtype)
        if scale is not None:
            windows = replace(windows, coefficients=from_columns(to_columns(windows.coefficients) * scale.T))
        return cls((windows,), (torch.arange(len(positions)),), len(positions), shape, field)

    @property
    def batch(self) -> int:
        return max((len(group.coefficients) for group in self.groups), default=1)

    @property
    def extent(self) -> Extent:
        """The size of the largest windows."""
        heights, widths = ([getattr(group, name) for group in self.groups] for name in ("height", "width"))
        return Extent(max(heights), max(widths), self.shape)

    def times(self, factors: Tensor) -> SymbolWindows:
        """Every coefficient times a map."""
        return self._mapped(lambda windows: windows.times(factors))

    def over(self, divisors: Tensor) -> SymbolWindows:
        """Every coefficient divided by a map."""
        return self._mapped(lambda windows: windows.over(divisors))

    def _mapped(self, function: Callable[[Windows], Windows]) -> SymbolWindows:
        return replace(self, groups=tuple(function(group) for group in self.groups))

    def plus(self, other: SymbolWindows) -> SymbolWindows | None:
        """The sums of coefficients, where the windows of both lie at the same places; else None."""
        fields = None if self.field is None or other.field is None else (self.field, other.field)
        if self.shape != other.shape or (fields is not None and fields[0].stride != fields[1].stride):
            return None
        groups = {int(symbols[0]): (group, symbols) for group, symbols in zip(self.groups, self.symbols, strict=True)}
        for group, symbols in zip(other.groups, other.symbols, strict=True):
            before, known = groups.get(int(symbols[0]), (None, symbols))
            total = group if before is None else _sum(before, group)
            if total is None or not torch.equal(known, symbols):
                return None
            groups[int(symbols[0])] = total, symbols
        windows, members = zip(*groups.values(), strict=True)
        if int(torch.cat(members).bincount().max()) > 1:
            return None
        field = None if fields is None else fields[0].joined(fields[1])
        return replace(self, groups=windows, symbols=members, field=field)

    def absolute_totals(self) -> Tensor:
        """The sum of all symbols' absolute coefficients at each coordinate: (batch or 1, size)."""
        totals = [group.absolute_totals() for group in self.groups]
        return torch.stack(torch.broadcast_tensors(*totals)).sum(0)

    def rows(self) -> Tensor:
        """All coefficients: (batch or 1, count, size)."""
        first = self.groups[0].coefficients
        rows = first.new_zeros(self.batch, self.count, self.shape[0] * self.shape[1] * self.shape[2])
        for symbols, group in zip(self.symbols, self.groups, strict=True):
            rows[:, symbols] = group.rows()
        return rows

    def lines(self) -> Iterator[RowSlices]:
        """All coefficients within the image, by the rows that they lie on and the columns where windows begin."""
        for width in sorted({group.width for group in self.groups}):
            members = [pair for pair in zip(self.groups, self.symbols, strict=True) if pair[0].width == width]
            parts = [self._lines_of(group, symbols) for group, symbols in members]
            coefficients = torch.cat([part for part, _ in parts])
            rows, columns, symbols = torch.cat([places for _, places in parts], 1)
            inside = (rows >= 0) & (rows < self.shape[1]) & (columns < self.shape[2]) & (columns > -width)
            keys = rows * (self.shape[2] + width) + columns + width
            order = inside.nonzero().flatten()
            order = order[keys[order].sort(stable=True).indices]
            _, counts = keys[order].unique_consecutive(return_counts=True)
            for chosen in order.split(counts.tolist()):
                first = int(chosen[0])
                place = int(rows[first]), int(columns[first])
                yield RowSlices(*place, width, coefficients.index_select(0, chosen), symbols[chosen])

    def _lines_of(self, group: Windows, symbols: Tensor) -> tuple[Tensor, Tensor]:
        """All lines of a group's windows, (lines, width * channels), and for each its row, the column where it begins,
        and its symbol, counted with the batch: (3, lines)."""
        begins, size = group.begins, (group.height, group.count, self.batch)
        rows = begins[0][:, None] + torch.arange(group.height)[:, None, None]
        numbers = symbols[:, None] * self.batch + torch.arange(self.batch)
        places = torch.stack([place.expand(size).flatten() for place in (rows, begins[1][:, None], numbers)])
        coefficients = group.coefficients.expand(self.batch, -1, -1, -1, -1).permute(2, 1, 0, 3, 4)
        return coefficients.flatten(3).flatten(0, 2), places

    def neurons(self) -> Iterator[Windows]:
        """The neurons of the image, in order, as forms on the image whose pixels are the symbols."""
        assert self.field is not None
        (channels, height, width), field, dtype = self.shape, self.field, self.groups[0].coefficients.dtype
        numbers = field.size[0] * field.size[1] * field.shape[0] * height * width * self.batch
        step = max(1, NEURON_BYTES // (numbers * dtype.itemsize))
        rows, columns = torch.arange(height).repeat_interleave(width), torch.arange(width).repeat(height)
        for first in range(0, channels, step):
            count = min(step, channels - first)
            image = torch.zeros(*field.size, field.shape[0], count, height, width, self.batch, dtype=dtype)
            for group, symbols in zip(self.groups, self.symbols, strict=True):
                self._transfer(group, int(symbols[0]), first, image)
            places = Places(rows.repeat(count), columns.repeat(count))
            windows = from_columns(image.flatten(3, 5))
            yield Windows(windows, field.shape, places, field.stride, field.offset).fitted()

    def _transfer(self, group: Windows, pixel: int, first: int, image: Tensor) -> None:
        """Writes the coefficients of a group's symbols, a grid of pixels in all channels, to windows of neurons.

        Args:
            pixel: The first of these pixels.
            first: The first channel of the neurons.
            image: (height, width, channels of pixels, channels of neurons, rows, columns, batch).
        """
        field, places = self.field, group.places
        assert field is not None
        assert places is not None
        count = group.count // field.shape[0]
        across = int((places.rows[:count] == places.rows[0]).sum())
        grid = to_columns(group.coefficients)[:, :, first : first + image.shape[3]]
        grid = grid.unflatten(3, (field.shape[0], count // across, across)).transpose(2, 3)
        corner, lengths = divmod(pixel, field.shape[2]), (count // across, across)
        begins = int(places.rows[0]) - group.offset[0], int(places.columns[0]) - group.offset[1]
        lanes = [
            list(enumerate(_lanes(grid.shape[axis], begins[axis], lengths[axis], self.shape[1 + axis])))
            for axis in range(2)
        ]
        top, left = (corner[axis] + field.offset[axis] - field.stride[axis] * begins[axis] for axis in range(2))
        for row, down in lanes[0]:
            for column, right in lanes[1]:
                place = top - field.stride[0] * row, left - field.stride[1] * column
                assert min(place) >= 0  # an index from the end would be another place
                cell = grid[row, column, :, :, down.symbols, right.symbols]
                image[place[0], place[1], :, :, down.neurons, right.neurons] = cell


def _lanes(size: int, begin: int, count: int, length: int) -> list[Lane]:
    """For each place of windows of this size, what `count` symbols in a row meet there: the window of the first one
    begins at `begin`, the next one's a neuron further, on an image of this length."""
    lanes = []
    for first in range(begin, begin + size):
        above = max(0, min(count, length - first))
        below = min(max(0, -first), above)
        lanes.append(Lane(slice(first + below, first + above), slice(below, above)))
    return lanes


def _sum(one: Windows, other: Windows) -> Windows | None:
    """The sum of windows that lie at the same places; None where it has none, or is as large as the image."""
    total = one.plus(other) if one.count == other.count and one.lies_like(other) else None
    return total if isinstance(total, Windows) and total.places is not None else None
