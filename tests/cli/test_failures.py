"""Errors inside methods: counted, shown whatever else is, recorded, and an exit code of their own."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relucert.api import estimate, exact
from relucert.arithmetic.norm import Norm
from relucert.attacks.objective import AttackObjective
from relucert.cli.runs import FAILED
from relucert.experiments.comparison import methods
from relucert.methods.linear import LinearMethod
from tests.cli.conftest import Command

EFFORTS = {
    "certify": (),
    "attack": ("--steps", "5"),
    "exact": ("--time-limit", "5", "--target", "runner-up"),
    "estimate": ("--batches", "12", "--samples", "8"),
}


def _break(monkeypatch: pytest.MonkeyPatch, of: Any, name: str, times: int) -> None:
    """Makes something fail, the first so many times."""
    usual, calls = getattr(of, name), iter(range(10**6))

    def broken(*given: Any, **options: Any) -> Any:
        if next(calls) < times:
            raise RuntimeError("no\nluck")
        return usual(*given, **options)

    monkeypatch.setattr(of, name, broken)


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "certify": lambda patch: _break(patch, LinearMethod, "hidden", 10**6),
    "attack": lambda patch: _break(patch, AttackObjective, "slope", 1),
    "exact": lambda patch: _break(patch, exact, "ExactSearch", 1),
    "estimate": lambda patch: _break(patch, estimate, "largest_gradients", 1),
}


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
@pytest.mark.parametrize("name", EFFORTS)
def test_a_failure_is_counted_recorded_and_an_exit_code(
    name: str, quiet: tuple[str, ...], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BREAKS[name](monkeypatch)
    path = tmp_path / "run.json"
    outcome = command(name, "--images", "2", *EFFORTS[name], *quiet, "--json", str(path))
    assert outcome.code == FAILED == 4
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("failed ")]
    assert "of 2 answers" in line
    assert "RuntimeError: no luck" in line
    record = json.loads(path.read_text())
    assert record["complete"]
    failed = [row for row in record["results"] if row["failed"]]
    assert line.split()[1] == str(len(failed))
    assert all("RuntimeError: no luck" in row["reason"] for row in failed)


@pytest.mark.parametrize("name", EFFORTS)
def test_no_answer_is_no_failure(name: str, command: Command, tmp_path: Path) -> None:
    """An image that is misclassified, or a target that is the label itself, has none either."""
    path = tmp_path / "run.json"
    options = [*EFFORTS[name], "--target", "7", "--images", "1", "--json", str(path)]
    outcome = command(name, *options)
    assert outcome.code == 0
    assert "failed" not in outcome.out
    assert not any(row["failed"] for row in json.loads(path.read_text())["results"])


def test_a_comparison_names_them_in_its_remark(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _break(monkeypatch, estimate, "largest_gradients", 13)  # the trial on the first image, and that image again
    path, table = tmp_path / "run.json", tmp_path / "run.csv"
    arguments = ("compare", "--images", "2", "--batches", "12", "--samples", "8", "--methods", "fast-lin,clever")
    outcome = command(*arguments, "--json", str(path), "--csv", str(table))
    assert outcome.code == FAILED
    (row,) = [line for line in outcome.out.splitlines() if line.startswith("clever ")]
    assert "failed: the sampling broke down: RuntimeError: no luck" in row
    assert any(line.startswith("failed ") for line in outcome.out.splitlines())
    assert any(row["failed"] for row in json.loads(path.read_text())["results"])
    with table.open() as file:
        assert "true" in [row["failed"] for row in csv.DictReader(file)]


def test_a_method_that_breaks_down_outside_of_an_answer_is_left_out(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _break(monkeypatch, methods, "estimate_each", 1)
    path = tmp_path / "run.json"
    outcome = command("compare", "--images", "1", "--methods", "fast-lin,clever", "--json", str(path))
    assert outcome.code == FAILED
    (row,) = [line for line in outcome.out.splitlines() if line.startswith("clever ")]
    assert "1 failed: RuntimeError: no luck" in row
    assert json.loads(path.read_text())["skipped"] == {"clever": "failed: RuntimeError: no luck"}


def test_a_table_of_the_paper_does_not_keep_them(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run asks again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    part = ("--networks", "mnist-2x20", "--norms", "inf", "--targets", "random", "--images", "2")
    arguments = ("paper", "toy", *part, "--methods", "fast-lin,op-norm")
    with monkeypatch.context() as patch:
        _break(patch, LinearMethod, "hidden", 1)
        first = command(*arguments)
    assert first.code == FAILED
    assert "1 answer of fast-lin on mnist-2x20, p = inf: not certified: RuntimeError: no luck" in first.out
    (store,) = (tmp_path / "cache").rglob("*.answers")
    assert len(store.read_text().splitlines()) == 1 + 3
    assert command(*arguments).code == 0
    assert len(store.read_text().splitlines()) == 1 + 4


def test_norms_without_a_method_are_no_failures(command: Command) -> None:
    outcome = command("compare", "--images", "1", "--norm", str(Norm(3.0).p), "--methods", "fast-lin,lp")
    assert outcome.code == 0
