"""Comparisons: the library's own answers, side by side; slow and unsuitable methods are left out and said to be."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import relucert
from relucert.answers.certificates import Answer
from relucert.arithmetic.norm import Norm
from relucert.errors import InputError
from relucert.experiments.comparison.compare import ComparisonRun, neurons
from relucert.experiments.comparison.methods import Contender, Entry, Setting, find_contenders
from relucert.inputs.loading.runtime import Loaded
from relucert.methods.table import METHODS
from relucert.query.targets import TARGETS
from relucert.query.types import NetworkLike
from relucert.report.reading import AnswerKind
from tests.experiments.comparison.answers import certified, exact
from tests.method_tables import PROGRAMS
from tests.nets import NETWORKS, centres, mlp, rectified_input

QUICK: list[Any] = [contender.name for contender in find_contenders(None) if contender.name != "exact"]
FEW: dict[str, Any] = {"box": None, "steps": 5, "batches": 2, "samples": 16}


@pytest.mark.parametrize(
    ("norm", "target"),
    list(zip(itertools.cycle(["inf", "2", "1"]), [*TARGETS, 1], strict=False)),
)
@pytest.mark.sampled
def test_every_answer_is_the_library_s_own(norm: str, target: str | int) -> None:
    network = mlp(5, 6, 4, 3, seed=1)
    images = centres(network, 1)
    compared = relucert.compare(network, images, methods=QUICK, norm=norm, target=target, seed=5, **FEW)
    assert compared.skipped == {}
    for method in METHODS:
        alone = relucert.certify(network, images, norm=norm, target=target, method=method, seed=5)
        answers = [question.answers[method] for question in compared.questions]
        assert [answer.radius for answer in answers] == [answer.radius for answer in alone]
        assert [answer.target for answer in answers] == [answer.target for answer in alone]
    attacks = relucert.attack(network, images, norm=norm, target=target, seed=5, box=None, steps=5)
    answers = [question.answers["attack"] for question in compared.questions]
    assert [answer.distance for answer in answers] == [answer.distance for answer in attacks]
    estimates = relucert.estimate(network, images, norm=norm, target=target, seed=5, batches=2, samples=16)
    answers = [question.answers["clever"] for question in compared.questions]
    assert [answer.sampled for answer in answers] == [answer.sampled for answer in estimates]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_the_order_holds_on_every_shape(name: str) -> None:
    network = NETWORKS[name]()
    compared = relucert.compare(network, centres(network, 1), methods=QUICK, norm="2", **FEW)
    assert len(compared.questions) == 1


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.sampled
def test_exact_stands_between_the_others(norm: str) -> None:
    network = mlp(4, 5, 3)
    compared = relucert.compare(network, centres(network, 1), norm=norm, budget=5.0, **FEW)
    assert compared.skipped == {}
    for question in compared.questions:
        interval = question.answers["exact"]
        assert interval.lower is not None
        assert question.answers["fast-lin"].radius <= interval.upper <= question.answers["attack"].distance * 1.01


def test_methods_that_do_not_suit_are_told() -> None:
    network = mlp(6, 10, 4)
    compared = relucert.compare(network, centres(network, 2), norm=3, **FEW)
    assert set(compared.skipped) == {*PROGRAMS, "exact"}
    assert all("skipped: " in reason for reason in compared.skipped.values())
    assert "fast-lin" in compared.questions[0].answers
    with pytest.raises(InputError, match="lp"):
        relucert.compare(network, centres(network, 2), norm=3, methods=["lp"], **FEW)


def _slow(before: float, after: float) -> Contender:
    """Answers the first image after one time, all others after another."""

    def ask(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
        for image in range(len(images)):
            ends = time.monotonic() + (after if image else before)
            while time.monotonic() < ends:
                with suppress(Exception):  # as a solver that falls back whatever happens
                    time.sleep(0.01)
            yield certified("slow", 1e-6, image).answer

    return Contender("slow", AnswerKind.CERTIFIED, ask)


def _compared(contender: Contender, budget: float) -> tuple[ComparisonRun, list[Entry]]:
    network = mlp(6, 10, 4)
    setting = Setting(Norm(2.0), box=None, budget=budget)
    comparison = ComparisonRun(
        Loaded(network, network), centres(network, 4), None, [contender, *find_contenders(["op-norm"])], setting
    )
    return comparison, [entry for entry in comparison.run() if entry.method == "slow"]


def test_a_method_too_slow_for_its_first_image_is_skipped() -> None:
    comparison, entries = _compared(_slow(60.0, 0.0), 0.5)
    assert entries == []
    assert comparison.skipped == {"slow": "skipped: the first image took more than the budget of 0.5 s"}
    assert len(comparison.answer_record.entries) == 4


def test_a_method_that_becomes_slow_keeps_what_it_has() -> None:
    comparison, entries = _compared(_slow(0.0, 60.0), 0.2)
    assert len(entries) == 1
    assert comparison.skipped["slow"].startswith("stopped: ")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([(0.1, 0.2, False), (0.1, 0.1, True)], 1),
        ([(0.0, 0.0, True), (0.1, None, False), (0.1, 0.1, True)], 2),
        ([(0.1, 0.1, True), (0.1, 0.2, False), (0.1, 0.1, True)], 3),
    ],
)
def test_exact_goes_on_only_where_it_closes(ends: list[tuple[float, float | None, bool]], expected: int) -> None:
    def ask(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
        for image, interval in enumerate(ends):
            yield exact(*interval, image=image).answer

    network = mlp(6, 10, 4)
    contender = Contender("exact", AnswerKind.EXACT, ask, patient=True)
    comparison = ComparisonRun(
        Loaded(network, network), centres(network, len(ends)), None, [contender], Setting(Norm(2.0), box=None)
    )
    assert len(list(comparison.run())) == expected
    assert ("exact" in comparison.skipped) == (expected < len(ends))


def test_a_slow_method_is_skipped_in_any_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        comparison, entries = pool.submit(_compared, _slow(60.0, 0.0), 0.5).result()
    assert entries == []
    assert "slow" in comparison.skipped


def _failing(spoilt: bool) -> Contender:
    """Marks its first answer as failed, and then goes on, or breaks down outside of any answer."""

    def ask(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
        if not spoilt:
            raise IndexError("nowhere\nat all")
        for image in range(len(images)):
            answer = certified("slow", None if image == 0 else 1e-6, image).answer
            yield replace(answer, failed=image == 0, reason="not certified: RuntimeError: no" if image == 0 else None)

    return Contender("slow", AnswerKind.CERTIFIED, ask)


def test_what_fails_inside_a_method_is_told_apart() -> None:
    comparison, entries = _compared(_failing(spoilt=True), 60.0)
    assert len(entries) == 4
    assert comparison.failed == {"slow": ["not certified: RuntimeError: no"]}
    assert comparison.skipped == {}
    comparison, entries = _compared(_failing(spoilt=False), 60.0)
    assert entries == []
    assert comparison.failed == {"slow": ["IndexError: nowhere at all"]}
    assert comparison.skipped == {"slow": "failed: IndexError: nowhere at all"}
    assert len(comparison.answer_record.entries) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["fast-lin", "slow-lin"]}, "unknown method 'slow-lin'"),
        ({"methods": []}, "list of names"),
        ({"methods": "fast-lin"}, "list of names"),
        ({"budget": 0.0}, "budget"),
        ({"steps": 0}, "steps"),
        ({"target": "nobody"}, "unknown target"),
        ({"box": (1, 0)}, "a box"),
        ({"norm": 0.5}, "p >= 1"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    network = mlp(6, 10, 4)
    with pytest.raises(InputError, match=message):
        relucert.compare(network, centres(network, 1), **options)  # type: ignore[arg-type]


def test_neurons_are_counted_as_samples_show_them() -> None:
    for network in (mlp(6, 10, 8, 4, seed=1), rectified_input()):
        image = centres(network, 1)[0]
        radius = 0.3
        question = SimpleNamespace(norm=2.0, box=None, input_scale=None, inference="real")
        counted = neurons(network, image, radius, question)
        assert [sum(layer.values()) for layer in counted] == [network.sizes[value] for value in network.preactivations]
        samples = Norm(2.0).sample(image, radius, 500, torch.Generator().manual_seed(0))
        values = network.cast(torch.float64).values(samples)
        for layer, value in zip(counted, network.preactivations, strict=True):
            sampled = values[value].flatten(1)
            assert layer["dead"] <= int((sampled <= 0).all(0).sum())
            assert layer["active"] <= int((sampled >= 0).all(0).sum())
        assert counted[0] != {"dead": 0, "undecided": 0, "active": 0}
    tiny = neurons(network, image, 1e-9, question)
    assert sum(layer["undecided"] for layer in tiny) == 0


def test_methods_keep_the_table_s_order() -> None:
    chosen = ["attack", "lp", "fast-lin"]
    permutations = (find_contenders(list(order)) for order in itertools.permutations(chosen))
    orders = {tuple(contender.name for contender in contenders) for contenders in permutations}
    assert orders == {("fast-lin", "lp", "attack")}
