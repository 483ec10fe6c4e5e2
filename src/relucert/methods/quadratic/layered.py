"""Layered certificates: composed ones with an ascent on every weight, for networks of any size.

A composed certificate is feasible whatever P, D / Q > 1 and the profiles pi are (`composed` has the inequalities). Here
an ascent chooses them for every neuron, with one certificate for all forms and a factor of it for each. The norms q are
followed by block power iterations, one for each step and pair of layers, and the gradient goes through them from the
input to the last layer, as

    d log q = sum u^2 d log T - sum w^2 d log pi,    u and w being the leading singular vectors of T^(1/2) W pi^(-1/2).

Nothing here has a row for every neuron of the network: passes between neighbouring layers are all it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.rigor import short
from relucert.bounding.adam import Adam
from relucert.common.deadline import check_time
from relucert.common.progress import Progress, Report, silent
from relucert.methods.passes import THE_INPUT
from relucert.methods.quadratic.ascent import CHECKED, SMALLEST_STEP, BoundAscent, cooling, table_gradient
from relucert.methods.quadratic.composed import Composed, carried, profile_of, source_columns
from relucert.methods.quadratic.dual import TINIEST, Weights
from relucert.methods.quadratic.joint import LEADING, SHARPNESS
from relucert.methods.quadratic.linearised_network import LinearisedNetwork, Neurons

VECTORS = 8  # that are iterated for each pair of layers
RATE = 0.03  # of logarithms of weights; faster ones outrun the iterations where convolutions have many long vectors
SETTLING = 8  # iterations before the first step
FARTHEST = 14.0  # of the logarithm of D / Q - 1
STEEPEST = 60.0  # of the logarithm of a profile


@dataclass(frozen=True, eq=False)
class PerNeuronPlan:
    """A plan by neuron, in logarithms: one row of numbers, (count,), for each layer or source.

    Attributes:
        deviations: By layer, log P.
        ratios: By layer that others follow, log (D / Q - 1).
        sources: By source, log pi; the input has none where only its largest weight counts.
    """

    deviations: dict[int, Tensor]
    ratios: dict[int, Tensor]
    sources: dict[int, Tensor]

    @classmethod
    def of(cls, linearised: LinearisedNetwork, composed: Composed) -> PerNeuronPlan:
        """The plan of a composed certificate with profiles of 1, in the precision of the network."""
        deviations, ratios, sources = {}, {}, {}
        for value, neurons in linearised.neurons.items():
            weights = composed.weights.deviations[value][0].to(linearised.radii.dtype)
            deviations[value] = _log(weights)
            if neurons.following:
                ratios[value] = _log(neurons.slope.abs() / neurons.width.clamp(min=TINIEST)).clamp(-FARTHEST, FARTHEST)
                sources[value] = torch.zeros_like(linearised.stable[value])
        if linearised.region.norm.p > 2:
            sources[THE_INPUT] = torch.zeros_like(linearised.radii)
        return cls(deviations, ratios, sources)

    @property
    def profiles(self) -> dict[int, Tensor]:
        return {source: short(logarithm.double().exp()) for source, logarithm in self.sources.items()}

    def weights(self, value: int, neurons: Neurons, required: Tensor) -> tuple[Tensor, Tensor]:
        ratios = self.ratios.get(value, torch.zeros_like(self.deviations[value]))
        return self.deviations[value].to(required.dtype).exp(), required * (1 + ratios.to(required.dtype).exp())

    def tensors(self) -> list[Tensor]:
        """All numbers, layer by layer."""
        return [*self.deviations.values(), *self.ratios.values(), *self.sources.values()]

    def move(self, steps: Iterator[Tensor]) -> None:
        """Adds to all numbers, in the order of `tensors`, and keeps them within reach."""
        for logarithms in self.tensors():
            logarithms.add_(next(steps))
        for ratio in self.ratios.values():
            ratio.clamp_(-FARTHEST, FARTHEST)
        for logarithm in self.sources.values():
            logarithm.clamp_(-STEEPEST, STEEPEST)


class NormGradient(NamedTuple):
    """The largest squared norm of a map, (), and the derivatives of its logarithm in log T and in - log pi."""

    square: Tensor
    rows: Tensor
    columns: Tensor


@dataclass(eq=False)
class MapIteration:
    """Vectors, (VECTORS, size of the source), that approach the leading ones of the map from a source to a layer."""

    linearised: LinearisedNetwork
    value: int
    source: int
    vectors: Tensor

    def step(self, roots: Tensor, columns: Tensor) -> NormGradient:
        """One iteration for `roots W columns`, (size,) each."""
        vectors = torch.linalg.qr(self.vectors.T).Q.T
        passes = self.linearised.passes
        images = passes.local(self.value, {self.source: vectors * columns}) * roots
        values, rotation = torch.linalg.eigh(images @ images.T)
        leading = values[-LEADING:].clamp(min=TINIEST)
        shares = torch.softmax(SHARPNESS * leading / leading[-1], 0)[:, None]
        turned = rotation.T[-LEADING:]
        rows = ((turned @ images).square() / leading[:, None] * shares).sum(0)
        inputs = ((turned @ vectors).square() * shares).sum(0)
        self.vectors = passes.local_transposed(self.value, images * roots)[self.source] * columns
        return NormGradient(leading[-1], rows, inputs)


class Layer(NamedTuple):
    """A layer of a certificate: Q and T of all its neurons, (size,) each, and by source its map."""

    required: Tensor
    layer_weights: Tensor
    maps: dict[int, NormGradient]


@dataclass(eq=False)
class LayeredAscent(BoundAscent):
    """The state of an ascent of the sum of some forms' bounds.

    Attributes:
        plan: Of the certificate that they share.
    """

    plan: PerNeuronPlan
    iterations: dict[tuple[int, int], MapIteration] = field(init=False)

    def __post_init__(self) -> None:
        generator, linearised = torch.Generator().manual_seed(0), self.linearised
        self.iterations = {}
        for value in linearised.network.preactivations:
            for source in linearised.passes.sources(value):
                size = len(linearised.radii) if source == THE_INPUT else linearised.network.sizes[source]
                vectors = torch.randn(VECTORS, size, generator=generator, dtype=linearised.radii.dtype)
                self.iterations[value, source] = MapIteration(linearised, value, source, vectors)

    def ascend(self, steps: int, report: Report = silent) -> None:
        """Climbs so many steps; report: called with every few of them."""
        for _ in range(SETTLING):
            self.layers()
        adam = Adam([self.table, *self.plan.tensors()], tiny=SMALLEST_STEP)
        rates = self.layout.rates()
        for step in range(steps):
            check_time()
            if step % CHECKED == 0:
                report(Progress(step=step, steps=steps))
            layers, weights = self.layers()
            slope, cooled = self.gradient(weights.times(self.factors)), cooling(step, steps)
            on_plan = self.plan_gradient(layers, weights, slope.shared_weights)
            on_table, *on_plan = adam.directions([table_gradient(slope), *on_plan])
            self.table.add_(on_table * rates * cooled)
            self.plan.move(RATE * cooled * way for way in on_plan)

    def layers(self) -> tuple[dict[int, Layer], Weights]:
        """The certificate with norms as they seem, from the last layer to the first; one iteration of every norm."""
        linearised, plan, profiles = self.linearised, self.plan, self._profiles()
        required: dict[int, Tensor] = {}
        layers, deviations, errors = {}, {}, {}
        for value in reversed(linearised.network.preactivations):
            neurons = linearised.neurons[value]
            total = required.get(value, torch.zeros_like(linearised.stable[value]))
            deviation_weights, error_weights = plan.weights(value, neurons, total[neurons.index])
            deviations[value] = deviation_weights[None]
            if neurons.following:
                errors[value] = error_weights[None]
                deviation_weights = deviation_weights + carried(neurons, total[neurons.index], error_weights)
            layer_weights = (total * linearised.stable[value]).index_copy(0, neurons.index, deviation_weights)
            maps = {
                source: self.iterations[value, source].step(
                    layer_weights.sqrt(), source_columns(linearised, source, profiles)
                )
                for source in linearised.passes.sources(value)
            }
            layers[value] = Layer(total, layer_weights, maps)
            length = sum((leading.square.sqrt() for leading in maps.values()), torch.zeros(()))
            for source, leading in maps.items():
                share = leading.square.sqrt() * length * profile_of(linearised, source, profiles)
                required[source] = required[source] + share if source in required else share
        inputs = required[THE_INPUT][None] if THE_INPUT in plan.sources else required[THE_INPUT][None, :1]
        return layers, Weights(deviations, errors, inputs)

    def _profiles(self) -> dict[int, Tensor]:
        return {source: logarithm.exp() for source, logarithm in self.plan.sources.items()}

    def plan_gradient(self, layers: dict[int, Layer], weights: Weights, slope: Weights) -> list[Tensor]:
        """The derivatives in the plan's numbers, from those in the logarithms of P, D and the inputs' weights.

        From the first layer to the last: a layer passes on what its sources' Q are worth.
        """
        linearised = self.linearised
        worth = {THE_INPUT: slope.inputs[0]}  # the derivatives in log Q, by source
        required = {value: layer.required for value, layer in layers.items()}
        required[THE_INPUT] = weights.inputs[0].expand(len(linearised.radii))
        on_sources = {
            source: torch.zeros_like(deviation_weights) for source, deviation_weights in self.plan.sources.items()
        }
        on_deviations, on_ratios = {}, {}
        for value, neurons in linearised.neurons.items():
            layer = layers[value]
            on_whole = torch.zeros_like(layer.layer_weights)
            for source, number in self._on_squares(layer, worth, required).items():
                on_whole += number * layer.maps[source].rows
                if source in on_sources:
                    on_sources[source] -= number * layer.maps[source].columns
            deviation_weights, layer_weights = (
                weights.deviations[value][0],
                layer.layer_weights[neurons.index].clamp(min=TINIEST),
            )
            on_unstable = on_whole[neurons.index]
            on_deviations[value] = slope.deviations[value][0] + on_unstable * deviation_weights / layer_weights
            worth[value] = on_whole * linearised.stable[value]
            if neurons.following:
                error_weights, on_errors = weights.errors[value][0], slope.errors[value][0]
                required_unstable = layer.required[neurons.index]
                spare = (error_weights - required_unstable).clamp(min=TINIEST)  # T - P is Q s^2 (1 + Q / spare)
                carried_weights = required_unstable * neurons.slope.square() * required_unstable / spare
                on_ratios[value] = on_errors * spare / error_weights - on_unstable * carried_weights / layer_weights
                worth[value][neurons.index] = (
                    on_errors + on_unstable * (layer_weights - deviation_weights) / layer_weights
                )
        for source, deviation_weights in on_sources.items():
            deviation_weights += worth[source]
        return [*on_deviations.values(), *on_ratios.values(), *on_sources.values()]

    def _on_squares(
        self, layer: Layer, worth: Mapping[int, Tensor], required: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:  # fmt: skip
        """By source, the derivative in the logarithm of a map's q: sources are asked for the root of q times the sum of
        all roots, times their profile."""
        profiles = self._profiles()
        roots = {source: leading.square.sqrt() for source, leading in layer.maps.items()}
        prices = {
            source: (
                worth[source] / required[source].clamp(min=TINIEST) * profile_of(self.linearised, source, profiles)
            ).sum()
            for source in roots
        }
        total, spent = sum(roots.values()), sum(prices[source] * root for source, root in roots.items())
        return {source: root / 2 * (prices[source] * total + spent) for source, root in roots.items()}


def _log(numbers: Tensor) -> Tensor:
    return numbers.clamp(min=TINIEST).log()
