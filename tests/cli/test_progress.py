"""Progress without a terminal: a line now and then on standard error, and silence where it is asked for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relucert.cli.show import Screen
from relucert.common import terminal as progress
from relucert.common.progress import Progress
from tests.cli import fake
from tests.cli.conftest import Command

INTERVAL = progress.EVERY


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.02)


def test_ten_seconds() -> None:
    assert INTERVAL == 10


def test_a_long_command_says_how_far_it_is(command: Command, stand_in: Callable[[fake.Library], None]) -> None:
    stand_in(fake.Library(pause=0.05))
    outcome = command("certify", "--images", "4")
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert len(lines) > 2
    pattern = r"certifying: (\d) of 4, \d+ s so far(, [\d.e+]+/s, about \d+ s left)?"
    done = [int(re.fullmatch(pattern, line)[1]) for line in lines]  # type: ignore[index]
    assert any("left" in line for line in lines)
    assert done == sorted(done)
    assert len(set(done)) > 1
    assert "so far" not in outcome.out


def test_quiet_is_silent(command: Command, stand_in: Callable[[fake.Library], None]) -> None:
    stand_in(fake.Library(pause=0.05))
    assert command("certify", "--images", "2", "--quiet").err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("estimate", "--images", "1", "--batches", "30"),
        ("paper", "toy", "--images", "1", "--methods", "clever", "--norms", "inf", "--networks", "mnist-2x20"),
    ],
)
def test_commands_that_sample(
    command: Command, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    outcome = command(*arguments)
    assert outcome.code == 0
    assert " s so far" in outcome.err


def test_sizes_and_words(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen(quiet=False)
    with screen.downloads() as show:
        show("images.gz", 1_000, 12_000_000)
        time.sleep(0.2)
    with screen.progress("searching", 3) as bar:
        bar.tell(Progress(done=1, total=3, image=1, stage="alpha", evaluations=4))
        time.sleep(0.2)
    err = capfd.readouterr().err
    assert "downloading images.gz: 1.0 kB of 12.0 MB, 0 s so far\n" in err
    assert "searching image 1: alpha, 4 evaluations: 1 of 3, 0 s so far\n" in err  # what was done before is no pace


def test_a_network_that_is_checked_at_once_is_not_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen(quiet=False)
    for steps in ([16], [2, 7]):
        with screen.loading() as show:
            for done in steps:
                show(Progress(done, steps[-1], stage="comparison"))
                time.sleep(0.1)
    err = capfd.readouterr().err
    assert "loading comparison: 2 of 7, 0 s so far\n" in err
    assert "of 16" not in err
