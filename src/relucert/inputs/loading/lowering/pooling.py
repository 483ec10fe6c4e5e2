"""Average and maximum pooling by convolutions of one channel each, which keep neurons local."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.local import Axis
from relucert.inputs.loading.lowering.convolutions import on_images
from relucert.inputs.loading.operands import Operand


@dataclass(frozen=True)
class Window(Axis):
    """How windows lie along one axis; ceil: a last window may reach beyond the image and its padding."""

    taps: int = 1
    ceil: bool = False

    @property
    def length(self) -> int:
        """How many coordinates a window covers."""
        return self.extent(self.taps)

    def count(self, size: int) -> int:
        """How many windows there are on an axis of this size."""
        room = size + self.before + self.after - self.length
        count = (-(-room // self.stride) if self.ceil else room // self.stride) + 1
        if self.ceil and (count - 1) * self.stride >= size + self.before:  # it would lie in the padding alone
            count -= 1
        if count < 1 or min(self.before, self.after) < 0:
            raise UnsupportedError(f"windows of {self.length}, padding {self.before} and {self.after}, on {size}")
        return count

    def positions(self, size: int) -> Tensor:
        """The coordinates of all taps, which may lie outside: (windows, taps)."""
        begins = torch.arange(self.count(size)) * self.stride - self.before
        return begins[:, None] + torch.arange(self.taps) * self.dilation

    def inside(self, size: int) -> Tensor:
        """Whether taps lie on the image: (windows, taps)."""
        indices = self.positions(size)
        inside = (indices >= 0) & (indices < size)
        if not bool(inside.any(1).all()):
            raise UnsupportedError("a window of padding alone")
        return inside

    def reaching(self, size: int) -> Window:
        """The window with as many zeros after the image as its last position needs."""
        return replace(self, after=max(0, (self.count(size) - 1) * self.stride + self.length - size - self.before))


def windows(axes: Sequence[Axis], kernel: Sequence[int], ceil: bool) -> list[Window]:
    """The windows of kernels that move along axes."""
    return [Window(**vars(axis), taps=taps, ceil=ceil) for axis, taps in zip(axes, kernel, strict=True)]


def adaptive(sizes: Sequence[int], counts: Sequence[int | None]) -> list[Window]:
    """The windows of an adaptive pooling.

    counts: How many windows each axis has, None for one per coordinate; each size must be a multiple of its count.
    """
    wanted = [size if count is None else count for size, count in zip(sizes, counts, strict=True)]
    if any(count < 1 or size % count for size, count in zip(sizes, wanted, strict=True)):
        raise UnsupportedError(f"{tuple(sizes)} is no multiple of {tuple(wanted)}: windows would differ in size")
    lengths = [size // count for size, count in zip(sizes, wanted, strict=True)]
    return [Window(stride=length, taps=length) for length in lengths]


def average(
    assembly: Assembly, value: Operand, windows: Sequence[Window], padded: bool, divisor: int | None = None
) -> int:
    """The mean of every window, with a division; padded: zeros that were added count, too."""
    across = [Window(), *windows][-2:]

    def lower(image: int) -> int:
        channels, *sizes = assembly.shape(image)
        ones = torch.ones(channels, 1, *(window.taps for window in across), dtype=assembly.precision)
        summed = _convolved(assembly, image, ones, across)
        rows, columns = (_counts(window, size, padded) for window, size in zip(across, sizes, strict=True))
        counts = rows[:, None] * columns if divisor is None else torch.tensor(divisor)
        numbers = (counts if counts.unique().numel() > 1 else counts.flatten()[0]).double()
        return summed if bool((numbers == 1).all()) else assembly.divide(summed, numbers)

    return on_images(assembly, value, len(windows), lower)


def largest(assembly: Assembly, value: Operand, windows: Sequence[Window]) -> int:
    """The largest number of every window: along the columns of an image, then along its rows."""

    def lower(image: int) -> int:
        for axis, window in enumerate([Window(), *windows][-2:]):
            image = largest_along(assembly, image, axis, window)
        return image

    return on_images(assembly, value, len(windows), lower)


def largest_along(assembly: Assembly, image: int, axis: int, window: Window) -> int:
    """The largest number of every window along the height (axis 0) or the width (axis 1) of an image."""
    if window == Window():
        return image
    inside = window.inside(assembly.shape(image)[1 + axis])
    taps = [tap for tap in range(window.taps) if bool(inside[:, tap].any())]
    with assembly.exact():
        return _Along(assembly, image, axis, window, inside).largest(taps)


@dataclass(frozen=True)
class _Along:
    """Maxima along one axis of an image, in a tree over the taps of a window: max(p, q) = q + relu(p - q)."""

    assembly: Assembly
    image: int
    axis: int
    window: Window
    inside: Tensor  # which taps lie on the image: (windows, taps)

    def largest(self, taps: list[int]) -> int:
        """The maximum of these taps, of those that lie inside; zero where none does."""
        if len(taps) == 1:
            return self._taps({taps[0]: 1.0})
        left, right = taps[: (len(taps) + 1) // 2], taps[(len(taps) + 1) // 2 :]
        left_inside, right_inside = (self.inside[:, half].any(1) for half in (left, right))
        base = self.largest(right)
        if len(taps) == 2:
            difference = self._taps({left[0]: 1.0, right[0]: -1.0})
            alone = None
        else:
            alone = self.largest(left)
            difference = self.assembly.add(alone, base, -1.0)
        maximum = self.assembly.add(base, self.assembly.relu(self._where(left_inside & right_inside, difference)))
        if not bool((left_inside & ~right_inside).any()):
            return maximum
        alone = self.largest(left) if alone is None else alone
        return self.assembly.add(maximum, self._where(left_inside & ~right_inside, alone))

    def _taps(self, weights: dict[int, float]) -> int:
        """The windows' sums of these taps, with these weights; zero outside the image."""
        across = (self.window, Window()) if self.axis == 0 else (Window(), self.window)
        channels = self.assembly.shape(self.image)[0]
        kernel = torch.zeros(channels, 1, self.window.taps, dtype=self.assembly.precision)
        for tap, weight in weights.items():
            kernel[:, :, tap] = weight
        return _convolved(self.assembly, self.image, kernel.unsqueeze(3 - self.axis), across)

    def _where(self, condition: Tensor, value: int) -> int:
        """The value at the windows along the axis where the condition holds, zero at others."""
        if bool(condition.all()):
            return value
        mask = condition.to(self.assembly.precision)
        return self.assembly.multiply(value, mask.reshape((1, -1, 1) if self.axis == 0 else (1, 1, -1)))


def _convolved(assembly: Assembly, image: int, kernels: Tensor, across: Sequence[Window]) -> int:
    """Each channel by a kernel of its own; kernels: (channels, 1, height, width)."""
    axes = [window.reaching(size) for window, size in zip(across, assembly.shape(image)[1:], strict=True)]
    return assembly.convolution(image, kernels, None, axes, len(kernels))


def _counts(window: Window, size: int, padded: bool) -> Tensor:
    """How many coordinates every window has: (windows,)."""
    return (window.positions(size) < size + window.after).sum(1) if padded else window.inside(size).sum(1)
