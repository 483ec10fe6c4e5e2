"""Layers that are mostly zeros: the same maps and gradients as of the matrix, and rounding charged by what is there."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.point import scores_at
from relucert.network import Linear, Network, Relu
from relucert.network.linear import MOST_DENSE
from relucert.network.sparse_rows import FEWEST_NUMBERS
from tests.nets import chain

SHAPE = (160, FEWEST_NUMBERS // 80)


def mostly_zeros(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(SHAPE, generator=generator) < MOST_DENSE / 2
    return torch.randn(SHAPE, generator=generator, dtype=torch.float64) * kept


def test_maps_and_gradients_are_those_of_the_matrix() -> None:
    weight = mostly_zeros(0)
    layer, generator = Linear(weight, torch.zeros(len(weight), dtype=torch.float64)), torch.Generator().manual_seed(1)
    assert layer._sparse is not None
    for shape in [(0,), (1, 0), (2, 0, 4), (7,), (2, 3), ()]:  # also none: a stage may have no neurons
        vectors = torch.randn(*shape, SHAPE[1], generator=generator, dtype=torch.float64, requires_grad=True)
        forms = torch.randn(*shape, SHAPE[0], generator=generator, dtype=torch.float64, requires_grad=True)
        torch.testing.assert_close(layer.linear(vectors), vectors @ weight.T)
        torch.testing.assert_close(layer.transpose(forms)[0], forms @ weight)
        (gradient,) = torch.autograd.grad((layer.linear(vectors) * forms.detach()).sum(), vectors)
        torch.testing.assert_close(gradient, forms @ weight)
        (gradient,) = torch.autograd.grad((layer.transpose(forms)[0] * vectors.detach()).sum(), forms)
        torch.testing.assert_close(gradient, vectors @ weight.T)
    sizes = vectors.detach().abs()
    torch.testing.assert_close(layer.magnitude(sizes), sizes @ weight.abs().T)


def lattice(depth: int, count: int = 512) -> Network:
    """The largest of many linear functions of two inputs, pair by pair: `max(p, q) = (p + q + |p - q|) / 2`."""
    generator = torch.Generator().manual_seed(0)
    layers: list[Linear | Relu] = [Linear(torch.randn(count, 2, generator=generator), torch.zeros(count))]
    for _ in range(depth):
        pairs = torch.eye(count // 2)
        signs = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]])
        layers += [Linear(torch.kron(pairs, signs), torch.zeros(2 * count)), Relu()]
        layers.append(Linear(torch.kron(pairs, torch.tensor([[0.5, -0.5, 0.5, 0.5]])), torch.zeros(count // 2)))
        count //= 2
    return chain((2,), *layers)


def test_rounding_does_not_grow_with_zeros() -> None:
    """Charged by lengths of whole layers, it drowned all bounds of lattices of this depth."""
    scores, errors = scores_at(lattice(9).cast(torch.float64), torch.ones(1, 2, dtype=torch.float64), RIGOROUS)
    assert float(errors) < 1e-3 * float(scores)
