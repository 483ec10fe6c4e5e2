"""Induced norms of the operations on images: between what a vector is stretched by and a crude bound."""

import math

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.rigor import RIGOROUS
from relucert.methods.operator_norm import induced_norms
from relucert.network import Affine, BatchScale, IndexMap, Shape
from tests.nets import NORMS
from tests.network.test_convolution import convolution


def induced_norm(operation: Affine, shape: Shape, norm: float, scale: Tensor | None = None) -> float:
    (induced,) = induced_norms(operation, [shape], Norm(norm), RIGOROUS, [scale])
    return induced


def stretch(operation: Affine, shape: Shape, norm: float, scale: Tensor) -> float:
    """A lower bound of the induced norm, by Boyd's power method."""
    dual, most = Norm(norm).dual, 0.0
    points = torch.randn(20, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for _ in range(60):
        points = points / torch.linalg.vector_norm(points.flatten(1), norm, 1).view(-1, *[1] * len(shape))
        images = operation.linear(points * scale.view(shape))
        most = max(most, float(torch.linalg.vector_norm(images.flatten(1), norm, 1).max()))
        pulled = operation.transpose(aligned(images, norm))[0] * scale.view(shape)
        points = aligned(pulled, dual)
    return most


def aligned(vectors: Tensor, norm: float) -> Tensor:
    """Where the dual norm's unit ball is farthest in the direction of each vector, up to a factor."""
    if norm == 1:
        return vectors.sign()
    if math.isinf(norm):
        flat = vectors.flatten(1)
        return torch.where(flat.abs() == flat.abs().amax(1, keepdim=True), flat.sign(), 0).view_as(vectors)
    return vectors.sign() * (vectors.abs() / vectors.abs().max()) ** (norm - 1)


IMAGE_OPERATIONS: dict[str, tuple[Affine, Shape]] = {
    "convolution": (convolution((4, 6, 1), (3, 2), (2, 1), (1, 0, 1, 2), size=(7, 6)), (4, 7, 6)),
    "groups": (convolution((4, 6, 2), (3, 3), (1, 1), (1, 1, 1, 1), (2, 1), size=(7, 6)), (4, 7, 6)),
    "index map": (IndexMap.of(torch.tensor([[0, 2, -1], [2, 2, 5]]), (2, 3)), (2, 3)),
    "batch scale": (
        BatchScale(torch.tensor([[0.3], [-2.0]]).double(), torch.tensor([[0.5], [3.0]]).double(), 0.1),
        (2, 3),
    ),
}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", IMAGE_OPERATIONS)
def test_induced_norms_of_operations_on_images(
    name: str, norm: float, scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least what some vector is stretched by, at most what the 1- and the infinity-norm say together."""
    operation, shape = IMAGE_OPERATIONS[name]
    scale = torch.linspace(0.1, 2, math.prod(shape), dtype=torch.float64) if scaled else None
    induced = induced_norm(operation, shape, norm, scale)
    least = stretch(operation, shape, norm, torch.ones(shape).double() if scale is None else scale)
    assert least <= induced * (1 + 1e-12)
    assert induced <= least * (1.001 if norm == 1 or (norm == 2 and not scaled) else 1.3)
    ends = induced_norm(operation, shape, 1, scale), induced_norm(operation, shape, math.inf, scale)
    assert induced <= ends[0] ** (1 / norm) * ends[1] ** (1 - 1 / norm) * (1 + 1e-9)
    monkeypatch.setattr("relucert.methods.operator_norm.WRITTEN_OUT", 0)
    assert induced <= induced_norm(operation, shape, norm, scale) * (1 + 1e-9)


def test_a_large_convolution_is_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    operation, shape = convolution((3, 16, 1), (3, 3), size=(32, 32)), (3, 32, 32)
    monkeypatch.setattr("relucert.methods.operator_norm.spectral_norm", None)
    one, infinite, two = (induced_norm(operation, shape, norm) for norm in (1, math.inf, 2))
    assert two == pytest.approx(math.sqrt(one * infinite))
