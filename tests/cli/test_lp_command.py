"""`relucert certify --method lp`, `lp-full` and `best`, with the library and the solvers behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import relucert
from relucert import data
from relucert.common.names import MethodName
from relucert.methods.solvers.highs import Highs
from relucert.methods.solvers.program import Array
from relucert.methods.solvers.solver import DualSolution
from tests.cli.conftest import Command, single_line
from tests.method_tables import PROGRAMS


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", PROGRAMS)
def test_the_command_equals_the_library(method: MethodName, norm: str, command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    options = ("--method", method, "--norm", norm, "--time-limit", "30", "--images", "2", "--json", str(path))
    assert command("certify", *options).code == 0
    record = json.loads(path.read_text())
    images = data.bundled().first(2)
    certificates = relucert.certify("mnist-2x20", images.images, images.labels, norm=norm, method=method)
    assert [row["radius"] for row in record["results"]] == [certificate.radius for certificate in certificates]
    assert all(row["proven"] and row["method"] == method for row in record["results"])
    assert record["options"]["time_limit"] == 30


def test_the_command_refuses_in_one_line(command: Command) -> None:
    outcome = command("certify", "--method", "lp", "--norm", "3", "--images", "1")
    single_line(outcome, ["lp needs the norm 1, 2 or inf", "fast-lin"])


def test_an_interruption_keeps_what_is_done(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, seen, solve = tmp_path / "run.json", set[int](), Highs.solve

    def interrupted(self: Highs, cost: Array) -> DualSolution:
        seen.add(id(self._program))
        if len(seen) > 10:
            raise KeyboardInterrupt
        return solve(self, cost)

    monkeypatch.setattr(Highs, "solve", interrupted)
    outcome = command("certify", "--method", "lp", "--images", "30", "--json", str(path))
    assert outcome.code == 130
    record = json.loads(path.read_text())
    assert not record["complete"]
    assert len(record["results"]) == 8


def test_best_names_the_step_that_proved_the_radius(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    outcome = command("certify", "--method", "best", "--budget", "0.01", "--images", "1", "--json", str(path))
    assert outcome.code == 0
    record = json.loads(path.read_text())
    (row,) = record["results"]
    assert (row["method"], row["proven"], record["options"]["budget"]) == ("best", True, 0.01)
    assert f"by {row['due_to']}; the budget of 0.01 s ended" in " ".join(outcome.out.split())
    single_line(command("certify", "--budget", "3", "--images", "1"), ["'fast-lin' has no budget"])
