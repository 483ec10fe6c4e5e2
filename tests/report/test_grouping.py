"""Several run files on one page: what belongs together is compared, what does not is kept apart."""

from __future__ import annotations

import re
from typing import Any

import pytest

from relucert.report.grouping import grouped
from relucert.report.page import page
from relucert.report.reading import RecordedRun, result
from tests.report import runs
from tests.report.test_page import Outline

DATA = {"name": "bundled", "images": 2, "sha256": "a"}
PROVEN = [runs.certified(image, 0.01) for image in range(2)]
ATTACKED = [runs.attacked(image, 0.02) for image in range(2)]


def _run(rows: list[dict[str, Any]], source: str, **head: Any) -> RecordedRun:
    return RecordedRun({**runs.HEAD, "complete": True, **head}, source, tuple(result(row) for row in rows))


def test_runs_about_the_same_images_are_compared() -> None:
    first, second = (
        _run(PROVEN, "a.json", data=DATA),
        _run(ATTACKED, "b.json", data={**DATA, "images": 9, "sha256": "b"}),
    )
    (group,) = grouped([first, second])
    assert [answer.name for answer in group.results] == ["fast-lin", "fast-lin", "attack (best)", "attack (best)"]
    text = page(first, second)
    Outline(text)
    assert "How robust is mnist-2x20?" in text
    assert "50.0%" in text  # the tightness
    assert "<h3>a.json</h3>" in text
    assert "<h3>b.json</h3>" in text


OPTIONS = dict(runs.HEAD["options"])
NETWORK = dict(runs.HEAD["network"])


@pytest.mark.parametrize(
    "change",
    [
        {"network": {**NETWORK, "name": "mnist-3x20"}},
        {"network": {**NETWORK, "sha256": "2"}},
        {"options": {**OPTIONS, "target": "runner-up"}},
        {"options": {**OPTIONS, "data": "mine.npz"}},
        {"options": {**OPTIONS, "scale": [1.0, 2.0]}},
        {"data": {**DATA, "sha256": "b"}},
        {"data": {**DATA, "images": 1, "name": "other"}},
    ],
)
def test_runs_about_something_else_are_kept_apart(change: dict[str, Any]) -> None:
    head = {"network": {**NETWORK, "sha256": "1"}, "data": DATA}
    first, second = _run(PROVEN, "a.json", **head), _run([runs.attacked(0, 0.001)], "b.json", **{**head, **change})
    assert len(grouped([first, second])) == 2
    text = page(first, second)
    Outline(text)
    assert "Contradiction" not in text
    titles = re.findall(r"<h2>([^<]*)</h2>", text)
    assert len(set(titles)) == len(titles) == 3
    assert all(": perturbations measured with p = " in title for title in titles[:2])
    assert ("How robust are mnist-2x20 and mnist-3x20?" in text) == (
        change.get("network", {}).get("name") == "mnist-3x20"
    )


def test_other_labels_are_other_images() -> None:
    other = [{**row, "label": 9} for row in ATTACKED]
    assert len(grouped([_run(PROVEN, "a.json"), _run(other, "b.json")])) == 2


def test_random_targets_of_another_seed_are_other_questions() -> None:
    first, second = (_run(PROVEN, "a", options={**OPTIONS, "target": "random", "seed": seed}) for seed in (0, 1))
    assert len(grouped([first, second])) == 2
    first, second = (_run(PROVEN, "a", options={**OPTIONS, "seed": seed}) for seed in (0, 1))
    assert len(grouped([first, second])) == 1


@pytest.mark.parametrize("names", [("a.json", "b.json"), ("a.json", "a.json")])
def test_one_method_in_two_files_is_told_apart(names: tuple[str, str]) -> None:
    larger = [runs.certified(image, 0.02) for image in range(2)]
    (group,) = grouped([_run(PROVEN, names[0]), _run([*larger, *ATTACKED], names[1])])
    methods = {answer.name: answer.lower for answer in group.results}
    assert len(methods) == 3
    assert "attack (best)" in methods
    assert sorted(lower for lower in methods.values() if lower is not None) == [0.01, 0.02]


def test_an_unfinished_run_is_told() -> None:
    (group,) = grouped([_run(PROVEN, "a.json"), _run(ATTACKED, "b.json", complete=False)])
    assert not group.complete


def _in_float32(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "inference": "float32"} for row in rows]


def test_real_arithmetic_and_evaluations_are_kept_apart() -> None:
    """Neither a column nor a ratio has both, whether they come from two files or from one."""
    real, rounded = _run(PROVEN, "a.json"), _run(_in_float32([*PROVEN, *ATTACKED]), "b.json")
    mixed = _run([*PROVEN, *_in_float32([*PROVEN, *ATTACKED])], "c.json")
    for recorded in ([real, rounded], [mixed]):
        groups = grouped(recorded)
        assert [group.inference for group in groups] == ["real", "float32"]
        assert {answer.name for answer in groups[0].results} == {"fast-lin"}
        assert {answer.name for answer in groups[1].results} == {"fast-lin in float32", "attack (best) in float32"}
        text = page(*recorded)
        Outline(text)
        assert "mnist-2x20 evaluated in float32: perturbations" in text
        assert text.count("50.0%") == 1  # the tightness beside the attacks, which are about float32
    alone = page(rounded)
    assert " \N{MIDDLE DOT} evaluated in float32 \N{MIDDLE DOT} " in alone


def test_a_proof_about_evaluations_covers_real_arithmetic_and_not_the_reverse() -> None:
    proven, attacked = PROVEN[0], ATTACKED[0]
    for first, second, covers in (("real", "float32", False), ("float32", "real", True), ("float16", "float32", False)):
        below, above = result({**proven, "inference": first}), result({**attacked, "inference": second})
        assert below.covers(above) is covers
        assert not below.is_comparable(above)
    with pytest.raises(ValueError, match="float8"):
        result({**proven, "inference": "float8"})
