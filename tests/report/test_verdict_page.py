"""What `relucert verify --json` records, on a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import relucert
from relucert.errors import LoadError
from relucert.report.page import count, page, read_any
from relucert.report.verdict_run import VerdictRun
from tests.report import runs
from tests.report.test_page import EVIL, Outline


def _verdict(status: str, **keys: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "status": status, "reason": None, "seconds": 0.25, "nodes": 3, "method": "crown", "remarks": [],
        "failed": False, "inference": "real", "stage": None,
    }  # fmt: skip
    return {**row, **keys}


def _image(image: int, status: str, **keys: Any) -> dict[str, Any]:
    return _verdict(status, image=image, label=7, target=None, radius=0.02, norm="inf", box=None, clean=True, **keys)


def _instance(onnx: str, result: str, **keys: Any) -> dict[str, Any]:
    row = _verdict("", onnx=onnx, vnnlib="deep/p.vnnlib", limit=20.0, result=result, sha256="ab", **keys)
    return {name: value for name, value in row.items() if name != "status"}


IMAGES = [
    _image(0, "holds"),
    _image(1, "violated", method="attack", seconds=0.0, target_found=3),
    _image(2, "unknown", method=None, reason="the time limit of 60 s was reached", seconds=60.0),
]


def _write(path: Path, results: Any, **changes: Any) -> Path:
    head = {"command": "verify", "relucert": relucert.__version__, "complete": True, "network": {"name": "mnist-2x20"},
            "options": {"target": "untargeted"}}  # fmt: skip
    path.write_text(json.dumps({**head, **changes, "results": results}))
    return path


def test_verdicts_about_images(tmp_path: Path) -> None:
    run = read_any(_write(tmp_path / "v.json", IMAGES))
    assert isinstance(run, VerdictRun)
    assert count(run) == 3
    text = page(run)
    Outline(text)
    assert text.count("<dd>1 of 3</dd>") == 3  # one of each kind
    for words in (
        "<h1>How robust is mnist-2x20?</h1>",
        "mnist-2x20 within 0.02, p = \N{INFINITY}, every input valid, target untargeted",
        "the time limit of 60 s was reached",
        "1 of 3 holds, 1 of 3 violated",  # what the chart says to screen readers
        "For reproduction",
    ):
        assert words in text
    assert "not finished" not in text


def test_verdicts_about_a_list_of_properties(tmp_path: Path) -> None:
    rows = [_instance("a/n.onnx", result) for result in ("unsat", "sat", "timeout", "error")]
    run = read_any(_write(tmp_path / "v.json", rows, network=None, instances={"name": "list.csv"}, complete=False))
    assert isinstance(run, VerdictRun)
    assert [one.status for one in run.verdicts] == ["holds", "violated", "unknown", "unknown"]
    assert {one.about for one in run.verdicts} == {("n.onnx", "p.vnnlib")}
    text = page(run)
    assert "<h1>Which properties hold?</h1>" in text
    assert "properties of list.csv" in text
    assert "not finished" in text


def test_a_single_property_is_named_by_its_files(tmp_path: Path) -> None:
    rows = [_verdict("holds", witness=None, outputs=None)]
    run = read_any(_write(tmp_path / "v.json", rows, network={"name": "a/n.onnx"}, query={"name": "b/p.vnnlib"}))
    assert isinstance(run, VerdictRun)
    assert run.verdicts[0].about == ("n.onnx", "p.vnnlib")


def test_nothing_decided_has_no_chart(tmp_path: Path) -> None:
    assert "<figure" not in page(read_any(_write(tmp_path / "v.json", IMAGES[2:])))


def test_what_is_about_a_precision_says_so(tmp_path: Path) -> None:
    text = page(read_any(_write(tmp_path / "v.json", [_image(0, "holds", inference="float32")])))
    assert "every evaluation in float32" in text


def test_a_verdict_that_failed_is_told(tmp_path: Path) -> None:
    rows = [_image(0, "holds"), _image(1, "unknown", failed=True, reason="MemoryError")]
    assert "1 verdict failed inside their method, for one: MemoryError" in page(read_any(_write(tmp_path / "v", rows)))


def test_a_radius_is_shown_in_full_with_the_box_and_the_scale(tmp_path: Path) -> None:
    row = {**_image(0, "holds"), "radius": 2 / 255, "box": [0.0, 1.0], "input_scale": [1.0, 2.0]}
    text = page(read_any(_write(tmp_path / "v.json", [row])))
    for words in (f"within {2 / 255!r},", "from 0 to 1", "scaled per coordinate"):
        assert words in text


def test_verdicts_beside_radii(tmp_path: Path) -> None:
    radii = read_any(runs.write(tmp_path / "run.json", runs.invented(2)))
    text = page(radii, read_any(_write(tmp_path / "v.json", IMAGES)))
    assert "Verdicts: mnist-2x20" in text
    assert "Certified accuracy against radius" in text


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], "no results yet"),
        ("none", "no list of results"),
        ([_image(0, "holds"), 3], "result 1: it is no object"),
        ([_image(0, "certified")], "status is 'certified'"),
        ([_image(0, "holds", seconds="inf")], "seconds is 'inf'"),
        ([_image(0, "holds", nodes=-1)], "nodes is -1"),
        ([{**_image(0, "holds"), "radius": None}], "it has no radius"),
        ([{**_image(0, "holds"), "box": [1, 0]}], "box has the lowest value"),
        ([_image(0, "holds", inference="float8")], "inference is 'float8'"),
    ],
)
def test_what_is_no_verdict_is_refused_in_one_line(tmp_path: Path, results: Any, words: str) -> None:
    with pytest.raises(LoadError) as caught:
        read_any(_write(tmp_path / "v.json", results))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    rows = [_instance(EVIL, "unsat", method=EVIL, reason=EVIL)]
    text = page(read_any(_write(tmp_path / "v.json", rows, instances={"name": EVIL}, network={"name": EVIL})))
    assert EVIL not in text
    Outline(text)


def test_the_curves_of_verdicts_have_a_legend(tmp_path: Path) -> None:
    """Every curve has its colour and its meaning beside the chart, and there is no key without a curve."""
    both = page(read_any(_write(tmp_path / "both.json", IMAGES)))
    figure = both.split("<figure>")[1].split("</figure>")[0]
    for place, words in enumerate(("proven to hold", "violated, with a witness")):
        assert f'class="curve series-{place}"' in figure
        assert f'<li><span class="key series-{place}">{words}</span></li>' in figure
    one = page(read_any(_write(tmp_path / "one.json", IMAGES[1:])))
    figure = one.split("<figure>")[1].split("</figure>")[0]
    assert figure.count("<li>") == figure.count('class="curve') == 1
    assert "violated, with a witness" in figure
