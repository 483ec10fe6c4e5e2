"""Every activation keeps its contract, and no method takes one for another."""

import gzip
import inspect
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import relucert
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS
from relucert.checker.check import check
from relucert.checker.document import Rejected
from relucert.checker.fixed_layers import fixed_layers
from relucert.common.names import MethodName
from relucert.errors import InputError, NetworkError, RelucertError
from relucert.methods.table import METHODS
from relucert.network import Activation, Network, Node, Operation, Relu
from relucert.network.fingerprint import fingerprint
from relucert.network.linear_regions import affine_values, pattern_at
from relucert.network.piecewise_linear import PiecewiseLinear
from relucert.network.registry import register
from tests.nets import mlp
from tests.smooth import CrudeTanh, known_to_files, smooth_network


def pieces(breaks: list[float], factors: list[float], offsets: list[float]) -> PiecewiseLinear:
    return PiecewiseLinear(*(torch.tensor(part, dtype=torch.float64)[:, None] for part in (breaks, factors, offsets)))


ACTIVATIONS: dict[str, Activation] = {
    "relu": Relu(),
    "crude tanh": CrudeTanh(),
    "leaky": pieces([0.0], [0.1, 1.0], [0.0, 0.0]),
    "concave": pieces([0.0], [1.5, -0.3], [0.0, 0.0]),
    "absolute": pieces([0.0], [-1.0, 1.0], [0.0, 0.0]),
    "clip": pieces([-0.5, 1.0], [0.0, 1.0, 0.0], [-0.5, 0.0, 1.0]),
    "one number": pieces([1.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]),
    "shrink": pieces([-1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, -1.0]),
    "four pieces": pieces([-2.0, 0.0, 2.0], [0.5, -1.0, 0.25, -1.0], [3.0, 0.0, 0.0, 2.5]),
}
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
        rounding = 1e-15 * torch.maximum(point.abs(), result.abs())
        least = activation.least(line, lower, upper, RIGOROUS)
        assert (0 if least is None else least) <= result - line * point + rounding
        assert result - line * point <= activation.largest(line, lower, upper, RIGOROUS) + rounding


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
        offset, low = activation.largest(least, lower, upper, RIGOROUS), activation.least(least, lower, upper, RIGOROUS)
        assert low is None if offset == 0 else low == offset
        assert abs(activation.apply(lower) - least * lower - offset) <= 1e-15 * (lower.abs() if offset else 0)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bounds", [(torch.nan, 1.0), (-1.0, torch.nan), (torch.nan, torch.nan)])
def test_bounds_that_are_no_numbers_say_nothing(name: str, bounds: tuple[float, float]) -> None:
    activation, (lower, upper) = ACTIVATIONS[name], (number(end) for end in bounds)
    if bool(torch.isnan(lower) & torch.isnan(upper)):
        assert not activation.is_affine(lower, upper)
    chord = activation.chord(lower, upper)
    assert not (activation.largest(chord, lower, upper, RIGOROUS).isfinite() and not activation.is_affine(lower, upper))


STRAIGHT = [name for name, activation in ACTIVATIONS.items() if isinstance(activation, Relu | PiecewiseLinear)]


@pytest.mark.parametrize("name", STRAIGHT)
@given(one=ENDS, other=ENDS)
@pytest.mark.sampled
def test_the_slopes_of_straight_pieces_are_the_best(name: str, one: float, other: float) -> None:
    """No other line through corners of the graph lies nearer: to the middle of one side, or to its parallel."""
    activation, lower, upper = ACTIVATIONS[name], number(min(one, other)), number(max(one, other))
    assume(bool(upper - lower > 1e-3))

    trials = torch.linspace(-2, 2, 41, dtype=torch.float64)[:, None]
    below, above = activation.slopes(lower, upper)
    slopes = torch.stack([activation.chord(lower, upper), below, above, *trials])
    ends = lower.expand_as(slopes), upper.expand_as(slopes)
    least, largest = activation.least(slopes, *ends, DOUBLE), activation.largest(slopes, *ends, DOUBLE)
    lows, heights = (
        (0 if least is None else least) + slopes * (lower + upper) / 2,
        largest + slopes * (lower + upper) / 2,
    )
    distances, rounding = heights - lows, 1e-12 * (1 + upper.abs() + lower.abs())
    assert distances[0] <= distances.min() + rounding
    assert lows[1] >= lows.max() - rounding
    assert heights[2] <= heights.min() + rounding


def test_a_clip_of_what_is_unbounded_is_bounded() -> None:
    ends = number(-torch.inf), number(torch.inf)
    assert ACTIVATIONS["clip"].image(*ends, DOUBLE) == (number(-0.5), number(1.0))
    low, high = ACTIVATIONS["clip"].image(*ends, RIGOROUS)
    assert -0.51 < low <= -0.5
    assert 1.0 <= high < 1.01


def images_of_five() -> Tensor:
    return torch.randn(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@cache
def attacked_distances(norm: str) -> list[float | None]:
    return [answer.distance for answer in relucert.attack(smooth_network(), images_of_five(), norm=norm, steps=60)]


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", METHODS)
def test_methods_bound_another_activation_as_itself_or_refuse_it_by_name(method: MethodName, norm: str) -> None:
    network, images = smooth_network(), images_of_five()
    if METHODS[method]().needs_rectifiers:
        with pytest.raises(InputError, match=rf"'{method}'.*crude-tanh.*fast-lin"):
            relucert.certify(network, images, norm=norm, method=method)
        return
    answers = relucert.certify(network, images, norm=norm, method=method, tolerance=0.02)
    assert any(answer.radius for answer in answers)
    for answer, distance in zip(answers, attacked_distances(norm), strict=True):
        assert distance is None or answer.radius is None or answer.radius < distance


ZEROS = torch.zeros(2, 5, dtype=torch.float64)
Call = Callable[[Network, Path], object]
TAKE: dict[str, Call] = {
    "certify": lambda network, path: relucert.certify(network, ZEROS, method="best", budget=2),
    "bounds": lambda network, path: relucert.bounds(network, ZEROS, radius=0.1),
    "lipschitz": lambda network, path: relucert.lipschitz(network, around(0.1), rows()),
    "attack": lambda network, path: relucert.attack(network, ZEROS, steps=10),
    "estimate": lambda network, path: relucert.estimate(network, ZEROS, batches=3, samples=8),
    "robust_loss": lambda network, path: relucert.robust_loss(network, ZEROS.float(), torch.zeros(2).long(), 0.1),
    "robust_at": lambda network, path: relucert.robust_at(network, ZEROS, radius=0.01, time_limit=5),
    "verify": lambda network, path: relucert.verify(network, query(), time_limit=5),
    "compare": lambda network, path: relucert.compare(network, ZEROS, methods=["crown", "attack"], steps=10),
    "exact": lambda network, path: relucert.exact(network, ZEROS[:1], time_limit=1),
}
"""By public call, a question that it answers about any activation."""
REFUSE: dict[str, list[Call]] = {
    "certify": [
        *(
            lambda network, path, method=method: relucert.certify(network, ZEROS, method=method)
            for method in METHODS
            if METHODS[method]().needs_rectifiers
        ),
        lambda network, path: relucert.certify(network, ZEROS, proofs=path / "proofs"),
        lambda network, path: relucert.certify(network, ZEROS, method="interval", inference="float32"),
    ],
    "exact": [lambda network, path: relucert.exact(network, ZEROS[:1], proof=path / "proof.json")],
    "robust_at": [lambda network, path: relucert.robust_at(network, ZEROS[:1], radius=0.01, proof=path / "proof.json")],
    "verify": [lambda network, path: relucert.verify(network, query(), proof=path / "proof.json")],
    "save": [lambda network, path: relucert.save(network, path / "smooth.safetensors")],
    "the check of proofs": [
        lambda network, path: fixed_layers(network),
        lambda network, path: check(proof_about(network, path), network),
    ],
    "linear regions": [lambda network, path: affine_values(network, pattern_at(network, ZEROS.float()), ZEROS.float())],
}
"""By public call, or by what else meets a network, questions that are about ReLU alone."""


def around(radius: float) -> relucert.Region:
    return relucert.Region.around(ZEROS, radius, 2)


def rows() -> relucert.Property:
    return relucert.Property(torch.eye(3, dtype=torch.float64).repeat(2, 1, 1), torch.zeros(2, 3, dtype=torch.float64))


def query() -> relucert.Query:
    return relucert.Query.within([-0.1] * 5, [0.1] * 5, [([[1.0, -1.0, 0.0]], [0.0])])


def proof_about(network: Network, folder: Path) -> Path:
    """A proof about a network of ReLUs that claims to be about another one."""
    relucert.certify(mlp(5, 8, 3), ZEROS[:1], proofs=folder)
    (path,) = folder.iterdir()
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["network"]["sha256"] = fingerprint(network)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_every_public_call_about_a_network_has_its_row() -> None:
    calls = {name: getattr(relucert, name) for name in relucert.__all__}
    about_networks = {
        name.removesuffix("_each")
        for name, call in calls.items()
        if inspect.isfunction(call) and next(iter(inspect.signature(call).parameters)) == "network"
    }
    assert about_networks <= {*TAKE, *REFUSE}


@pytest.mark.parametrize("name", TAKE)
def test_what_is_for_any_activation_takes_another_one(name: str, tmp_path: Path) -> None:
    assert TAKE[name](smooth_network(), tmp_path) is not None


@pytest.mark.parametrize("name", REFUSE)
def test_what_is_for_relu_refuses_another_activation_by_name(name: str, tmp_path: Path) -> None:
    for number, ask in enumerate(REFUSE[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises((RelucertError, Rejected), match="crude-tanh"):
            ask(smooth_network(), folder)


def test_a_comparison_leaves_out_what_is_for_relu_and_says_why() -> None:
    methods = [name for name in METHODS if METHODS[name]().needs_rectifiers]
    compared = relucert.compare(smooth_network(), ZEROS, methods=["crown", *methods])
    assert set(compared.skipped) == set(methods)
    assert all("crude-tanh" in reason for reason in compared.skipped.values())


def test_what_others_answer_about_another_activation_is_true() -> None:
    network = smooth_network()
    points = torch.empty(200, 5, dtype=torch.float64).uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(1))
    *_, outputs = relucert.bounds(network, ZEROS[:1], radius=0.1)
    scores = network.cast(torch.float64)(points)
    assert ((outputs.lower <= scores) & (scores <= outputs.upper)).all()
    steepest = torch.tensor(relucert.lipschitz(network, around(0.5), rows())[0].values)
    moved = (scores - network.cast(torch.float64)(ZEROS[:1])).abs() / points.norm(dim=1, keepdim=True)
    assert (moved <= steepest).all()
    assert all(answer.value is not None for answer in relucert.estimate(network, ZEROS, batches=3))
    assert all(answer.radius is not None for answer in relucert.certify(network, ZEROS, method="best", budget=2))


def test_activations_that_round_are_not_evaluated_in_floating_point() -> None:
    with pytest.raises(InputError, match=r"crude-tanh.*rounds"):
        relucert.certify(smooth_network(), torch.zeros(1, 5), method="interval", inference="float32")


def test_networks_with_another_activation_are_stored_and_read(tmp_path: Path) -> None:
    network, path = smooth_network(), tmp_path / "smooth.safetensors"
    with known_to_files():
        relucert.save(network, path)
        again = relucert.load(path)
    with pytest.raises(RelucertError, match="crude-tanh"):
        relucert.load(path)
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
