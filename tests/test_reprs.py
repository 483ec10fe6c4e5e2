"""What is printed at a prompt: one short line, however many numbers there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import relucert
from relucert import Region, data
from relucert.arithmetic.region import RegionShape
from relucert.attacks.witness import AdversarialPoint
from relucert.network import IndexMap
from tests.nets import NETWORKS

IMAGES = data.bundled().first(2)
WIDE = torch.linspace(0.5, 1, 784)
LONGEST = 400


def _answers() -> list[Any]:
    question: dict[str, Any] = {"scale": WIDE, "box": (WIDE - 2, WIDE + 2)}
    images = IMAGES.images[:1]
    (interval,) = relucert.exact("mnist-2x20", images, target="runner-up", time_limit=0, **question)
    return [
        *relucert.certify("mnist-2x20", images, **question),
        *relucert.attack("mnist-2x20", images, method="fmn", steps=20, polish=False, **question),
        *relucert.estimate("mnist-2x20", images, batches=10, samples=5, **question),
        interval,
    ]


def test_answers_are_one_line() -> None:
    certificate, attack, estimate, interval = map(repr, _answers())
    for shown in (certificate, attack, estimate, interval):
        assert "\n" not in shown
        assert len(shown) < LONGEST
        assert "box=(<(784,)>, <(784,)>), " in f"{shown}, ".replace(")), ", "), ")
    assert [one[one.index("proven=") :] for one in (certificate, estimate, interval)] == [
        "proven=True)", "proven=False)", "proven=True)"
    ]  # fmt: skip
    assert certificate.startswith("Certificate(image=0, label=7, target=3, norm=inf, method='fast-lin', ")
    assert "witness=<(784,)>" in attack
    assert "distance=0.0" in attack


def test_what_is_absent_is_left_out_unless_it_was_asked_for() -> None:
    (wrong,) = relucert.certify("mnist-2x20", IMAGES.images[:1], [3])
    assert "radius=None, reason='misclassified" in repr(wrong)
    assert "target" not in repr(wrong)
    assert "box=None" in repr(wrong)  # every input is valid, which a radius is about
    assert repr(wrong).endswith("proven=False)")


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (lambda: relucert.load("mnist-2x20"), "Network('mnist-2x20', 784-20-10, 15,910 parameters)"),
        (lambda: IMAGES, "Dataset('the first 100 MNIST test images', 2 images of 784 numbers, with labels)"),
        (lambda: AdversarialPoint(WIDE, 0.25), "AdversarialPoint((784,) at distance 0.25)"),
        (
            lambda: Region.around(IMAGES.images, torch.tensor([0.25, 0.5]), 2, None, WIDE),
            "Region(batch of 2, 784 coordinates, radius 0.25 to 0.5, p = 2, every input valid, scaled per coordinate)",
        ),
        (
            lambda: Region.around(IMAGES.images, 0.25, "inf"),
            "Region(batch of 2, 784 coordinates, radius 0.25, p = inf, every input valid)",
        ),
        (lambda: RegionShape.parse(1, None, None, (784,)), "RegionShape(p = 1, every input valid)"),
        (
            lambda: RegionShape.parse(1, (WIDE - 1, WIDE), None, (784,)).box,
            "Box(784 coordinates, all within -0.5 to 1)",
        ),
        (
            lambda: relucert.Property.margins(torch.tensor([1, 1]), torch.tensor([[2], [0]]), 3),
            "Property(1 row on 3 outputs, batch of 2)",
        ),
        (lambda: relucert.load("mnist-2x20").nodes[0], "Node(Linear(weight (20, 784), bias (20,)) of 0)"),
    ],
)
def test_one_line(shown: Any, words: str) -> None:
    assert repr(shown()) == words


@pytest.mark.parametrize("name", NETWORKS)
def test_every_operation_is_one_line(name: str) -> None:
    for node in NETWORKS[name]().nodes:
        assert "\n" not in repr(node)
        assert "tensor" not in repr(node)


def test_operations_tell_how_many_numbers_they_have() -> None:
    moved = IndexMap.of(torch.arange(600).flip(0), (600,))
    assert repr(moved) == "IndexMap(indices (600 numbers), before (600,), after (600,))"
    assert repr(IndexMap.of(torch.tensor([1, 0]), (2,))) == "IndexMap(indices (1, 0), before (2,), after (2,))"
