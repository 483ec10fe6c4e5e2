"""Convolutions and transposed convolutions of one and two axes, and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.local import Axis
from relucert.inputs.loading.lowering.moves import grid
from relucert.inputs.loading.operands import Operand
from relucert.network import Shape


def convolution(
    assembly: Assembly, value: Operand, weight: Tensor, bias: Tensor | None, axes: Sequence[Axis], groups: int
) -> int:
    """weight: (output channels, input channels / groups, *kernel)."""

    def lower(image: int) -> int:
        return assembly.convolution(image, _with_height(weight), bias, [Axis(), *axes][-2:], groups)

    return on_images(assembly, value, len(axes), lower)


def transposed_convolution(
    assembly: Assembly, value: Operand, weight: Tensor, bias: Tensor | None, axes: Sequence[Axis], groups: int
) -> int:
    """Zeros between the coordinates, then a convolution with the mirrored kernel.

    weight: (input channels, output channels / groups, *kernel); axes: their padding is cut off, or added if negative.
    """
    if groups < 1 or len(weight) % groups:
        raise UnsupportedError(f"{len(weight)} channels in {groups} groups")
    mirrored = _with_height(weight).flip(2, 3).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)

    def lower(image: int) -> int:
        shape = assembly.shape(image)
        rows, columns = (
            _spread(size, axis, taps)
            for size, axis, taps in zip(shape[1:], [Axis(), *axes][-2:], mirrored.shape[2:], strict=True)
        )
        spread = assembly.index_map(image, grid(shape, rows[0], columns[0]))
        return assembly.convolution(spread, mirrored, bias, (rows[1], columns[1]), groups)

    return on_images(assembly, value, len(axes), lower)


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


def _spread(size: int, axis: Axis, taps: int) -> tuple[list[int], Axis]:
    """Coordinates with zeros (-1) between them, cut where the padding exceeds the kernel, and the axis of the rest."""
    picked = [-1 if index % axis.stride else index // axis.stride for index in range((size - 1) * axis.stride + 1)]
    before, after = (axis.extent(taps) - 1 - end for end in (axis.before, axis.after))
    kept = picked[max(0, -before) : len(picked) - max(0, -after)]
    if not kept:
        raise UnsupportedError("padding that leaves nothing of the image")
    return kept, Axis(1, max(0, before), max(0, after), axis.dilation)


def on_images(assembly: Assembly, value: Operand, axes: int, lower: Callable[[int], int]) -> int:
    """Applies `lower` to images (channels, height, width), for a value whose channels have this many axes.

    Those of one axis get the height 1, which the result loses again.
    """
    batch, channels, *sizes = image_shape(assembly, value, axes)
    result = lower(assembly.reshaped(value, (channels, *[1] * (2 - axes), *sizes)))
    channels, *sizes = assembly.shape(result)
    return assembly.reshape(result, (batch, channels, *sizes[2 - axes :]))


def image_shape(assembly: Assembly, value: Operand, axes: int) -> Shape:
    """The shape of images, batch and channels first; refused where it has not this many axes after them."""
    full = assembly.full_shape(value)
    if axes > 2:
        raise UnsupportedError("of three axes; images have one or two")
    if len(full) != axes + 2 or (assembly.batch is None and full[0] != 1):
        expected = ("length",) if axes == 1 else ("height", "width")
        raise UnsupportedError(f"on a value of shape {full}, not (batch, channels, {', '.join(expected)})")
    return full
