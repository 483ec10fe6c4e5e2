"""The forward driver: a zonotope is carried from the input through the network.

Every value is held as `centre + sum of coefficients times symbols`, up to an error: the symbols are the input's
deviation from the ball's centre (bounded through the dual norm) and, for every undecided ReLU met so far, one
number in [-1, 1]. With Fast-Lin's relaxer the bounds are those of the paper's Algorithm 1 (see docs/fast-lin.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.relaxers import Interval, Relaxation, Relaxer
from relucert.errors import InputError
from relucert.network import Affine, Network, Units
from relucert.region import Ball
from relucert.rigor import TINY, Arithmetic, absolute_sum

Bounds = dict[int, Interval]
Block = Tensor | Units
INPUT = 0  # the source of the input's own symbols; other sources are the values that ReLUs make


@dataclass(frozen=True, eq=False)
class Zonotope:
    """An enclosure of one value.

    centre, radius, error: (batch, size), the radius being how far the symbols reach and the error what rounding
    may have added; error may be a single zero. blocks: for each source of symbols its coefficients, rows
    (batch or 1, symbols, size) or units. Where `support` is set, rows hold its coordinates alone, the others are 0.
    """

    centre: Tensor
    radius: Tensor
    error: Tensor
    blocks: dict[int, Block]
    support: Tensor | None

    def interval(self, arithmetic: Arithmetic) -> Interval:
        reach = arithmetic.above(self.radius + self.error, 1)
        if arithmetic.rigorous:  # a centre that overflowed says nothing
            reach = torch.where(self.centre.isfinite(), reach, torch.inf)
        return Interval(arithmetic.floor(self.centre - reach), arithmetic.ceil(self.centre + reach))

    def dense(self) -> dict[int, Tensor]:
        """All coefficients as rows over every coordinate."""
        return {source: self._widen(block) for source, block in self.blocks.items()}

    def _widen(self, block: Block) -> Tensor:
        width = self.centre.shape[-1] if self.support is None else len(self.support)
        rows = block.dense(width, self.centre.dtype) if isinstance(block, Units) else block
        if self.support is None:
            return rows
        wide = rows.new_zeros(*rows.shape[:-1], self.centre.shape[-1])
        wide[..., self.support] = rows
        return wide


def forward(network: Network, ball: Ball, relaxer: Relaxer, arithmetic: Arithmetic, wanted: tuple[int, ...]) -> Bounds:
    """Bounds of every wanted value and of every neuron before it. Network and ball are in the arithmetic's dtype."""
    needed = network.ancestors(wanted)
    last_use = {source: value for value, node in network.steps() if value in needed for source in node.inputs}
    values = {INPUT: _input(ball)}
    bounds = {INPUT: values[INPUT].interval(arithmetic)} if INPUT in network.rectified else {}
    for value, node in network.steps():
        if value not in needed:
            continue
        operands = [values[source] for source in node.inputs]
        if isinstance(node.operation, Affine):
            shapes = [network.shapes[source] for source in node.inputs]
            step = _AffineStep(node.operation, operands, shapes, ball, arithmetic)
            values[value] = step.run(keep=value in last_use)
        else:
            relaxation = relaxer(bounds[node.inputs[0]], arithmetic)
            values[value] = _rectify(value, operands[0], relaxation, arithmetic)
        del operands
        if value in wanted or value in network.rectified:
            bounds[value] = values[value].interval(arithmetic)
        for source in node.inputs:
            if last_use[source] == value:
                values.pop(source, None)
    return bounds


def _input(ball: Ball) -> Zonotope:
    centre = ball.centre
    radius = ball.radius[:, None].expand_as(centre)
    return Zonotope(centre, radius, centre.new_zeros(()), {INPUT: Units(None, None)}, None)


@dataclass(frozen=True, eq=False)
class _AffineStep:
    """One affine operation on zonotopes of the given shapes."""

    operation: Affine
    operands: list[Zonotope]
    shapes: list[tuple[int, ...]]
    ball: Ball
    arithmetic: Arithmetic

    def run(self, keep: bool) -> Zonotope:
        """The image of the operands; with keep=False without its coefficients, which then never exist all at once."""
        centre = self.operation.apply(*self._shaped([operand.centre for operand in self.operands])).flatten(1)
        radius, count, blocks = torch.zeros_like(centre), 0, {}
        for source, block, reach in self._blocks(keep):
            radius, count = radius + reach, count + 1
            if keep:
                blocks[source] = block
        return Zonotope(centre, self.arithmetic.above(radius, count), self._error(), blocks, None)

    def _shaped(self, tensors: list[Tensor]) -> list[Tensor]:
        return [tensor.unflatten(-1, shape) for tensor, shape in zip(tensors, self.shapes, strict=True)]

    def _blocks(self, keep: bool) -> Iterator[tuple[int, Block, Tensor]]:
        """For each source its symbols' coefficients and how far they move each coordinate, (batch or 1, size)."""
        if len(self.operands) == 1:
            yield from self._blocks_of_one(self.operands[0], keep)
            return
        parts = [operand.dense() for operand in self.operands]
        for source in sorted(set().union(*parts)):
            present = [part[source] for part in parts if source in part]
            shape = torch.broadcast_shapes(*(rows.shape for rows in present))
            rows = [part.get(source, present[0].new_zeros(())).expand(shape) for part in parts]
            joined = self.operation.linear(*self._shaped(rows)).flatten(2)
            yield source, joined, self._reach(source, joined)

    def _blocks_of_one(self, operand: Zonotope, keep: bool) -> Iterator[tuple[int, Block, Tensor]]:
        operation, shape, dtype = self.operation, self.shapes[0], operand.centre.dtype
        blocks = operand.blocks
        if operand.support is not None:
            compact = operation.restrict(operand.support)
            if compact is None:
                blocks = dict(operand.dense())
            else:
                operation, shape = compact, (len(operand.support),)
        for source, block in blocks.items():
            if isinstance(block, Tensor):
                rows: Block = operation.linear(block.unflatten(-1, shape)).flatten(2)
            elif keep or source == INPUT:
                image = operation.spread(block, shape, dtype)
                rows = image.flatten(2) if isinstance(image, Tensor) else image
            else:
                total = operation.total(block, shape, dtype).flatten(1)
                yield source, block, self.arithmetic.above(total, self.operation.terms + 2)
                continue
            yield source, rows, self._reach(source, rows)

    def _reach(self, source: int, block: Block) -> Tensor:
        if isinstance(block, Units):
            size, dtype = self.operands[0].centre.shape[1], self.operands[0].centre.dtype
            reach = block.reach(size, dtype)
            return self.arithmetic.above(reach * self.ball.radius[:, None], 1) if source == INPUT else reach
        if source == INPUT:
            return self.ball.gain(block, 1, self.arithmetic)
        return self.arithmetic.above(absolute_sum(block, 1), block.shape[1])

    def _error(self) -> Tensor:
        """What rounding adds: the operands' own errors, and gamma times all absolute values that were summed."""
        if not self.arithmetic.rigorous:
            return self.operands[0].error
        gamma = self.arithmetic.gamma(self.operation.terms + 2)
        sources = [
            operand.error + gamma * (operand.centre.abs() + operand.radius + operand.error) for operand in self.operands
        ]
        error = self.operation.magnitude(*self._shaped(sources)).flatten(1)
        if self.operation.constant is not None:
            error = error + gamma * self.operation.constant.abs().expand(self.operation.shape(*self.shapes)).flatten()
        error = self.arithmetic.above(error, 2 * self.operation.terms + 12)
        return error + TINY * self.ball.radius[:, None]  # coefficients that underflowed


def _rectify(value: int, operand: Zonotope, relaxation: Relaxation, arithmetic: Arithmetic) -> Zonotope:
    """The ReLU of a zonotope: scaled by the slope, and a fresh symbol for every neuron whose two lines differ."""
    slope, high = relaxation.slope_below, relaxation.high
    low = torch.zeros_like(high) if relaxation.low is None else relaxation.low
    if not relaxation.parallel:
        raise InputError("the forward form needs a relaxation with one slope for both lines; use the backward form")
    half = (high - low) / 2
    centre = slope * operand.centre + (high + low) / 2
    radius = arithmetic.above(slope.abs() * operand.radius + half, 3)
    error = operand.error
    if arithmetic.rigorous:
        moved = (slope * operand.centre).abs() + slope.abs() * operand.radius + high.abs() + low.abs()
        error = arithmetic.above(slope.abs() * operand.error + arithmetic.gamma(4) * moved, 6)
    alive = ((slope != 0) | (high != 0)).any(0)
    support = alive.nonzero().squeeze(1)
    related = (slope != 0).any(0).any()
    blocks: dict[int, Block] = {}
    if related:
        inner = slope[:, None, support]
        blocks = {source: _columns(rows, support) * inner for source, rows in operand.dense().items()}
    fresh = (half != 0).any(0)[support].nonzero().squeeze(1)
    if len(fresh):
        blocks[value] = Units(fresh, half[:, support[fresh]])
    return Zonotope(centre, radius, error, blocks, support)


def _columns(rows: Tensor, chosen: Tensor) -> Tensor:
    """Some columns of each matrix, gathered along whichever dimension lies contiguous in memory."""
    if rows.stride(-1) == 1:
        return rows[..., chosen]
    return rows.mT.index_select(1, chosen).mT
