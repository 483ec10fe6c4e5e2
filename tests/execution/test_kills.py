"""Runs that are killed at random moments: resumed, they give the answers of an undisturbed run, each found once."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from relucert.cli.main import main
from tests.execution.instances import write_instances

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's processes")

COMMANDS = {
    "certify": ("certify", "--images", "20", "--memory", "1M", "--target", "all"),
    "compare": ("compare", "--images", "8", "--memory", "1M", "--methods", "interval,fast-lin,crown"),
    "verify": ("verify", "--images", "8", "--radius", "0.02", "--time-limit", "1000"),
    "instances": ("verify", "--instances", "INSTANCES", "--time-limit", "1000"),
    "paper": ("paper", "toy", "--images", "2", "--methods", "fast-lin,crown,op-norm", "--norms", "inf,2"),
}
SHARED = {
    **COMMANDS,
    "certify": ("certify", "--images", "30", "--method", "lp"),
    "compare": ("compare", "--images", "60", "--methods", "fast-lin,lp"),
    "verify": ("verify", "--images", "12", "--radius", "0.02", "--time-limit", "1000"),
}  # with items enough for several workers, and the memory for them
COUNT = 24  # instances


class Run:
    """A command that records in a folder of its own."""

    def __init__(self, command: Sequence[str], folder: Path, *options: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.path, self.log = folder, folder / "run.json", folder / "log"
        given = [part.replace("INSTANCES", str(folder.parent / "list.csv")) for part in command]
        self.arguments = [*given, *options, "--json", str(self.path)]

    def start(self) -> int:
        """In a process of its own, whose number is returned; a copy of this one might wait for its threads."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "relucert", *self.arguments, "--quiet"],
            {**os.environ, "XDG_CACHE_HOME": str(self.folder)},
            file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o644), (os.POSIX_SPAWN_DUP2, 1, 2)],
        )

    def end(self, process: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def complete(self) -> None:
        """In this process, to the end."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self.folder))
            assert main([*self.arguments, "--quiet"]) == 0

    def records(self) -> list[bytes]:
        """The whole ones, without the head."""
        return [line for path in self.folder.rglob("*.answers") for line in path.read_bytes().split(b"\n")[1:-1]]

    def forget(self) -> None:
        for path in (self.path, *self.folder.rglob("*.answers")):
            path.unlink(missing_ok=True)

    def answers(self) -> list[dict[str, Any]]:
        record = json.loads(self.path.read_text())
        assert record["complete"]
        rows = record["cells"] if "cells" in record else record["results"]
        return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]

    def check_each_once(self, total: int) -> None:
        """Whether no answer is in the store twice."""
        records = [json.loads(line.partition(b" ")[2]) for line in self.records()]
        keys = [json.dumps({name: value for name, value in one.items() if name != "answer"}) for one in records]
        assert len(keys) == len(set(keys)) == total


def _whole(command: Sequence[str], folder: Path) -> Run:
    """An undisturbed run, by this process."""
    write_instances(folder, COUNT)
    run = Run(command, folder / "whole", "--workers", "1")
    run.complete()
    return run


def _killed(command: Sequence[str], kills: int, folder: Path, draw: random.Random) -> None:
    """Kills the process that asks, again and again."""
    whole, run = _whole(command, folder), Run(command, folder / "run", "--workers", "1")
    total, killed = len(whole.records()), 0
    goals = sorted(draw.randrange(total) for _ in range(kills))
    while killed < kills:
        process = run.start()
        while len(run.records()) < goals[killed] and not os.waitpid(process, os.WNOHANG)[0]:
            time.sleep(0.005)
        time.sleep(draw.random() * 0.05)
        os.kill(process, signal.SIGKILL)
        if run.end(process) == -signal.SIGKILL:
            killed += 1
        else:  # it was quicker than the kill: once more from the start
            run.forget()
    run.complete()
    assert run.answers() == whole.answers()
    run.check_each_once(total)


def _workers_killed(command: Sequence[str], kills: int, folder: Path, draw: random.Random) -> None:
    """Kills one of two workers at a random moment, in one run after the other."""
    whole, run = _whole(command, folder), Run(command, folder / "run", "--workers", "2")
    total, killed = len(whole.records()), 0
    while killed < kills:
        run.forget()
        process, goal = run.start(), draw.randrange(total)
        hit = False
        while not (ended := os.waitpid(process, os.WNOHANG))[0]:
            if not hit and len(run.records()) >= goal and (workers := _children(process)):
                time.sleep(draw.random() * 0.02)
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    hit = True
            time.sleep(0.005)
        assert os.waitstatus_to_exitcode(ended[1]) == 0, run.log.read_text()
        assert run.answers() == whole.answers()
        run.check_each_once(total)
        killed += hit


def _children(process: int) -> list[int]:
    """The worker processes of a process."""
    workers = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(_status(place)[1])
            if parent == process and b"relucert.execution.serve" in (place / "cmdline").read_bytes():
                workers.append(int(place.name))
    return workers


def _status(place: Path) -> list[str]:
    """Its state, its parent and so on."""
    return (place / "stat").read_text().rsplit(")", 1)[1].split()


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    """One of several methods; the slow tests kill every command."""
    _killed(COMMANDS["compare"], 1, tmp_path, random.Random("compare"))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_is_killed_thirty_times_goes_on(command: str, tmp_path: Path) -> None:
    _killed(COMMANDS[command], 30, tmp_path, random.Random(command))


def test_a_worker_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    _workers_killed(SHARED["certify"], 1, tmp_path, random.Random(0))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_ten_workers_that_are_killed_cost_nothing(command: str, tmp_path: Path) -> None:
    _workers_killed(SHARED[command], 10, tmp_path, random.Random(command))


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    run = Run(SHARED["certify"], tmp_path / "run", "--workers", "2")
    process = run.start()
    while not run.records() or len(workers := _children(process)) < 2:
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    assert run.end(process) == -signal.SIGKILL
    ends = time.monotonic() + 30
    while any(_is_alive(worker) for worker in workers):
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_an_interruption_ends_all_workers_and_keeps_what_came(tmp_path: Path) -> None:
    run = Run(SHARED["verify"], tmp_path / "run", "--workers", "2")
    process = run.start()
    while len(run.records()) < 3 or len(workers := _children(process)) < 2:
        time.sleep(0.01)
    os.kill(process, signal.SIGINT)
    assert run.end(process) == 130
    assert not any(_is_alive(worker) for worker in workers)
    assert "the same command goes on from here" in run.log.read_text()
    record = json.loads(run.path.read_text())
    assert not record["complete"]
    before = len(run.records())
    assert before >= 3
    run.complete()
    run.check_each_once(len(run.answers()))


def _is_alive(process: int) -> bool:
    try:
        return _status(Path(f"/proc/{process}"))[0] != "Z"
    except OSError:
        return False


def test_a_disk_that_is_full_ends_the_run_in_one_line(tmp_path: Path) -> None:
    import resource

    run = Run(COMMANDS["certify"], tmp_path / "run", "--images", "10", "--target", "untargeted")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        process = run.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert run.end(process) == 2
    said = run.log.read_text()
    assert "can't keep answers" in said or "can't write" in said
    assert "Traceback" not in said
    run.complete()
    assert len(run.answers()) == 10


@pytest.mark.parametrize("command", ["certify", pytest.param("paper", marks=pytest.mark.slow)])
def test_the_second_of_two_runs_is_refused(command: str, tmp_path: Path) -> None:
    run = Run(COMMANDS[command], tmp_path / "run")
    first = run.start()
    try:
        while len(run.records()) < 9:
            time.sleep(0.005)
        os.kill(first, signal.SIGSTOP)
        assert run.end(run.start()) == 2
        assert "in use by another run" in run.log.read_text()
    finally:
        os.kill(first, signal.SIGCONT)
    assert run.end(first) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("command", ["certify", "paper"])
def test_a_folder_that_may_only_be_read_is_refused_in_one_line(command: str, tmp_path: Path) -> None:
    run = Run(COMMANDS[command], tmp_path / "run")
    run.log.touch()
    run.folder.chmod(0o500)
    try:
        assert run.end(run.start()) == 2
        assert run.log.read_text().count("\n") == 1
    finally:
        run.folder.chmod(0o700)
