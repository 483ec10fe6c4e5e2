"""The transposed map of a convolution by products of blocks, and its gradient, in three ways.

An input meets a block of stride x stride taps of a kernel once. Each way takes windows, coefficients on the output,
(height, width, output channels, forms), and taps by row of blocks, (rows, stride * stride * input channels, columns *
output channels), the last column of blocks first. It returns the image in blocks: (rows of blocks, columns of blocks,
stride * stride * input channels, forms).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relucert.arithmetic.windows import Pair

PRODUCT_BYTES = 2**22  # of one product for all positions, which is about a cache's size


class ByForms(torch.autograd.Function):
    """The image by products at every position, whose columns are the forms.

    Rows of windows are followed by so many zeros that neighbouring positions are what one block depends on: factors of
    the products overlap in memory, and their sums are all that is written.
    """

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


class ByPositions(torch.autograd.Function):
    """The image by one product whose columns are all forms at all positions, and sums of slices: for few forms, and for
    kernels far wider than the windows."""

    @staticmethod
    def forward(ctx: Any, windows: Tensor, taps: Tensor, blocks: Pair) -> Tensor:
        (height, width, channels, count), (rows, columns) = windows.shape, blocks
        kernels = taps.unflatten(2, (columns, channels)).flip(2).transpose(1, 2).reshape(-1, channels)
        ctx.save_for_backward(kernels)
        ctx.shape = windows.shape
        image = windows.new_zeros(height + rows - 1, width + columns - 1, taps.shape[1], count)
        step = max(1, PRODUCT_BYTES // max(1, len(kernels) * height * width * windows.element_size()))
        for first in range(0, count, step):
            part, sums = windows[..., first : first + step], image[..., first : first + step]
            products = kernels @ part.movedim(2, 0).flatten(1)
            blocked = products.view(rows, columns, taps.shape[1], height, width, part.shape[3])
            for row in range(rows):
                for column in range(columns):
                    sums[row : row + height, column : column + width].add_(blocked[row, column].movedim(0, 2))
        return image

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (kernels,), (height, width, channels, count) = ctx.saved_tensors, ctx.shape
        met = gradients[0].unfold(0, height, 1).unfold(1, width, 1)  # (rows, columns, taps, forms, height, width)
        sums = kernels.T @ met.permute(0, 1, 2, 4, 5, 3).reshape(len(kernels), -1)
        return sums.view(channels, height, width, count).movedim(0, 2), None, None


class ByChannels(torch.autograd.Function):
    """The image where every channel has a kernel of its own (a depthwise convolution), by products number by number.

    taps: of every channel, (channels, rows, stride * stride, columns).
    Returns (rows of blocks, columns of blocks, stride * stride, channels, forms).
    """

    @staticmethod
    def forward(ctx: Any, windows: Tensor, taps: Tensor, blocks: Pair) -> Tensor:
        assert windows.dtype == taps.dtype  # products number by number would take any
        (height, width, channels, count), (rows, columns) = windows.shape, blocks
        kernels = taps.permute(1, 3, 2, 0).flip(1)[..., None]  # (rows, columns, stride * stride, channels, 1)
        ctx.save_for_backward(kernels)
        ctx.shape = windows.shape
        image = windows.new_zeros(height + rows - 1, width + columns - 1, kernels.shape[2], channels, count)
        for row in range(rows):
            for column in range(columns):
                meeting = image[row : row + height, column : column + width]
                meeting.addcmul_(windows[:, :, None], kernels[row, column])
        return image

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (kernels,), (height, width) = ctx.saved_tensors, ctx.shape[:2]
        sums = kernels.new_zeros(ctx.shape)
        for row, row_kernels in enumerate(kernels):
            for column, kernel in enumerate(row_kernels):
                meeting = gradients[0][row : row + height, column : column + width]
                sums += (meeting * kernel).sum(2)
        return sums, None, None


def _neighbours(line: Tensor, count: int) -> Tensor:
    """Every `count` neighbours of a line, (positions, channels, forms): (places, count * channels, forms), a view."""
    return line.unfold(0, count, 1).permute(0, 3, 1, 2).flatten(1, 2)
