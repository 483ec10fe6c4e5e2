"""Every activation keeps its contract, and no method takes one for another."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import relucert
from relucert.arithmetic.rigor import RIGOROUS
from relucert.checker.fixed_layers import fixed_layers
from relucert.common.names import MethodName
from relucert.errors import InputError, NetworkError, RelucertError
from relucert.methods.table import METHODS
from relucert.network import Activation, Network, Node, Operation, Relu
from relucert.network.registry import register
from tests.smooth import CrudeTanh, known_to_files, smooth_network

ACTIVATIONS: dict[str, Activation] = {"relu": Relu(), "crude tanh": CrudeTanh()}
ENDS = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, -0.0, 1e-300, -1e-300, 5e-324, -5e-324, 1e6, -1e6]))


def number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.mark.parametrize("name", ACTIVATIONS)
@given(one=ENDS, other=ENDS, slope=st.floats(-2, 2), share=st.floats(0, 1))
def test_every_point_lies_between_the_bounds(name: str, one: float, other: float, slope: float, share: float) -> None:
    activation, lower, upper = ACTIVATIONS[name], number(min(one, other)), number(max(one, other))
    point = (lower + share * (upper - lower)).clamp(lower, upper)
    result = activation.apply(point)
    low, high = activation.image(lower, upper, RIGOROUS)
    assert low <= result <= high
    slopes = {number(slope), activation.chord(lower, upper), *activation.slopes(lower, upper)}
    for line in slopes:
        least = activation.least(line, lower, upper, RIGOROUS)
        assert (0 if least is None else least) <= result - line * point + 1e-15 * point.abs()
        assert result - line * point <= activation.largest(line, lower, upper, RIGOROUS) + 1e-15 * point.abs()


@pytest.mark.parametrize("name", ACTIVATIONS)
@given(one=ENDS, other=ENDS, share=st.floats(0, 1))
def test_derivatives_are_within_their_range_and_affine_means_one(
    name: str, one: float, other: float, share: float
) -> None:
    activation, lower, upper = ACTIVATIONS[name], number(min(one, other)), number(max(one, other))
    point = lower + share * (upper - lower)
    least, largest = activation.derivatives(lower, upper)
    if lower < point < upper:
        assert least <= activation.derivative(point) <= largest
    assert max(-least, largest) <= activation.lipschitz + 1e-5
    if activation.is_affine(lower, upper):
        assert least == largest == activation.chord(lower, upper)
        assert all(slope == least for slope in activation.slopes(lower, upper))
        assert activation.least(least, lower, upper, RIGOROUS) is None
        assert activation.largest(least, lower, upper, RIGOROUS) == 0


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bounds", [(torch.nan, 1.0), (-1.0, torch.nan), (torch.nan, torch.nan)])
def test_bounds_that_are_no_numbers_say_nothing(name: str, bounds: tuple[float, float]) -> None:
    activation, (lower, upper) = ACTIVATIONS[name], (number(end) for end in bounds)
    if bool(torch.isnan(lower) & torch.isnan(upper)):
        assert not activation.is_affine(lower, upper)
    chord = activation.chord(lower, upper)
    assert not (activation.largest(chord, lower, upper, RIGOROUS).isfinite() and not activation.is_affine(lower, upper))


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", METHODS)
def test_methods_bound_another_activation_as_itself_or_refuse_it_by_name(method: MethodName, norm: str) -> None:
    network = smooth_network()
    images = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if METHODS[method]().needs_rectifiers:
        with pytest.raises(InputError, match=rf"'{method}'.*crude-tanh.*fast-lin"):
            relucert.certify(network, images, norm=norm, method=method)
        return
    answers = relucert.certify(network, images, norm=norm, method=method)
    attacked = relucert.attack(network, images, norm=norm, steps=60)
    assert any(answer.radius for answer in answers)
    for answer, bound in zip(answers, attacked, strict=True):
        assert bound.distance is None or answer.radius is None or answer.radius < bound.distance


def test_estimates_and_best_take_another_activation() -> None:
    network = smooth_network()
    images = torch.zeros(2, 5, dtype=torch.float64)
    assert all(answer.value is not None for answer in relucert.estimate(network, images, batches=3))
    found = relucert.certify(network, images, method="best", budget=2)
    assert all(answer.radius is not None for answer in found)


def test_what_needs_relu_refuses_another_activation_by_name(tmp_path: Path) -> None:
    network, images = smooth_network(), torch.zeros(1, 5, dtype=torch.float64)
    query = relucert.Query.within([-0.1] * 5, [0.1] * 5, [([[1.0, -1.0, 0.0]], [0.0])])
    for ask in (
        lambda: relucert.verify(network, query),
        lambda: fixed_layers(network),
        lambda: relucert.exact(network, images),
        lambda: relucert.robust_at(network, images, radius=0.01),
        lambda: relucert.certify(network, images, proofs=tmp_path / "proofs"),
    ):
        with pytest.raises(RelucertError, match="crude-tanh"):
            ask()


def test_activations_that_round_are_not_evaluated_in_floating_point() -> None:
    with pytest.raises(InputError, match=r"crude-tanh.*rounds"):
        relucert.certify(smooth_network(), torch.zeros(1, 5), method="interval", inference="float32")


def test_networks_with_another_activation_are_stored_and_read(tmp_path: Path) -> None:
    network, path = smooth_network(), tmp_path / "smooth.safetensors"
    relucert.save(network, path)
    with pytest.raises(RelucertError, match="crude-tanh"):
        relucert.load(path)
    with known_to_files():
        again = relucert.load(path)
    points = torch.randn(3, 5)
    assert torch.equal(again(points), network(points))


def test_what_is_neither_affine_nor_an_activation_is_no_part_of_a_network() -> None:
    class Product(Operation):
        name = "product"

        def shape(self, *inputs: tuple[int, ...]) -> tuple[int, ...]:
            return inputs[0]

        def apply(self, *inputs: Tensor) -> Tensor:
            return inputs[0] * inputs[0]

    with pytest.raises(NetworkError, match="product"):
        register(Product)  # type: ignore[type-var]
    with pytest.raises(NetworkError, match="neither affine nor an activation"):
        Network((2,), (Node(Product(), (0,)),))  # type: ignore[arg-type]
