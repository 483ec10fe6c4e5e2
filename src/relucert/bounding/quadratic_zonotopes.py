"""Zonotopes whose squares are kept: rows of outputs as quadratic functions of generators, over many boxes at once.

Every atom of a `Fused` network is `centre + G x` with all generators x in [-1, 1], off by its slack: each input has a
generator, and so has every neuron, for what lies between its two parallel lines (Fast-Lin / DeepZ). A square is then
`m^2 + 2 m g x + (g x)^2`. Squares of one row are not bounded one by one: their quadratic forms are added first, so that
what cancels between them cancels, as in a difference `x'P x' - xP x` or in a product written in two squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.fused import AffineFunctions, Fused, FusedLayer
from relucert.bounding.interval import Interval
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.deadline import check_time

CHUNK = 2**24  # products of two generators that are bounded at once, for all boxes and rows: some 0.5 GB


@dataclass(frozen=True, eq=False)
class BoxZonotope:
    """Numbers `centre + generators x`, x in [-1, 1], which may be missed by the slack.

    Attributes:
        centre, slack: (boxes, count).
        generators: (boxes, count, generators).
    """

    centre: Tensor
    generators: Tensor
    slack: Tensor

    @cached_property
    def radius(self) -> Tensor:
        """The sum of the absolute generators, at least: (boxes, count)."""
        return RIGOROUS.above(self.generators.abs().sum(2), self.generators.shape[2])

    @property
    def size(self) -> Tensor:
        """The largest absolute value, the slack apart: (boxes, count)."""
        return RIGOROUS.above(self.centre.abs() + self.radius, 1)

    def pick(self, indices: Tensor, width: int | None = None) -> BoxZonotope:
        """Some of the numbers, (count,), whose generators are 0 from a width on."""
        return BoxZonotope(self.centre[:, indices], self.generators[..., :width][:, indices], self.slack[:, indices])

    def interval(self) -> Interval:
        reach = RIGOROUS.ceil(self.radius + self.slack)
        return Interval(RIGOROUS.floor(self.centre - reach), RIGOROUS.ceil(self.centre + reach))


class RowBounds(NamedTuple):
    """Bounds of rows over boxes, each for all alternatives.

    Attributes:
        lower: Proven lower bounds, (boxes, rows).
        slopes: Coefficients of the linear parts on the inputs' generators, (boxes, rows, inputs).
        spreads: How much each input's generator may change a row, at most, as computed: (boxes, rows, inputs).
        floor: Proven lower bounds of what is left without the linear part of the inputs, (boxes, rows).
    """

    lower: Tensor
    slopes: Tensor
    spreads: Tensor
    floor: Tensor


@dataclass(frozen=True, eq=False)
class _Matrix:
    """Affine functions as an exact matrix and what they are off by besides."""

    weight: Tensor
    bias: Tensor
    charge: Tensor

    @classmethod
    def of(cls, fused: Fused, functions: AffineFunctions, atoms: Tensor) -> _Matrix:
        return cls(functions.weight[:, atoms].contiguous(), functions.weight[:, -1].clone(), fused.charge(functions))

    def __call__(self, atoms: BoxZonotope) -> BoxZonotope:
        gamma, weight = RIGOROUS.gamma(self.weight.shape[1] + 4), self.weight.abs().T
        slack = (atoms.slack + gamma * atoms.size) @ weight + (self.charge + gamma * self.bias.abs())
        return BoxZonotope(
            atoms.centre @ self.weight.T + self.bias,
            self.weight @ atoms.generators,
            RIGOROUS.above(slack, 2 * self.weight.shape[1] + 8),
        )


class _RowBatch(NamedTuple):
    """Rows that add the same squares.

    Attributes:
        rows: Their numbers, (count,).
        squares, factors: The numbers of the squares, and what they are multiplied with.
        width: How many generators the squares depend on; None: all.
    """

    rows: Tensor
    squares: Tensor
    factors: Tensor
    width: int | None


class QuadraticBounds:
    """Bounds all rows of a fused network over boxes."""

    def __init__(self, fused: Fused) -> None:
        self.fused = fused
        self.columns = torch.arange(fused.inputs)
        self.layers: list[tuple[FusedLayer, _Matrix]] = []
        for layer in fused.layers:
            self.layers.append((layer, _Matrix.of(fused, layer.functions, self.columns)))
            self.columns = torch.cat([self.columns, layer.numbers])
        self.squares = _Matrix.of(fused, AffineFunctions.join([one.functions for one in fused.squares]), self.columns)
        self.rows = _Matrix.of(fused, fused.rows, self.columns)
        atoms = torch.cat([layer.numbers for layer in fused.squares])
        factors, places = torch.unique(fused.rows.weight[:, atoms], dim=0, return_inverse=True)
        self.batches = []
        for number, some in enumerate(factors):
            used = some.nonzero().flatten()
            of_inputs = not bool(self.squares.weight[used, fused.inputs :].any())
            rows = (places == number).nonzero().flatten()
            self.batches.append(_RowBatch(rows, used, some[used], fused.inputs if of_inputs else None))

    def __call__(self, low: Tensor, high: Tensor) -> RowBounds:
        """Bounds over boxes, (boxes, inputs), as many at once as memory allows. Raises TimeUp once time is over."""
        step = max(1, CHUNK // (max(len(batch.rows) for batch in self.batches) * len(self.columns) ** 2))
        bounds = []
        for lows, highs in zip(low.split(step), high.split(step), strict=True):
            check_time()
            bounds.append(self._bounds(lows, highs))
        return RowBounds(*(torch.cat(tables) for tables in zip(*bounds, strict=True)))

    def _bounds(self, low: Tensor, high: Tensor) -> RowBounds:
        atoms = self._atoms(low, high)
        squares, rows = self.squares(atoms), self.rows(atoms)
        bounds = [
            self._rows(rows.pick(batch.rows), batch.factors, squares.pick(batch.squares, batch.width))
            for batch in self.batches
        ]
        order = torch.cat([batch.rows for batch in self.batches]).argsort()
        return RowBounds(*(torch.cat(tables, 1)[:, order] for tables in zip(*bounds, strict=True)))

    def _atoms(self, low: Tensor, high: Tensor) -> BoxZonotope:
        box = Interval(low, high)
        atoms = BoxZonotope(box.middle, torch.diag_embed(box.half_width), torch.zeros_like(low))
        for layer, matrix in self.layers:
            atoms = _joined(atoms, _activated(layer, matrix(atoms)))
        return atoms

    def _rows(self, rows: BoxZonotope, factors: Tensor, squares: BoxZonotope) -> RowBounds:
        """Rows plus the sum of squares times factors, (count,)."""
        sizes, size, inputs = factors.abs(), squares.size, self.fused.inputs
        gamma = RIGOROUS.gamma(len(factors) + 12)
        slack = (gamma * size * size + squares.slack * (2 * size + squares.slack)) @ sizes
        slack = rows.slack + gamma * rows.size + slack[:, None]
        weighted = squares.generators * factors[:, None]
        constant = rows.centre + ((squares.centre * squares.centre) @ factors)[:, None]
        slopes = rows.generators.clone()
        slopes[..., : weighted.shape[2]] += 2 * (squares.centre[:, None] @ weighted)
        used = squares.generators.flatten(0, 1).any(0).nonzero().flatten()
        form = squares.generators[..., used].transpose(1, 2) @ weighted[..., used]
        form = (form + form.transpose(1, 2)) / 2
        coefficients = form.abs()
        total = slopes.abs().sum(2) + coefficients.sum((1, 2))[:, None]
        terms = len(used) ** 2 + slopes.shape[2] + len(factors) + 64
        charge = RIGOROUS.above(slack + RIGOROUS.gamma(terms) * (total + constant.abs()), terms)
        lower = RIGOROUS.floor(constant + least_on_cube(slopes, form, used) - charge)
        spreads = slopes.abs()
        spreads[..., used] += coefficients.sum(2)[:, None]
        apart = coefficients.sum((1, 2)) - form.diagonal(dim1=1, dim2=2).clamp(min=0).sum(1)
        floor = RIGOROUS.floor(constant - (apart[:, None] + slopes[..., inputs:].abs().sum(2)) - charge)
        return RowBounds(lower, slopes[..., :inputs], spreads[..., :inputs], floor)


def least_on_cube(slopes: Tensor, form: Tensor, used: Tensor) -> Tensor:
    """Lower bounds of `slopes x + x' form x` for x in [-1, 1], (boxes, rows).

    As computed, off by at most gamma times the sum of all absolute coefficients. A product of two coordinates is
    replaced by a plane below it, `s x y >= t (x + s y) - 1` for s = 1 or -1 and any t in [-1, 1] (McCormick): one that
    makes the slopes of both smaller, where there is one. Each coordinate is then on its own, with its own least value.

    Args:
        slopes: (boxes, rows, generators).
        form: Symmetric, (boxes, used, used).
        used: Which generators the form is about, (used,).
    """
    slope, square = slopes[..., used], form.diagonal(dim1=1, dim2=2)
    flat = slopes.abs().sum(2) - slope.abs().sum(2)
    products = 2 * form - torch.diag_embed(2 * square)
    signed, slope, square = torch.where(slope < 0, -1.0, 1.0).to(form.dtype), slope.abs(), square[:, None]
    helpful = (products[:, None] * signed[..., None] * signed[..., None, :]).clamp_(min=0)
    share = (slope / helpful.sum(3).clamp(min=torch.finfo(form.dtype).tiny)).clamp(max=1)
    slope = (slope - (helpful * torch.minimum(share[..., None], share[..., None, :])).sum(3)).abs()
    inside = (square > 0) & (slope < 2 * square)  # there the quotient comes first: a square of a slope may underflow
    each = torch.where(inside, -slope * (slope / torch.where(inside, 4 * square, 1)), square - slope)
    return each.sum(2) - products.abs().sum((1, 2))[:, None] / 2 - flat


def _activated(layer: FusedLayer, before: BoxZonotope) -> BoxZonotope:
    """The outputs of an activation: one generator more for every neuron."""
    lines = FAST_LIN(layer.activation, before.interval(), RIGOROUS)
    slope, offset, half = lines.slope_above, lines.middle, lines.half_width
    sizes = slope.abs() * (before.size + before.slack) + offset.abs() + half.abs()
    slack = RIGOROUS.above(slope.abs() * before.slack + RIGOROUS.gamma(8) * sizes, 8)
    generators = torch.cat([before.generators * slope[..., None], torch.diag_embed(half)], 2)
    return BoxZonotope(before.centre * slope + offset, generators, slack)


def _joined(atoms: BoxZonotope, more: BoxZonotope) -> BoxZonotope:
    grown = torch.nn.functional.pad(atoms.generators, (0, more.generators.shape[2] - atoms.generators.shape[2]))
    return BoxZonotope(
        torch.cat([atoms.centre, more.centre], 1),
        torch.cat([grown, more.generators], 1),
        torch.cat([atoms.slack, more.slack], 1),
    )
