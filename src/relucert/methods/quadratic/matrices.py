"""The affine maps between two layers of ReLUs as matrices, sparse where neurons see windows of an image."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor
from torch.nn.functional import one_hot

from relucert.arithmetic.forms import LinearForms
from relucert.arithmetic.rigor import RIGOROUS
from relucert.arithmetic.windows import Windows
from relucert.common.deadline import check_time
from relucert.methods.passes import THE_INPUT, segment
from relucert.network import INPUT, Affine, Network, Reshape, Shape, pull_back, unit_forms

CHUNK = 256  # neurons whose rows are made at once

Matrix: TypeAlias = Any
"""A tensor, or SciPy's csr_array, which has no static type: (rows, columns) in float64."""


@dataclass(frozen=True, eq=False)
class LocalMap:
    """The map from one source to some neurons of a layer, (neurons, size of the source).

    Attributes:
        matrix: As computed.
        error: By how much an entry may be off, at most, relatively to that of `magnitude`; 0: it is exact.
        magnitude: The map with absolute coefficients; None where the matrix is exact.
    """

    matrix: Matrix
    error: float
    magnitude: Matrix | None


def local_maps(network: Network, value: int, neurons: Tensor) -> dict[int, LocalMap]:
    """The maps to neurons of a value, (count,), from all its sources: the input, or ReLUs by their pre-activations."""
    matrices = _matrices(network, value, neurons)
    error = _error(network, value)
    if not error:
        return {source: LocalMap(matrix, 0.0, None) for source, matrix in matrices.items()}
    operations = {
        affine_value: network.affine(affine_value).absolute for affine_value in _affine_values(network, value)
    }
    magnitudes = _matrices(network.with_operations(operations), value, neurons)
    return {source: LocalMap(matrix, error, magnitudes[source]) for source, matrix in matrices.items()}


def spatial_order(shape: Shape) -> NDArray[np.intp] | None:
    """The neurons of an image, (channels, height, width), by row, column and channel; None for other shapes."""
    if len(shape) != 3:
        return None
    order: NDArray[np.intp] = np.arange(prod(shape)).reshape(shape).transpose(1, 2, 0).flatten()
    return order


class _Rule:
    """Forms end at ReLUs, and are kept by the pre-activations of these."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.found: dict[int, LinearForms] = {}

    def affine(self, value: int, form: LinearForms) -> tuple[LinearForms, ...]:
        shapes = [self.network.shapes[source] for source in self.network.node(value).inputs]
        return self.network.affine(value).pull(form, shapes)

    def activation(self, value: int, source: int, form: LinearForms) -> None:
        self.found[source] = self.found[source].plus(form) if source in self.found else form

    def join(self, value: int, one: LinearForms, other: LinearForms) -> LinearForms:
        return one.plus(other)


def _matrices(network: Network, value: int, neurons: Tensor) -> dict[int, Matrix]:
    blocks: dict[int, list[Matrix]] = {}
    for chunk in neurons.split(CHUNK):
        check_time()
        rule = _Rule(network)
        if value == INPUT:
            blocks.setdefault(THE_INPUT, []).append(one_hot(chunk, network.sizes[INPUT]).double())
            continue
        start, forms = unit_forms(network, value, chunk, torch.float64)
        if start in network.activations:
            rule.activation(start, network.source(start), forms)
        else:
            remaining = pull_back(network, start, forms, rule)
            rule.found |= {THE_INPUT: remaining[INPUT]} if INPUT in remaining else {}
        for source, forms_there in rule.found.items():
            blocks.setdefault(source, []).append(_matrix(forms_there))
    return {source: _stacked(rows) for source, rows in blocks.items()}


def _matrix(forms: LinearForms) -> Matrix:
    if not isinstance(forms, Windows) or forms.places is None:
        return forms.rows()[0]
    size = prod(forms.shape)
    columns = forms.local(torch.arange(1.0, size + 1, dtype=torch.float64)[None])[0].flatten(1)
    numbers = forms.coefficients[0].flatten(1)
    inside = (columns > 0) & (numbers != 0)
    rows = inside.nonzero()[:, 0]
    entries = rows.numpy(), columns[inside].long().numpy() - 1
    return sparse.csr_array((numbers[inside].numpy(), entries), shape=(forms.count, size))


def _stacked(rows: list[Matrix]) -> Matrix:
    if all(isinstance(block, Tensor) for block in rows):
        return torch.cat(rows)
    return sparse.vstack(
        [sparse.csr_array(block.numpy() if isinstance(block, Tensor) else block) for block in rows], "csr"
    )


def _affine_values(network: Network, value: int) -> list[int]:
    """The affine values between a value and the ReLUs before it."""
    return sorted(segment(network, value) - set(network.activations) - {INPUT})


def _error(network: Network, value: int) -> float:
    """By how much an entry may be off, relatively to that of the map with absolute coefficients."""
    operations: list[Affine] = [
        network.affine(affine_value)
        for affine_value in _affine_values(network, value)
        if not isinstance(network.affine(affine_value), Reshape)
    ]
    if len(operations) <= 1:  # whose rows are stored, or took a few roundings, for which `feasible` has room
        return 0.0
    return RIGOROUS.gamma(sum(operation.terms + 4 for operation in operations))
