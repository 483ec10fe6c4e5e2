"""One target per image, in every call that has targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert.errors import InputError
from tests.nets import centres, mlp

NETWORK = mlp(6, 10, 5, seed=2)
IMAGES = centres(NETWORK, 6, seed=3)
LABELS = NETWORK.cast(torch.float64)(IMAGES).argmax(1)
TARGETS = ((LABELS + torch.tensor([1, 2, 3, 4, 1, 2])) % 5).tolist()


@pytest.mark.parametrize(
    "convert",
    [list, tuple, np.array, torch.tensor, lambda targets: torch.tensor(targets, dtype=torch.uint8), np.uint16],
)
def test_each_image_has_its_own(convert: Callable[[list[int]], Any]) -> None:
    each = {(answer.image, answer.target): answer.radius for answer in relucert.certify(NETWORK, IMAGES, target="all")}
    answers = relucert.certify(NETWORK, IMAGES, target=convert(TARGETS))
    assert [answer.target for answer in answers] == TARGETS
    for answer in answers:
        assert answer.radius == pytest.approx(each[answer.image, answer.target], rel=2e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda **options: relucert.attack(NETWORK, IMAGES, LABELS, steps=10, **options),
        lambda **options: relucert.exact(NETWORK, IMAGES, LABELS, time_limit=5, **options),
        lambda **options: relucert.estimate(NETWORK, IMAGES, LABELS, batches=3, samples=4, **options),
    ],
)
def test_every_call_takes_them(call: Callable[..., Any]) -> None:
    assert [answer.target for answer in call(target=torch.tensor(TARGETS))] == TARGETS


def test_methods_are_compared_about_the_same_targets() -> None:
    compared = relucert.compare(NETWORK, IMAGES, LABELS, methods=["fast-lin", "attack"], target=TARGETS, steps=10)
    assert len(compared.questions) == 6
    for question in compared.questions:
        assert {answer.target for answer in question.answers.values()} == {TARGETS[question.image]}


def test_one_target_for_one_image_and_one_for_all() -> None:
    one = torch.tensor([TARGETS[0]])
    assert [answer.target for answer in relucert.certify(NETWORK, IMAGES[:1], target=one)] == one.tolist()
    everywhere = relucert.certify(NETWORK, IMAGES, LABELS, target=torch.tensor(TARGETS[0]))
    assert {answer.target for answer in everywhere} <= {TARGETS[0], None}


def test_misclassified_images_are_said_to_be() -> None:
    wrong = (LABELS + 1) % 5
    answers = relucert.certify(NETWORK, IMAGES, wrong, target=LABELS)
    assert all("misclassified" in str(answer.reason) for answer in answers)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (TARGETS[:5], "one per image, 6 in all, not 5"),
        ([*TARGETS, 0], "not 7"),
        ([], "whole numbers"),
        ([*TARGETS[:5], int(LABELS[5])], "target of image 5, class ., is its own label"),
        ([*TARGETS[:5], 5], r"target class 5 is not among the network's 5 classes \(0 to 4\)"),
        ([*TARGETS[:5], -1], "target class -1"),
        ([float(target) for target in TARGETS], "whole numbers"),
        ([True] * 6, "not bool"),
        ([TARGETS], r"of shape \(1, 6\)"),
        (["all"] * 6, "not an array of numbers"),
        ([None] * 6, "not an array of numbers"),
        ([[1], [2, 3]], "not an array of numbers"),
        (np.array([np.nan] * 6), "whole numbers"),
        (b"all", "target"),
        ({"class": 1}, "target"),
        (2.5, "target"),
    ],
)
def test_other_targets_are_refused_in_one_line(target: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        relucert.certify(NETWORK, IMAGES, LABELS, target=target)
    assert "\n" not in str(caught.value)
