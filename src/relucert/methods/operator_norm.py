"""The global Lipschitz constant: the product of the layers' induced norms, over every path of the network."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS, TINY, Arithmetic
from relucert.bounding.gradient import Forms, pull
from relucert.bounding.interval import Bounds
from relucert.methods.lipschitz import Memo
from relucert.network import INPUT, Activation, Affine, Network, Shape

WRITTEN_OUT = 2**22  # numbers of a matrix that is made of a convolution to measure it
CHUNK = 2**18  # numbers of it that are made at once
HAIR = 1e-9  # how far, relatively, a proven largest eigenvalue may stay above the computed one


class OperatorNorm:
    """Upper bounds of the Lipschitz constants of forms on the output, everywhere; layers are measured once per network.

    The forms are pulled back to the last ReLUs exactly, as rows. What feeds those has one constant for the whole
    value, from p-norm to p-norm.
    """

    def __init__(self) -> None:
        self._values = Memo(_constants)

    def __call__(
        self, network: Network, region: Region, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        constants = self._values(network, region, arithmetic)
        terms: list[Tensor] = []

        def rule(value: int, source: int, form: Forms) -> None:
            length = region.norm.dual_bound(form.sizes(arithmetic), -1, arithmetic)
            terms.append(arithmetic.above(length * constants[value], 1))

        linear = pull(network, network.output, Forms.exact(forms), rule, arithmetic)
        if linear is not None:
            terms.append(region.dual_norm(linear.sizes(arithmetic), arithmetic))
        return arithmetic.above(torch.stack(terms).sum(0), len(terms))


def _constants(network: Network, region: Region, arithmetic: Arithmetic) -> list[float]:
    """The Lipschitz constant of every value, from the region's scaled p-norm to the p-norm; branches add up."""
    scale = None if region.scale is None else region.scale.double()
    constants = [1.0 if scale is None else float(scale.max())]
    rounding = RIGOROUS if arithmetic.rigorous else DOUBLE
    for _, node in network.steps():
        incoming = [constants[source] for source in node.inputs]
        if isinstance(node.operation, Affine):
            shapes = [network.shapes[source] for source in node.inputs]
            columns = [scale if source == INPUT else None for source in node.inputs]
            norms = induced_norms(node.operation.cast(torch.float64), shapes, region.norm, rounding, columns)
            incoming = [1.0 if column is not None else c for column, c in zip(columns, incoming, strict=True)]
            total = sum(norm * constant for norm, constant in zip(norms, incoming, strict=True))
            constants.append(float(rounding.above(torch.tensor(total, dtype=torch.float64), len(norms) + 1)))
        elif isinstance(node.operation, Activation):
            steepest = torch.tensor(node.operation.lipschitz * incoming[0], dtype=torch.float64)
            constants.append(incoming[0] if node.operation.lipschitz == 1 else float(rounding.above(steepest, 1)))
        else:
            assert_never(node.operation)
    return constants


def induced_norms(
    operation: Affine, shapes: list[Shape], norm: Norm, arithmetic: Arithmetic, scales: list[Tensor | None]
) -> list[float]:
    """Upper bounds of how much the operation's linear map, in float64, stretches each of its inputs.

    scales: for each input None, or by how much its coordinates, (size,), are stretched before the map.
    """
    norms = []
    columns = operation.absolute.transpose(torch.ones(1, *operation.shape(*shapes), dtype=torch.float64))
    for number, (column, scale) in enumerate(zip(columns, scales, strict=True)):
        factors = torch.ones(shapes[number], dtype=torch.float64) if scale is None else scale.reshape(shapes[number])
        inputs = [column.new_zeros(1, *shape) for shape in shapes]
        inputs[number] = factors[None]
        sums = (column * factors, operation.absolute.linear(*inputs))
        one, infinite = (arithmetic.above(absolute.max(), operation.terms + 3) for absolute in sums)
        two = arithmetic.above(one.sqrt() * infinite.sqrt(), 3)
        matrix = _matrix(operation, shapes) if norm.between_ends else None
        if matrix is not None:
            matrix = matrix if scale is None else matrix * scale
            spectral = spectral_norm(matrix, arithmetic)
            if scale is not None:  # entries that round by a unit move it by at most that times the root of its rank
                spectral = arithmetic.above(spectral, min(matrix.shape) + 2)
            two = torch.minimum(two, spectral)
        norms.append(float(norm.induced(one, two, infinite, arithmetic)))
    return norms


def _matrix(operation: Affine, shapes: list[Shape]) -> Tensor | None:
    """The linear map as a matrix, exactly; None where it is too large to be written out.

    Where nothing is multiplied but coordinates by themselves, the 1- and infinity-norms tell the 2-norm.
    """
    if operation.matrix is not None or not operation.work:
        return operation.matrix
    (shape,) = shapes
    inputs, outputs = prod(shape), prod(operation.shape(shape))
    if inputs * outputs > WRITTEN_OUT:
        return None
    blocks = [
        operation.linear(units.unflatten(-1, shape)).flatten(1)
        for units in torch.eye(inputs, dtype=torch.float64).split(max(1, CHUNK // outputs))
    ]
    return torch.cat(blocks).T


def spectral_norm(matrix: Tensor, arithmetic: Arithmetic) -> Tensor:
    """An upper bound of the largest singular value of a float64 matrix; infinite where none could be proven.

    With G = W W' and a number s just above its computed largest eigenvalue, a Cholesky factorisation R of s I - G
    that runs to its end proves G <= s I up to its own backward error, at most gamma |R'| |R|.
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    gram = wide @ wide.T
    if not bool(torch.isfinite(gram).all()):
        return gram.new_tensor(torch.inf)
    top: Tensor = torch.linalg.eigvalsh(gram)[-1].clamp(min=0)
    if not arithmetic.rigorous:
        return top.sqrt()
    size, length = wide.shape
    shift = top * (1 + HAIR) + TINY
    rest = -gram
    rest.diagonal().add_(shift)
    factor, failed = torch.linalg.cholesky_ex(rest)
    if int(failed) or not bool(torch.isfinite(factor).all()):
        return top.new_tensor(torch.inf)
    lost = arithmetic.gamma(size + 4) * (factor.square().sum() + 2 * shift)  # 2: what the diagonal's own sums round
    lost = lost + arithmetic.gamma(length + 2) * wide.square().sum()
    return arithmetic.above((shift + arithmetic.above(lost, 2 * size * length)).sqrt(), 4)
