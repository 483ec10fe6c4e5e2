"""The problem of a quadratic certificate in exact numbers: the region, and bounds and sectors of every hidden layer."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from flint import fmpq, fmpz_mat

from relucert.checker.ball_region import BallRegion, Numbers, fraction
from relucert.checker.document import Rejected
from relucert.checker.integers import Chain, Scaled
from relucert.checker.lines import BOUND_BITS
from relucert.checker.quadratic_document import QuadraticProof, SectorEntry
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import Rule, by_rule
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
        return [max(high - middle, middle - low) for low, high, middle in ends]

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
    bounded = TreeCheck.of(network, proof, by_rule(Rule("crown", proof.scope)))
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
    for neuron, (slope, width, low, high, middle) in enumerate(zip(slopes, widths, lower, upper, centre, strict=True)):
        # Slopes of chords do not fall when an end moves up: those to both ends bound all of them.
        least, most = _chord(low, middle), _chord(high, middle)
        if not (low <= middle <= high and slope - width <= least and most <= slope + width):
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
