"""Files that hold results: never replaced by those of another question, and never by less than they had."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relucert.errors import BudgetError
from tests.cli import fake
from tests.cli.conftest import Command, single_line

StandIn = Callable[[fake.Library], None]


def _results(path: Path) -> int:
    content = path.read_text()
    return len(json.loads(content)["results"]) if path.suffix == ".json" else max(0, content.count("\n") - 1)


@pytest.mark.parametrize("name", ["json", "csv"])
def test_results_of_another_question_are_not_replaced(
    name: str, command: Command, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in(fake.Library())
    path = tmp_path / f"run.{name}"
    given = ("certify", "--images", "5", f"--{name}", str(path))
    assert command(*given).code == 0
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    others = {("--norm", "2"): "norm is inf, not 2", ("--box", "-0.5", "0.5"): "box is None, not (-0.5, 0.5)"}
    for other, differing in others.items():
        single_line(command(*given, *other), ["answers another question", differing, "--overwrite"])
        assert {one: one.read_bytes() for one in tmp_path.iterdir()} == before
    assert command(*given, "--norm", "2", "--overwrite").code == 0
    assert command(*given, "--norm", "2").code == 0
    assert {one.name for one in tmp_path.iterdir()} == {f"run.{name}", f"run.{name}.answers"}


@pytest.mark.parametrize("name", ["json", "csv"])
def test_the_same_question_goes_on(name: str, command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    """Also with other threads or another budget of memory; more images add to what is there."""
    library = fake.Library()
    stand_in(library)
    path = tmp_path / f"run.{name}"
    for effort in ((), ("--memory", "2G"), ("--threads", "1")):
        assert command("certify", "--images", "5", f"--{name}", str(path), *effort).code == 0
        assert _results(path) == 5
    assert library.asked == [0, 1, 2, 3, 4]
    assert command("certify", "--images", "7", f"--{name}", str(path)).code == 0
    assert _results(path) == 7
    assert library.asked == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("name", ["json", "csv"])
@pytest.mark.parametrize("fault", [KeyboardInterrupt(), BudgetError("too little")])
def test_what_was_answered_outlives_a_run_that_is_stopped(
    name: str, fault: BaseException, command: Command, stand_in: StandIn, tmp_path: Path
) -> None:
    path = tmp_path / f"run.{name}"
    for at in (0, 3, 4):
        stand_in(fake.Library(fault=fault, fault_at=at))
        outcome = command("certify", "--images", "5", f"--{name}", str(path))
        assert outcome.code in (2, 130)
        assert f"stopped after {at} of 5 images; the same command goes on from here" in outcome.err
        assert _results(path) == at
    library = fake.Library()
    stand_in(library)
    assert command("certify", "--images", "5", f"--{name}", str(path)).code == 0
    assert (_results(path), library.asked) == (5, [4])


def test_other_images_are_not_mixed_in(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library())
    path, data = tmp_path / "run.json", tmp_path / "mine.npy"
    np.save(data, np.zeros((3, 784), dtype=np.float32))
    assert command("certify", "--images", "3", "--json", str(path)).code == 0
    single_line(command("certify", "--data", str(data), "--json", str(path)), ["other images", "image 0"])


def test_a_record_whose_answers_are_gone_is_not_replaced(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library())
    path = tmp_path / "run.json"
    assert command("certify", "--images", "3", "--json", str(path)).code == 0
    (tmp_path / "run.json.answers").unlink()
    single_line(command("certify", "--images", "3", "--json", str(path)), ["no run.json.answers", "--overwrite"])


@pytest.mark.parametrize("content", ["", "\n", None])
def test_a_run_without_an_answer_is_nothing_to_keep(
    content: str | None, command: Command, stand_in: StandIn, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    if content is None:
        stand_in(fake.Library(fault=KeyboardInterrupt()))
        assert command("certify", "--images", "9", "--json", str(path)).code == 130
        assert _results(path) == 0
    else:
        path.write_text(content)
    stand_in(fake.Library())
    assert command("certify", "--images", "5", "--json", str(path)).code == 0
    assert _results(path) == 5


@pytest.mark.parametrize("content", ["{}", "my notes", '{"results": []}', "image,label\n0,7\n"])
def test_what_is_not_ours_is_not_replaced(content: str, command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library())
    for name in ("json", "csv"):
        path = tmp_path / f"mine.{name}"
        path.write_text(content)
        single_line(command("certify", "--images", "1", f"--{name}", str(path)), ["--overwrite"])
        assert path.read_text() == content


def test_every_command_that_records_minds_it(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    efforts: dict[str, tuple[str, ...]] = {
        "certify": (),
        "attack": ("--steps", "3", "--no-polish"),
        "exact": ("--time-limit", "0"),
        "estimate": ("--batches", "2", "--samples", "2"),
        "compare": ("--methods", "op-norm"),
        "verify": ("--radius", "0.001"),
    }
    for name, effort in efforts.items():
        if path.exists():
            single_line(command(name, "--images", "1", *effort, "--json", str(path)), ["answers another question"])
        assert command(name, "--images", "1", *effort, "--json", str(path), "--overwrite").code == 0
        assert command(name, "--images", "1", *effort, "--json", str(path)).code == 0
        assert json.loads(path.read_text())["command"] == name


def test_tables_of_the_paper(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {name: tmp_path / f"t.{name}" for name in ("json", "csv", "markdown", "latex")}
    part: Any = ("paper", "toy", "--networks", "mnist-2x20", "--norms", "inf", "--targets", "random")
    for name, path in files.items():
        table = (*part, "--methods", "op-norm", f"--{name}", str(path))
        assert command(*table, "--images", "2").code == 0
        assert command(*table, "--images", "2").code == 0
        assert command(*table, "--images", "3").code == 0  # more images add to what is there
        before = path.read_bytes()
        differing = " (steps is 40, not 7)" if name == "json" else ""
        refused = command(*table, "--images", "3", "--steps", "7")
        single_line(refused, [f"t.{name} holds results of another question{differing}"])
        assert path.read_bytes() == before
        assert command(*table, "--images", "3", "--steps", "7", "--overwrite").code == 0
        assert path.read_bytes() != before


def test_a_table_of_the_paper_whose_answers_are_gone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    part: Any = ("paper", "toy", "--networks", "mnist-2x20", "--norms", "inf", "--targets", "random", "--images", "2")
    for place in ("one", "other"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
        outcome = command(*part, "--methods", "op-norm", "--json", str(path))
        if place == "one":
            assert outcome.code == 0
            before = path.read_bytes()
    single_line(outcome, ["t.json holds something, and there is no ", "to go on from"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_replaces_those_of_its_question(
    suffix: str, command: Command, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in(fake.Library())
    path = tmp_path / f"curve.{suffix}"
    for images in ("5", "5", "7"):
        assert command("certify", "--images", images, "--plot", str(path)).code == 0
    before = path.read_bytes()
    single_line(command("certify", "--norm", "2", "--plot", str(path)), ["results of another question"])
    assert path.read_bytes() == before
    assert command("certify", "--norm", "2", "--plot", str(path), "--overwrite").code == 0
    path.write_bytes(b"my own drawing")
    single_line(command("certify", "--plot", str(path)), ["--overwrite"])


def test_pictures_of_attacks_replace_those_of_their_question(command: Command, tmp_path: Path) -> None:
    attack = ("attack", "--images", "1", "--steps", "3", "--no-polish", "--save", str(tmp_path / "pictures"))
    for more in ((), (), ("--norm", "2", "--overwrite")):
        assert command(*attack, *more).code == 0
    single_line(command(*attack), ["a picture of another question"])


def test_a_page_replaces_pages_alone(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library())
    run, other, page = (tmp_path / name for name in ("run.json", "other.json", "page.html"))
    for path, images in ((run, "5"), (other, "6")):
        assert command("certify", "--images", images, "--json", str(path)).code == 0
    for _ in range(2):
        assert command("report", str(run), "-o", str(page)).code == 0
    before = other.read_bytes()
    single_line(command("report", str(run), "-o", str(other)), ["other.json holds something that is no page"])
    assert other.read_bytes() == before
    assert command("report", str(run), "-o", str(other), "--overwrite").code == 0
    assert other.read_bytes() == page.read_bytes()
