"""A network over a region as quadratic certificates see it, in fixed point: deviations from a reference.

The reference is any number for every value of the network, here about what the network computes at the region's centre.
An affine operation maps the references of its inputs to its own but for a residual; with the noise of an evaluation in
floating point, that moves every deviation by at most a drift. With unstable neurons' errors `e = dh - s dz`, where dz
and dh are the deviations of a pre-activation and of its ReLU, all deviations are linear in (y, e), but for the drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from flint import fmpq
from torch import Tensor

from relucert.checker.activations import SmoothFunction, is_activation
from relucert.checker.ball_region import BallRegion, Numbers, as_fraction, fixed
from relucert.checker.certificate_document import CertificateProof, LayerEntry
from relucert.checker.entries import Rejected, require
from relucert.checker.fixed_layers import upper_bounds
from relucert.checker.fixed_point import Fixed, multiply, of_fractions, of_integers
from relucert.checker.graphs import BOUND_UNIT, LinePiece, relu_pieces, smooth_outputs, smooth_pieces
from relucert.checker.lines import IntegerInterval
from relucert.checker.relaxation import FixedRelaxation
from relucert.checker.tree_check import TreeCheck
from relucert.network import Network

INPUT = 0  # as a value
THE_INPUT = -1  # as a source of layers; a layer of ReLUs is a source by its pre-activation, which may be the input


@dataclass(frozen=True, eq=False)
class UnstableNeurons:
    """The neurons of a pre-activation that a proof treats as unstable.

    Attributes:
        index: Their indices, (count,).
        lower, upper: The least and the largest deviation of each from its reference.
        slope: The slopes s of their activations.
        pieces: What the graphs of their activations are, or lie between.
        followed: Whether another pre-activation depends on their activations.
    """

    index: Tensor
    lower: Numbers
    upper: Numbers
    slope: Numbers
    pieces: list[list[LinePiece]]
    followed: bool

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False)
class CheckedNetwork:
    """The network over the region of a proof.

    Attributes:
        region: The inputs, as `centre + radii y`.
        values: By value, the reference, (1, size), taken for exact.
        residuals: By affine value and for the input, how far it may be from the operation on the references before it,
            noise included, (size,).
        slopes: By pre-activation, what its deviations are multiplied with at its ReLUs, besides e: 0 or 1 for stable
            neurons, (size,).
        max_deviation: By pre-activation, how far its activations may lie from their reference, (size,); 0 for inactive
            ReLUs.
        outputs: By pre-activation, the references of its smooth activation, without an error.
        neurons: By pre-activation, those that are treated as unstable.
        end: The value that forms are on: the output, or a pre-activation that is to be bounded.
    """

    network: Network
    relaxation: FixedRelaxation
    region: BallRegion
    values: dict[int, Fixed]
    residuals: dict[int, Fixed]
    slopes: dict[int, Fixed]
    max_deviation: dict[int, Fixed]
    outputs: dict[int, Fixed]
    neurons: dict[int, UnstableNeurons]
    end: int

    @classmethod
    def of(cls, proof: CertificateProof, bounded: TreeCheck, bound: Bounder) -> CheckedNetwork:
        """The linearised network of a proof whose pre-activations were bounded by a check.

        bound: Gives the bounds of a pre-activation, from the network as far as it is linearised.
        """
        relaxation, network = bounded.relaxation, bounded.relaxation.network
        complete = set(proof.layers) == set(network.preactivations)
        require(complete, "it has not the neurons of every pre-activation")
        region = BallRegion.of(proof)
        linearised = cls(network, relaxation, region, {}, {}, {}, {}, {}, {}, network.output)
        linearised._refer(INPUT, fixed(region.centre), None)
        if INPUT in network.preactivations:
            linearised._open(INPUT, proof.layers[INPUT], bound(linearised, INPUT))
        for value, node in network.steps():
            if node.operation.name == "relu":
                linearised.values[value] = linearised._relu(node.inputs[0])
            elif value in relaxation.smooth:
                linearised.values[value] = linearised.outputs[node.inputs[0]]
            else:
                layer = relaxation.layers[value]
                image = layer.linear([linearised.values[source] for source in node.inputs])
                if layer.constant is not None:
                    image = image.plus(layer.constant.reshaped(1, -1))
                linearised._refer(value, image, relaxation.noise.get(value))
            if value in network.preactivations:
                linearised._open(value, proof.layers[value], bound(linearised, value))
        return linearised

    def _refer(self, value: int, image: Fixed, noise: Fixed | None) -> None:
        """Sets the reference and the residual of a value: `image` is the operation on the references before it."""
        self.values[value] = replace(image, error=0)
        residual = uniform(image)
        self.residuals[value] = residual if noise is None else upper_bounds(residual.plus(noise))

    def _open(self, value: int, entry: LayerEntry, interval: IntegerInterval) -> None:
        """Sets the unstable neurons of a pre-activation, which the file lists; the others have to be proven stable."""
        size = self.network.sizes[value]
        require(all(neuron < size for neuron in entry.neurons), "it has neurons that the network does not have")
        ordered = all(low <= high for low, high in zip(interval.lower, interval.upper, strict=True))
        require(ordered, f"the bounds of value {value} cross")
        centres = numbers_of(self.values[value])
        lower, upper = (
            [end * BOUND_UNIT - centre for end, centre in zip(ends, centres, strict=True)]
            for ends in (interval.lower, interval.upper)
        )
        slopes = [(1 << entry.slope_bits) if low >= 0 else 0 for low in interval.lower]
        for neuron, slope in zip(entry.neurons, entry.slopes, strict=True):
            slopes[neuron] = slope
        function = self._function(value)
        if function is None:
            require(entry.graphs is None, f"it has lines of a smooth activation of value {value}, which has none")
            opened = set(entry.neurons)
            for neuron, (low, high) in enumerate(zip(interval.lower, interval.upper, strict=True)):
                if low < 0 < high and neuron not in opened:
                    raise Rejected(f"it leaves out neuron {neuron} of value {value}, which is not proven stable")
            pieces = [relu_pieces(lower[neuron], upper[neuron], centres[neuron]) for neuron in entry.neurons]
            max_deviations = [
                max(abs(low), abs(high)) if slope or neuron in opened else fmpq(0)
                for neuron, (low, high, slope) in enumerate(zip(lower, upper, slopes, strict=True))
            ]
        else:
            pieces = self._smooth_pieces(value, entry, interval, function)
            max_deviations = [max(piece.largest for piece in lines) for lines in pieces]
        self.slopes[value] = Fixed(torch.tensor(slopes, dtype=torch.int64), entry.slope_bits)
        self.max_deviation[value] = of_fractions([as_fraction(number) for number in max_deviations], up=True)
        self.neurons[value] = UnstableNeurons(
            torch.tensor(entry.neurons, dtype=torch.long),
            lower=[lower[neuron] for neuron in entry.neurons],
            upper=[upper[neuron] for neuron in entry.neurons],
            slope=[fmpq(slope, 1 << entry.slope_bits) for slope in entry.slopes],
            pieces=pieces,
            followed=value in self.followed,
        )

    def _function(self, value: int) -> SmoothFunction | None:
        """The smooth activation of a pre-activation, the only one that it then has; None: it has ReLUs."""
        activations = [after for after in self.network.activations if self.network.source(after) == value]
        functions = {self.relaxation.smooth.get(activation) for activation in activations}
        require(len(functions) == 1, f"value {value} has two activations")
        return functions.pop()

    def _smooth_pieces(
        self, value: int, entry: LayerEntry, interval: IntegerInterval, function: SmoothFunction
    ) -> list[list[LinePiece]]:
        """Sets the references of a smooth activation, all of whose neurons the file lists; returns their lines."""
        centres = numbers_of(self.values[value])
        require(entry.neurons == list(range(len(centres))), f"it leaves out neurons of value {value}")
        require(entry.graphs is not None, f"it has no lines around the smooth activation of value {value}")
        assert entry.graphs is not None
        # The rounded numbers are the references themselves, so that nothing has to be charged.
        self.outputs[value] = replace(fixed(smooth_outputs(function, centres)), error=0)
        outputs = numbers_of(self.outputs[value])
        return smooth_pieces(function, self.relaxation.error, interval, entry.graphs, centres, outputs)

    def _relu(self, source: int) -> Fixed:
        """The reference of a ReLU: that of its neuron where this is active, 0 where it is inactive, else its ReLU."""
        before = self.values[source]
        passed = before.units * (self.slopes[source].units > 0)
        index = self.neurons[source].index
        passed[:, index] = before.units[:, index].clamp(min=0)
        return replace(before, units=passed)

    def before(self, value: int) -> CheckedNetwork:
        """The linearised network that ends at a value; the neurons of all ReLUs before it must be set."""
        cut = replace(self, end=value)
        neurons = {layer: replace(self.neurons[layer], followed=layer in cut.followed) for layer in cut.preactivations}
        return replace(cut, neurons=neurons)

    @cached_property
    def preactivations(self) -> list[int]:
        """The pre-activations of ReLUs up to the end, in order."""
        relus = (value for value in self.network.activations if value <= self.end)
        return sorted({self.network.source(value) for value in relus})

    @property
    def counts(self) -> tuple[dict[int, int], dict[int, int]]:
        """By pre-activation, how many unstable neurons it has, and how many errors e, which only followed ones have."""
        counts = {value: len(neurons) for value, neurons in self.neurons.items()}
        return counts, {value: count * self.neurons[value].followed for value, count in counts.items()}

    def sources(self, value: int) -> list[int]:
        """The pre-activations whose ReLUs reach a value through affine operations alone, and the input, -1."""
        relus = set(self.network.activations)
        ends = self.network.ancestors((value,), relus) & (relus | {INPUT})
        return sorted({self.network.source(end) if end in relus else THE_INPUT for end in ends})

    @cached_property
    def followed(self) -> set[int]:
        """The pre-activations on whose ReLUs another pre-activation depends."""
        return {source for value in self.preactivations for source in self.sources(value)}

    def forward(self, inputs: Fixed, errors: Mapping[int, Fixed]) -> tuple[dict[int, Fixed], dict[int, Fixed]]:
        """Deviations of all pre-activations, and the drift of a deviation from them.

        Args:
            inputs: The deviations of the input, (1, inputs).
            errors: By followed pre-activation, the errors e of its unstable neurons, (1, count).

        Returns:
            By pre-activation: numbers that are taken for exact, (1, size), and the sum of how far these are from the
            linear map of the inputs and errors, and of how far true deviations are from that of the true ones, (size,).
        """
        moved: dict[int, Fixed] = {INPUT: replace(inputs, error=0)}
        drift: dict[int, Fixed] = {INPUT: upper_bounds(self.residuals[INPUT].plus(uniform(inputs)))}
        for value in sorted(self.network.ancestors(self.preactivations) - {INPUT}):
            node = self.network.node(value)
            if is_activation(node):
                source, slopes = node.inputs[0], self.slopes[node.inputs[0]]
                image = multiply(moved[source], slopes, torch.mul, 1)
                spread = upper_bounds(multiply(drift[source], replace(slopes, units=slopes.units.abs()), torch.mul, 1))
                if len(self.neurons[source]):
                    image = image.plus(errors[source].spread(self.neurons[source].index, self.network.sizes[source]))
            else:
                image = self.relaxation.layers[value].linear([moved[source] for source in node.inputs])
                spread = self.relaxation.layers[value].magnitude([drift[source] for source in node.inputs])
                spread = upper_bounds(spread.plus(self.residuals[value]))
            moved[value], drift[value] = replace(image, error=0), upper_bounds(spread.plus(uniform(image)))
        values = self.preactivations
        return {value: moved[value] for value in values}, {value: drift[value] for value in values}


Bounder = Callable[[CheckedNetwork, int], IntegerInterval]


def uniform(numbers: Fixed) -> Fixed:
    """The error of numbers, (1, size), as numbers: (size,)."""
    if numbers.error >= 1 << 50:
        return of_integers([numbers.error] * numbers.units.shape[1], numbers.bits, up=True)
    return Fixed(torch.full((numbers.units.shape[1],), numbers.error, dtype=torch.int64), numbers.bits)


def numbers_of(fixed: Fixed) -> Numbers:
    """The units of numbers, (1, size) or (size,), exactly and without their error."""
    unit = fmpq(2) ** -fixed.bits
    return [number * unit for number in fixed.units.flatten().tolist()]
