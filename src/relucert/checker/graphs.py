"""What quadratic certificates take of an activation: straight pieces that its graph is, or lies between, exactly.

A neuron's term of the dual bound is concave in the deviation of the activation. So on an interval where the graph lies
between two lines, its least value is on one of them. The offsets of lines are proven in balls (`enclosures`).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from flint import arb, ctx, fmpq

from relucert.checker.activations import SmoothFunction
from relucert.checker.ball_region import Numbers, fraction
from relucert.checker.certificate_document import GraphEntry
from relucert.checker.enclosures import PRECISION, Enclosed
from relucert.checker.entries import require
from relucert.checker.lines import BOUND_BITS, IntegerInterval
from relucert.checker.noise import ActivationError

ZERO = fmpq(0)
BOUND_UNIT = fmpq(1, 1 << BOUND_BITS)


class LinePiece(NamedTuple):
    """`dh = rise dz + shift` for a deviation dz within [first, last]."""

    rise: fmpq
    shift: fmpq
    first: fmpq
    last: fmpq

    @property
    def largest(self) -> fmpq:
        """An upper bound of |dh|."""
        return abs(self.rise) * max(abs(self.first), abs(self.last)) + abs(self.shift)


def relu_pieces(low: fmpq, high: fmpq, centre: fmpq) -> list[LinePiece]:
    """dh is -relu(zc) for z <= 0, and dz + zc - relu(zc) for z >= 0."""
    active, kink = max(centre, ZERO), -centre
    pieces = (
        LinePiece(ZERO, -active, low, min(high, kink)),
        LinePiece(fmpq(1), centre - active, max(low, kink), high),
    )
    return [piece for piece in pieces if piece.first <= piece.last]


def smooth_outputs(function: SmoothFunction, centres: Numbers) -> Numbers:
    """About the activations of references: any numbers would do."""
    with ctx.workprec(PRECISION):
        outputs = [float(_about(function, arb(centre)).mid()) for centre in centres]
    require(all(map(math.isfinite, outputs)), f"a reference is outside of the domain of {function.name}")
    return [fraction(output) for output in outputs]


def _about(function: SmoothFunction, point: arb) -> arb:
    """The value at a point, by the formula of the first piece that does not end before it."""
    pieces = function.pieces(point, point) or ()
    holds = (piece.value for piece in pieces if piece.end is None or not point > piece.end)
    value: arb = next(holds, function.value)(point)
    return value


def smooth_pieces(
    function: SmoothFunction, error: ActivationError | None, interval: IntegerInterval, graphs: GraphEntry,
    centres: Numbers, outputs: Numbers,
) -> list[list[LinePiece]]:  # fmt: skip
    """The lines below and above an activation, one list per neuron.

    Args:
        error: What its evaluation may be off.
        interval: The bounds of all neurons.
        graphs: One row per neuron.
        centres: The references of pre-activations.
        outputs: The numbers that dh counts from, exactly.
    """
    ends = [list(interval.lower)]
    for column in zip(*graphs.breakpoints, strict=True):
        points = [int((fraction(point) * (1 << BOUND_BITS)).floor()) for point in column]
        ends.append([
            min(max(point, low), high)
            for point, low, high in zip(points, interval.lower, interval.upper, strict=True)
        ])  # fmt: skip
    ends.append(list(interval.upper))
    pieces: list[list[LinePiece]] = [[] for _ in centres]
    for number, (lower, upper) in enumerate(pairwise(ends)):
        enclosed = Enclosed(function, lower, upper, error)
        for sign, rows in ((1, graphs.below), (-1, graphs.above)):
            slopes = [row[number] for row in rows]
            offsets = enclosed.offsets(torch.tensor(slopes, dtype=torch.float64), sign)
            for neuron, units in enumerate(offsets.units.tolist()):
                rise, centre = fraction(slopes[neuron]), centres[neuron]
                offset = fmpq(units) * fmpq(2) ** -offsets.bits
                shift = offset + rise * centre - outputs[neuron]
                first, last = lower[neuron] * BOUND_UNIT - centre, upper[neuron] * BOUND_UNIT - centre
                pieces[neuron].append(LinePiece(rise, shift, first, last))
    return pieces
