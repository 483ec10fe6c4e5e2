from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

import relucert
from relucert.cli.main import main
from relucert.common import terminal as progress
from tests.cli import fake


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, commands would say how far they are."""
    monkeypatch.setattr(progress, "EVERY", 1e6)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs `relucert` in this process."""

    def run(*argv: str) -> Outcome:
        capfd.readouterr()
        try:
            code = main(argv)
        except SystemExit as ending:  # argparse's way out
            code = int(ending.code or 0)
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return run


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[fake.Library], None]:
    """Puts a stand-in in the place of the library."""

    def install(library: fake.Library) -> None:
        for name, value in library.replace().items():
            monkeypatch.setitem(vars(relucert), name, value)

    return install


def single_line(outcome: Outcome, parts: Sequence[str] = ()) -> None:
    """An error as users should see it."""
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("relucert: error: ")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err
