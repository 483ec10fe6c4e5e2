"""Convolutions of a zonotope's symbols in windows: where a window is small, so is its image."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.arithmetic.symbol_windows import SymbolWindows
from relucert.arithmetic.windows import Pair, Places, Windows, from_columns, to_columns
from relucert.common.deadline import check_time


def convolved(
    symbols: SymbolWindows, kernels: Tensor, stride: Pair, padding: Pair, shape: Shape
) -> SymbolWindows | Tensor:
    """The images of symbols under a convolution, in windows; as rows where these are as large as the image.

    Args:
        kernels: (height, width, input channels, output channels).
        padding: Above and on the left.
        shape: Of the image after it.
    """
    groups, members = [], []
    for group, indices in zip(symbols.groups, symbols.symbols, strict=True):
        for chosen in _phases(group, stride):
            part = group if len(chosen) == group.count else group.pick(chosen)
            windows = _image(part, kernels, stride, padding, shape)
            if windows.coefficients.numel():  # a stride may leave out pixels
                groups.append(windows)
                members.append(indices[chosen])
    extent = kernels.shape[0], kernels.shape[1]
    field = None if symbols.field is None else symbols.field.convolved(stride, padding, extent)
    images = SymbolWindows(tuple(groups), tuple(members), symbols.count, shape, field)
    small = all(group.height * group.width < shape[1] * shape[2] for group in groups)
    return images if small else images.rows()


def _phases(windows: Windows, stride: Pair) -> list[Tensor]:
    """The forms by where they lie between two strides: (count,) each."""
    assert windows.places is not None
    phases = windows.places.rows % stride[0] * stride[1] + windows.places.columns % stride[1]
    parts = [(phases == phase).nonzero().flatten() for phase in range(stride[0] * stride[1])]
    return [part for part in parts if len(part)]


class _Tap(NamedTuple):
    """What a coordinate of the image sees of a window along one axis: taps from the first one on, as many as there are
    coordinates, and the first of these."""

    first: int
    source: int
    length: int


def _taps(begin: int, length: int, extent: int, stride: int) -> tuple[int, list[_Tap]]:
    """The first coordinate that sees a window of this length, and what it and the next ones see.

    Args:
        begin: Where the window begins, counted from the padding on.
        extent: Of the kernel.
    """
    first, last = -((extent - 1 - begin) // stride), (begin + length - 1) // stride
    taps = []
    for coordinate in range(first, last + 1):
        start = stride * coordinate - begin  # where the first tap lies in the window
        tap = max(0, -start)
        taps.append(_Tap(tap, start + tap, min(extent, length - start) - tap))
    return first, taps


def _image(windows: Windows, kernels: Tensor, stride: Pair, padding: Pair, shape: Shape) -> Windows:
    """The image of windows that lie at one phase of the stride: one product for each of its positions and each row of
    taps that meet a window there."""
    assert windows.places is not None
    columns = to_columns(windows.mask().coefficients).flatten(3)  # (height, width, input channels, forms)
    places, offsets, taps = [], [], []
    for axis, before in enumerate(windows.places):
        begin = int(before[0]) - windows.offset[axis] + padding[axis]
        first, seen = _taps(begin, columns.shape[axis], kernels.shape[axis], stride[axis])
        places.append(before // stride[axis])
        offsets.append(int(places[axis][0]) - first)
        taps.append(seen)
    sums = columns.new_empty(len(taps[0]), len(taps[1]), shape[0], columns.shape[3])
    for down, line in zip(taps[0], sums, strict=True):
        check_time()
        for right, position in zip(taps[1], line, strict=True):
            for step in range(down.length):
                kernel = kernels[down.first + step, right.first : right.first + right.length].flatten(0, 1)
                factors = columns[down.source + step, right.source : right.source + right.length].flatten(0, 1)
                position.addmm_(kernel.mT, factors, beta=int(step > 0))
    coefficients = from_columns(sums.unflatten(3, (windows.count, len(windows.coefficients))))
    return Windows(coefficients, shape, Places(*places), (1, 1), (offsets[0], offsets[1]), masked=False)
