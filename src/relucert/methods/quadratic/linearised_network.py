"""One region of a network as the quadratic certificates see it: deviations from a reference, layer by layer.

Inputs are `x = c + r y` with y in the unit ball. With the pre-activations zc at c, `dz = z - zc` and
`dh = relu(z) - relu(zc)`, every deviation is a linear function of the vector v = (y, e), where

    e = dh - s dz

for the unstable neurons, with any slope s. A stable neuron has no e: its dh is dz, or 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from relucert.arithmetic.confined import Walls
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS, SLOPE_UNIT
from relucert.bounding.interval import Bounds
from relucert.common.deadline import check_time
from relucert.methods.passes import Passes
from relucert.methods.quadratic.pieces import StraightPiece, chord_slopes, enclosing_pieces, relu_pieces
from relucert.network import INPUT, Activation, Network


@dataclass(frozen=True, eq=False)
class Neurons:
    """The unstable neurons of one layer, (count,) each; deviations are counted from the reference.

    Attributes:
        index: Which neurons of the layer they are.
        centre: The reference zc of their pre-activations.
        lower: How far below it they may lie, negative.
        upper: How far above it.
        slope: About the mean of the least and the largest slope of a chord from the reference; a multiple of
            SLOPE_UNIT, so that 1 - slope is exact.
        width: How far those slopes lie from it, at most.
        tangent: About the derivative of the activation at the reference.
        pieces: What the activation's graph is, or lies between.
        ends: Where intervals with lines of their own end, (ends, count); None of ReLUs.
        following: Whether a later layer depends on their activations, so that their errors e are part of v.
    """

    index: Tensor
    centre: Tensor
    lower: Tensor
    upper: Tensor
    slope: Tensor
    width: Tensor
    tangent: Tensor
    pieces: tuple[StraightPiece, ...]
    ends: Tensor | None
    following: bool

    @classmethod
    def of(
        cls, activation: Activation, centre: Tensor, output: Tensor, lower: Tensor, upper: Tensor, following: bool
    ) -> Neurons:
        """Those of a layer with this reference, before and after the activation, and these bounds, (size,) each."""
        index = (~activation.is_affine(lower, upper)).nonzero().flatten()
        centre, output, lower, upper = (numbers[index] for numbers in (centre, output, lower, upper))
        if activation.rectifier:
            least, largest = _chord(lower, centre), _chord(upper, centre)
        else:
            least, largest = chord_slopes(activation, centre, lower, upper)
        slope = torch.round((least + largest) / 2 / SLOPE_UNIT) * SLOPE_UNIT
        width = torch.maximum(largest - slope, slope - least)
        down, up = RIGOROUS.floor(lower - centre), RIGOROUS.ceil(upper - centre)
        if activation.rectifier:
            pieces, ends = relu_pieces(centre, slope, down, up), None
        else:
            pieces, ends = enclosing_pieces(activation, centre, output, slope, lower, upper)
        tangent = activation.derivative(centre)
        return cls(index, centre, down, up, slope, width, tangent, pieces, ends, following)

    def __len__(self) -> int:
        return len(self.index)

    def split(self, signs: Tensor) -> Neurons:
        """The same ReLUs in subdomains where some have a sign, (nodes, count): 1, -1, or 0 where they have none."""
        kink = -self.centre
        lower, upper = torch.where(signs > 0, kink, self.lower), torch.where(signs < 0, kink, self.upper)
        return replace(self, pieces=relu_pieces(self.centre, self.slope, lower, upper))

    def cast(self, dtype: torch.dtype) -> Neurons:
        names = ("centre", "lower", "upper", "slope", "width", "tangent")
        numbers = {name: getattr(self, name).to(dtype) for name in names}
        return replace(self, **numbers, pieces=tuple(piece.cast(dtype) for piece in self.pieces))


@dataclass(frozen=True, eq=False)
class LinearisedNetwork:
    """A region and the layers of ReLUs within it, in one precision.

    Attributes:
        passes: Of the network in that precision.
        region: A batch of one.
        reference: The point c, (inputs,).
        radii: The numbers r, (inputs,).
        values: By value, what the network computes at the reference, (1, size) each; only in float64. A stable neuron's
            ReLU is its slope times the pre-activation.
        stable: By layer, the slopes of stable neurons, 0 for unstable ones, (size,).
        neurons: By layer, the unstable neurons.
    """

    passes: Passes
    region: Region
    reference: Tensor
    radii: Tensor
    values: dict[int, Tensor]
    stable: dict[int, Tensor]
    neurons: dict[int, Neurons]

    @classmethod
    def of(cls, network: Network, region: Region, bounds: Bounds) -> LinearisedNetwork:
        """Everything in float64, as the network and the region are; bounds: of every pre-activation, (1, size)."""
        reference, radii = region.reference[0], region.coordinate_radii(RIGOROUS)[0]
        passes = Passes(network, quick=False)
        followed = {source for value in network.preactivations for source in passes.sources(value)}
        activations = {network.source(value): activation for value, activation in network.activations.items()}
        values, outputs, stable, neurons = {INPUT: reference[None]}, dict[int, Tensor](), {}, {}
        for value in range(len(network.shapes)):
            check_time()
            if value in network.activations:
                values[value] = outputs[network.source(value)]
            elif value != INPUT:
                sources = network.node(value).inputs
                operands = [values[source].unflatten(1, network.shapes[source]) for source in sources]
                values[value] = network.affine(value).apply(*operands).flatten(1)
            if value in activations:
                activation, centre = activations[value], values[value][0]
                lower, upper = (end[0] for end in bounds[value])
                affine = activation.is_affine(lower, upper)
                stable[value] = (affine & (lower >= 0)).to(lower.dtype)
                output = torch.where(affine, centre * stable[value], activation.apply(centre))
                neurons[value] = Neurons.of(activation, centre, output, lower, upper, value in followed)
                outputs[value] = output[None]
        return cls(passes, region, reference, radii, values, stable, neurons)

    def quick(self, dtype: torch.dtype = torch.float32) -> LinearisedNetwork:
        """The same for searches, whose rounding nothing bounds."""
        return LinearisedNetwork(
            Passes(self.network.cast(dtype), quick=True), self.region.cast(dtype), self.reference.to(dtype),
            self.radii.to(dtype), {}, {value: slopes.to(dtype) for value, slopes in self.stable.items()},
            {value: neurons.cast(dtype) for value, neurons in self.neurons.items()},
        )  # fmt: skip

    def split(self, signs: Tensor) -> LinearisedNetwork:
        """The region's subdomains where unstable ReLUs have signs, (nodes, unstable), all layers side by side."""
        by_layer = signs.split([len(neurons) for neurons in self.neurons.values()], 1)
        split = {
            value: neurons.split(its) for (value, neurons), its in zip(self.neurons.items(), by_layer, strict=True)
        }
        return replace(self, neurons=split)

    @property
    def network(self) -> Network:
        return self.passes.network

    @cached_property
    def walls(self) -> Walls | None:
        """How far -y may go down and up, (inputs,) each, where a box cuts a ball that is no box."""
        walls = self.region.walls
        return None if walls is None else (walls.above[0], walls.below[0])

    @cached_property
    def followed(self) -> list[int]:
        """The layers whose errors are part of v."""
        return [value for value, neurons in self.neurons.items() if neurons.following]

    @cached_property
    def unstable(self) -> int:
        """The number of unstable neurons."""
        return sum(map(len, self.neurons.values()))

    @cached_property
    def finite(self) -> bool:
        """Whether all neurons have bounds, and their activations lines around them, that are finite."""
        return all(
            bool(torch.cat([piece.size, piece.steep]).isfinite().all())
            for neurons in self.neurons.values()
            for piece in neurons.pieces
        )

    def first_shares(self, value: int, coefficients: Tensor) -> Tensor:
        """Where searches start with lambda / g, from g, (forms, count): with the tangent's slope where the lower line
        counts, else the mean slope of chords."""
        neurons = self.neurons[value]
        return torch.where(coefficients > 0, neurons.tangent, neurons.slope)

    def forward(self, inputs: Tensor, errors: dict[int, Tensor]) -> dict[int, Tensor]:
        """`A v`: the deviations of unstable neurons by layer, (batch, count) each.

        Args:
            inputs: y, (batch, inputs).
            errors: e by layer, (batch, count) each, of layers that others follow.
        """
        deviations = {}

        def activate(value: int, moved: Tensor) -> Tensor:
            neurons = self.neurons[value]
            deviations[value] = moved[:, neurons.index]
            through = moved * self.stable[value]
            if neurons.following and len(neurons):
                through.index_copy_(1, neurons.index, neurons.slope * deviations[value] + errors[value])
            return through

        self.passes.forward(inputs * self.radii, activate)
        return deviations

    def transposed(self, forms: dict[int, Tensor]) -> tuple[Tensor, dict[int, Tensor]]:
        """`A' f`: from forms on the deviations of unstable neurons those on y, (batch, inputs), and on e by layer."""
        on_errors = {}

        def choose(value: int, reached: Tensor) -> Tensor:
            neurons = self.neurons[value]
            on_errors[value] = reached[:, neurons.index]
            sloped = neurons.slope * on_errors[value] + forms[value]
            return (reached * self.stable[value]).index_copy_(1, neurons.index, sloped)

        on_inputs = self.passes.backward(None, choose, next(iter(forms.values())))
        return on_inputs * self.radii, on_errors


def _chord(end: Tensor, centre: Tensor) -> Tensor:
    """The slope of ReLU's chord between two points; where they have one sign, that of their side."""
    apart = (end > 0) != (centre > 0)
    share = torch.where(end > 0, end, centre) / torch.where(apart, (end - centre).abs(), 1)
    return torch.where(apart, share, (end > 0).to(end.dtype))
