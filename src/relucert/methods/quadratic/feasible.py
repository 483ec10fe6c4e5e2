"""Proofs that the weights of a certificate are feasible: that `D - A'PA` is positive semidefinite."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS, short
from relucert.common.deadline import check_time
from relucert.methods.passes import THE_INPUT
from relucert.methods.quadratic.composed import Composed, carried, profile_of, source_columns
from relucert.methods.quadratic.dual import Weights
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.methods.quadratic.matrices import LocalMap, Matrix, local_maps, spatial_order
from relucert.methods.quadratic.semidefinite import is_contraction
from relucert.network import INPUT

CHUNK = 512  # neurons whose rows are computed at once
LANCZOS = 60  # iterations for the norm of a joint certificate's matrix
FEW = 400  # rows, whose products are cheaper than as many iterations
ROOMS = (1e-6, 1e-4, 3e-3, 3e-2)  # above its squared norm as estimated, the first of which is mostly proven
WIDEST = 2.0**200  # of a profile, so that no product with it underflows that counts
SHORTEST = 2.0**-23  # relative room for rounding to 24 bits


def feasible_joint(linearised: LinearisedNetwork, weights: Weights, deviations: Tensor | None = None) -> Weights | None:
    """Weights with D times about the least number for which they are proven to be feasible; None: there is no proof.

    They are feasible for A as `LinearisedNetwork.transposed` computes it where `I - B B'` is semidefinite with
    `B = P^1/2 A D^-1/2`: one row for each unstable neuron whose P is not 0. D is rounded up to 24 bits.

    deviations: Its `deviation_map`, where it is known already.
    """
    matrix = _joint_matrix(linearised, weights, deviation_map(linearised) if deviations is None else deviations)
    if matrix is None:
        return None
    square = _largest_square(matrix)
    if not 0 < square < torch.inf:
        return weights if square == 0 and _is_short(matrix, 10) else None
    for room in ROOMS:
        factor = square * (1 + room)
        if _is_short(matrix * factor**-0.5, 10):
            scaled = weights.inflated(torch.tensor([factor], dtype=torch.float64))
            errors = {value: short(part * (1 + SHORTEST)) for value, part in scaled.errors.items()}
            return Weights(scaled.deviations, errors, short(scaled.inputs * (1 + SHORTEST)))
    return None


def deviation_map(linearised: LinearisedNetwork) -> Tensor:
    """A: from inputs and errors to deviations, one row for each unstable neuron, (neurons, inputs and errors)."""
    layers = linearised.followed
    width = len(linearised.radii) + sum(len(linearised.neurons[value]) for value in layers)
    matrix = torch.empty(linearised.unstable, width, dtype=torch.float64)
    begin = 0
    for value, neurons in linearised.neurons.items():
        for chunk in torch.arange(len(neurons)).split(CHUNK):
            check_time()
            forms = {
                layer: torch.zeros(len(chunk), len(unstable), dtype=torch.float64)
                for layer, unstable in linearised.neurons.items()
            }
            forms[value][torch.arange(len(chunk)), chunk] = 1.0
            inputs, errors = linearised.transposed(forms)
            torch.cat([inputs, *(errors[layer] for layer in layers)], 1, out=matrix[begin : begin + len(chunk)])
            begin += len(chunk)
    return matrix


def _joint_matrix(linearised: LinearisedNetwork, weights: Weights, deviations: Tensor) -> Tensor | None:
    """B, (neurons, inputs and errors), with six roundings of each entry at the most; None where weights are none."""
    diagonal = torch.cat([
        weights.inputs[0].expand(len(linearised.radii)), *(weights.errors[value][0] for value in linearised.followed)
    ])  # fmt: skip
    if not bool(weights.usable.all()) or not bool((diagonal > 0).all()):
        return None
    roots = torch.cat([weights.deviations[value][0] for value in linearised.neurons]).sqrt()
    return (deviations * diagonal.rsqrt()).mul_(roots[:, None])


def _largest_square(matrix: Tensor) -> float:
    """About the squared 2-norm of a matrix, of many rows by Lanczos iterations: nobody believes it."""
    if not len(matrix) or not bool(matrix.any()):
        return 0.0
    if len(matrix) <= FEW:
        square = matrix @ matrix.T
        return float(torch.linalg.eigvalsh(square)[-1]) if bool(square.isfinite().all()) else torch.nan
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(len(matrix), generator=generator, dtype=matrix.dtype)
    basis, images = matrix.new_zeros(0, len(matrix)), matrix.new_zeros(0, matrix.shape[1])
    for _ in range(min(LANCZOS, len(matrix))):
        check_time()
        for _ in range(2):
            vector = vector - (vector @ basis.T) @ basis
        length = vector.norm()
        if not bool(length > 0):
            break
        image = (vector / length) @ matrix
        basis, images = torch.cat([basis, (vector / length)[None]]), torch.cat([images, image[None]])
        vector = matrix @ image
    if not bool(images.isfinite().all()):
        return torch.nan
    return float(torch.linalg.matrix_norm(images, 2)) ** 2


def is_composed(linearised: LinearisedNetwork, composed: Composed) -> bool:
    """Whether a composed certificate is proven to be feasible, from its weights, norms and shares."""
    weights = composed.weights
    if not bool(weights.usable.all()):
        return False
    profiles = composed.plan.profiles
    if not all(bool(((profile >= 1 / WIDEST) & (profile <= WIDEST)).all()) for profile in profiles.values()):
        return False
    required_by: dict[int, Tensor] = {}
    for value in reversed(linearised.network.preactivations):
        neurons = linearised.neurons[value]
        required = required_by.get(value, torch.zeros_like(linearised.stable[value]))
        layer_weights = required * linearised.stable[value]
        deviation_weights, required_unstable = weights.deviations[value][0], required[neurons.index]
        if value in weights.errors:
            error_weights = weights.errors[value][0]
            if not bool((error_weights >= required_unstable * (1 + 2.0**-40)).all()):
                return False
            deviation_weights = RIGOROUS.above(
                deviation_weights + carried(neurons, required_unstable, error_weights), 12
            )
        elif bool((required_unstable > 0).any()):
            return False
        if not bool(deviation_weights.isfinite().all() & layer_weights.isfinite().all()):
            return False
        layer_weights[neurons.index] = deviation_weights
        if not _passed_on(linearised, value, layer_weights, composed, profiles, required_by):
            return False
    return bool((weights.inputs[0] >= required_by.get(THE_INPUT, torch.zeros_like(linearised.radii))).all())


def _passed_on(
    linearised: LinearisedNetwork, value: int, layer_weights: Tensor, composed: Composed,
    profiles: Mapping[int, Tensor], required_by: dict[int, Tensor],
) -> bool:  # fmt: skip
    """Whether the norms of a layer with these weights, (size,), are proven; its sources are then asked for more."""
    rows = (layer_weights > 0).nonzero().flatten()
    if not len(rows):
        return True
    roots = RIGOROUS.ceil(layer_weights[rows].sqrt())
    maps = local_maps(linearised.network, value, rows)
    shares = sum((composed.shares[value, source] for source in maps), 0.0)
    if not shares <= 1 - 2.0**-40:  # sums of shares round by less
        return False
    order = spatial_order(linearised.network.shapes[value])
    for source, local_map in maps.items():
        check_time()
        square, share = composed.norms[value, source], composed.shares[value, source]
        if not (square > 0 and share > 0 and square < torch.inf):
            return False
        columns = source_columns(linearised, source, profiles)
        scaled = local_map.matrix.shape[0] <= local_map.matrix.shape[1]
        positions = order if scaled else spatial_order(linearised.network.shapes[max(source, INPUT)])
        if scaled and positions is not None:  # of the rows whose weights are not 0
            row_of = torch.full((len(layer_weights),), -1).index_copy(0, rows, torch.arange(len(rows)))
            ordered = row_of.numpy()[positions]
            positions = ordered[ordered >= 0]
        error = _error(local_map, roots, columns, square)
        if not _is_short(_scaled(local_map.matrix, roots, columns, square), 10, positions, error):
            return False
        number = square / share * profile_of(linearised, source, profiles)
        required_by[source] = RIGOROUS.above(required_by.get(source, torch.zeros_like(number)) + number, 4)
    return True


def _scaled(matrix: Matrix, roots: Tensor, columns: Tensor, square: float) -> Matrix:
    if isinstance(matrix, Tensor):
        return matrix * (roots * square**-0.5)[:, None] * columns
    left, right = (sparse.diags_array(diagonal.numpy()) for diagonal in (roots * square**-0.5, columns))
    return (left @ matrix @ right).tocsr()


def _error(local_map: LocalMap, roots: Tensor, columns: Tensor, square: float) -> float:
    if local_map.magnitude is None:
        return 0.0
    return local_map.error * _frobenius(_scaled(local_map.magnitude, roots, columns, square))


def _frobenius(matrix: Matrix) -> float:
    numbers = matrix if isinstance(matrix, Tensor) else torch.from_numpy(matrix.data)
    return float(RIGOROUS.above(numbers.square().sum().sqrt() + 2.0**-500, numbers.numel() + 4))


def _is_short(matrix: Matrix, roundings: int, order: NDArray[np.intp] | None = None, error: float = 0.0) -> bool:
    """Whether the 2-norm of a matrix is at most 1, each of whose entries took some roundings, and that is off by an
    error in the norm of Frobenius besides."""
    error = error + RIGOROUS.gamma(roundings) * _frobenius(matrix)
    if not error < 0.1:
        return False
    factor = 1 + 2 * error + RIGOROUS.gamma(8)  # above 1 / (1 - error); the second error covers the product's rounding
    return is_contraction(matrix * factor, order)
