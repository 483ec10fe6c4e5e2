"""The global Lipschitz constant: the product of the layers' induced norms, over every path of the network."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.bounding.forward import INPUT, Bounds
from relucert.bounding.gradient import Forms, pull
from relucert.methods.memo import Memo
from relucert.network import Affine, Network, Shape
from relucert.norm import Norm
from relucert.rigor import DOUBLE, RIGOROUS, TINY, Arithmetic

HAIR = 1e-9  # how far, relatively, a proven largest eigenvalue may stay above the computed one


class OperatorNorm:
    """Upper bounds of the Lipschitz constants of forms on the output, everywhere; layers are measured once a network.

    The forms are pulled back to the last ReLUs exactly, as rows. What feeds those has one constant for the whole
    value, from p-norm to p-norm.
    """

    def __init__(self) -> None:
        self._values = Memo(_constants)

    def __call__(self, network: Network, norm: Norm, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic) -> Tensor:
        constants = self._values(network, norm, arithmetic)
        parts: list[Tensor] = []

        def measure(form: Forms, constant: float) -> None:
            length = norm.dual_bound(form.sizes(arithmetic), -1, arithmetic)
            parts.append(arithmetic.above(length * constant, 1))

        def rule(source: int, form: Forms) -> None:
            measure(form, constants[source])

        linear = pull(network, network.output, Forms.exact(forms), rule, arithmetic)
        if linear is not None:
            measure(linear, constants[INPUT])
        return arithmetic.above(torch.stack(parts).sum(0), len(parts))


def _constants(network: Network, norm: Norm, arithmetic: Arithmetic) -> list[float]:
    """Of every value, from p-norm to p-norm; what branches contribute adds up."""
    found = [1.0]
    rounding = RIGOROUS if arithmetic.rigorous else DOUBLE
    for _, node in network.steps():
        incoming = [found[source] for source in node.inputs]
        if isinstance(node.operation, Affine):
            shapes = [network.shapes[source] for source in node.inputs]
            own = induced_norms(node.operation.cast(torch.float64), shapes, norm, rounding)
            total = sum(one * other for one, other in zip(own, incoming, strict=True))
            incoming = [float(rounding.above(torch.tensor(total, dtype=torch.float64), len(own) + 1))]
        found.append(incoming[0])
    return found


def induced_norms(operation: Affine, shapes: list[Shape], norm: Norm, arithmetic: Arithmetic) -> list[float]:
    """Upper bounds of how much the operation's linear map, in float64, stretches each of its inputs."""
    found = []
    columns = operation.absolute.transpose(torch.ones(1, *operation.shape(*shapes), dtype=torch.float64))
    for place in range(len(shapes)):
        inputs = [torch.full((1, *shape), float(other == place)).double() for other, shape in enumerate(shapes)]
        rows = operation.absolute.linear(*inputs)
        one, infinite = (arithmetic.above(sums.max(), operation.terms + 2) for sums in (columns[place], rows))
        two = arithmetic.above(one.sqrt() * infinite.sqrt(), 3)
        if operation.matrix is not None and norm.between_ends:
            two = torch.minimum(two, spectral_norm(operation.matrix, arithmetic))
        found.append(float(norm.induced(one, two, infinite, arithmetic)))
    return found


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
