"""Layers that only move, repeat or drop numbers: the foreign operator itself says which, at a tensor of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce as fold
from math import prod

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand
from relucert.network import Shape


def move(
    assembly: Assembly,
    run: Callable[[list[Tensor]], Tensor],
    operands: Sequence[Operand],
    fill: float = 0.0,
) -> int:
    """The sum of index maps, one per operand, that move numbers as a foreign operator does.

    Args:
        assembly: The network so far.
        run: The operator, on tensors of the operands' shapes, batch first. It puts zeros where nothing is moved to.
        operands: Values and constants.
        fill: The number that replaces these zeros.
    """
    values: list[int] = []
    offsets: list[Tensor] = []
    outside = None
    for number, operand in enumerate(operands):
        if isinstance(operand, Tensor):
            zeros = _zeros(assembly, operands, operand.dtype)
            offsets.append(_alone(assembly, run([*zeros[:number], operand, *zeros[number + 1 :]])))
            continue
        zeros = _zeros(assembly, operands, torch.float64)
        result = run([*zeros[:number], _positions(assembly, operand), *zeros[number + 1 :]])
        indices = _source_indices(assembly, result, prod(assembly.shape(operand)))
        values.append(assembly.index_map(operand, indices))
        outside = indices < 0 if outside is None else outside & (indices < 0)
    moved: Operand = fold(lambda left, right: assembly.add(left, right), values)
    if fill and outside is not None and bool(outside.any()):
        offsets.append(torch.where(outside, torch.tensor(fill, dtype=torch.float64), 0.0))
    for offset in offsets:
        if bool(offset.any()):
            moved = assembly.add(moved, offset)
    assert not isinstance(moved, Tensor)
    return moved


def choose(assembly: Assembly, condition: Tensor, value: Operand, other: Operand) -> int:
    """The value where a constant condition holds, elsewhere the other one; each is moved, and zero where not chosen."""
    if any(isinstance(operand, Tensor) and not bool(operand.isfinite().all()) for operand in (value, other)):
        raise UnsupportedError("a choice of numbers that are not finite")
    return move(assembly, lambda tensors: torch.where(condition.bool(), tensors[0], tensors[1]), [value, other])


def grid(shape: Shape, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """The flat positions in an image (channels, height, width) of these rows and columns, in which -1 is zero."""
    channels, height, width = shape
    down, across = torch.tensor(rows)[:, None], torch.tensor(columns)
    indices = torch.arange(channels)[:, None, None] * (height * width) + down * width + across
    return torch.where((down < 0) | (across < 0), -1, indices)


def _positions(assembly: Assembly, value: int) -> Tensor:
    """The positions of all numbers, counted from 1 on through the images of the batch."""
    full = assembly.full_shape(value)
    return torch.arange(1, prod(full) + 1, dtype=torch.float64).reshape(full)


def _zeros(assembly: Assembly, operands: Sequence[Operand], dtype: torch.dtype) -> list[Tensor]:
    shapes = [operand.shape if isinstance(operand, Tensor) else assembly.full_shape(operand) for operand in operands]
    return [torch.zeros(shape, dtype=dtype) for shape in shapes]


def _source_indices(assembly: Assembly, result: Tensor, size: int) -> Tensor:
    """The indices in one image that a move leads to, without the batch; -1 stands for zero."""
    assembly.without_batch(tuple(result.shape))
    if not result.numel():
        raise UnsupportedError(f"a result of shape {tuple(result.shape)}, without numbers")
    indices = result.long()
    if assembly.batch is None:
        return indices - 1
    first = indices[0]
    images = torch.arange(assembly.batch).reshape(-1, *[1] * first.ndim) * size
    if not torch.equal(indices, torch.where(first > 0, first + images, 0)):
        raise UnsupportedError("it moves numbers from one image of the batch to another")
    return first - 1


def _alone(assembly: Assembly, result: Tensor) -> Tensor:
    """A moved constant without the batch, whose images must not differ."""
    assembly.without_batch(tuple(result.shape))
    if assembly.batch is None:
        return result
    if not torch.equal(result, result[:1].expand_as(result)):
        raise UnsupportedError("a constant that differs from image to image of the batch")
    return result[0]
