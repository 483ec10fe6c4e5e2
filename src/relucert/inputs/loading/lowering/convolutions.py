"""Convolutions and transposed convolutions of one and two axes, and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly, Kernel
from relucert.inputs.loading.lowering.moves import grid
from relucert.inputs.loading.operands import Operand

Padding = Literal["same upper", "same lower"] | tuple[Sequence[int], Sequence[int]]
"""The zeros before and after each axis, or those that keep the size; upper: an odd one comes after."""


@dataclass(frozen=True)
class Geometry:
    """How the kernel of a layer moves, with one entry per axis of the kernel."""

    stride: Sequence[int]
    padding: Padding
    dilation: Sequence[int]

    @classmethod
    def of(cls, axes: int, stride: Sequence[int], padding: Padding, dilation: Sequence[int]) -> Geometry:
        """The geometry with single numbers repeated for all axes."""
        ends = padding if isinstance(padding, str) else tuple(repeated(end, axes) for end in padding)
        return cls(repeated(stride or 1, axes), ends, repeated(dilation, axes))  # type: ignore[arg-type]

    def ends(self, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[list[int], list[int]]:
        """The zeros before and after each axis, on images of these sizes."""
        if not isinstance(self.padding, str):
            return list(self.padding[0]), list(self.padding[1])
        before, after = [], []
        for size, taps, stride, step in zip(sizes, kernel, self.stride, self.dilation, strict=True):
            total = max(0, (-(-size // stride) - 1) * stride + step * (taps - 1) + 1 - size)
            lesser, larger = total // 2, total - total // 2
            before.append(lesser if self.padding == "same upper" else larger)
            after.append(larger if self.padding == "same upper" else lesser)
        return before, after


def convolution(
    assembly: Assembly, value: Operand, weight: Tensor, bias: Tensor | None, geometry: Geometry, groups: int
) -> int:
    """weight: (output channels, input channels / groups, *kernel)."""
    axes = weight.ndim - 2

    def lower(image: int) -> int:
        before, after = geometry.ends(assembly.shape(image)[3 - axes :], weight.shape[2:])
        kernel = Kernel(pair(geometry.stride, 1), pair(before, 0), pair(after, 0), pair(geometry.dilation, 1), groups)
        return assembly.convolution(image, _with_height(weight), bias, kernel)

    return on_images(assembly, value, axes, lower)


def transposed_convolution(
    assembly: Assembly,
    value: Operand,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    groups: int,
    extra: Sequence[int],
) -> int:
    """Zeros between the coordinates, then a convolution with the mirrored kernel.

    weight: (input channels, output channels / groups, *kernel); extra: further zeros after each axis.
    """
    axes = weight.ndim - 2
    if isinstance(geometry.padding, str):
        raise UnsupportedError(f"padding {geometry.padding!r}")
    if groups < 1 or len(weight) % groups:
        raise UnsupportedError(f"{len(weight)} channels in {groups} groups")
    mirrored = _with_height(weight).flip(2, 3).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    strides, dilation = pair(geometry.stride, 1), pair(geometry.dilation, 1)
    before, after, more = pair(geometry.padding[0], 0), pair(geometry.padding[1], 0), pair(repeated(extra, axes), 0)

    def lower(image: int) -> int:
        shape = assembly.shape(image)
        rows, ends = [], []
        for axis in range(2):
            extent = dilation[axis] * (mirrored.shape[2 + axis] - 1)
            picked, margin = _spread(
                shape[1 + axis], strides[axis], extent - before[axis], extent - after[axis] + more[axis]
            )
            rows.append(picked)
            ends.append(margin)
        spread = assembly.index_map(image, grid(shape, *rows))
        (top, bottom), (left, right) = ends
        return assembly.convolution(
            spread, mirrored, bias, Kernel((1, 1), (top, left), (bottom, right), dilation, groups)
        )

    return on_images(assembly, value, axes, lower)


def batch_norm(
    assembly: Assembly,
    value: Operand,
    gain: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
) -> int:
    """`(x - mean) / sqrt(variance + epsilon) * gain + bias`, each of them (channels,)."""
    axes = len(assembly.full_shape(value)) - 2

    def by_channel(numbers: Tensor) -> Tensor:
        return numbers.reshape(-1, *[1] * axes)

    centred = assembly.add(value, by_channel(mean), -1.0)
    factor = torch.ones_like(variance) if gain is None else gain
    scaled = assembly.batch_scale(centred, by_channel(factor), by_channel(variance), epsilon)
    return scaled if bias is None else assembly.add(scaled, by_channel(bias))


def _with_height(weight: Tensor) -> Tensor:
    return weight if weight.ndim == 4 else weight.unsqueeze(2)


def _spread(size: int, stride: int, before: int, after: int) -> tuple[list[int], tuple[int, int]]:
    """Coordinates with zeros (-1) between them, cut where `before` or `after` is negative, and the zeros to add."""
    picked = [-1 if index % stride else index // stride for index in range((size - 1) * stride + 1)]
    kept = picked[max(0, -before) : len(picked) - max(0, -after)]
    if not kept:
        raise UnsupportedError("padding that leaves nothing of the image")
    return kept, (max(0, before), max(0, after))


Pair = tuple[int, int]


def on_images(assembly: Assembly, value: Operand, axes: int, lower: Callable[[int], int]) -> int:
    """Applies `lower` to images (channels, height, width), for a value whose channels have this many axes.

    Those of one axis get the height 1, which the result loses again.
    """
    full = assembly.full_shape(value)
    if axes > 2:
        raise UnsupportedError("of three axes; images have one or two")
    if len(full) != axes + 2 or (assembly.batch is None and full[0] != 1):
        expected = ("length",) if axes == 1 else ("height", "width")
        raise UnsupportedError(f"on a value of shape {full}, not (batch, channels, {', '.join(expected)})")
    channels, *sizes = full[1:]
    image = assembly.reshaped(value, (channels, *[1] * (2 - axes), *sizes))
    result = lower(image)
    channels, *sizes = assembly.shape(result)
    return assembly.reshape(result, (full[0], channels, *sizes[2 - axes :]))


def pair(numbers: Sequence[int], missing: int) -> Pair:
    """Numbers for one or two axes, the vertical one first; `missing` stands for the vertical one of one axis."""
    first, last = [missing, *numbers][-2:]
    return first, last


def repeated(numbers: int | Sequence[int], axes: int) -> list[int]:
    """A list of one number per axis; a single number is repeated for all axes."""
    by_axis = [numbers] if isinstance(numbers, int) else list(numbers)
    return by_axis * axes if len(by_axis) == 1 else by_axis
