"""The transposed map of a convolution by products of blocks, whose columns are the forms, and its gradient.

An input meets a block of stride x stride taps of a kernel once. Rows of windows are followed by so many zeros that
neighbouring positions are what one block depends on: factors of the products overlap in memory, and their sums are all
that is written.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Pair = tuple[int, int]


def blocks_of(windows: Tensor, taps: Tensor, blocks: Pair) -> Tensor:
    """The blocks of an image that the transposed map makes of windows.

    Args:
        windows: Coefficients on the output, (height, width, output channels, forms).
        taps: By row of blocks, (rows, stride * stride * input channels, columns * output channels).
        blocks: How many rows and columns of blocks a kernel has.

    Returns:
        (rows of blocks, columns of blocks, stride * stride * input channels, forms).
    """
    image: Tensor = _BlockProducts.apply(windows, taps, blocks)  # type: ignore[no-untyped-call]
    return image


class _BlockProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, windows: Tensor, taps: Tensor, blocks: Pair) -> Tensor:
        (height, width, _, count), (rows, columns) = windows.shape, blocks
        ctx.save_for_backward(taps)
        ctx.blocks, ctx.shape = blocks, windows.shape
        pitch = width + columns - 1
        line = windows.flatten(0, 1)
        if columns > 1:
            padded = windows.new_empty(height + 1, pitch, *windows.shape[2:])
            padded[0].zero_()
            padded[1:, width:].zero_()
            padded[1:, :width] = windows
            line = padded.flatten(0, 1)[width:]
        positions = height * pitch
        image = windows.new_empty((height + rows - 1) * pitch, taps.shape[1], count)
        image[positions:].zero_()
        for row, kernel in enumerate(taps):
            sums = image[row * pitch : row * pitch + positions]
            sums.baddbmm_(kernel.expand(positions, -1, -1), _neighbours(line, columns), beta=int(row > 0))
        return image.view(height + rows - 1, pitch, *image.shape[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The convolution itself: a window's position meets the blocks beside and below it."""
        (taps,), (_, columns), (height, width, channels, count) = ctx.saved_tensors, ctx.blocks, ctx.shape
        pitch = width + columns - 1
        factors = _neighbours(gradients[0].contiguous().flatten(0, 1), columns)
        positions = height * pitch - (columns - 1)  # those between rows are of no use
        kernels = taps.unflatten(2, (columns, channels)).flip(2).permute(0, 3, 2, 1).flatten(2)
        sums = taps.new_empty(height * pitch, channels, count)
        for row, kernel in enumerate(kernels):
            part = factors[row * pitch : row * pitch + positions]
            sums[:positions].baddbmm_(kernel.expand(positions, -1, -1), part, beta=int(row > 0))
        return sums.view(height, pitch, channels, count)[:, :width], None, None


def _neighbours(line: Tensor, count: int) -> Tensor:
    """Every `count` neighbours of a line, (positions, channels, forms): (places, count * channels, forms), a view."""
    return line.unfold(0, count, 1).permute(0, 3, 1, 2).flatten(1, 2)
