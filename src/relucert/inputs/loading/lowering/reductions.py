"""Sums, means, maxima and norms over axes, by convolutions whose kernels are as long as the axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from itertools import groupby
from math import prod

import torch

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering.activations import absolute
from relucert.inputs.loading.lowering.pooling import Window, largest_along
from relucert.inputs.loading.operands import Operand, scalar
from relucert.network import Power, Shape, Sqrt

Reduced = tuple[bool, bool, bool]
"""Which axes of an image (channels, height, width) are reduced."""


def total(assembly: Assembly, value: Operand, axes: Collection[int], keep_axes: bool) -> int:
    """The sum over these axes, counted with the batch as axis 0; keep_axes: they stay, with size 1."""
    before, reduced = assembly.shape(value), assembly.axes(value, axes)
    with assembly.one_sum(prod(before[axis] for axis in reduced) + 1):  # one more where a mean scales its terms
        return _over(assembly, value, axes, keep_axes, _sum)


def mean(assembly: Assembly, value: Operand, axes: Collection[int], keep_axes: bool) -> int:
    """The mean over these axes: their sum, divided by the count."""
    summed = total(assembly, value, axes, keep_axes)
    count = prod(assembly.shape(value)) // max(1, prod(assembly.shape(summed)))
    return summed if count == 1 else assembly.divide(summed, scalar(float(count)))


def maximum(assembly: Assembly, value: Operand, axes: Collection[int], keep_axes: bool) -> int:
    """The largest number over these axes."""
    return _over(assembly, value, axes, keep_axes, _largest)


def minimum(assembly: Assembly, value: Operand, axes: Collection[int], keep_axes: bool) -> int:
    """The smallest number over these axes: the largest of the negated ones, negated."""
    negated = assembly.multiply(value, scalar(-1.0))
    return assembly.multiply(maximum(assembly, negated, axes, keep_axes), scalar(-1.0))


def norm(assembly: Assembly, value: Operand, axes: Collection[int], keep_axes: bool, order: float) -> int:
    """The norm over these axes, of the order 1, 2, infinity (the largest size) or -infinity (the smallest)."""
    if order == 2:
        squares = total(assembly, assembly.activation(Power(2), value), axes, keep_axes)
        return assembly.activation(Sqrt(), squares)
    over = {1.0: total, math.inf: maximum, -math.inf: minimum}.get(order)
    if over is None:
        raise UnsupportedError(f"a norm of the order {order:g}")
    return over(assembly, absolute(assembly, value), axes, keep_axes)


def normalised(assembly: Assembly, value: Operand, axis: int, order: float) -> int:
    """The value divided by its norm along an axis; not defined where that is zero."""
    return assembly.divide(value, norm(assembly, value, [axis], True, order))


def _over(
    assembly: Assembly,
    value: Operand,
    axes: Collection[int],
    keep_axes: bool,
    lower: Callable[[Assembly, int, Reduced], int],
) -> int:
    before, reduced = assembly.shape(value), assembly.axes(value, axes)
    kept = tuple(1 if axis in reduced else size for axis, size in enumerate(before))
    image = assembly.reshaped(value, before)
    for shape, axes_reduced in _images(before, reduced):
        image = lower(assembly, assembly.reshaped(image, shape), axes_reduced)
    after = kept if keep_axes else tuple(size for axis, size in enumerate(before) if axis not in reduced)
    return assembly.reshaped(image, after)


def _images(before: Shape, reduced: Collection[int]) -> list[tuple[Shape, Reduced]]:
    """The images to reduce in turn, and which of their axes: neighbours of a value that is no image become one."""
    if len(before) == 3:
        return [(before, (0 in reduced, 1 in reduced, 2 in reduced))]
    images: list[tuple[Shape, Reduced]] = []
    sizes = list(before)
    for goes, group in groupby(range(len(before)), key=lambda axis: axis in reduced):
        run = list(group)
        if goes:
            first, last = run[0], run[-1] + 1
            shape = prod(sizes[:first]), prod(sizes[first:last]), prod(sizes[last:])
            images.append((shape, (False, True, False)))
            sizes[first:last] = [1] * len(run)
    return images


def _sum(assembly: Assembly, image: int, reduced: Reduced) -> int:
    shape = assembly.shape(image)
    kernel = [size if is_reduced else 1 for size, is_reduced in zip(shape, reduced, strict=True)]
    if prod(kernel) == prod(shape):
        ones = torch.ones(1, prod(shape), dtype=assembly.precision)
        return assembly.reshaped(assembly.linear(assembly.reshaped(image, (prod(shape),)), ones), (1, 1, 1))
    apart = 1 if reduced[0] else shape[0]
    ones = torch.ones(apart, *kernel, dtype=assembly.precision)
    return assembly.convolution(image, ones, groups=apart)


def _largest(assembly: Assembly, image: int, reduced: Reduced) -> int:
    for axis, is_reduced in enumerate(reduced[1:]):
        if is_reduced:
            image = largest_along(assembly, image, axis, Window(taps=assembly.shape(image)[1 + axis]))
    channels, height, width = assembly.shape(image)
    if not reduced[0]:
        return image
    stacked = assembly.reshaped(image, (1, channels, height * width))
    return assembly.reshaped(largest_along(assembly, stacked, 0, Window(taps=channels)), (1, height, width))
