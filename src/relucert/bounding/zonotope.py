"""Zonotopes, and how they pass the operations of a network, as in DeepZ.

Every value is held as `centre + sum of coefficients times symbols`, up to an error: the symbols are the input's
deviation from the region's reference point and, for every unstable neuron met so far, one number in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.deviation import Deviation
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import TINY, Arithmetic
from relucert.arithmetic.symbol_windows import SymbolWindows
from relucert.bounding.interval import Bounds, Interval, size_within
from relucert.bounding.noise import InputSize, noise, rounds
from relucert.bounding.relaxers import Relaxation
from relucert.common.deadline import check_time
from relucert.common.slicing import absolute_sum
from relucert.network import INPUT, Add, FlatAffine, Network, Rows, Units

NARROW = 0.01  # share of a neuron's deviation up to which the half-width of its relaxation needs no symbol
Block = Tensor | Units | SymbolWindows


@dataclass(frozen=True, eq=False)
class Zonotope:
    """An affine form (zonotope) that encloses one value.

    Attributes:
        centre: (batch, size).
        deviation: How far the symbols move it, (batch, size).
        error: What rounding may have added, (batch, size), or a single zero.
        blocks: For each source of symbols, the input or the value of a ReLU, their coefficients: rows
            (batch or 1, symbols, size), units, or windows on an image.
        support: Where it is set, rows hold these coordinates alone, and the others are 0; units and windows know their
            places.
    """

    centre: Tensor
    deviation: Deviation
    error: Tensor
    blocks: dict[int, Block]
    support: Tensor | None

    def interval(self, arithmetic: Arithmetic) -> Interval:
        """Concretises: the bounds of every coordinate over all values of the symbols."""
        moved = self.deviation.map(lambda gains: arithmetic.above(gains + self.error, 1))
        return Interval.around(self.centre, moved, arithmetic)

    @property
    def symbols(self) -> int:
        """How many symbols it has."""
        size = self.centre.shape[-1]
        return sum(count_symbols(block, size) for block in self.blocks.values())

    def dense(self) -> dict[int, Tensor]:
        """All coefficients as rows over every coordinate."""
        return {source: self.widen(block) for source, block in self.blocks.items()}

    def widen(self, block: Block) -> Tensor:
        """A block as rows over every coordinate."""
        size = self.centre.shape[-1]
        if isinstance(block, Units):
            return block.dense(size, self.centre.dtype)
        if isinstance(block, SymbolWindows):
            return block.rows()
        if self.support is None:
            return block
        wide = block.new_zeros(*block.shape[:-1], size)
        wide[..., self.support] = block
        return wide


@dataclass(frozen=True, eq=False)
class ZonotopeSteps:
    """How zonotopes pass the operations of a network.

    errors_carried: whether errors are more than those of this proof, so that they are worth a product of their own.
    """

    network: Network
    region: Region
    arithmetic: Arithmetic
    errors_carried: bool

    def input(self) -> Zonotope:
        """The region as a zonotope."""
        centre, units = self.region.reference, Units(None, None)
        return Zonotope(centre, self.region.spans(self.arithmetic), centre.new_zeros(()), {INPUT: units}, None)

    def affine(self, value: int, values: Mapping[int, Zonotope], bounds: Bounds, keep: bool) -> Zonotope:
        """The value of an affine operation; keep: whether its coefficients are wanted.

        bounds: of the pre-activations before, for what evaluations in floating point add.
        """
        sources, added = self.network.node(value).inputs, None
        if rounds(self.network, value):
            sizes = [self._size(source, values[source], bounds) for source in sources]
            added = noise(self.network, value, sizes, self.arithmetic)
        step = _AffineStep(self, FlatAffine.of(self.network, value), [values[source] for source in sources], added)
        return self._with_underflow(step.run(keep))

    def activation(self, value: int, operand: Zonotope, relaxation: Relaxation, room: int | None = None) -> Zonotope:
        """The value of an activation; room: as in `_relaxed`."""
        if self.network.inference.rounds:
            operand, relaxation = _absorbed(operand, relaxation, self.arithmetic)
        return self._with_underflow(_relaxed(value, operand, relaxation, self.arithmetic, room))

    def _with_underflow(self, zonotope: Zonotope) -> Zonotope:
        """Adds to the errors what coefficients that underflow in one step may add to a value."""
        if not self.arithmetic.rigorous:
            return zonotope
        return replace(zonotope, error=zonotope.error + TINY * self.region.widest)

    def _size(self, value: int, zonotope: Zonotope, bounds: Bounds) -> Tensor | InputSize:
        """How large a value may be in absolute value, up to two roundings: (batch, size)."""
        if value == INPUT:
            return InputSize.within(self.region, self.arithmetic)
        size = size_within(self.network, bounds, value, self.arithmetic)
        if size is not None:
            return size
        return zonotope.centre.abs().add_(zonotope.deviation.largest).add_(zonotope.error)


@dataclass(frozen=True, eq=False)
class _AffineStep:
    """One affine operation on zonotopes.

    noise: what its evaluation in floating point adds, if anything.
    """

    steps: ZonotopeSteps
    affine: FlatAffine
    operands: list[Zonotope]
    noise: Tensor | None

    @property
    def arithmetic(self) -> Arithmetic:
        return self.steps.arithmetic

    def run(self, keep: bool) -> Zonotope:
        """The image of the operands; with keep=False without its coefficients, which then never exist all at once."""
        centre = self.affine.apply(*(operand.centre for operand in self.operands))
        still = torch.zeros_like(centre)
        deviation, count, blocks = Deviation(still, still), 0, {}
        for source, block, moved in self._blocks(keep):
            check_time()
            deviation, count = deviation.plus(moved), count + 1
            if keep:
                blocks[source] = block
        deviation = deviation.map(lambda gains: self.arithmetic.above(gains, count))
        return Zonotope(centre, deviation, self._error(), blocks, None)

    def _blocks(self, keep: bool) -> Iterator[tuple[int, Block, Deviation]]:
        """For each source its symbols' coefficients and how far they move each coordinate, (batch or 1, size)."""
        if len(self.operands) == 1:
            yield from self._blocks_of_one(self.operands[0], keep)
            return
        for source in sorted(set().union(*(operand.blocks for operand in self.operands))):
            joined = self._sum_of_windows(source)
            rows: Block = self._joined_rows(source) if joined is None else joined
            yield source, rows, self._deviation(source, rows)

    def _joined_rows(self, source: int) -> Tensor:
        """The rows of one source's symbols that the operation makes of several operands."""
        blocks = [
            operand.widen(operand.blocks[source]) if source in operand.blocks else operand.centre.new_zeros(())
            for operand in self.operands
        ]
        shape = np.broadcast_shapes(*(tuple(rows.shape) for rows in blocks))
        return self.affine.linear(*(rows.expand(shape) for rows in blocks))

    def _sum_of_windows(self, source: int) -> SymbolWindows | None:
        """The symbols of one source where the operation adds two values, if all of them stay in windows."""
        blocks = [operand.blocks[source] for operand in self.operands if source in operand.blocks]
        windows = [block for block in blocks if isinstance(block, SymbolWindows)]
        if not isinstance(self.affine.operation, Add) or len(windows) < len(blocks):
            return None
        return windows[0].plus(windows[1]) if len(windows) == 2 else windows[0]

    def _blocks_of_one(self, operand: Zonotope, keep: bool) -> Iterator[tuple[int, Block, Deviation]]:
        operation, shape, dtype = self.affine.operation, self.affine.shapes[0], operand.centre.dtype
        compact = None if operand.support is None else operation.restrict(operand.support)
        for source, block in operand.blocks.items():
            if isinstance(block, Tensor):
                wide = operand.widen(block).unflatten(-1, shape) if compact is None else block
                rows: Block = (compact or operation).linear(wide).flatten(2)
            elif isinstance(block, SymbolWindows):
                rows = operation.images(block, shape)
                if isinstance(rows, SymbolWindows) and not rows.groups:
                    continue  # a stride skips all of them
            elif keep or source == INPUT:
                image = operation.spread(block, shape, dtype)
                rows = image.flatten(2) if isinstance(image, Tensor) else image
            else:
                total = operation.total(block, shape, dtype).flatten(1)
                radius = self.arithmetic.above(total, operation.terms + 2)
                yield source, block, Deviation(radius, radius)
                continue
            yield source, rows, self._deviation(source, rows)

    def _deviation(self, source: int, block: Block) -> Deviation:
        """How far the symbols of one source move each coordinate: (batch or 1, size)."""
        if source == INPUT:
            return self._input_deviation(block)
        if isinstance(block, Units):
            centre = self.operands[0].centre
            radius = block.absolute_diagonal(centre.shape[1], centre.dtype)
        elif isinstance(block, SymbolWindows):
            radius = self.arithmetic.above(block.absolute_totals(), block.count)
        else:
            radius = self.arithmetic.above(absolute_sum(block, 1), block.shape[1])
        return Deviation(radius, radius)

    def _input_deviation(self, block: Block) -> Deviation:
        region = self.steps.region
        if isinstance(block, Tensor):
            return region.deviation(Rows(block.mT, (block.shape[1],)), self.arithmetic)
        if isinstance(block, SymbolWindows):
            return Deviation.join([region.deviation(forms, self.arithmetic) for forms in block.neurons()], 1)
        spans = region.spans(self.arithmetic)
        if block.scale is None:
            return spans
        factor = block.scale
        below = torch.where(factor > 0, spans.below, spans.above) * factor.abs()
        above = below if spans.symmetric else torch.where(factor > 0, spans.above, spans.below) * factor.abs()
        return Deviation(below, above).map(lambda gains: self.arithmetic.above(gains, 1))

    def _error(self) -> Tensor:
        """What rounding adds: the operands' own errors, and gamma times all absolute values that were summed."""
        if not self.arithmetic.rigorous:
            if not self.steps.errors_carried:
                return self.operands[0].error
            moved = self.affine.absolute(*(operand.error.expand_as(operand.centre) for operand in self.operands))
            return moved if self.noise is None else moved + self.noise
        terms = self.affine.operation.terms
        gamma = self.arithmetic.gamma(terms + 2)
        sources = [
            operand.error + gamma * (operand.centre.abs() + operand.deviation.absolute + operand.error)
            for operand in self.operands
        ]
        # The input has no error.
        carried = self.steps.errors_carried and any(operand.error.ndim for operand in self.operands)
        error = (self.affine.absolute if carried else self.affine.magnitude)(*sources)
        error = self.affine.plus_constant(error, gamma)
        if self.noise is not None:
            error = error + self.noise
        return self.arithmetic.above(error, 2 * terms + 13)


def _absorbed(operand: Zonotope, relaxation: Relaxation, arithmetic: Arithmetic) -> tuple[Zonotope, Relaxation]:
    """The same with the errors of unstable neurons in the width of their lines.

    Every unstable neuron has a symbol of its own there, whose share is followed with its sign, unlike that of an error.
    """
    slope, high = relaxation.slope_below, relaxation.high
    low = torch.zeros_like(high) if relaxation.low is None else relaxation.low
    absorbed = arithmetic.above(slope.abs() * operand.error, 1)
    apart = (high != low) & absorbed.isfinite()
    below = torch.where(apart, arithmetic.floor(low - absorbed), low)
    above = torch.where(apart, arithmetic.ceil(high + absorbed), high)
    wider = Relaxation(slope, below, slope, above)
    return replace(operand, error=torch.where(apart, 0, operand.error)), wider


def _relaxed(
    value: int, operand: Zonotope, relaxation: Relaxation, arithmetic: Arithmetic, room: int | None
) -> Zonotope:
    """An activation of a zonotope: scaled by the slope, and a fresh symbol for every neuron whose two lines differ.

    room: how many fresh symbols there may be, those of the widest lines; the half-widths of others become errors.
    """
    slope, high, half = relaxation.slope_below, relaxation.high, relaxation.half_width
    error = operand.error * slope.abs() if operand.error.ndim else operand.error
    if room is None:
        fresh = (half != 0).any(0).nonzero().squeeze(1)
    else:
        fresh = _widest(half, slope.abs() * operand.deviation.largest, room)
        error = error + half.index_fill(1, fresh, 0)
        half = torch.zeros_like(half).index_copy_(1, fresh, half[:, fresh])
    centre = slope * operand.centre + relaxation.middle
    deviation = operand.deviation.map(lambda gains: arithmetic.above(slope.abs() * gains + half, 3))
    if arithmetic.rigorous:
        moved = slope.abs() * (operand.centre.abs() + operand.deviation.absolute) + high.abs()
        if relaxation.low is not None:
            moved = moved + relaxation.low.abs()
        error = arithmetic.above(error + arithmetic.gamma(4) * moved, 8)
    support = (slope != 0).any(0).nonzero().squeeze(1)
    blocks: dict[int, Block] = {}
    if len(support):
        inner = slope[:, None, support]
        for source, block in operand.blocks.items():
            check_time()
            if isinstance(block, SymbolWindows):
                blocks[source] = block.times(slope)
            else:
                blocks[source] = _columns(operand.widen(block), support) * inner
    if len(fresh):
        blocks[value] = Units(fresh, half[:, fresh])
    return Zonotope(centre, deviation, error, blocks, support)


def count_symbols(block: Block, size: int) -> int:
    """How many symbols a block has, on a value of this size."""
    if isinstance(block, Units):
        return block.count(size)
    return block.count if isinstance(block, SymbolWindows) else block.shape[1]


def _widest(half: Tensor, deviation: Tensor, room: int) -> Tensor:
    """The neurons whose lines are so far apart that they get a symbol of their own: (count,), ascending.

    Args:
        half: The lines' half-widths, (batch, size).
        deviation: How far their values move otherwise, (batch, size).
        room: How many neurons there may be.
    """
    wide = (~(half <= NARROW * deviation)).any(0).nonzero().squeeze(1)
    if len(wide) <= room:
        return wide
    kept: Tensor = wide[half.amax(0)[wide].nan_to_num(torch.inf).topk(room).indices].sort().values
    return kept


def _columns(rows: Tensor, neurons: Tensor) -> Tensor:
    """Some columns of each matrix, gathered along whichever dimension lies contiguous in memory."""
    if rows.stride(-1) == 1:
        return rows[..., neurons]
    return rows.mT.index_select(1, neurons).mT
