"""The composed certificate: weights that are feasible by construction, from one norm for each pair of layers.

From the last layer to the first. Let a layer's squared deviations have weights T. Its deviations are a sum of linear
maps W of what its sources s (the input, or ReLUs of earlier layers) deviate by, so for shares c that sum to 1

    sum T dz^2 <= sum over s of q |d|^2,    q >= |T^(1/2) W|^2 / c.

A ReLU with the sum Q of the q of all layers that it leads to needs, neuron by neuron with d = s dz + e,

    Q (s dz + e)^2 <= D e^2 + (T - P) dz^2,    true for    T = P + Q s^2 D / (D - Q),  D > Q,

and a stable one that is active T = Q. At the input D = Q. Only the norms need a proof.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.common.deadline import check_time
from relucert.methods.quadratic.dual import Weights
from relucert.methods.quadratic.passes import THE_INPUT
from relucert.methods.quadratic.scene import Neurons, Scene

VECTORS, ROUNDS = 2, 24  # of the estimate of a norm
EXHAUSTED = 1e-4  # share of vectors that is left where all directions are known
SURPLUSES = (1.005, 1.02, 1.06)  # of squared norms above their estimates, the first of which is mostly enough
LARGEST = 1e6  # of an error's weight, relative to Q
ROOM = 2.0**-30  # relative, for rounding
TINIEST = 1e-30


@dataclass(frozen=True, eq=False)
class Composed:
    """A certificate, and the numbers that prove it.

    Attributes:
        weights: One row for all forms.
        norms: By layer and source, at least |T^(1/2) W|^2 (not divided by a share).
        shares: By layer and source, c.
    """

    weights: Weights
    norms: dict[tuple[int, int], float]
    shares: dict[tuple[int, int], float]


def compose(scene: Scene, quick: Scene, weights: dict[int, Tensor], surplus: float = SURPLUSES[0]) -> Composed:
    """A composed certificate in float64.

    Args:
        scene: In float64.
        quick: The same for searches, where norms are estimated.
        weights: By layer, those that deviations are counted with at least, (count,) each.
        surplus: Of every squared norm above its estimate.
    """
    generator = torch.Generator().manual_seed(0)
    demanded: dict[int, float] = {}
    deviations, errors, norms, shares = {}, {}, {}, {}
    for value in reversed(scene.network.preactivations):
        neurons, total = scene.neurons[value], demanded.get(value, 0.0)
        part = weights[value].double()
        if neurons.following:
            errors[value] = _error_weights(neurons, total)
            deviations[value] = part + errors[value] * neurons.width.square()
            part = deviations[value] + carried(neurons, total, errors[value])
        else:
            deviations[value] = part
        whole = (total * scene.stable[value]).index_copy(0, neurons.index, part)
        found = {}
        for source in scene.passes.sources(value):
            check_time()
            found[source] = surplus * norm(quick, value, source, whole.sqrt().to(quick.radii.dtype), generator)
        lengths = {source: max(square, TINIEST) ** 0.5 for source, square in found.items()}
        for source, square in found.items():
            norms[value, source] = max(square, TINIEST)
            shares[value, source] = (1 - ROOM) * lengths[source] / sum(lengths.values())
            demanded[source] = demanded.get(source, 0.0) + norms[value, source] / shares[value, source]
    inputs = torch.full((1, 1), (1 + ROOM) * demanded.get(THE_INPUT, 0.0), dtype=torch.float64)
    rows = [{value: numbers[None] for value, numbers in part.items()} for part in (deviations, errors)]
    return Composed(Weights(rows[0], rows[1], inputs), norms, shares)


def _error_weights(neurons: Neurons, total: float) -> Tensor:
    """D, with which T is least: Q (s + w) / w."""
    ratio = (neurons.slope + neurons.width) / neurons.width.clamp(min=TINIEST)
    return total * ratio.clamp(1 + ROOM, LARGEST)


def carried(neurons: Neurons, total: float | Tensor, error_weights: Tensor) -> Tensor:
    """T - P, as computed: Q s^2 D / (D - Q)."""
    steep = neurons.slope > 0
    spare = torch.where(steep & (error_weights > total), error_weights - total, 1)
    return torch.where(steep, total * neurons.slope.square() * (error_weights / spare), 0)  # a quotient of at least 1


def norm(scene: Scene, value: int, source: int, roots: Tensor, generator: torch.Generator) -> float:
    """About the squared norm of `roots W`, W being the map from a source to a layer without its inactive neurons.

    By block Lanczos iterations: the largest norm over the span of all vectors so far.
    """
    mask = source_mask(scene, source)
    start = torch.randn(VECTORS, len(roots), generator=generator, dtype=roots.dtype) * roots
    block = scene.passes.local_transposed(value, start * roots)[source] * mask
    basis, images = block.new_zeros(0, len(mask)), block.new_zeros(0, len(roots))
    rank = min(int((mask != 0).sum()), int((roots != 0).sum()))
    for _ in range(ROUNDS):
        size = block.norm()
        for _ in range(2):
            block = block - (block @ basis.T) @ basis
        if len(basis) >= rank or not bool(block.norm() > EXHAUSTED * size):
            break
        block = torch.linalg.qr(block.T).Q.T
        image = scene.passes.local(value, {source: block * mask}) * roots
        basis, images = torch.cat([basis, block]), torch.cat([images, image])
        block = scene.passes.local_transposed(value, image * roots)[source] * mask
    if not len(images) or not bool(images.isfinite().all()):
        return 0.0
    return float(torch.linalg.matrix_norm(images, 2)) ** 2


def source_mask(scene: Scene, source: int) -> Tensor:
    """What the columns of a source are multiplied with: radii of inputs; 0 for inactive neurons, 1 for others."""
    if source == THE_INPUT:
        return scene.radii
    return scene.stable[source].index_fill(0, scene.neurons[source].index, 1.0)
