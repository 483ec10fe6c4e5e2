"""The public call: targets, absence with its reason, bad input, and answers that can't be misread."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert.common.names import ArithmeticName
from relucert.errors import BudgetError, InputError, RelucertError
from relucert.methods.linear import LinearMethod
from relucert.network import Network
from relucert.query.targets import TARGETS
from tests.nets import NORMS, centres, chain, mlp, normalised

NETWORK = mlp(6, 12, 10, 4, seed=9)
IMAGES = centres(NETWORK, 8, seed=1)
LABELS = NETWORK.cast(torch.float64)(IMAGES).argmax(1)


@pytest.mark.parametrize("norm", NORMS)
def test_untargeted_is_the_weakest_rival(norm: float) -> None:
    untargeted = relucert.certify(NETWORK, IMAGES, norm=norm)
    each = relucert.certify(NETWORK, IMAGES, norm=norm, target="all")
    assert [answer.image for answer in each] == [image for image in range(8) for _ in range(3)]
    for answer in untargeted:
        radii = {other.target: other.radius for other in each if other.image == answer.image}
        weakest = min(radii, key=lambda target: radii[target] or 0)
        assert answer.radius == pytest.approx(radii[weakest], rel=2e-4)
        assert radii[answer.target] == pytest.approx(radii[weakest], rel=2e-4)


@cache
def radii_of_all_rivals() -> dict[tuple[int, int | None], float | None]:
    each = relucert.certify(NETWORK, IMAGES, LABELS, target="all")
    return {(answer.image, answer.target): answer.radius for answer in each}


@pytest.mark.parametrize("target", [*TARGETS, "1", 2])
def test_a_target_alone_equals_itself_among_all(target: str | int) -> None:
    by_pair = radii_of_all_rivals()
    for answer in relucert.certify(NETWORK, IMAGES, LABELS, target=target):
        if answer.radius is None:
            assert answer.label == int(target)
            assert "own label" in str(answer.reason)
        else:
            assert answer.radius == pytest.approx(by_pair[answer.image, answer.target], rel=2e-4)


def test_no_sample_within_a_certified_radius_changes_the_decision() -> None:
    generator = torch.Generator().manual_seed(0)
    for norm in NORMS:
        for answer in relucert.certify(NETWORK, IMAGES, norm=norm):
            assert answer.radius is not None
            points = relucert.arithmetic.norm.Norm(norm).sample(IMAGES[answer.image], answer.radius, 2000, generator)
            assert answer.label is not None
            assert (NETWORK.cast(torch.float64)(points).argmax(1) == answer.label).all()


def test_a_misclassified_image_has_no_radius_and_a_reason() -> None:
    wrong = (LABELS + 1) % 4
    mixed = torch.where(torch.arange(8) % 2 == 0, LABELS, wrong)
    for target in ("untargeted", "all"):
        answers = relucert.certify(NETWORK, IMAGES, mixed, target=target)
        for answer in answers:
            if answer.image % 2:
                assert (answer.radius, answer.target, answer.proven) == (None, None, False)
                assert f"class {int(LABELS[answer.image])}" in str(answer.reason)
            else:
                assert answer.proven
                assert answer.reason is None


@pytest.mark.parametrize(
    "convert", [np.asarray, torch.as_tensor, lambda rows: rows.tolist(), lambda rows: rows.float()]
)
def test_images_may_be_arrays_tensors_or_lists(convert: Callable[[Any], Any]) -> None:
    expected = [answer.radius for answer in relucert.certify(NETWORK, IMAGES)]
    radii = [
        answer.radius
        for answer in relucert.certify(
            NETWORK, convert(IMAGES), convert(LABELS.double()).astype(int) if convert is np.asarray else LABELS.tolist()
        )
    ]
    assert radii == pytest.approx(expected, rel=2e-4)


def test_images_may_be_flat_or_shaped() -> None:
    network = normalised()
    rows = centres(network, 3)
    flat = relucert.certify(network, rows)
    shaped = relucert.certify(network, rows.view(3, 2, 2, 3))
    assert [a.radius for a in flat] == [a.radius for a in shaped]


def test_a_small_memory_budget_gives_the_same_radii() -> None:
    whole = relucert.certify(NETWORK, IMAGES)
    pieces = relucert.certify(NETWORK, IMAGES, memory=6000)
    assert [a.radius for a in pieces] == pytest.approx([a.radius for a in whole], rel=1e-4)
    with pytest.raises(BudgetError, match="raise it"):
        relucert.certify(NETWORK, IMAGES, memory=100)


def test_everything_is_checked_before_the_first_answer_is_asked_for() -> None:
    with pytest.raises(InputError):
        relucert.certify_each(NETWORK, IMAGES, method="magic")  # type: ignore[arg-type]


def test_answers_come_one_by_one() -> None:
    stream = relucert.certify_each(NETWORK, IMAGES, memory=6000)
    assert [next(stream).image, next(stream).image] == [0, 1]


@pytest.mark.parametrize("error", [RuntimeError("out of memory\nmore"), IndexError("broke"), MemoryError("full")])
def test_a_breakdown_is_not_a_certificate(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(LinearMethod, "hidden", broken)
    for answer in relucert.certify(NETWORK, IMAGES):
        assert answer.radius is None
        assert str(answer.reason).startswith("not certified: ")
        assert "\n" not in str(answer.reason)
        assert answer.failed
    summary = relucert.certify(NETWORK, IMAGES).summary()
    assert "8 answers failed" in str(summary)
    assert [method.failed for method in summary.methods] == [8]


def test_only_rigorous_answers_are_proven() -> None:
    kinds: list[tuple[ArithmeticName, bool]] = [("rigorous", True), ("float", False)]
    for arithmetic, proven in kinds:
        answer = relucert.certify(NETWORK, IMAGES[:1], arithmetic=arithmetic)[0]
        assert answer.radius is not None
        assert answer.proven is proven
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.radius = 1.0  # type: ignore[misc]


def test_an_answer_becomes_json() -> None:
    answer = relucert.certify(NETWORK, IMAGES[:1])[0]
    row = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert row["radius"] == answer.radius
    assert (row["norm"], row["method"], row["arithmetic"], row["proven"]) == ("inf", "fast-lin", "rigorous", True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": 0.5}, "p >= 1"),
        ({"norm": "max"}, "p >= 1"),
        ({"method": "fastlinear"}, "unknown method 'fastlinear'; known are fast-lin, crown, .*did you mean 'fast-lin'"),
        ({"method": "fast-lip", "shells": 0}, "shells >= 1"),
        ({"shells": 5}, "'fast-lin' has no shells"),
        ({"target": "worst"}, "unknown target"),
        ({"target": 4}, "4 classes"),
        ({"arithmetic": "double"}, "unknown arithmetic"),
        ({"tolerance": 0}, "tolerance"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"tolerance": "x"}, "tolerance"),
        ({"memory": 0}, "memory"),
        ({"memory": "much"}, "a memory budget is a size such as 512M"),
        ({"memory": math.nan}, "memory"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**70}, "seed"),
        ({"method": []}, "unknown method"),
        ({"norm": 10**400}, "p >= 1"),
        ({"norm": True}, "p >= 1"),
        ({"images": IMAGES.to_sparse()}, "dense"),
        ({"images": IMAGES[:0]}, "empty"),
        ({"images": []}, "empty"),
        ({"images": IMAGES[0]}, "one row per image"),
        ({"images": IMAGES[:, :5]}, "shape"),
        ({"images": (IMAGES * 100).int()}, "as floats, as in images / 255 for inputs from 0 to 1"),
        ({"images": torch.cat([IMAGES[:2], IMAGES[:1] * math.nan])}, "image 2 has NaN"),
        ({"images": IMAGES.clone().fill_(math.nan)}, "NaN"),
        ({"images": IMAGES.clone().fill_(math.inf)}, "infinite"),
        ({"images": [["a"] * 6]}, "not an array of numbers"),
        ({"labels": [4] * 8}, "label 4"),
        ({"labels": [-1] * 8}, "label -1"),
        ({"labels": [0] * 7}, "labels must be one per image, 8 in all"),
        ({"labels": [0.5] * 8}, "whole numbers"),
    ],
)
def test_bad_input_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    question: dict[str, Any] = {"images": IMAGES, "labels": LABELS, **change}
    with pytest.raises(RelucertError, match=message) as caught:
        relucert.certify(NETWORK, **question)
    assert "\n" not in str(caught.value)


def test_a_single_output_has_no_rivals() -> None:
    targets: list[str | int] = [*TARGETS, 0]
    for target in targets:
        with pytest.raises(InputError, match="single output"):
            relucert.certify(mlp(6, 5, 1), IMAGES, target=target)


def test_a_numpy_integer_is_a_target() -> None:
    chosen = relucert.certify(NETWORK, IMAGES, target=np.int64(2))
    assert {answer.target for answer in chosen} <= {2, None}


def test_images_that_change_later_do_not_change_the_answers() -> None:
    images = IMAGES.clone()
    expected = [answer.radius for answer in relucert.certify(NETWORK, images)]
    stream = relucert.certify_each(NETWORK, images)
    images.zero_()
    assert [answer.radius for answer in stream] == expected


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        relucert.certify(NETWORK, IMAGES, epsilon=0.1)  # type: ignore[call-arg]


def test_a_network_is_left_as_it_was() -> None:
    before = [tensor.clone() for node in NETWORK.nodes for tensor in node.operation.tensors().values()]
    relucert.certify(NETWORK, IMAGES, target="all")
    after = [tensor for node in NETWORK.nodes for tensor in node.operation.tensors().values()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_constant_margins_are_said_to_be_open_ended() -> None:
    flat = relucert.network.Linear(torch.zeros(2, 3), torch.tensor([1.0, 0.0]))
    network: Network = chain((3,), flat)
    (answer,) = relucert.certify(network, torch.zeros(1, 3))
    assert answer.radius is not None
    assert answer.radius > 1e6
    assert "larger radius" in str(answer.reason)


@pytest.mark.parametrize("norm", NORMS)
def test_bounds_of_images_are_those_of_their_regions(norm: float) -> None:
    region = relucert.Region.around(IMAGES, 0.1, norm, (-9.0, 9.0))
    for given in (IMAGES, IMAGES.numpy()):
        found = relucert.bounds(NETWORK, given, radius=0.1, norm=norm, box=(-9.0, 9.0))
        for interval, expected in zip(found, relucert.bounds(NETWORK, region), strict=True):
            assert torch.equal(interval.lower, expected.lower)
            assert torch.equal(interval.upper, expected.upper)


def test_bounds_are_about_one_region() -> None:
    with pytest.raises(InputError, match="give images and their radius"):
        relucert.bounds(NETWORK, IMAGES)
    with pytest.raises(InputError, match="has its radius and its norm already"):
        relucert.bounds(NETWORK, relucert.Region.around(IMAGES, 0.1, 2), radius=0.1)


@pytest.mark.parametrize("misclassified", [1, 2])
def test_searches_learn_from_the_first_image_that_is_searched(misclassified: int) -> None:
    network = mlp(8, 12, 12, 12, 3, seed=2)
    images = centres(network, 5 + misclassified)
    labels = network.cast(torch.float64)(images).argmax(1)
    labels[:misclassified] = (labels[:misclassified] + 1) % 3
    answers = relucert.certify(network, images, labels)[misclassified:]
    alone = relucert.certify(network, images[misclassified:], labels[misclassified:])
    assert [answer.radius for answer in answers] == [answer.radius for answer in alone]
    assert [answer.evaluations for answer in answers] == [answer.evaluations for answer in alone]
