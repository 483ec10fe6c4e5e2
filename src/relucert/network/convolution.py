"""A two-dimensional convolution; one-dimensional ones have images of height 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from relucert.arithmetic.forms import LinearForms, Shape
from relucert.arithmetic.symbol_windows import Extent, SymbolWindows
from relucert.arithmetic.windows import Places, Windows, from_columns, to_columns
from relucert.common.deadline import check_time
from relucert.common.slicing import CHUNK_BYTES, in_chunks
from relucert.errors import NetworkError
from relucert.network.block_products import ByChannels, ByForms, ByPositions
from relucert.network.convolved_symbols import convolved
from relucert.network.operation import Affine, differentiable
from relucert.network.registry import register

MANY = 64  # numbers of a kernel for each form: for fewer forms a product at every position is not worth its set-up
SPARSE = 4  # from so many positions per column of a window on, products at every one mostly multiply with zeros
IMAGES_AT_ONCE = 64  # in a product at every position: tuned on 16 to 256 images of 32 x 64 x 64
LEAST_FACTORS = 48  # input channels times kernel width from which products by images are the faster ones


@register
class Convolution(Affine):
    """A convolution of images (channels, height, width), zero outside.

    It is computed as explicit products and sums, to which the rounding model applies: a library's convolution may use
    other algorithms.

    Attributes:
        weight: (output channels, input channels / groups, kernel height, kernel width).
        bias: (output channels,).
        size: The height and width of the input.
        stride: Vertical and horizontal.
        padding: Zeros on each side: top, left, bottom, right.
        dilation: Vertical and horizontal distance of the kernel's taps.
        groups: Parts of the channels that are convolved separately.
    """

    name = "convolution"
    weight: Tensor
    bias: Tensor
    size: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    groups: int

    def shape(self, *inputs: Shape) -> Shape:
        if self.weight.ndim != 4 or self.bias.shape != self.weight.shape[:1] or not self.weight.numel():
            raise NetworkError(
                f"convolution: a weight of shape {tuple(self.weight.shape)} and a bias of {tuple(self.bias.shape)}"
            )
        lengths = len(self.size), len(self.stride), len(self.padding), len(self.dilation)
        if lengths != (2, 2, 4, 2) or min(*self.stride, *self.dilation, self.groups) < 1 or min(self.padding) < 0:
            raise NetworkError(
                f"convolution: size {self.size}, stride {self.stride}, padding {self.padding}, "
                f"dilation {self.dilation}, groups {self.groups}"
            )
        channels = self.weight.shape[1] * self.groups
        if inputs[0] != (channels, *self.size) or self.weight.shape[0] % self.groups:
            raise NetworkError(
                f"convolution: made for {(channels, *self.size)} and {self.groups} groups of "
                f"{self.weight.shape[0]} output channels, got an input of shape {inputs[0]}"
            )
        if min(self._output_size) < 1:
            raise NetworkError(f"convolution: an input of {self.size} is smaller than the kernel")
        return (self.weight.shape[0], *self._output_size)

    def linear(self, *inputs: Tensor) -> Tensor:
        batch, images = inputs[0].shape[:-3], inputs[0].reshape(-1, *inputs[0].shape[-3:])
        tracked = torch.is_grad_enabled() and (images.requires_grad or self.weight.requires_grad)
        if 4 * len(images) > IMAGES_AT_ONCE and self._suits_images and not tracked:
            return in_chunks(self._by_images, images, IMAGES_AT_ONCE).reshape(*batch, -1, *self._output_size)
        column_bytes = self.groups * self._rows.shape[2] * self._positions * images.element_size()
        sums = in_chunks(self._sums, images, CHUNK_BYTES // column_bytes)
        return sums.reshape(*batch, -1, *self._output_size)

    @property
    def _suits_images(self) -> bool:
        """Whether products whose columns are images are long enough to be fast."""
        return self.groups == 1 and self.dilation == (1, 1) and self.weight[0, :, 0].numel() >= LEAST_FACTORS

    def _sums(self, images: Tensor) -> Tensor:
        """`linear` of images, (count, channels, height, width): (count, groups, channels of a group, positions)."""
        columns = functional.unfold(self._pad(images), self._kernel, dilation=self.dilation, stride=self.stride)
        sums: Tensor = self._rows @ columns.unflatten(1, (self.groups, -1))
        return sums

    def _by_images(self, images: Tensor) -> Tensor:
        """`linear` of many images by products at every position, whose columns are the images.

        What a row of the kernel sees at a position lies in one piece, so factors overlap in memory and are no copies.
        """
        padded = self._pad(images).permute(2, 3, 1, 0).contiguous()  # (height, width, input channels, count)
        (_, width, channels, count), (down, across), (rows, columns) = padded.shape, self._step, self._output_size
        kernels = self._kernels.flatten(1, 2).mT  # (kernel height, output channels, kernel width * input channels)
        strides, line = (across * channels * count, count, 1), width * channels * count
        sums = padded.new_empty(rows, columns, self.weight.shape[0], count)
        for row, row_sums in enumerate(sums):
            check_time()
            for tap, kernel in enumerate(kernels):
                first = padded.storage_offset() + (row * down + tap) * line  # strided views count from the storage
                factors = padded.as_strided((columns, kernel.shape[1], count), strides, first)
                row_sums.baddbmm_(kernel.expand(columns, -1, -1), factors, beta=int(tap > 0))
        return sums.permute(3, 2, 0, 1)

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        batch = coefficients.shape[:-3]
        shape = coefficients.shape[-3:]
        forms = Windows.whole(coefficients.reshape(1, prod(batch), prod(shape)), shape)
        images = self.pull(forms, (self._input_shape,))[0].rows()
        return (images.reshape(*batch, *self._input_shape),)

    def quick(self, *inputs: Tensor) -> Tensor:
        return functional.conv2d(self._pad(inputs[0]), self.weight, None, self.stride, 0, self.dilation, self.groups)

    def quick_transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        image = functional.conv_transpose2d(
            coefficients, self.weight, None, self.stride, 0, 0, self.groups, self.dilation
        )  # fmt: skip
        (height, width), (top, left) = self.size, self._begin
        below, beside = height + top - image.shape[2], width + left - image.shape[3]  # negative: it is cut
        return (functional.pad(image, (-left, beside, -top, below)),)

    @property
    def constant(self) -> Tensor:
        return self.bias[:, None, None]

    @property
    def terms(self) -> int:
        taps = self._kernel[0] * self._kernel[1]  # what else `pull` adds up are exact zeros
        return max(self.weight.shape[1], self.weight.shape[0] // self.groups) * taps

    @cached_property
    def roundings(self) -> int:
        """Zeros in a kernel, and a single one with nothing added, round nothing."""
        kernels = self.weight.flatten(1)
        selects = bool((kernels.abs().sum(1) <= 1).all() and ((kernels == 0) | (kernels.abs() == 1)).all())
        if selects and not bool(self.bias.any()):
            return 0
        return int((kernels != 0).sum(1).max()) + 1

    @property
    def work(self) -> int:
        return self.weight.numel() * self._positions

    @property
    def products(self) -> float:
        return 1 + self.stride[0] * self.stride[1] * self.weight.shape[1] * self.groups / self.weight.shape[0]

    def unit_forms(self, neurons: Tensor, shape: Shape) -> Windows:
        channels, positions = neurons // self._positions, neurons % self._positions
        places = Places(positions // self._output_size[1], positions % self._output_size[1])
        kernels = from_columns(self._kernels.index_select(3, channels)[..., None])
        return Windows(kernels, shape, places, self._step, self._begin, masked=not any(self.padding)).fitted()

    def pull(self, forms: LinearForms, shapes: Sequence[Shape]) -> tuple[LinearForms, ...]:
        """Pulls windows back by one product per row of blocks: an input meets a block of stride x stride taps once."""
        windows = forms if isinstance(forms, Windows) else Windows.whole(forms.rows(), forms.shape)
        coefficients = windows.mask().coefficients  # (batch, forms, height, width, output channels)
        form_bytes = max(1, int(coefficients[:, :1].numel() * self.products)) * coefficients.element_size()
        step, parts = max(1, CHUNK_BYTES // form_bytes), []
        for first in range(0, max(1, windows.count), step):
            check_time()
            part = coefficients if step >= windows.count else coefficients[:, first : first + step]
            parts.append(to_columns(self._transposed(part)))
        image = from_columns(torch.cat(parts, 3) if len(parts) > 1 else parts[0])
        return (windows.moved(image, shapes[0], self._step, self._begin),)

    def _transposed(self, coefficients: Tensor) -> Tensor:
        """The transposed map of windows, (batch, forms, height, width, output channels): larger ones, on the input."""
        (batch, count, height, width), (rows, columns) = coefficients.shape[:4], self._blocks
        (down, across), inputs = self.stride, self.weight.shape[1]
        forms = to_columns(coefficients).flatten(3)
        if self.groups == self.weight.shape[0] and inputs == 1:
            image: Tensor = ByChannels.apply(forms, self._taps, self._blocks)  # type: ignore[no-untyped-call]
            image = image.unflatten(2, self._step)
        else:
            few = batch * count * MANY < self._taps[0, 0].numel() or width * SPARSE < width + columns - 1
            transposed = (ByPositions if few else ByForms).apply
            parts = [
                transposed(group, taps, self._blocks).unflatten(2, (*self.stride, inputs))  # type: ignore[no-untyped-call]
                for group, taps in zip(forms.chunk(self.groups, 2), self._taps, strict=True)
            ]
            image = parts[0] if self.groups == 1 else torch.cat(parts, 4)
        size = (height + rows - 1) * down, (width + columns - 1) * across, self.groups * inputs
        whole = image.transpose(1, 2).reshape(*size, count, batch)
        tall, wide = (self._extent(axis, length) for axis, length in enumerate((height, width)))
        return from_columns(whole[:tall, :wide])

    def images(self, symbols: SymbolWindows, shape: Shape) -> SymbolWindows | Tensor:
        if symbols.shape != shape:
            return super().images(symbols, shape)
        return convolved(symbols, self._kernels, self._step, self._begin, (self.weight.shape[0], *self._output_size))

    def count_image(self, extent: Extent) -> tuple[int, Extent | None]:
        if extent.image != self._input_shape:
            return self.work, None
        taps = self._kernels.numel() // self._kernels.shape[2]
        lengths = [
            (length + self._extent(axis, 1) - 2) // self.stride[axis] + 1
            for axis, length in enumerate((extent.height, extent.width))
        ]
        work = min(self.work, extent.numbers * taps // (self.stride[0] * self.stride[1]))
        fits = lengths[0] * lengths[1] < self._positions
        return work, Extent(lengths[0], lengths[1], (self.weight.shape[0], *self._output_size)) if fits else None

    @property
    def _input_shape(self) -> Shape:
        return (self.weight.shape[1] * self.groups, *self.size)

    @property
    def _step(self) -> tuple[int, int]:
        return self.stride[0], self.stride[1]

    @property
    def _begin(self) -> tuple[int, int]:
        """The padding above and on the left."""
        return self.padding[0], self.padding[1]

    @property
    def _kernel(self) -> tuple[int, int]:
        return self.weight.shape[2], self.weight.shape[3]

    @cached_property
    def _output_size(self) -> tuple[int, int]:
        padded = self.size[0] + self.padding[0] + self.padding[2], self.size[1] + self.padding[1] + self.padding[3]
        height, width = (
            (length - step * (kernel - 1) - 1) // stride + 1
            for length, step, kernel, stride in zip(padded, self.dilation, self._kernel, self.stride, strict=True)
        )
        return height, width

    @property
    def _positions(self) -> int:
        return self._output_size[0] * self._output_size[1]

    @cached_property
    @differentiable
    def _rows(self) -> Tensor:
        """(groups, output channels of a group, taps)"""
        rows: Tensor = self.weight.flatten(1).unflatten(0, (self.groups, -1))
        return rows

    @cached_property
    @differentiable
    def _dilated(self) -> Tensor:
        """The kernels with zeros between their taps: (output channels, input channels / groups, height, width)."""
        height, width = self._extent(0, 1), self._extent(1, 1)
        wide = self.weight.new_zeros(*self.weight.shape[:2], height, width)
        wide[:, :, :: self.dilation[0], :: self.dilation[1]] = self.weight
        return wide

    @cached_property
    @differentiable
    def _kernels(self) -> Tensor:
        """The same on all input channels: (height, width, input channels, output channels)."""
        if self.groups == 1:
            return self._dilated.permute(2, 3, 1, 0).contiguous()
        grouped = self._dilated.unflatten(0, (self.groups, -1))
        apart = torch.diag_embed(grouped.movedim(0, -1)).movedim((-2, -1), (0, 2))
        return apart.flatten(2, 3).flatten(0, 1).permute(2, 3, 1, 0).contiguous()

    @property
    def _blocks(self) -> tuple[int, int]:
        """How many blocks of stride x stride taps cover the kernel."""
        return -(-self._extent(0, 1) // self.stride[0]), -(-self._extent(1, 1) // self.stride[1])

    @cached_property
    @differentiable
    def _taps(self) -> Tensor:
        """The kernels by blocks of taps: (groups, rows of blocks, stride * stride * input channels of a group,
        columns of blocks * output channels of a group), the last column of blocks first."""
        (rows, columns), (down, across) = self._blocks, self.stride
        height, width = self._dilated.shape[2:]
        padded = functional.pad(self._dilated, (0, columns * across - width, 0, rows * down - height))
        blocks = padded.unflatten(3, (columns, across)).unflatten(2, (rows, down)).unflatten(0, (self.groups, -1))
        taps: Tensor = blocks.permute(0, 3, 4, 6, 2, 5, 1).flip(5).flatten(5, 6).flatten(2, 4)
        return taps.contiguous()

    def _pad(self, images: Tensor) -> Tensor:
        top, left, bottom, right = self.padding
        return functional.pad(images, (left, right, top, bottom)) if any(self.padding) else images

    def _extent(self, axis: int, length: int) -> int:
        """How many input coordinates this many output coordinates in a row see."""
        return self.stride[axis] * (length - 1) + self.dilation[axis] * (self._kernel[axis] - 1) + 1
