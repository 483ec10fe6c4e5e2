"""Warnings about images that hardly suit the network."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import relucert
from relucert import InputWarning
from relucert.network import Linear, Network, Node
from relucert.query.plausible import FEWEST, scaled
from tests.nets import mlp

MNIST = relucert.load("mnist-2x20")
BUNDLED = relucert.data.bundled()
PLAIN = mlp(6, 8, 10, seed=3)
IMAGES = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = PLAIN.cast(torch.float64)(IMAGES).argmax(1)


def warned(call: Callable[[], Any]) -> list[str]:
    """The messages of a call's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(issubclass(warning.category, InputWarning) for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda images: images + 0.5, "from 0 to 1: scale them first, as in images - 0.5"),
        (lambda images: (images + 0.5) * 255, "from 0 to 255: scale them first, as in images / 255 - 0.5"),
        (lambda images: 2 * images, "from -1 to 1: scale them first, as in images / 2"),
        (lambda images: (images + 0.3693) / 0.3081, "scale them first"),
        (lambda images: (images + 0.5) / 255**2, "scale them first"),
    ],
)
def test_another_range_is_told_with_what_to_do(change: Callable[[torch.Tensor], torch.Tensor], line: str) -> None:
    (message,) = warned(lambda: relucert.certify(MNIST, change(BUNDLED.images), BUNDLED.labels))
    assert "mnist-2x20 was trained on inputs from -0.5 to 0.5" in message
    assert line in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "change",
    [
        lambda images: images,
        lambda images: images + 0.05,  # perturbed
        lambda images: images[:, :].clamp(max=0.2),
        lambda images: torch.zeros_like(images),
    ],
)
def test_the_networks_own_range_is_no_news(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert warned(lambda: relucert.certify(MNIST, change(BUNDLED.images[:3]))) == []


def test_a_network_without_a_range_is_left_alone() -> None:
    assert warned(lambda: relucert.certify(PLAIN, 255 * IMAGES)) == []
    named = replace(PLAIN, input_range=(-4.0, 4.0))
    assert warned(lambda: relucert.certify(named, IMAGES)) == []
    assert len(warned(lambda: relucert.certify(named, 255 * IMAGES))) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda images, labels: relucert.attack(MNIST, images, labels, steps=1, polish=False),
        lambda images, labels: relucert.exact(MNIST, images, labels, time_limit=0.1),
        lambda images, labels: relucert.estimate(MNIST, images, labels, batches=2, samples=2),
        lambda images, labels: relucert.compare(MNIST, images, labels, methods=["interval", "fast-lin"]),
        lambda images, labels: list(relucert.certify_each(MNIST, images, labels)),
        lambda images, labels: relucert.bounds(MNIST, relucert.Region.around(images, 0.1, "inf")),
    ],
)
def test_every_call_warns_once(call: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    assert BUNDLED.labels is not None
    labels = BUNDLED.labels[:2]
    assert len(warned(lambda: call(BUNDLED.images[:2] + 0.5, labels))) == 1
    assert warned(lambda: call(BUNDLED.images[:2], labels)) == []


def test_labels_met_by_chance_alone_are_told() -> None:
    shifted = (LABELS + 1) % 10
    (message,) = warned(lambda: relucert.certify(PLAIN, IMAGES, shifted))
    assert message.startswith("the network gives 0 of 40 images their labels, no more than chance would")
    (message,) = warned(lambda: relucert.certify(PLAIN, IMAGES, torch.where(torch.arange(40) < 5, LABELS, shifted)))
    assert "5 of 40" in message


@pytest.mark.parametrize("right", [8, 20, 40])
def test_a_poor_accuracy_is_no_chance(right: int) -> None:
    labels = torch.where(torch.arange(40) < right, LABELS, (LABELS + 1) % 10)
    assert warned(lambda: relucert.certify(PLAIN, IMAGES, labels)) == []


def test_few_images_tell_nothing_about_accuracy() -> None:
    few = slice(0, FEWEST - 1)
    assert warned(lambda: relucert.certify(PLAIN, IMAGES[few], (LABELS[few] + 1) % 10)) == []


def test_what_is_answered_is_the_same_as_without_the_warning() -> None:
    unknown = replace(MNIST, input_range=None)
    with pytest.warns(InputWarning):
        warned_answers = relucert.certify(MNIST, BUNDLED.images[:3] + 0.5)
    assert [answer.radius for answer in warned_answers] == [
        answer.radius for answer in relucert.certify(unknown, BUNDLED.images[:3] + 0.5)
    ]


@pytest.mark.parametrize(
    ("given", "wanted", "line"),
    [
        ((0, 255), (0, 1), "images / 255"),
        ((0, 1), (0, 255), "images * 255"),
        ((0, 1), (-1, 1), "images * 2 - 1"),
        ((-1, 1), (0, 1), "images / 2 + 0.5"),
        ((0, 200), (0, 255), None),
        ((-7, 3), (0, 1), None),
    ],
)
def test_the_line_of_python(given: tuple[float, float], wanted: tuple[float, float], line: str | None) -> None:
    assert scaled(*given, *wanted) == line
    if line is not None:
        ends = torch.tensor(given, dtype=torch.float64)
        assert eval(line, {"images": ends}).tolist() == pytest.approx(wanted)


@pytest.mark.parametrize(("count", "enough"), [(40, True), (9, True), (6, True), (4, False), (1, False)])
def test_the_range_that_the_labels_speak_for_is_told(count: int, enough: bool) -> None:
    """Of a network that does not know its range: MNIST's own, with inputs from 0 to 255. Few images are enough where
    hardly any label is met, and nearly all are in another range."""
    first = Linear(torch.eye(784) / 255, torch.full((784,), -0.5))
    nodes = (
        Node(first, (0,)),
        *(Node(node.operation, tuple(place + 1 for place in node.inputs)) for node in MNIST.nodes),
    )
    unknown = Network((784,), nodes, name="unknown")
    images, labels = BUNDLED.images[:count], BUNDLED.labels
    assert labels is not None
    messages = warned(lambda: relucert.certify(unknown, images, labels[:count], method="interval"))
    assert len(messages) == enough
    for message in messages:
        assert "with pixels from 0 to 255: scale them first, as in images * 255 + 127.5 (--pixels 0 255)" in message
    assert warned(lambda: relucert.certify(unknown, images * 255 + 127.5, labels[:count], method="interval")) == []
