"""Stated properties in place of classes: the same search, for networks that give values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import relucert
from relucert import Property, Query
from relucert.api.best import BEST
from relucert.checker.check import check
from relucert.errors import InputError, StoreError
from relucert.methods.table import METHODS
from relucert.network import Linear, Network, Node
from tests.nets import NORMS, centres, mlp

CONTROLLER = mlp(3, 8, 6, 1, seed=5)
STATES = centres(CONTROLLER, 3, seed=2)
COMMANDS = CONTROLLER.cast(torch.float64)(STATES.double())
CLASSIFIER = mlp(4, 8, 3, seed=3)
IMAGES = centres(CLASSIFIER, 3, seed=1)
LABELS = CLASSIFIER.cast(torch.float64)(IMAGES.double()).argmax(1)
OTHERS = torch.tensor([[rival for rival in range(3) if rival != label] for label in LABELS.tolist()])
CALLS: dict[str, Callable[..., Any]] = {
    "certify": partial(relucert.certify, method="crown"),
    "best": partial(relucert.certify, method="best", budget=2),
    "robust_at": partial(relucert.robust_at, radius=0.05),
    "exact": partial(relucert.exact, time_limit=5),
    "attack": partial(relucert.attack, steps=20),
    "estimate": partial(relucert.estimate, batches=10, samples=10),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", METHODS)
def test_within_a_certified_radius_the_value_stays(method: Any, norm: float) -> None:
    if method in ("lp", "lp-full") and norm not in (1, 2, float("inf")):
        return
    found = relucert.certify(
        CONTROLLER, STATES, property=Property.outputs_near(COMMANDS, 0.1), norm=norm, method=method, tolerance=0.01
    )
    generator = torch.Generator().manual_seed(0)
    for answer in found:
        assert (answer.label, answer.target) == (None, None)
        assert answer.radius is not None
        assert answer.row in (0, 1)
        way = torch.randn(2000, 3, generator=generator, dtype=torch.float64)
        way *= answer.radius / way.norm(p=norm, dim=1, keepdim=True)
        moved = CONTROLLER.cast(torch.float64)(STATES[answer.image].double() + way)
        assert bool(((moved - COMMANDS[answer.image]).abs() < 0.1).all())


def test_classes_are_one_such_property() -> None:
    stated = Property.margins(LABELS, OTHERS, 3)
    for method in (*METHODS, BEST):
        effort = {"budget": 0.1} if method == BEST else {"tolerance": 0.01}
        options: dict[str, Any] = {"method": method, "norm": "2", **effort}
        by_class = relucert.certify(CLASSIFIER, IMAGES, LABELS, **options)
        by_property = relucert.certify(CLASSIFIER, IMAGES, property=stated, **options)
        for expected, answer in zip(by_class, by_property, strict=True):
            if method != BEST:  # which has as much time as it has
                assert answer.radius == expected.radius
            assert answer.row is not None
            assert int(OTHERS[answer.image, answer.row]) == expected.target or method == BEST


def test_estimates_for_classes_are_those_for_their_property() -> None:
    options: dict[str, Any] = {"norm": "2", "batches": 20, "samples": 20}
    by_class = relucert.estimate(CLASSIFIER, IMAGES, LABELS, **options)
    by_property = relucert.estimate(CLASSIFIER, IMAGES, property=Property.margins(LABELS, OTHERS, 3), **options)
    for expected, answer in zip(by_class, by_property, strict=True):
        assert answer.value == expected.value
        assert answer.row is not None
        assert int(OTHERS[answer.image, answer.row]) == expected.target


def test_all_calls_agree_about_a_property() -> None:
    stated = Property.outputs_near(COMMANDS, 0.1)
    certified = relucert.certify(CONTROLLER, STATES, property=stated, method="crown")
    intervals = relucert.exact(CONTROLLER, STATES, property=stated)
    attacks = relucert.attack(CONTROLLER, STATES, property=stated)
    estimates = relucert.estimate(CONTROLLER, STATES, property=stated, batches=5, samples=20)
    compared = relucert.compare(CONTROLLER, STATES, property=stated, methods=["crown", "exact"]).questions
    for question, estimate, certificate, interval, attack in zip(
        compared, estimates, certified, intervals, attacks, strict=True
    ):
        assert question.answers["crown"].radius == certificate.radius
        assert question.answers["exact"].lower <= interval.upper
        assert (estimate.label, estimate.target) == (None, None)
        assert estimate.row in (0, 1)
        assert certificate.radius is not None
        assert interval.lower is not None
        assert interval.upper is not None
        assert attack.distance is not None
        assert interval.closed
        assert certificate.radius <= interval.upper * (1 + 1e-9)
        assert interval.lower <= attack.distance
        assert (interval.label, interval.target, attack.predicted) == (None, None, None)
        assert interval.row in (0, 1)
        assert interval.witness is not None
        value = float(CONTROLLER.cast(torch.float64)(interval.witness.double()[None]))
        assert abs(value - float(COMMANDS[interval.image])) >= 0.1 - 1e-12
        for radius, status in ((0.99 * interval.lower, "holds"), (1.01 * interval.upper, "violated")):
            one = Property.outputs_near(COMMANDS[interval.image][None], 0.1)
            image = STATES[interval.image][None]
            (verdict,) = relucert.robust_at(CONTROLLER, image, property=one, radius=radius)
            assert verdict.status == status
            low, high = float(-one.offsets[0, 0]), float(one.offsets[0, 1])
            query = Query.outputs_within(low, high, around=image[0], radius=radius)
            assert relucert.verify(CONTROLLER, query).status == status


@pytest.mark.parametrize("name", CALLS)
def test_a_property_that_fails_at_the_image_itself(name: str) -> None:
    low = COMMANDS.max() + 1
    for answer in CALLS[name](CONTROLLER, STATES, property=Property.outputs_within(low, low + 1)):
        assert "the property is violated at the image itself" in answer.reason
        assert getattr(answer, "radius", None) in (None, 0.05)
        if name in ("exact", "attack"):
            assert getattr(answer, "upper", getattr(answer, "distance", None)) == 0
        if name == "robust_at":
            assert (answer.status, answer.clean) == ("violated", False)


def test_violations_in_floating_point_are_exact() -> None:
    """Of a row with several terms float64 may have the wrong sign; equality, as it has here, is a violation."""
    identity = Network((3,), (Node(Linear(torch.eye(3), torch.zeros(3)), (0,)),))
    for smallest, violated in ((2.0**-54, False), (0.0, True), (-(2.0**-54), True)):
        rows = torch.tensor([[[1.0, smallest, -1.0]]], dtype=torch.float64)
        stated = Property(rows, torch.zeros(1, 1, dtype=torch.float64))
        assert stated.fails_at(torch.ones(3)) == violated
        asked: dict[str, Any] = {"property": stated, "inference": "float32"}
        (verdict,) = relucert.robust_at(identity, torch.ones(1, 3), radius=0, time_limit=5, **asked)
        assert (verdict.status == "violated") == violated
        (nearest,) = relucert.attack(identity, torch.ones(1, 3), steps=5, **asked)
        assert (nearest.distance == 0) == violated
        for answer in (verdict, nearest, *relucert.robust_at(identity, torch.ones(1, 3), radius=0, property=stated)):
            assert "rival" not in (answer.reason or "")
            assert "label" not in (answer.reason or "")
    assert not stated.fails_at(torch.full((3,), torch.nan))


def test_answers_about_a_property_are_shown_and_kept(tmp_path: Path) -> None:
    stated, store = Property.outputs_near(COMMANDS, 0.1), tmp_path / "answers"
    found = relucert.certify(CONTROLLER, STATES, property=stated, store=store)
    assert [one.radius for one in relucert.certify(CONTROLLER, STATES, property=stated, store=store)] == found.radii
    assert "None" not in found._repr_html_()
    assert found.accuracy_at(min(radius for radius in found.radii if radius is not None)) == 1
    with pytest.raises(StoreError, match="property"):
        relucert.certify(CONTROLLER, STATES, property=Property.outputs_near(COMMANDS, 0.2), store=store)


def test_its_proofs_check(tmp_path: Path) -> None:
    stated = Property.outputs_near(COMMANDS, 0.1)
    found = relucert.certify(CONTROLLER, STATES, property=stated, method="alpha", proofs=tmp_path)
    for answer in found:
        claim = check(tmp_path / f"image-{answer.image}.json.gz", CONTROLLER)
        assert claim.radius == answer.radius
        assert "2 linear forms on the outputs stay positive" in str(claim)


def test_one_image_and_several_offsets_have_a_proof_each(tmp_path: Path) -> None:
    states, sizes = STATES[:1].double().repeat(2, 1), torch.tensor([[1.5], [3.0]])
    stated = Property.outputs_within(COMMANDS[:1] - sizes, COMMANDS[:1] + sizes)
    methods: tuple[Any, ...] = ("alpha", "lp", "sdp")
    for method in methods:
        found = relucert.certify(CONTROLLER, states, property=stated, norm="2", method=method, proofs=tmp_path)
        for answer in found:
            assert check(tmp_path / f"image-{answer.image}.json.gz", CONTROLLER).radius == answer.radius, method


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"labels": [0, 0, 0], "property": Property.outputs_within(-1, 1)}, "takes the place of labels and targets"),
        ({"target": 0, "property": Property.outputs_within(-1, 1)}, "takes the place of labels and targets"),
        ({"property": 3}, "a property is a relucert.Property"),
        ({"property": Property.outputs_within([-1, -1], 1)}, "about 2 outputs, the network has 1"),
        ({"property": Property.outputs_within(torch.zeros(2, 1), 1)}, "or one per image, 3 in all, not 2"),
        ({}, "property=relucert.Property.outputs_within"),
    ],
)
def test_refusals(call: Callable[..., Any], options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        call(CONTROLLER, STATES, **options)


@pytest.mark.parametrize(
    ("low", "high", "named"),
    [
        (1, 0, "must be below"),
        ([0, 0], [1, 1, 1], "as many numbers"),
        ([[[0]]], 1, "numbers, \\(outputs,\\)"),
        (-torch.inf, torch.inf, "nothing to prove"),
        (torch.tensor([[0.0], [-torch.inf]]), 1, "at all images, or at none"),
    ],
)
def test_ends_of_outputs(low: Any, high: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        Property.outputs_within(low, high)


def test_one_end_is_enough() -> None:
    stated = Property.outputs_within([0.0, -torch.inf], [torch.inf, 2.0])
    assert stated.rows.tolist() == [[[1, 0], [0, -1]]]
    assert stated.offsets.tolist() == [[0, 2]]


def test_queries_about_outputs() -> None:
    inside = Query.outputs_within(-1, 1, box=([0, 0, 0], [1, 1, 1]))
    assert (inside.inputs, inside.outputs, len(inside.violations)) == (3, 1, 2)
    assert all(
        constraint.strict for each in inside.violations for constraint in each.constraints
    )  # the ends themselves are allowed
    cut = Query.outputs_within(-1, 1, around=[0, 0.5, 1], radius=0.25, box=(0, 1))
    assert [float(end) for end in cut.violations[0].low] == [0, 0.25, 0.75]
    assert [float(end) for end in cut.violations[0].high] == [0.25, 0.75, 1]
    for options, named in (
        ({}, "give box"), ({"around": [0]}, "needs both"), ({"radius": 1}, "needs both"),
        ({"around": [0], "radius": -1}, "not negative"),
        ({"around": [0, 1, 2], "radius": 1, "box": ([0, 0], 1)}, "ends"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=named):
            Query.outputs_within(-1, 1, **options)


def test_a_property_without_rows_is_refused() -> None:
    nothing = relucert.Property(torch.zeros(1, 0, 2), torch.zeros(1, 0))
    network, image = relucert.load(torch.nn.Linear(3, 2), input_shape=(3,)), torch.zeros(1, 3)
    for ask in (
        lambda: relucert.robust_at(network, image, radius=0.1, property=nothing),
        lambda: relucert.certify(network, image, property=nothing),
    ):
        with pytest.raises(InputError, match="no rows"):
            ask()


def test_ends_of_outputs_are_numbers_that_float64_has() -> None:
    with pytest.raises(InputError, match="gaps"):
        relucert.Property.outputs_within([2**53 + 1], [2**54])


def test_an_input_outside_its_box_is_no_empty_region() -> None:
    with pytest.raises(InputError, match="outside the box"):
        relucert.Query.outputs_within([100], [101], around=[200.0, 100, 50], radius="8/255", box=(0, 1))
