"""Boxes and scales in every call: a network of scaled inputs is the same question as the network with a scale.

With x = factor * u the regions `||(x - x0) / factor|| <= r` and `||u - u0|| <= r` are one, and so are their boxes.
Factors are powers of two: nothing rounds.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import relucert
from relucert.attacks.methods import ANY, ATTACKS
from relucert.checker.check import check
from relucert.common.names import AttackName, MethodName
from relucert.methods.table import METHODS
from relucert.network import Network, Node, Scale
from tests.nets import NETWORKS, centres, mlp, skipping

FACTOR = torch.tensor([1.0, 2.0, 0.5, 4.0, 0.25, 1.0])
LOW, HIGH = -1.25, 1.5
ENDS = ["inf", "2", "1"]


def scaled(network: Network) -> Network:
    """The network of u, whose input is factor * u."""
    shifted = [Node(node.operation, tuple(source + 1 for source in node.inputs)) for node in network.nodes]
    return Network(network.input_shape, (Node(Scale(FACTOR, divide=False), (0,)), *shifted))


Asked = tuple[Network, Tensor, dict[str, Any]]
SMALL: dict[str, Callable[[], Network]] = {
    "two layers": lambda: mlp(6, 8, 4),
    "skipping": skipping,
}  # for exact answers
TABLE = {**NETWORKS, **SMALL}


def pair(name: str) -> tuple[Asked, Asked]:
    """The same questions twice: about u in a box of two numbers, and about x with a box of arrays and a scale."""
    network = TABLE[name]()
    points = centres(network, 3)[1:].clamp(LOW, HIGH)
    arrays = {"box": (LOW * FACTOR, HIGH * FACTOR), "scale": FACTOR}
    return (scaled(network), points, {"box": (LOW, HIGH)}), (network, points * FACTOR, arrays)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", ENDS)
@pytest.mark.parametrize("name", ["three layers", "residual"])
@pytest.mark.sampled
def test_certified_radii_are_the_same(name: str, norm: str, method: MethodName) -> None:
    one, other = (
        relucert.certify(network, points[:1], norm=norm, method=method, target="runner-up", **options)
        for network, points, options in pair(name)
    )
    loose = 1.5 if method == "op-norm" else 1.0  # a layer of its own costs a factor there
    slack = 0.2 if method == "sdp" else 3e-4  # its multipliers are found in float32, and in these tests soon given up
    for first, second in zip(one, other, strict=True):
        assert first.radius is not None
        assert second.radius is not None
        assert (
            first.radius * (1 - slack) <= second.radius <= first.radius * (1 + slack) * loose * (4 if loose > 1 else 1)
        )


@pytest.mark.parametrize("norm", ENDS)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.sampled
def test_exact_distances_are_the_same_and_their_proofs_pass(name: str, norm: str, tmp_path: Path) -> None:
    path = tmp_path / "proof.json.gz"
    answers, claims = [], []
    for network, points, options in pair(name):
        (answer,) = relucert.exact(network, points[:1], norm=norm, proof=path, overwrite=True, **options)
        answers.append(answer)
        claims.append(check(path, network))
    first, second = answers
    assert first.closed
    assert second.closed
    assert first.lower is not None
    assert second.lower == pytest.approx(first.lower, rel=2e-3)
    assert second.upper == pytest.approx(first.upper, rel=2e-3)
    assert [claim.radius for claim in claims] == [answer.lower for answer in answers]
    assert claims[0].scale is None
    assert claims[1].scale == FACTOR.tolist()
    assert "each coordinate" in str(claims[1])


@pytest.mark.parametrize("norm", [*ENDS, "3"])
@pytest.mark.parametrize("method", [name for name, norms in ATTACKS.items() if ANY in norms])
@pytest.mark.sampled
def test_attacks_find_the_same(method: AttackName, norm: str) -> None:
    answers = [
        relucert.attack(network, points, norm=norm, method=method, steps=60, **options)
        for network, points, options in pair("three layers")
    ]
    for first, second in zip(*answers, strict=True):
        assert first.distance is not None
        assert second.distance == pytest.approx(first.distance, rel=0.03)
        assert second.witness is not None
        point = second.witness
        assert bool(((point >= LOW * FACTOR) & (point <= HIGH * FACTOR)).all())


def test_coordinates_that_stay_stay_in_every_attack() -> None:
    network = NETWORKS["three layers"]()
    points = centres(network).float()
    for norm in ENDS:
        for box in (None, (float(points.min()), float(points.max()))):
            for answer in relucert.attack(network, points, norm=norm, box=box, scale=[0.0, 0, 1, 1, 1, 1], steps=40):
                if answer.witness is not None:
                    assert torch.equal(answer.witness[:2].double(), points[answer.image][:2].double())


@pytest.mark.parametrize("norm", [*ENDS, "3"])
@pytest.mark.sampled
def test_estimates_are_the_same(norm: str) -> None:
    answers = [
        relucert.estimate(network, points, norm=norm, radius=0.5, batches=30, samples=64, **options)
        for network, points, options in pair("three layers")
    ]
    for first, second in zip(*answers, strict=True):
        assert second.sampled == pytest.approx(first.sampled, rel=1e-4)


@pytest.mark.parametrize("norm", ENDS)
@pytest.mark.sampled
def test_every_kind_of_answer_is_in_order_within_a_box(norm: str) -> None:
    network, points, options = pair("two layers")[1]
    compared = relucert.compare(network, points[:1], norm=norm, steps=30, batches=5, samples=32, **options)
    assert compared.skipped == {}
    for question in compared.questions:
        assert question.answers["exact"].closed
        for answer in question.answers.values():
            assert answer.to_json()["box"] == [(LOW * FACTOR).tolist(), (HIGH * FACTOR).tolist()]
            assert answer.to_json()["input_scale"] == FACTOR.tolist()
