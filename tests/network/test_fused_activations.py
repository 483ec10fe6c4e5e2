"""Activations that an import wrote in affine operations and ReLUs are bounded as what they are, and nothing else is."""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import relucert
from relucert.arithmetic.rigor import RECORDED, RIGOROUS, Arithmetic
from relucert.bounding.interval_propagation import interval_bounds
from relucert.checker.check import check
from relucert.common.names import MethodName
from relucert.methods.table import METHODS, find_method, suited_network
from relucert.network import Add, Network, Node, Relu, Scale, find_inference
from relucert.network.fingerprint import fingerprint
from relucert.network.fused_activations import IDENTITY, fuse_activations
from relucert.network.piecewise_linear import PiecewiseLinear
from tests.nets import centres, chain, leaky_and_clipped, linear_of, mlp, normalised, residual
from tests.rational import evaluate_graph

Function = Callable[[Tensor], Tensor]


def by_channel(x: Tensor) -> Tensor:
    return nn.functional.prelu(x, torch.tensor([0.1, -0.2, 0.3, 1.0, 0.0]))


BENT: dict[str, tuple[Function, int]] = {
    "leaky": (nn.functional.leaky_relu, 1),
    "leaky, by channel": (by_channel, 1),
    "random leaky": (lambda x: nn.functional.rrelu(x, 0.25, 0.5), 1),
    "absolute": (torch.abs, 1),
    "relu6": (nn.functional.relu6, 2),
    "hardtanh": (nn.functional.hardtanh, 2),
    "clip at numbers without short binary forms": (lambda x: x.clamp(-0.3, 0.7), 2),
    "hard sigmoid": (nn.functional.hardsigmoid, 2),
    "clip of an absolute value": (lambda x: x.abs().clamp(max=0.5), 3),
    "shrink": (lambda x: x - x.clamp(-0.5, 0.5), 2),
    "softshrink": (nn.functional.softshrink, 2),
}
"""Activations, and how many breaks their graphs have at the most."""


class Bent(nn.Module):
    """Three classes of five numbers, after an activation."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.function, self.last = function, nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.function(x))
        return scores


@pytest.mark.parametrize("name", BENT)
def test_what_an_import_wrote_is_one_activation_again_and_the_same_function_exactly(name: str) -> None:
    """In rational arithmetic, at random points, at the breaks themselves and far from them."""
    function, breaks = BENT[name]
    network = relucert.load(Bent(function), input_shape=(5,))
    fused = fuse_activations(network)
    (activation,) = fused.activations.values()
    assert isinstance(activation, PiecewiseLinear)
    assert len(activation.breaks) == breaks
    draw = torch.Generator().manual_seed(5)
    points = [size * torch.randn(5, generator=draw, dtype=torch.float64) for size in [0.1, 1.0, 1e30] * 5]
    points += [torch.full((5,), float(end), dtype=torch.float64) for end in activation.breaks.flatten()]
    for point in points:
        exact = [Fraction(number) for number in point.tolist()]
        assert evaluate_graph(fused, exact)[-1] == evaluate_graph(network, exact)[-1]
    together = torch.stack(points[:15]).float()
    torch.testing.assert_close(fused(together), network(together), rtol=1e-5, atol=1e-5)


STEPS = st.lists(
    st.tuples(st.sampled_from(["scale", "shift", "relu", "plus"]), st.sampled_from([-2, -1, 0, 0.5, 1, 3]))
)


@given(steps=STEPS, point=st.fractions(-5, 5))
def test_pieces_are_what_their_steps_compute(steps: list[tuple[str, float]], point: Fraction) -> None:
    pieces, expected = [IDENTITY], [point]
    for step, number in steps:
        one, at = pieces[-1], expected[-1]
        other = len(pieces) // 2
        pieces.append(
            one.scaled(Fraction(number)) if step == "scale" else one.shifted(Fraction(number)) if step == "shift"
            else one.rectified() if step == "relu" else one.plus(pieces[other])
        )  # fmt: skip
        expected.append(
            at * Fraction(number) if step == "scale" else at + Fraction(number) if step == "shift"
            else max(at, Fraction(0)) if step == "relu" else at + expected[other]
        )  # fmt: skip
    slope, height = pieces[-1].lines[sum(end < point for end in pieces[-1].breaks)]
    assert slope * point + height == expected[-1]
    assert list(pieces[-1].breaks) == sorted(set(pieces[-1].breaks))


def bent_pair(last: float) -> Network:
    """`last * leaky(x)` of two layers' neurons."""
    lines = linear_of(4, 5, torch.Generator().manual_seed(1), torch.float32)
    tenth, minus = torch.tensor(0.1, dtype=torch.float64), torch.tensor(-1.0)
    return Network(
        (4,),
        (
            Node(lines, (0,)),
            Node(Relu(), (1,)),
            Node(Scale(minus, divide=False), (2,)),
            Node(Add(), (1, 3)),
            Node(Scale(tenth, divide=False), (4,)),
            Node(Add(), (2, 5)),
            Node(Scale(torch.tensor(last, dtype=torch.float64), divide=False), (6,)),
        ),
    )


def test_a_group_ends_where_float64_ends() -> None:
    """Twice 0.1 is a number of float64, a tenth of 0.1 is none: the last factor then stays an operation."""
    assert [node.operation.name for node in fuse_activations(bent_pair(2.0)).nodes] == ["linear", "piecewise-linear"]
    names = [node.operation.name for node in fuse_activations(bent_pair(0.1)).nodes]
    assert names == ["linear", "piecewise-linear", "scale"]


def test_what_is_of_use_elsewhere_stays() -> None:
    """Another layer takes the ReLU within a leaky ReLU."""
    beside = linear_of(5, 5, torch.Generator().manual_seed(2), torch.float32)
    network = Network((4,), (*bent_pair(2.0).nodes, Node(beside, (2,)), Node(Add(), (7, 8))))
    assert fuse_activations(network) is network


@pytest.mark.parametrize("make", [lambda: mlp(6, 10, 8, 4), residual])
def test_networks_of_plain_relus_stay_as_they_are(make: Callable[[], Network]) -> None:
    network = make()
    assert fuse_activations(network) is network


def test_a_relu_of_a_relu_is_one() -> None:
    fused = fuse_activations(normalised())
    assert fused.rectifiers_only
    assert len(fused.activations) == len(normalised().activations) - 1
    assert len(fuse_activations(chain((3,), Relu(), Relu())).nodes) == 1


def question() -> tuple[Network, Tensor]:
    """A network, and six images."""
    return leaky_and_clipped(), torch.randn(6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@cache
def attacked(norm: str) -> list[relucert.UpperBound]:
    return list(relucert.attack(*question(), norm=norm, steps=60))


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("method", ["interval", "fast-lin", "crown"])
def test_radii_are_sound(method: MethodName, norm: str) -> None:
    certified = relucert.certify(*question(), norm=norm, method=method, tolerance=0.01)
    assert any(answer.radius for answer in certified)
    for answer, bound in zip(certified, attacked(norm), strict=True):
        assert bound.distance is None or answer.radius is None or answer.radius < bound.distance


@pytest.mark.parametrize("name", BENT)
@pytest.mark.parametrize("radius", [0.1, 1.0, 10.0])
@pytest.mark.sampled
def test_intervals_are_never_wider_than_those_of_the_operations(name: str, radius: float) -> None:
    network = relucert.load(Bent(BENT[name][0]), input_shape=(5,)).cast(torch.float64)
    region = relucert.Region.around(centres(network, 8), radius, "inf")
    (stored, fused) = (
        interval_bounds(one, region, RIGOROUS, (one.output,))[one.output]
        for one in (network, fuse_activations(network))
    )
    assert (fused.lower >= stored.lower - 1e-12).all()
    assert (fused.upper <= stored.upper + 1e-12).all()


@pytest.mark.parametrize("method", ["interval", "fast-lin", "crown"])
def test_proofs_are_about_the_operations_as_stored(method: MethodName, tmp_path: Path) -> None:
    network, images = leaky_and_clipped(), torch.zeros(1, 6, dtype=torch.float64)
    (answer,) = relucert.certify(network, images, method=method, proofs=tmp_path)
    (path,) = tmp_path.iterdir()
    assert check(path, network).radius == answer.radius


PROVING: dict[str, tuple[Arithmetic, str, bool]] = {
    "rigorous": (RIGOROUS, "real", True),
    "for a proof": (RECORDED, "real", False),
    "in float32": (RIGOROUS, "float32", False),
}


@pytest.mark.parametrize("how", PROVING)
def test_methods_are_given_what_suits_them(how: str) -> None:
    arithmetic, inference, fuses = PROVING[how]
    network = leaky_and_clipped().evaluated_in(find_inference(inference))
    before = fingerprint(network)
    for name in METHODS:
        suited = suited_network(find_method(name), network, arithmetic)
        assert suited.rectifiers_only == (not fuses or name not in ("interval", "fast-lin", "crown"))
    assert fingerprint(network) == before
