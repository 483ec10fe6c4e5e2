"""Deviations are the linear function of inputs and errors that the certificates take them for."""

from __future__ import annotations

import pytest
import torch

from relucert.methods.passes import THE_INPUT
from relucert.methods.quadratic.matrices import local_maps
from relucert.network import Convolution
from tests.methods.quadratic.linearised import NAMES, linearise, true_vectors
from tests.nets import NORMS
from tests.regions import LIMITS, samples


@pytest.mark.parametrize("limits", [None, *LIMITS])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled
def test_deviations_are_linear_in_inputs_and_errors(name: str, norm: float, limits: str | None) -> None:
    _, linearised, _ = linearise(name, norm, limits)
    points = samples(linearised.region, 0, 20, torch.Generator().manual_seed(0))
    inputs, errors, moved = true_vectors(linearised, points)
    assert float(inputs.abs().max()) <= 1 + 1e-12
    found = linearised.forward(inputs, errors)
    for value, deviations in moved.items():
        torch.testing.assert_close(found[value], deviations, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_transposed_passes_are_adjoint(name: str, quick: bool) -> None:
    _, linearised, _ = linearise(name, 2.0)
    if quick:
        linearised = linearised.quick(torch.float64)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(3, len(linearised.radii), generator=generator).double()
    errors = {
        value: torch.randn(3, len(its), generator=generator).double() for value, its in linearised.neurons.items()
    }
    forms = {value: torch.randn(3, len(its), generator=generator).double() for value, its in linearised.neurons.items()}
    images = linearised.forward(inputs, errors)
    on_inputs, on_errors = linearised.transposed(forms)
    left = sum((images[value] * forms[value]).sum(1) for value in forms)
    followed = [value for value, its in linearised.neurons.items() if its.following]
    right = (inputs * on_inputs).sum(1) + sum((errors[value] * on_errors[value]).sum(1) for value in followed)
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_matrices_are_the_maps_between_layers(name: str) -> None:
    network, linearised, _ = linearise(name, 2.0)
    generator = torch.Generator().manual_seed(2)
    for value in network.preactivations:
        maps = local_maps(network, value, torch.arange(network.sizes[value]))
        assert sorted(maps) == sorted(linearised.passes.sources(value))
        for source, found in maps.items():
            size = network.sizes[max(source, 0)]
            vectors = torch.randn(4, size, generator=generator).double()
            image = linearised.passes.local(value, {source: vectors})
            matrix = (
                found.matrix if isinstance(found.matrix, torch.Tensor) else torch.from_numpy(found.matrix.toarray())
            )
            torch.testing.assert_close(vectors @ matrix.T, image, rtol=1e-9, atol=1e-9)
            back = linearised.passes.local_transposed(value, image)[source]
            torch.testing.assert_close(image @ matrix, back, rtol=1e-9, atol=1e-9)
    assert any(THE_INPUT in linearised.passes.sources(value) for value in network.preactivations)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 0, 1, 2), (1, 1, 1, 1)])
@pytest.mark.parametrize(("stride", "dilation"), [((1, 1), (1, 1)), ((2, 3), (1, 1)), ((1, 2), (2, 1))])
def test_quick_convolutions_are_convolutions(
    stride: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, ...], groups: int
) -> None:
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(4, 4 // groups, 3, 2, generator=generator).double()
    operation = Convolution(weight, torch.zeros(4).double(), (11, 9), stride, padding, dilation, groups)
    images = torch.randn(2, 4, 11, 9, generator=generator).double()
    outputs = operation.linear(images)
    torch.testing.assert_close(operation.quick(images), outputs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        operation.quick_transpose(outputs)[0], operation.transpose(outputs)[0], rtol=1e-12, atol=1e-12
    )
