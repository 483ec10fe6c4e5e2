"""Lower bounds of linear forms in exact integers, for proofs by linear relaxation of fully connected networks.

Stored numbers are integers over powers of two, slopes are rounded to fractions of 2**20 (any slope in [0, 1] is sound,
the offset is computed from the one that is used), and the bounds of neurons are rounded outwards to fractions of 2**64.
All products are exact; nothing else rounds but integer square roots, up. It takes nothing from the code that proves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from flint import fmpz, fmpz_mat
from torch import Tensor

from relucert.checker.document import BoundProof, Rejected
from relucert.network import Network

SLOPE_BITS = 20
UNIT = 1 << SLOPE_BITS
BOUND_BITS = 64
ZERO = fmpz(0)
LONGEST = 400  # bits of the fractions of stored numbers


@dataclass(frozen=True)
class Scaled:
    """Integers over 2**bits, by rows."""

    rows: list[list[fmpz]]
    bits: int

    @cached_property
    def matrix(self) -> fmpz_mat:
        return fmpz_mat(self.rows)


@dataclass(frozen=True)
class Lines:
    """Of the ReLUs of one layer, as integers: lower lines `below z / 2**20 + low`, upper ones with `above` and `high`.

    The offsets are over 2**(BOUND_BITS + SLOPE_BITS).
    """

    below: list[int]
    low: list[int]
    above: list[int]
    high: list[int]


def is_chain(network: Network) -> bool:
    """Whether it is a chain of linear layers with ReLUs between them, whose numbers are not too long."""
    names = [node.operation.name for node in network.nodes if node.operation.name != "reshape"]
    chain = all(node.inputs == (value - 1,) for value, node in network.steps())
    alternating = names[::2] == ["linear"] * len(names[::2]) and names[1::2] == ["relu"] * len(names[1::2])
    if not chain or not alternating or not len(names) % 2:
        return False
    tensors = (tensor for node in network.nodes for tensor in node.operation.tensors().values())
    return all(_bits(tensor.double()) <= LONGEST for tensor in tensors)


def least_margins(network: Network, proof: BoundProof) -> list[Fraction]:
    """Exact lower bounds of the proof's rows, plus their offsets, over its region."""
    return enclosed(network, proof).margins()


def enclosed(network: Network, proof: BoundProof) -> EnclosedChain:
    """The bounds of every hidden layer over a proof's region, by its rule."""
    if not is_chain(network):
        raise Rejected("the network is no chain of linear layers and ReLUs")
    if proof.box is not None and proof.norm != math.inf:
        raise Rejected("a box with another norm than inf can't be checked")
    return EnclosedChain(network, proof)


class EnclosedChain:
    """A network's exact numbers, and the bounds of its hidden layers, integers over 2**BOUND_BITS."""

    def __init__(self, network: Network, proof: BoundProof) -> None:
        self.proof, self.rule = proof, RULES[proof.rule]
        layers = [node.operation.tensors() for node in network.nodes if node.operation.name == "linear"]
        self.weights = [scaled(layer["weight"].double()) for layer in layers]
        self.biases = [scaled(layer["bias"].double()[:, None]) for layer in layers]
        self.region = _Region(proof)
        self.bounds: list[tuple[list[int], list[int]]] = []
        self.lines: list[Lines] = []
        for layer in range(len(self.weights) - 1):
            bounds = self._hidden(layer)
            self.bounds.append(bounds)
            self.lines.append(self.rule(*bounds))

    def margins(self) -> list[Fraction]:
        """Lower bounds of the proof's rows, plus their offsets."""
        rows = scaled(torch.tensor(self.proof.rows, dtype=torch.float64))
        lower, _ = self._pull(rows, len(self.weights) - 1, both=False)
        return [one + Fraction(offset) for one, offset in zip(lower, self.proof.offsets, strict=True)]

    def _hidden(self, layer: int) -> tuple[list[int], list[int]]:
        """The bounds of a layer's pre-activations, rounded outwards to integers over 2**BOUND_BITS."""
        below, above = self._neurons(layer)
        if not self.proof.by_intervals or layer in (0, len(self.weights) - 2):
            return below, above
        lower, upper = self._interval(layer)
        unstable = [low < 0 < high for low, high in zip(lower, upper, strict=True)]
        return (
            [max(pair) if open_ else pair[0] for open_, *pair in zip(unstable, lower, below, strict=True)],
            [min(pair) if open_ else pair[0] for open_, *pair in zip(unstable, upper, above, strict=True)],
        )

    def _neurons(self, layer: int) -> tuple[list[int], list[int]]:
        """By the rule's lines, each neuron's form pulled back to the input."""
        weight = self.weights[layer]
        constants = [Fraction(int(bias[0]), 1 << self.biases[layer].bits) for bias in self.biases[layer].rows]
        lower, upper = self._pull_activations(weight, layer, both=True)
        sides = ([one + two for one, two in zip(side, constants, strict=True)] for side in (lower, upper))
        below, above = sides
        return [_floor(number) for number in below], [-_floor(-number) for number in above]

    def _interval(self, layer: int) -> tuple[list[int], list[int]]:
        """From the bounds of the layer before alone."""
        lower, upper = ([max(0, number) for number in side] for side in self.bounds[layer - 1])
        weight, bias = self.weights[layer], self.biases[layer]
        positive, negative = _parts(weight)
        low, high = (fmpz_mat([[number] for number in side]) for side in (lower, upper))
        constants = [Fraction(int(row[0]), 1 << bias.bits) for row in bias.rows]
        unit = 1 << (weight.bits + BOUND_BITS)
        ends = (positive * low + negative * high, positive * high + negative * low)
        below, above = (
            [Fraction(int(one), unit) + two for one, two in zip(end.entries(), constants, strict=True)] for end in ends
        )
        return [_floor(number) for number in below], [-_floor(-number) for number in above]

    def _pull(self, rows: Scaled, layer: int, both: bool) -> tuple[list[Fraction], list[Fraction]]:
        """Bounds of forms on a layer's pre-activations."""
        constants = (rows.matrix * self.biases[layer].matrix).entries()
        unit = 1 << (rows.bits + self.biases[layer].bits)
        pulled = _as_rows(rows.matrix * self.weights[layer].matrix, rows.bits + self.weights[layer].bits)
        lower, upper = self._pull_activations(pulled, layer, both)
        shifts = [Fraction(int(number), unit) for number in constants]
        least = [one + two for one, two in zip(lower, shifts, strict=True)]
        return least, [one + two for one, two in zip(upper, shifts, strict=True)] if both else []

    def _pull_activations(self, rows: Scaled, layer: int, both: bool) -> tuple[list[Fraction], list[Fraction]]:
        """Bounds of forms on what a layer takes: the activations of the one before, or the input."""
        if not layer:
            return self.region.bounds(rows)
        lines = self.lines[layer - 1]
        parallel = lines.below is lines.above
        lower, upper = self._through(rows, lines, layer, both and parallel)
        if both and not parallel:
            negated = Scaled([[-number for number in row] for row in rows.rows], rows.bits)
            upper = [-number for number in self._through(negated, lines, layer, both=False)[0]]
        return lower, upper

    def _through(self, rows: Scaled, lines: Lines, layer: int, both: bool) -> tuple[list[Fraction], list[Fraction]]:
        """Lower bounds of forms on activations; with parallel lines and `both`, the upper ones as well."""
        positive, negative = _parts(rows)
        high, low = (fmpz_mat([[number] for number in side]) for side in (lines.high, lines.low))
        unit = 1 << (rows.bits + BOUND_BITS + SLOPE_BITS)
        falls = (negative * high + positive * low).entries()
        slopes = list(zip(lines.below, lines.above, strict=True))
        pulled = [
            [number * (below if number > 0 else above) for number, (below, above) in zip(row, slopes, strict=True)]
            for row in rows.rows
        ]
        lower, upper = self._pull(Scaled(pulled, rows.bits + SLOPE_BITS), layer - 1, both)
        least = [one + Fraction(int(fall), unit) for one, fall in zip(lower, falls, strict=True)]
        if not both:
            return least, []
        rises = (positive * high + negative * low).entries()
        return least, [one + Fraction(int(rise), unit) for one, rise in zip(upper, rises, strict=True)]


class _Region:
    """What forms on the input are worth: the exact ends of a box for p = inf, else a ball."""

    def __init__(self, proof: BoundProof) -> None:
        self.norm, radius = proof.norm, Fraction(proof.radius)
        scale = [Fraction(1)] * len(proof.image) if proof.scale is None else [Fraction(one) for one in proof.scale]
        centre = [Fraction(pixel) for pixel in proof.image]
        reach = [radius * unit for unit in scale]
        if proof.norm == math.inf:
            low = [pixel - step for pixel, step in zip(centre, reach, strict=True)]
            high = [pixel + step for pixel, step in zip(centre, reach, strict=True)]
            if proof.box is not None:
                walls = (zip(side, wall, strict=True) for side, wall in zip((low, high), proof.box, strict=True))
                below, above = walls
                low = [max(one, Fraction(wall)) if wall > -math.inf else one for one, wall in below]
                high = [min(one, Fraction(wall)) if wall < math.inf else one for one, wall in above]
            centre = [(one + two) / 2 for one, two in zip(low, high, strict=True)]
            reach = [(two - one) / 2 for one, two in zip(low, high, strict=True)]
        self.centre, self.reach = _common(centre), _common(reach)

    def bounds(self, rows: Scaled) -> tuple[list[Fraction], list[Fraction]]:
        middles = (rows.matrix * self.centre.matrix).entries()
        unit, reach_unit = 1 << (rows.bits + self.centre.bits), 1 << (rows.bits + self.reach.bits)
        falls = self._falls(rows)
        both = [
            (Fraction(int(middle), unit), Fraction(int(fall), reach_unit))
            for middle, fall in zip(middles, falls, strict=True)
        ]
        return [middle - fall for middle, fall in both], [middle + fall for middle, fall in both]

    def _falls(self, rows: Scaled) -> list[fmpz]:
        """How far forms deviate at most, over 2**(rows.bits + reach.bits)."""
        if self.norm == math.inf:
            sizes = fmpz_mat([[abs(number) for number in row] for row in rows.rows])
            return list((sizes * self.reach.matrix).entries())
        reach = [row[0] for row in self.reach.rows]
        moved = [[abs(number) * step for number, step in zip(row, reach, strict=True)] for row in rows.rows]
        if self.norm == 1:
            return [max(row) for row in moved]
        return [fmpz(math.isqrt(int(sum(number * number for number in row))) + 1) for row in moved]


def _fast_lin(lower: list[int], upper: list[int]) -> Lines:
    slopes, offsets = _chords(lower, upper)
    return Lines(slopes, [0] * len(slopes), slopes, offsets)


def _crown(lower: list[int], upper: list[int]) -> Lines:
    slopes, offsets = _chords(lower, upper)
    below = [
        (UNIT if high > -low else 0) if low < 0 < high else slope
        for low, high, slope in zip(lower, upper, slopes, strict=True)
    ]
    return Lines(below, [0] * len(slopes), slopes, offsets)


def _interval_lines(lower: list[int], upper: list[int]) -> Lines:
    flat = [0] * len(lower)
    low, high = ([max(0, number) << SLOPE_BITS for number in side] for side in (lower, upper))
    return Lines(flat, low, flat, high)


def _chords(lower: list[int], upper: list[int]) -> tuple[list[int], list[int]]:
    """Slopes over 2**20 and the offsets that go with them."""
    slopes, offsets = [], []
    for low, high in zip(lower, upper, strict=True):
        slope = 0 if high <= 0 else UNIT if low >= 0 else (2 * high * UNIT + high - low) // (2 * (high - low))
        slopes.append(slope)
        offsets.append(max(-slope * low, (UNIT - slope) * high) if low < 0 < high else 0)
    return slopes, offsets


RULES: dict[str, Callable[[list[int], list[int]], Lines]] = {
    "fast-lin": _fast_lin,
    "crown": _crown,
    "interval": _interval_lines,
}


def _bits(numbers: Tensor) -> int:
    """How many bits behind the point these float64 numbers take."""
    flat = numbers[numbers != 0].flatten()
    if not len(flat):
        return 0
    mantissas, exponents = torch.frexp(flat)
    whole = (mantissas * 2.0**53).to(torch.int64)
    spare = torch.zeros_like(whole)
    for step in (32, 16, 8, 4, 2, 1):
        even = (whole >> spare) & ((1 << step) - 1) == 0
        spare = torch.where(even & (spare + step < 53), spare + step, spare)
    return max(0, int((53 - exponents - spare).max()))


def scaled(numbers: Tensor) -> Scaled:
    """A matrix of float64 numbers, exactly."""
    bits = _bits(numbers)
    if bits > 900:
        raise Rejected("a number is too small for exact integers")
    return Scaled([[fmpz(int(number)) for number in row] for row in (numbers * 2.0**bits).tolist()], bits)


def _common(numbers: list[Fraction]) -> Scaled:
    """Fractions of powers of two as a column."""
    bits = max(number.denominator.bit_length() - 1 for number in numbers)
    return Scaled([[fmpz(int(number * (1 << bits)))] for number in numbers], bits)


def _parts(numbers: Scaled) -> tuple[fmpz_mat, fmpz_mat]:
    """The positive and the negative parts."""
    positive = [[number if number > 0 else ZERO for number in row] for row in numbers.rows]
    negative = [[number if number < 0 else ZERO for number in row] for row in numbers.rows]
    return fmpz_mat(positive), fmpz_mat(negative)


def _as_rows(matrix: fmpz_mat, bits: int) -> Scaled:
    return Scaled(matrix.tolist(), bits)


def _floor(number: Fraction) -> int:
    return (number.numerator << BOUND_BITS) // number.denominator
