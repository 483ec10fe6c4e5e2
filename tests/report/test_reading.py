from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import relucert
from relucert.answers.certificates import OWN_LABEL
from relucert.errors import LoadError
from relucert.report.domain import Domain, in_words
from relucert.report.grouping import RunGroup
from relucert.report.reading import AnswerKind, Result, result
from relucert.report.series import Sandwich, best_proven, sandwiches, series, tightness
from tests.report import runs

GOOD = [runs.certified(0, 0.01), runs.attacked(0, 0.02)]


def test_kinds_are_told_by_keys(tmp_path: Path) -> None:
    run = runs.read(runs.write(tmp_path / "run.json", runs.invented(1)))
    assert [answer.kind for answer in run.results] == [
        AnswerKind.CERTIFIED,
        AnswerKind.CERTIFIED,
        AnswerKind.EXACT,
        AnswerKind.ESTIMATE,
        AnswerKind.UPPER,
    ]
    assert run.complete
    assert not RunGroup((run,)).every_rival


@pytest.mark.parametrize(
    "change", [{"arithmetic": "float", "proven": False}, {"proven": False}, {"proven": 1}, {"arithmetic": "float"}]
)
def test_nothing_unproven_counts_as_certified(tmp_path: Path, change: dict[str, Any]) -> None:
    run = runs.read(runs.write(tmp_path / "run.json", [{**runs.certified(0, 0.01), **change, "kind": "certified"}]))
    assert run.results[0].kind is AnswerKind.UNPROVEN
    assert "rounding ignored" in run.results[0].name


def _change(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda record: {**record, **changes}


def _row(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda record: {**record, "results": [{**runs.certified(0, 0.01), **changes}]}


GUESS = runs.answer(0, "clever", value=1.0, sampled=1.0, kind="certified")
PICTURE = {"shape": [2, 2], "original": "AAAAAA==", "adversarial": "AAAA"}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda record: [], "no run file of relucert"),
        (lambda record: {"results": []}, "no run file of relucert"),
        (_change(relucert=1), "no run file of relucert"),
        (_change(relucert="99.1.0"), "written by relucert 99.1.0"),
        (_change(results={}), "no list of results"),
        (_change(results=[]), "no results yet"),
        (_change(results=[*GOOD, 3]), "result 2: it is no object"),
        (_change(results=[{"image": 1}]), "no answer of relucert"),
        (_change(results=[GUESS]), "its kind is 'certified'"),
        (_row(image=-1), "image is -1"),
        (_row(image=True), "image is True"),
        (_row(label="7"), "label is '7'"),
        (_row(radius=-0.1), "radius is -0.1"),
        (_row(radius="0.1"), "radius is '0.1'"),
        (_row(radius=10**400), "radius is too large"),
        (_row(seconds=None), "seconds is None"),
        (_row(seconds="inf"), "seconds is 'inf'"),
        (_row(norm=0.5), "norm is 0.5"),
        (_row(norm=None), "norm is None"),
        (_row(method=None), "method is None"),
        (_row(reason=5), "reason is 5"),
        (_row(neurons=[3]), "neurons"),
        (_row(neurons=[{"dead": 1}]), "undecided is None"),
        (_row(box=0.5), "result 0: box is no pair"),
        (_row(box=[-0.5]), "box is no pair"),
        (_row(box=[-0.5, 0.0, 0.5]), "box is no pair"),
        (_row(box=["-0.5", "0.5"]), "box is no pair"),
        (_row(box=[False, True]), "box is no pair"),
        (_row(box=[None, 0.5]), "box is no pair"),
        (_row(box=[0, 10**400]), "box is no pair"),
        (_row(box=[0.5, -0.5]), "box has the lowest value 0.5 above the highest, -0.5"),
        (_row(box=["inf", 0]), "box has the lowest value inf above the highest, 0"),
        (_row(box=[[], []]), "box is no pair"),
        (_row(box=[[0, 0], [1]]), "box is no pair"),
        (_row(box=[0, [1]]), "box is no pair"),
        (_row(box=[[0, 2], [1, 1]]), "box has the lowest value 2 above the highest, 1"),
        (_row(box=[[0, [0]], [1, 1]]), "box is no pair"),
        (_change(options={"box": "none"}), "options: box is no pair"),
        (_change(options={"box": [[0, 0], [1, 1]]}), "options: box is no pair of numbers"),
        (_change(options={"scale": 2.0}), "options: scale is no list"),
        (_change(options={"scale": [1.0, None]}), "options: scale is no list"),
        (_change(options={"scale": [1.0, -1.0]}), "options: scale is no list"),
        (_row(picture={"shape": [2]}), "shape"),
        (_row(picture={**PICTURE, "shape": [2, 2, 4]}), "4 colours"),
        (_row(picture=PICTURE), "pixels"),
        (_row(picture={**PICTURE, "original": "?"}), "base64"),
    ],
)
def test_anything_else_is_one_line(tmp_path: Path, spoil: Callable[[dict[str, Any]], Any], message: str) -> None:
    path = runs.write(tmp_path / "run.json", GOOD)
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.raises(LoadError, match=r"run\.json") as raised:
        runs.read(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_every_part_of_a_file_is_refused(tmp_path: Path) -> None:
    path = runs.write(tmp_path / "run.json", GOOD)
    whole = path.read_bytes().rstrip()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(LoadError, match=r"empty|a part of one"):
            runs.read(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b'{"relucert": NaN}', b"[" * 100_000, b"\x00"])
def test_no_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(LoadError):
        runs.read(tmp_path / "run.json")


def test_a_release_of_the_same_series_is_read(tmp_path: Path) -> None:
    first, second = relucert.__version__.split(".")[:2]
    assert len(runs.read(runs.write(tmp_path / "run.json", GOOD, relucert=f"{first}.{second}.99")).results) == 2


@pytest.mark.parametrize(
    ("box", "domain"),
    [
        (None, Domain(None)),
        ([0, 1], Domain((0.0, 1.0))),
        (["-inf", 0.5], Domain((-math.inf, 0.5))),
        ([[0, "-inf"], [1, 2]], Domain(((0.0, -math.inf), (1.0, 2.0)))),
        ([[3], [3]], Domain(((3.0,), (3.0,)))),
    ],
)
def test_the_valid_inputs_are_read(tmp_path: Path, box: Any, domain: Domain) -> None:
    rows = [{**row, "box": box} for row in runs.invented(1)]
    options = {"box": [0, 1], "scale": [1.0, 0, 2.5]}
    run = runs.read(runs.write(tmp_path / "run.json", rows, options=options))
    assert [answer.domain for answer in run.results] == [domain] * len(rows)


def test_older_files_do_not_say_which_inputs_are_valid(tmp_path: Path) -> None:
    rows = runs.older(runs.invented(1), [-0.5, 0.5])
    run = runs.read(runs.write(tmp_path / "run.json", rows, options={"norm": "inf"}))
    box = Domain((-0.5, 0.5))
    assert [answer.domain for answer in run.results] == [None, None, box, None, box]


def test_older_names_are_read(tmp_path: Path) -> None:
    interval = runs.answer(0, "branch-and-bound", lower=0.1, upper=0.2, closed=False, unreachable=False, proven=True)
    fitted = runs.answer(0, "clever", value=0.1, sampled=0.2, radius=0.5, proven=False)
    unfitted = runs.answer(1, "clever", value=None, sampled=0.3, radius=0.5, proven=False, reason="no fit")
    exact, *estimates = runs.read(runs.write(tmp_path / "run.json", [interval, fitted, unfitted])).results
    assert (exact.kind, exact.method, exact.name) == (AnswerKind.EXACT, "exact", "exact")
    assert [(guess.kind, guess.lower, guess.fitted) for guess in estimates] == [
        (AnswerKind.ESTIMATE, 0.1, True),
        (AnswerKind.ESTIMATE, 0.3, False),
    ]
    (curve,) = series(estimates, 1)
    assert (curve.images, curve.radii, curve.mean) == (2, (0.1, 0.3), 0.2)
    assert str(curve.remark).startswith("1 of 2 fitted")


def _domains(*domains: Domain | None) -> list[Result]:
    """A certificate and an attack, at 0.01 and 0.02, about these valid inputs."""
    answers = (result(runs.certified(0, 0.01)), result(runs.attacked(0, 0.02)))
    return [replace(answer, domain=domain) for answer, domain in zip(answers, domains, strict=True)]


BOX, SMALL, LISTED = Domain((-0.5, 0.5)), Domain((0.0, 0.1)), Domain(((0.0, 0.0), (1.0, 2.0)))


@pytest.mark.parametrize("domains", [(None, None), (None, Domain(None)), (BOX, BOX), (LISTED, LISTED)])
def test_answers_about_the_same_valid_inputs_are_compared(domains: tuple[Domain | None, Domain | None]) -> None:
    (question,) = sandwiches(_domains(*domains), False)
    assert question.comparable
    assert question.gap == 2
    assert tightness("fast-lin", [question]) == 0.5


@pytest.mark.parametrize(
    "domains", [(None, BOX), (Domain(None), BOX), (BOX, Domain(None)), (SMALL, BOX), (BOX, LISTED)]
)
def test_answers_about_unlike_valid_inputs_are_not_compared(domains: tuple[Domain | None, Domain | None]) -> None:
    (question,) = sandwiches(_domains(*domains), False)
    assert not question.comparable
    assert question.gap is None
    assert tightness("fast-lin", [question]) is None


@pytest.mark.parametrize(
    ("domains", "violated"),
    [((None, BOX), True), ((Domain(None), BOX), True), ((BOX, BOX), True), ((SMALL, BOX), False), ((BOX, None), False)],
)
def test_only_an_example_among_the_valid_inputs_contradicts(
    domains: tuple[Domain | None, Domain | None], violated: bool
) -> None:
    certificate, attack = _domains(*domains)
    assert Sandwich((replace(certificate, lower=0.03), attack)).violated is violated
    assert not Sandwich((certificate, attack)).violated


@pytest.mark.parametrize(
    ("domains", "words"),
    [
        ([None, None], "valid inputs not recorded"),
        ([Domain(None)], "every input valid"),
        ([None, Domain(None)], "every input valid"),
        ([BOX, BOX], "pixels from -0.5 to 0.5"),
        ([LISTED], "valid range given per coordinate"),
        ([None, BOX], "valid inputs differ"),
        ([SMALL, BOX], "valid inputs differ"),
    ],
)
def test_the_valid_inputs_of_several_answers(domains: list[Domain | None], words: str) -> None:
    assert in_words(domains) == words


def test_curves(tmp_path: Path) -> None:
    rows = [
        runs.certified(0, 0.01),
        runs.certified(1, None),
        runs.certified(2, 0.03),
        {**runs.certified(3, None), "reason": OWN_LABEL},
        runs.attacked(0, 0.02),
        runs.attacked(1, 0.0),
        runs.attacked(2, None),
    ]
    certified, attacked = series(runs.read(runs.write(tmp_path / "run.json", rows)).results, 1)
    assert (certified.images, certified.radii) == (3, (0.01, 0.03))
    assert certified.steps() == ([0.0, 0.01, 0.03], [2 / 3, 1 / 3, 0])
    assert certified.median == 0.01
    assert (attacked.images, attacked.radii) == (3, (0.02, math.inf))
    assert attacked.steps() == ([0.0, 0.02], [2 / 3, 1 / 3])


def test_each_rival_is_a_question_of_its_own(tmp_path: Path) -> None:
    rows = [{**runs.certified(0, radius), "target": rival} for rival, radius in ((1, 0.02), (2, 0.01))]
    rows += [{**runs.attacked(0, 0.03), "target": rival} for rival in (1, 2)]
    network = {"name": "toy", "classes": 3}
    run = RunGroup((runs.read(runs.write(tmp_path / "run.json", rows, options={"target": "all"}, network=network)),))
    assert series(run.results, run.rivals)[0].radii == (0.01,)
    assert [question.gap for question in sandwiches(run.results, run.every_rival)] == [
        pytest.approx(1.5),
        pytest.approx(3),
    ]


@pytest.mark.parametrize("classes", [4, None])
def test_an_image_without_all_its_rivals_is_not_counted(tmp_path: Path, classes: int | None) -> None:
    """An interrupted run may have proven the easy rivals alone."""
    rows = [{**runs.certified(0, 0.02), "target": rival} for rival in (1, 2, 3)]
    rows += [{**runs.certified(1, 0.05), "target": rival} for rival in (0, 2)]
    rows.append({**runs.certified(2, None), "target": None, "reason": "misclassified"})
    network = {"name": "toy", "classes": classes}
    run = RunGroup((runs.read(runs.write(tmp_path / "run.json", rows, options={"target": "all"}, network=network)),))
    (curve,) = series(run.results, run.rivals)
    assert (curve.images, curve.radii) == (2, (0.02,))
    together = best_proven(sandwiches(run.results, run.every_rival), run.rivals)
    assert together is not None
    assert (together.images, together.radii) == (2, (0.02,))


def test_the_best_of_all_methods(tmp_path: Path) -> None:
    rows = [runs.certified(0, 0.01), runs.certified(0, 0.02, "lp"), runs.certified(1, 0.03), runs.attacked(2, 0.5)]
    rows += [runs.certified(1, None, "lp"), runs.answer(1, "clever", value=9.0, sampled=9.0)]
    run = runs.read(runs.write(tmp_path / "run.json", rows))
    best = best_proven(sandwiches(run.results, False), 1)
    assert best is not None
    assert (best.images, best.radii) == (2, (0.02, 0.03))
    assert best_proven(sandwiches(run.results[3:4], False), 1) is None


def test_best_of_each_side(tmp_path: Path) -> None:
    run = runs.read(runs.write(tmp_path / "run.json", runs.invented(3)))
    for question in sandwiches(run.results, False):
        assert question.lower is question.exact is question.upper
        assert question.gap == 1
        assert not question.violated
    assert tightness("lp", sandwiches(run.results, False)) == pytest.approx(0.8)
    assert Sandwich((run.results[3],)).lower is None  # an estimate is no bound
