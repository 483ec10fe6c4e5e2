"""The problem of a quadratic certificate of the first format in exact numbers, integers over powers of two: the stored
numbers of a chain of linear layers and convolutions, the region, and bounds and sectors of every hidden layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
from flint import fmpq, fmpz, fmpz_mat
from torch import Tensor
from torch.nn import functional

from relucert.checker.ball_region import BallRegion, Numbers, fraction
from relucert.checker.document import Rejected
from relucert.checker.lines import BOUND_BITS
from relucert.checker.quadratic_document import QuadraticProof, SectorEntry
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import BoundingRule, by_rule
from relucert.network import Network


@dataclass(frozen=True)
class CheckedLayer:
    """A hidden layer: its exact numbers, the bounds of its pre-activations, and those at the region's centre.

    slope, width: of its sectors; None for the last hidden layer.
    """

    weight: Scaled
    bias: Numbers
    lower: Numbers
    upper: Numbers
    centre: Numbers
    slope: Numbers | None
    width: Numbers | None

    @property
    def max_deviation(self) -> Numbers:
        """How far pre-activations may lie from those at the centre, at most."""
        ends = zip(self.lower, self.upper, self.centre, strict=True)
        return [max(high - reference, reference - low) for low, high, reference in ends]

    @property
    def loose(self) -> list[int]:
        """The neurons whose sectors have a width."""
        return [neuron for neuron, width in enumerate(self.width or []) if width > 0]


@dataclass(frozen=True)
class CheckedChain:
    """The region, the hidden layers within it, and the layer of the outputs."""

    region: BallRegion
    layers: list[CheckedLayer]
    weight: Scaled
    bias: Numbers

    @property
    def moving(self) -> list[int]:
        return [coordinate for coordinate, radius in enumerate(self.region.radii) if radius > 0]


def linearise(network: Network, proof: QuadraticProof) -> tuple[CheckedChain, list[Fraction]]:
    """The linearised chain of a proof, whose sectors are checked, and what CROWN's lines prove of its rows."""
    chain = Chain.of(network)
    bounded = TreeCheck.of(network, proof, by_rule(BoundingRule("crown", proof.scope)))
    linear = bounded.margins()
    region, layers = BallRegion.of(proof), []
    if len(proof.sectors) != max(0, len(bounded.bounds) - 1):
        raise Rejected("it has not the sectors of every hidden layer but the last")
    point = region.centre
    hidden = zip(bounded.bounds.values(), chain.weights, chain.biases, strict=False)
    for number, (interval, weight, bias) in enumerate(hidden):
        lower, upper = ([fmpq(end, 1 << BOUND_BITS) for end in ends] for ends in (interval.lower, interval.upper))
        centre = [product + constant for product, constant in zip(times(weight, point), bias, strict=True)]
        slope = width = None
        if number < len(proof.sectors):
            slope, width = _sectors(proof.sectors[number], lower, upper, centre, number)
        layers.append(CheckedLayer(weight, bias, lower, upper, centre, slope, width))
        point = [max(number, fmpq(0)) for number in centre]
    return CheckedChain(region, layers, chain.weights[-1], chain.biases[-1]), linear


def _sectors(
    entry: SectorEntry, lower: Numbers, upper: Numbers, centre: Numbers, layer: int
) -> tuple[Numbers, Numbers]:
    """The slopes and widths, which contain the slopes of all chords from the centre."""
    if not len(entry.slope) == len(entry.width) == len(centre):
        raise Rejected(f"the sectors of hidden layer {layer} are not one for each neuron")
    slopes, widths = [fraction(number) for number in entry.slope], [fraction(number) for number in entry.width]
    for neuron, (slope, width, low, high, reference) in enumerate(
        zip(slopes, widths, lower, upper, centre, strict=True)
    ):
        # Slopes of chords do not fall when an end moves up: those to both ends bound all of them.
        least_slope, largest_slope = _chord(low, reference), _chord(high, reference)
        if not (low <= reference <= high and slope - width <= least_slope and largest_slope <= slope + width):
            raise Rejected(f"the sector of neuron {neuron} of hidden layer {layer} is too narrow")
    return slopes, widths


def _chord(end: fmpq, centre: fmpq) -> fmpq:
    """The slope of ReLU's chord between two points; where they meet, or have one sign, that of their side."""
    if (end > 0) == (centre > 0):
        return fmpq(1) if end > 0 else fmpq(0)
    return (max(end, fmpq(0)) - max(centre, fmpq(0))) / (end - centre)


def times(weight: Scaled, vector: Numbers) -> Numbers:
    """The exact product of a matrix and a vector of fractions of powers of two."""
    column, bits = common(vector)
    products = (weight.matrix * fmpz_mat([[number] for number in column])).entries()
    return [fmpq(number, 1 << (weight.bits + bits)) for number in products]


def common(numbers: Numbers) -> tuple[list[int], int]:
    """Fractions of powers of two as integers over one power."""
    bits = max((int(number.q).bit_length() - 1 for number in numbers), default=0)
    return [int(number.p) << (bits - int(number.q).bit_length() + 1) for number in numbers], bits


WEIGHTED = ("linear", "convolution")  # operations with weights
MOVES = ("reshape", "index map")  # operations that only move numbers
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
class Chain:
    """The layers in their order: weights, and biases as fractions."""

    weights: list[Scaled]
    biases: list[list[fmpq]]

    @classmethod
    def of(cls, network: Network) -> Chain:
        if not is_chain(network):
            raise Rejected("the network is no chain of linear layers or convolutions and ReLUs")
        weights, biases = [], []
        for segment in _segments(network):
            weight, bias = _dense(network, segment)
            column = scaled(bias[:, None])
            weights.append(scaled(weight))
            biases.append([fmpq(row[0], 1 << column.bits) for row in column.rows])
        return cls(weights, biases)


def is_chain(network: Network) -> bool:
    """Whether it is a chain with one linear layer or convolution, and besides it only what moves numbers, before each
    ReLU and at the end; and whether its numbers are not too long."""
    if not all(node.inputs == (value - 1,) for value, node in network.steps()):
        return False
    for segment in _segments(network):
        names = [network.node(value).operation.name for value in segment]
        if not set(names) <= {*WEIGHTED, *MOVES} or sum(name in WEIGHTED for name in names) != 1:
            return False
        if any(_repeats(network.node(value).operation.settings()) for value in segment):
            return False
    tensors = (tensor for node in network.nodes for tensor in node.operation.tensors().values())
    return all(_bits(tensor.double()) <= LONGEST for tensor in tensors)


def _segments(network: Network) -> list[list[int]]:
    """The values of the affine operations before each ReLU, and after the last one."""
    segments: list[list[int]] = [[]]
    for value, node in network.steps():
        if node.operation.name == "relu":
            segments.append([])
        else:
            segments[-1].append(value)
    return segments


def _repeats(settings: dict[str, Any]) -> bool:
    """Whether an index map takes a coordinate twice: sums of weights would then have to be rounded."""
    indices = torch.tensor(settings.get("indices", ()), dtype=torch.long)
    picked = indices[indices < math.prod(settings.get("before", ()))]
    return len(picked.unique()) < len(picked)


def _dense(network: Network, segment: list[int]) -> tuple[Tensor, Tensor]:
    """The operations of a segment as one matrix and a bias, exactly: they are applied to the unit vectors, so that
    every product has a factor 0 or 1, and every sum at most one term that is not 0."""
    size = network.sizes[segment[0] - 1]
    units = torch.eye(size, dtype=torch.float64)
    bias = torch.zeros(1, dtype=torch.float64)
    for value in segment:
        operation = network.node(value).operation
        tensors = {name: tensor.double() for name, tensor in operation.tensors().items()}
        settings, before, after = operation.settings(), network.shapes[value - 1], network.shapes[value]
        if operation.name == "linear":
            units, bias = units @ tensors["weight"].T, tensors["bias"]
        elif operation.name == "convolution":
            units = _convolved(units.unflatten(1, before), tensors["weight"], settings)
            bias = tensors["bias"][:, None, None].expand(after).flatten()
        elif operation.name == "index map":
            indices = torch.tensor(settings["indices"])
            units = functional.pad(units, (0, 1))[:, indices]
            bias = functional.pad(bias.expand(network.sizes[value - 1]), (0, 1))[indices]
    return units.T.contiguous(), bias


def _convolved(images: Tensor, weight: Tensor, settings: dict[str, Any]) -> Tensor:
    top, left, bottom, right = settings["padding"]
    padded = functional.pad(images, (left, right, top, bottom))
    options = {name: settings[name] for name in ("stride", "dilation", "groups")}
    return functional.conv2d(padded, weight, **options).flatten(1)


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
