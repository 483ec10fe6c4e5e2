"""Runs that are killed at random moments: resumed, they give the answers of an undisturbed run, each found once."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from relucert.cli.main import main

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

COMMANDS = {
    "certify": ("--images", "60", "--memory", "1M", "--target", "all"),
    "compare": ("--images", "20", "--memory", "1M", "--methods", "interval,fast-lin,crown"),
    "verify": ("--images", "20", "--radius", "0.02", "--time-limit", "1000"),
}


def _start(arguments: Sequence[str], log: Path) -> int:
    """The command in a process of its own."""
    process = os.fork()
    if process:
        return process
    try:
        with log.open("a", buffering=1) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.stdout = sys.stderr = file
            os._exit(main([*arguments, "--quiet"]))
    finally:
        os._exit(99)


def _records(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[1:-1] if path.exists() else []


def _answers(path: Path) -> list[dict[str, Any]]:
    record = json.loads(path.read_text())
    assert record["complete"]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in record["results"]]


def _disturbed(command: str, kills: int, folder: Path, draw: random.Random) -> None:
    given = (command, *COMMANDS[command])
    whole, path, log = folder / "whole.json", folder / "run.json", folder / "log"
    assert os.waitpid(_start([*given, "--json", str(whole)], log), 0)[1] == 0, log.read_text()
    total, killed = len(_records(Path(f"{whole}.answers"))), 0
    goals = sorted(draw.randrange(total) for _ in range(kills))
    while killed < kills:
        process = _start([*given, "--json", str(path)], log)
        while len(_records(Path(f"{path}.answers"))) < goals[killed] and not os.waitpid(process, os.WNOHANG)[0]:
            time.sleep(0.002)
        time.sleep(draw.random() * 0.05)
        os.kill(process, signal.SIGKILL)
        if os.waitpid(process, 0)[1] == signal.SIGKILL:
            killed += 1
        else:  # it was quicker than the kill: once more from the start
            path.unlink()
            Path(f"{path}.answers").unlink()
    assert os.waitpid(_start([*given, "--json", str(path)], log), 0)[1] == 0, log.read_text()
    assert _answers(path) == _answers(whole)
    records = [json.loads(line.partition(b" ")[2]) for line in _records(Path(f"{path}.answers"))]
    keys = [one.get("note") or (one["method"], one["image"], tuple(one["rivals"])) for one in records]
    assert len(keys) == len(set(keys)) == total


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_is_killed_goes_on(command: str, tmp_path: Path) -> None:
    _disturbed(command, 2, tmp_path, random.Random(command))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_is_killed_thirty_times_goes_on(command: str, tmp_path: Path) -> None:
    _disturbed(command, 30, tmp_path, random.Random(command))


def test_a_disk_that_is_full_ends_the_run_in_one_line(tmp_path: Path) -> None:
    import resource

    path, log = tmp_path / "run.json", tmp_path / "log"
    given = ("certify", "--images", "20", "--memory", "1M", "--json", str(path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
    try:
        process = _start(given, log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.WEXITSTATUS(os.waitpid(process, 0)[1]) == 2
    assert "can't keep answers" in log.read_text() or "can't write" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert os.waitpid(_start(given, log), 0)[1] == 0
    assert len(_answers(path)) == 20


def test_the_second_of_two_runs_is_refused(tmp_path: Path) -> None:
    path, log = tmp_path / "run.json", tmp_path / "log"
    given = ("certify", "--images", "60", "--memory", "1M", "--target", "all", "--json", str(path))
    first = _start(given, tmp_path / "first")
    try:
        while len(_records(Path(f"{path}.answers"))) < 9:
            time.sleep(0.005)
        os.kill(first, signal.SIGSTOP)
        second = _start(given, log)
        assert os.WEXITSTATUS(os.waitpid(second, 0)[1]) == 2
        assert "in use by another run" in log.read_text()
    finally:
        os.kill(first, signal.SIGCONT)
    assert os.waitpid(first, 0)[1] == 0
