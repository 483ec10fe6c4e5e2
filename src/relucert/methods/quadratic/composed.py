"""The composed certificate: weights that are feasible by construction, from one norm for each pair of layers.

From the last layer to the first. Let a layer's squared deviations have weights T. Its deviations are a sum of linear
maps W of what its sources s (the input, or ReLUs of earlier layers) deviate by, so for shares c that sum to 1 and a
profile pi > 0 of the neurons of every source

    sum T dz^2 <= sum over s of q / c sum pi d^2,    q >= |T^(1/2) W pi^(-1/2)|^2.

A ReLU with the sum Q of the q pi / c of all layers that it leads to needs, neuron by neuron with d = s dz + e,

    Q (s dz + e)^2 <= D e^2 + (T - P) dz^2,    true for    T = P + Q s^2 D / (D - Q),  D > Q,

and a stable one that is active T = Q. At the input D = Q. Only the norms need a proof.
Which P, D and profiles are taken is a plan; `layered` has one whose numbers an ascent chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from relucert.common.deadline import check_time
from relucert.methods.passes import THE_INPUT
from relucert.methods.quadratic.dual import TINIEST, Weights
from relucert.methods.quadratic.linearised_network import LinearisedNetwork, Neurons

VECTORS, ROUNDS = 2, 24  # of the estimate of a norm
EXHAUSTED = 1e-4  # share of vectors that is left where all directions are known
SURPLUSES = (1.005, 1.02, 1.06)  # of squared norms above their estimates, the first of which is mostly enough
LARGEST = 1e6  # of an error's weight, relative to Q
ROOM = 2.0**-30  # relative, for rounding


class CertificatePlan(Protocol):
    """What a composed certificate is free to choose."""

    @property
    def profiles(self) -> Mapping[int, Tensor]:
        """By source, pi, (size,) each in float64; 1 for sources that it does not name."""
        ...

    def weights(self, value: int, neurons: Neurons, required: Tensor) -> tuple[Tensor, Tensor]:
        """P and D of a layer's unstable neurons, (count,) each; D only counts where another layer follows.

        required: Q of these neurons, (count,); 0 where no layer follows.
        """
        ...


@dataclass(frozen=True, eq=False)
class UniformPlan:
    """The plan with the D for which T is least, and the P that this gains; all profiles are 1.

    counted: By layer, the weights that deviations are counted with besides, (count,) each.
    """

    counted: dict[int, Tensor]

    @property
    def profiles(self) -> dict[int, Tensor]:
        return {}

    def weights(self, value: int, neurons: Neurons, required: Tensor) -> tuple[Tensor, Tensor]:
        ratio = (neurons.slope.abs() + neurons.width) / neurons.width.clamp(min=TINIEST)
        errors = required * ratio.clamp(1 + ROOM, LARGEST)
        return self.counted[value].double() + errors * neurons.width.square(), errors


@dataclass(frozen=True, eq=False)
class Composed:
    """A certificate, and the numbers that prove it.

    Attributes:
        weights: One row for all forms.
        norms: By layer and source, at least |T^(1/2) W pi^(-1/2)|^2 (not divided by a share).
        shares: By layer and source, c.
        plan: What it was composed by; its profiles are part of the proof.
    """

    weights: Weights
    norms: dict[tuple[int, int], float]
    shares: dict[tuple[int, int], float]
    plan: CertificatePlan


def compose(
    linearised: LinearisedNetwork, quick: LinearisedNetwork, plan: CertificatePlan, surplus: float = SURPLUSES[0]
) -> Composed:
    """A composed certificate in float64.

    Args:
        linearised: In float64.
        quick: The same for searches, where norms are estimated.
        plan: What to choose.
        surplus: Of every squared norm above its estimate.
    """
    generator, profiles = torch.Generator().manual_seed(0), plan.profiles
    required_by: dict[int, Tensor] = {}
    deviations, errors, norms, shares = {}, {}, {}, {}
    for value in reversed(linearised.network.preactivations):
        neurons = linearised.neurons[value]
        required = required_by.get(value, torch.zeros_like(linearised.stable[value]))
        deviation_weights, error_weights = plan.weights(value, neurons, required[neurons.index])
        deviations[value] = deviation_weights
        if neurons.following:
            errors[value] = error_weights
            deviation_weights = deviation_weights + carried(neurons, required[neurons.index], error_weights)
        layer_weights = (required * linearised.stable[value]).index_copy(0, neurons.index, deviation_weights)
        squares = {}
        for source in linearised.passes.sources(value):
            check_time()
            columns = source_columns(quick, source, profiles)
            roots = layer_weights.sqrt().to(quick.radii.dtype)
            squares[source] = surplus * norm(quick, value, source, roots, columns, generator)
        lengths = {source: max(square, TINIEST) ** 0.5 for source, square in squares.items()}
        for source, square in squares.items():
            norms[value, source] = max(square, TINIEST)
            shares[value, source] = (1 - ROOM) * lengths[source] / sum(lengths.values())
            number = norms[value, source] / shares[value, source]
            required_by[source] = required_by.get(source, 0.0) + number * profile_of(linearised, source, profiles)
    inputs = required_by.get(THE_INPUT, linearised.radii.new_zeros(1))
    inputs = (1 + ROOM) * (inputs if THE_INPUT in profiles else inputs[:1])[None]
    rows = [{value: numbers[None] for value, numbers in weights.items()} for weights in (deviations, errors)]
    return Composed(Weights(rows[0], rows[1], inputs), norms, shares, plan)


def carried(neurons: Neurons, total: float | Tensor, error_weights: Tensor) -> Tensor:
    """T - P, as computed: Q s^2 D / (D - Q)."""
    steep = neurons.slope != 0
    spare = torch.where(steep & (error_weights > total), error_weights - total, 1)
    return torch.where(steep, total * neurons.slope.square() * (error_weights / spare), 0)  # a quotient of at least 1


def norm(
    linearised: LinearisedNetwork, value: int, source: int, roots: Tensor, columns: Tensor, generator: torch.Generator
) -> float:  # fmt: skip
    """About the squared norm of `roots W columns`, W being the map from a source to a layer.

    By block Lanczos iterations: the largest norm over the span of all vectors so far.
    """
    start = torch.randn(VECTORS, len(roots), generator=generator, dtype=roots.dtype) * roots
    block = linearised.passes.local_transposed(value, start * roots)[source] * columns
    basis, images = block.new_zeros(0, len(columns)), block.new_zeros(0, len(roots))
    rank = min(int((columns != 0).sum()), int((roots != 0).sum()))
    for _ in range(ROUNDS):
        size = block.norm()
        for _ in range(2):
            block = block - (block @ basis.T) @ basis
        if len(basis) >= rank or not bool(block.norm() > EXHAUSTED * size):
            break
        block = torch.linalg.qr(block.T).Q.T
        image = linearised.passes.local(value, {source: block * columns}) * roots
        basis, images = torch.cat([basis, block]), torch.cat([images, image])
        block = linearised.passes.local_transposed(value, image * roots)[source] * columns
    if not len(images) or not bool(images.isfinite().all()):
        return 0.0
    return float(torch.linalg.matrix_norm(images, 2)) ** 2


def profile_of(linearised: LinearisedNetwork, source: int, profiles: Mapping[int, Tensor]) -> Tensor:
    """pi of a source, (size,)."""
    size = len(linearised.radii) if source == THE_INPUT else linearised.network.sizes[source]
    return profiles.get(source, torch.ones((), dtype=torch.float64)).to(linearised.radii.dtype).expand(size)


def source_columns(linearised: LinearisedNetwork, source: int, profiles: Mapping[int, Tensor]) -> Tensor:
    """What the columns of a source are multiplied with, (size,): radii of inputs; 0 for inactive neurons, 1 for others;
    over the root of the profile."""
    roots = profile_of(linearised, source, profiles).sqrt()
    if source == THE_INPUT:
        return linearised.radii / roots
    return linearised.stable[source].index_fill(0, linearised.neurons[source].index, 1.0) / roots
