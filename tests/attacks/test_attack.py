"""Attacks: every answer is what it says it is, whatever method, norm, target and network."""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert.arithmetic.norm import Norm
from relucert.attacks.methods import ATTACKS, find_attacks
from relucert.attacks.objective import AttackObjective
from relucert.common.names import AttackName
from relucert.errors import BudgetError, InputError
from relucert.network import Linear, Network, Relu
from relucert.query.targets import TARGETS
from tests.method_tables import LINEAR, LIPSCHITZ
from tests.nets import NETWORKS, NORMS, centres, chain, mlp
from tests.rational import evaluate, exact

NETWORK = mlp(6, 12, 10, 4, seed=9)
IMAGES = centres(NETWORK, 4, seed=1).clamp(-2, 2).float()
BOX = (-2.0, 2.0)
FEW: dict[str, Any] = {"steps": 30, "box": BOX}
BOTH_BOXES = [BOX, None]
PAIRS = [
    (method, norm)
    for method, norm in itertools.product(ATTACKS, (1.0, 2.0, math.inf))
    if Norm(norm) in ATTACKS[method] or None in ATTACKS[method]
]


def check(network: Network, images: torch.Tensor, answer: relucert.UpperBound) -> None:
    """What must hold of every answer, by other means than the library's own."""
    if answer.distance is None:
        assert answer.witness is None
        assert answer.predicted is None
        assert answer.reason
        return
    assert answer.witness is not None
    image = images[answer.image].double().numpy().ravel()
    witness = answer.witness.double().numpy()
    assert witness.shape == network.input_shape
    length = np.linalg.norm(witness.ravel() - image, ord=answer.norm)
    assert length * (1 - 1e-12) <= answer.distance <= length * (1 + 1e-9) + 1e-100
    if answer.box is not None:
        assert witness.min() >= answer.box[0]
        assert witness.max() <= answer.box[1]
    scores = network.cast(answer.witness.dtype)(answer.witness[None])[0]
    assert int(scores.argmax()) == answer.predicted
    assert answer.target is not None
    assert float(scores[answer.label] - scores[answer.target]) <= 0


@pytest.mark.parametrize(("method", "norm"), PAIRS)
@pytest.mark.parametrize("box", BOTH_BOXES, ids=str)
@pytest.mark.sampled
def test_every_method_finds_what_it_says(method: AttackName, norm: float, box: Any) -> None:
    for target in ("untargeted", "least-likely"):
        answers = relucert.attack(NETWORK, IMAGES, norm=norm, method=method, target=target, steps=60, box=box)
        assert [answer.image for answer in answers] == [0, 1, 2, 3]
        for answer in answers:
            assert (answer.method, answer.norm, answer.box) == (method, norm, box)
            check(NETWORK, IMAGES, answer)
        if target == "untargeted":  # not every method can force the least likely class in so few steps
            assert sum(answer.distance is not None for answer in answers) >= 3


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_no_witness_is_inside_a_certified_radius(name: str) -> None:
    """For every norm and every method that takes them all, with the box and without, and several targets in turn."""
    network = NETWORKS[name]()
    images = centres(network, 3).clamp(-2, 2)
    targets: Iterator[str | int] = itertools.cycle(("untargeted", "runner-up", "all", 1))
    compared = dict.fromkeys([*LINEAR, *LIPSCHITZ], 0)
    for norm, target, box in zip(NORMS, targets, itertools.cycle(BOTH_BOXES), strict=False):
        answers = relucert.attack(network, images, norm=norm, target=target, box=box, steps=30)
        for answer in answers:
            check(network, images, answer)
        for method in compared:
            certificates = relucert.certify(network, images, norm=norm, target=target, method=method, tolerance=0.01)
            for certificate, answer in zip(certificates, answers, strict=True):
                assert (certificate.image, certificate.label) == (answer.image, answer.label)
                if certificate.radius is not None and answer.distance is not None:
                    assert answer.distance > certificate.radius
                    compared[method] += 1
    assert min(compared.values()) >= 3


def test_a_linear_network_is_answered_exactly() -> None:
    """There, Fast-Lin's radius is the distance itself."""
    network = mlp(6, 4)
    for norm in (1, 2, math.inf):
        proven = relucert.certify(network, IMAGES, norm=norm, tolerance=1e-7)
        for certificate, answer in zip(proven, relucert.attack(network, IMAGES, norm=norm, box=None), strict=True):
            assert certificate.radius is not None
            assert answer.distance == pytest.approx(certificate.radius, rel=1e-4)
            assert answer.target == certificate.target


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_a_witness_overtakes_in_rational_arithmetic(norm: float) -> None:
    for answer in relucert.attack(NETWORK, IMAGES, norm=norm, **FEW):
        assert answer.witness is not None
        assert answer.target is not None
        scores = evaluate(NETWORK, exact(answer.witness))
        assert answer.label is not None
        assert scores[answer.target] >= scores[answer.label]


def test_the_witness_holds_in_the_networks_own_precision() -> None:
    half, single, double = torch.float16, torch.float32, torch.float64
    for dtype, expected in ((half, single), (single, single), (double, double)):
        network = mlp(6, 10, 8, 4, seed=3, dtype=dtype)
        for answer in relucert.attack(network, IMAGES, **FEW):
            assert answer.witness is not None
            assert answer.witness.dtype is expected
            check(network, IMAGES, answer)


def test_a_box_that_float32_does_not_have_is_kept_exactly() -> None:
    box = (-0.1, 0.7)
    images = centres(NETWORK, 4).clamp(*box)
    for answer in relucert.attack(NETWORK, images, norm=1, target="least-likely", steps=60, box=box):
        check(NETWORK, images, answer)


def test_all_rivals_and_the_untargeted_nearest_of_them() -> None:
    each = relucert.attack(NETWORK, IMAGES, target="all", **FEW)
    assert [answer.image for answer in each] == [image for image in range(4) for _ in range(3)]
    for answer in relucert.attack(NETWORK, IMAGES, **FEW):
        distances = [other.distance for other in each if other.image == answer.image and other.distance is not None]
        assert answer.distance == pytest.approx(min(distances), rel=0.05)
        check(NETWORK, IMAGES, answer)


@pytest.mark.parametrize(("method", "norm"), PAIRS)
@pytest.mark.parametrize("target", ["runner-up", "random"])
@pytest.mark.sampled
def test_the_same_seed_gives_the_same_answers(method: str, norm: float, target: str) -> None:
    options: dict[str, Any] = {"method": method, "norm": norm, "target": target, "polish": False, **FEW}

    def distances(images: torch.Tensor, seed: int) -> list[float | None]:
        return [answer.distance for answer in relucert.attack(NETWORK, images, seed=seed, **options)]

    assert distances(IMAGES, 3) == distances(IMAGES, 3)
    if target == "runner-up" and method in ("best", "pgd"):  # those with random starts
        assert distances(IMAGES, 3) != distances(IMAGES, 4)


@pytest.mark.parametrize(("method", "norm"), PAIRS)
@pytest.mark.sampled
def test_a_batch_equals_its_images_one_by_one(method: str, norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the rounding of products, which depends on the batch: in float64, where it hardly ever decides."""
    network = NETWORK.cast(torch.float64)
    options: dict[str, Any] = {"method": method, "norm": norm, "target": "runner-up", "polish": False, **FEW}
    labels = NETWORK(IMAGES).argmax(1)
    whole = relucert.attack(network, IMAGES, labels, **options)
    monkeypatch.setattr("relucert.api.attack.attack_size", lambda *_: 1)
    apart = relucert.attack(network, IMAGES, labels, **options)
    for one, other in zip(whole, apart, strict=True):
        assert (one.distance is None) == (other.distance is None)
        if other.distance is not None:
            assert one.distance == pytest.approx(other.distance, rel=1e-3)


def test_polish_never_lengthens() -> None:
    for norm, target in itertools.product((1, 1.5, 2, math.inf), ("untargeted", "least-likely")):
        rough = relucert.attack(NETWORK, IMAGES, norm=norm, target=target, method="pgd", polish=False, **FEW)
        fine = relucert.attack(NETWORK, IMAGES, norm=norm, target=target, method="pgd", **FEW)
        for before, after in zip(rough, fine, strict=True):
            if before.distance is not None:
                assert after.distance is not None
                assert after.distance <= before.distance


def test_a_misclassified_image_is_its_own_witness() -> None:
    labels = (NETWORK(IMAGES).argmax(1) + 1) % 4
    targets: list[str | int] = [*TARGETS, 2]
    for target in targets:
        for answer in relucert.attack(NETWORK, IMAGES, labels, target=target, **FEW):
            assert answer.distance == 0.0
            assert answer.witness is not None
            assert torch.equal(answer.witness.double(), IMAGES[answer.image].double())
            assert "misclassified" in str(answer.reason)
            assert answer.predicted != answer.label


def test_a_rival_that_is_level_is_overtaken_nearby() -> None:
    """A tie can't be proven within rounding error, so the image is no witness of its own."""
    weight, bias = torch.tensor([[1.0, 0], [1, 1e-3], [0, 1]]), torch.tensor([0, -5e-4, 0])
    tied, apart = relucert.attack(
        chain((2,), Linear(weight, bias)), torch.tensor([[1.0, 0.5]]), [0], target="all", box=None
    )
    assert tied.target == 1
    assert tied.distance is not None
    assert 0 < tied.distance < 1e-3
    assert apart.distance == pytest.approx(0.25, rel=1e-4)


def test_a_wrong_class_that_only_rounding_shows_is_no_witness() -> None:
    """In real arithmetic the scores are 0.4 and 0.125; in any floating point the first is 0."""
    far = float(2**70)
    lift = Linear(torch.tensor([[1.0]]), torch.tensor([far]))
    back = Linear(torch.tensor([[1.0], [0.0]]), torch.tensor([-far, 0.125]))
    (answer,) = relucert.attack(chain((1,), lift, Relu(), back), torch.tensor([[0.4]]), [0])
    assert (answer.distance, answer.witness) == (None, None)
    assert "rounding error" in str(answer.reason)


def test_what_can_not_be_found_is_none() -> None:
    """A network whose decision never changes, and one that changes only outside of the box."""
    constant = chain((3,), Linear(torch.zeros(2, 3), torch.tensor([1.0, 0.0])))
    far = chain((1,), Linear(torch.tensor([[0.0], [1.0]]), torch.tensor([1.0, 0.0])))
    dead = chain(
        (2,), Linear(torch.eye(2), torch.full((2,), -9.0)), Relu(), Linear(torch.eye(2), torch.tensor([1.0, 0]))
    )
    for network, method in itertools.product((constant, far, dead), ATTACKS):
        for norm in [p for name, p in PAIRS if name == method]:
            (answer,) = relucert.attack(
                network, torch.zeros(1, *network.input_shape), norm=norm, method=method, steps=20, box=(-0.5, 0.5)
            )
            assert (answer.distance, answer.witness, answer.predicted) == (None, None, None)
            assert "no attack found" in str(answer.reason)


def test_the_label_itself_is_refused_as_target() -> None:
    labels = NETWORK(IMAGES).argmax(1)
    for answer in relucert.attack(NETWORK, IMAGES, labels, target=int(labels[0]), **FEW):
        if answer.label == int(labels[0]):
            assert answer.distance is answer.target is None
            assert "own label" in str(answer.reason)


def test_a_time_limit_keeps_what_was_found() -> None:
    answers = relucert.attack(NETWORK, IMAGES, steps=10**6, time_limit=3.0, box=BOX)
    assert len(answers) == 4
    for answer in answers:
        check(NETWORK, IMAGES, answer)
        assert answer.distance is not None
        assert "time limit" in str(answer.reason)
    for answer in relucert.attack(NETWORK, IMAGES, time_limit=0.0, box=BOX):
        assert answer.distance is None
        assert "time limit" in str(answer.reason)


def test_an_attack_that_breaks_down_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
        raise RuntimeError("no luck\ntoday")

    attacks = find_attacks("fmn", Norm(2.0))
    monkeypatch.setitem(ATTACKS, "fmn", {None: (broken, *attacks)})
    for answer in relucert.attack(NETWORK, IMAGES, method="fmn", **FEW):
        assert answer.distance is None
        assert answer.reason == "the attack broke down: RuntimeError: no luck today"
    monkeypatch.setitem(ATTACKS, "fmn", {None: (*attacks, broken)})
    for answer in relucert.attack(NETWORK, IMAGES, method="fmn", **FEW):
        check(NETWORK, IMAGES, answer)
        assert answer.distance is not None
        assert "no luck today" in str(answer.reason)


def test_what_an_attack_claims_wrongly_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a point where nothing changes nor one outside the box passes the re-check."""

    def lying(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
        objective.points = objective.centres + 1e-6
        objective.distances = torch.full((len(objective.points),), 1e-6)

    def escaping(objective: AttackObjective, steps: int, generators: list[torch.Generator]) -> None:
        objective.points = objective.centres * torch.nan
        objective.distances = torch.ones(len(objective.points))

    for liar in (lying, escaping):
        monkeypatch.setitem(ATTACKS, "fmn", {None: (liar,)})
        for answer in relucert.attack(NETWORK, IMAGES, method="fmn", **FEW):
            assert (answer.distance, answer.witness) == (None, None)


def test_progress_counts_up_to_its_total() -> None:
    seen: list[relucert.Progress] = []
    relucert.attack(NETWORK, IMAGES, progress=seen.append, **FEW)
    assert (seen[-1].done, seen[-1].total) == (4, 4)
    assert {state.part for state in seen if state.stage == "attack"} == {"1 of 3", "2 of 3", "3 of 3"}
    assert max(state.step or 0 for state in seen) >= 20
    assert [state.image for state in seen if state.stage == "polish"] == [0, 1, 2, 3]


def test_the_network_and_the_images_are_left_alone() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)).train()
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    images = IMAGES.clone()
    relucert.attack(relucert.load(module, input_shape=(6,)), images, **FEW)
    assert torch.equal(images, IMAGES)
    assert module.training
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_an_answer_is_frozen_plain_and_no_certificate() -> None:
    (answer,) = relucert.attack(NETWORK, IMAGES[:1], **FEW)
    row = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert (row["norm"], row["method"], row["box"], row["distance"]) == ("inf", "best", [-2, 2], answer.distance)
    assert "witness" not in row
    assert not isinstance(answer, relucert.Certificate)
    assert not hasattr(answer, "proven")
    with pytest.raises(dataclasses.FrozenInstanceError):
        answer.distance = 0.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'; known are best"),
        ({"method": "cw", "norm": 1}, "'cw' is for p = 2 or inf; with p = 1 use one of best, fmn, pgd, ead"),
        ({"method": "ead", "norm": 2}, "'ead' is for p = 1"),
        ({"method": "ddn", "norm": "inf"}, "'ddn' is for p = 2"),
        ({"method": "cw", "norm": 1.5}, "with p = 1.5 use one of best, fmn, pgd"),
        ({"norm": 0.5}, "p >= 1"),
        ({"target": "worst"}, "unknown target"),
        ({"box": (1.0, 0.0)}, "a box"),
        ({"box": (0.0, math.inf)}, "a box"),
        ({"box": 3}, "a box"),
        ({"box": (-0.5, 0.5)}, r"image 0 has pixels outside the box .* box=\(low, high\) .* box=None"),
        ({"steps": 0}, "steps must be"),
        ({"steps": 2.5}, "steps must be"),
        ({"time_limit": -1}, "time limit must be"),
        ({"time_limit": math.nan}, "time limit must be"),
        ({"polish": 1}, "polish is True or False"),
        ({"seed": -1}, "seed must be"),
        ({"images": IMAGES[:0]}, "empty"),
        ({"images": IMAGES * math.nan}, "NaN"),
        ({"labels": [9] * 4}, "label 9"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        relucert.attack(NETWORK, **{"images": IMAGES, **FEW, **change})


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(BudgetError, match="for its attack"):
        relucert.attack(NETWORK, IMAGES, memory=10, **FEW)
    with pytest.raises(TypeError):
        relucert.attack(NETWORK, IMAGES, stepz=3)  # type: ignore[call-arg]
