"""Tables on terminals: they fit, and no number is cut."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from relucert.cli import layout, show
from relucert.cli.layout import REMARK, Grid, Line, lay_out
from relucert.cli.main import main
from relucert.cli.show import Screen
from tests.nets import mlp
from tests.verification.networks import as_onnx

WIDTHS = (80, 100, 140)
LEAST = 20  # characters of a column of remarks
FEW = ("--steps", "10", "--batches", "12", "--samples", "8")
RIVAL = ("--target", "runner-up")
COMMANDS = {
    "certify": ("certify", "--images", "30", "--all"),
    "certify-best": ("certify", "--images", "2", "--method", "best", "--budget", "0.5", *RIVAL),
    "attack": ("attack", "--images", "9", "--steps", "3", "--no-polish"),
    "exact": ("exact", "--images", "9", *RIVAL, "--time-limit", "0.05"),
    "estimate": ("estimate", "--images", "9", "--batches", "5", "--samples", "8"),
    "verify": ("verify", "--radius", "0.02", "--images", "10", "--time-limit", "0.5"),
    "instances": ("verify", "--instances", "list.csv"),
    "compare": ("compare", "--images", "2", "--methods", "fast-lin,lipschitz-norm,op-norm,exact,clever,attack", *FEW,
                *RIVAL, "--budget", "1"),
    "paper": ("paper", "toy", "--images", "1", "--norms", "inf", *FEW, "--budget", "1", "--targets", "runner-up",
              "--methods", "fast-lin,fast-lip,crown,op-norm,lp,clever,attack"),
    "zoo": ("zoo",),
    "check": ("check", "proofs"),
}  # fmt: skip
FALSE = """(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 -0.1)) (assert (<= X_0 0.1)) (assert (>= X_1 0.3)) (assert (<= X_1 0.7))
(assert (or (<= Y_0 Y_1) (>= Y_0 Y_1)))"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands ask about: instances with long names, and proofs."""
    folder = tmp_path_factory.mktemp("tables")
    network, asked = f"cifar10_{'2_255_' * 6}adversarially_trained.onnx", f"prop_{'0_0314_' * 7}eps.vnnlib"
    as_onnx(mlp(2, 8, 8, 2, seed=6), folder / network)
    (folder / asked).write_text(FALSE)
    (folder / "list.csv").write_text(f"{network},{asked},5\n{network},no-such-property.vnnlib,5\n" * 2)
    assert main(["certify", "--images", "2", "--proofs", str(folder / "proofs"), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def printed(folder: Path) -> Iterator[Callable[[str], list[Grid]]]:
    """The tables that a command prints; each command runs once."""
    by_command: dict[str, list[Grid]] = {}
    tables: list[Grid] = []

    def noted(grid: Grid, width: int, ruled: bool) -> list[Line]:
        tables.append(grid)
        return lay_out(grid, width, ruled)

    def run(name: str) -> list[Grid]:
        if name not in by_command:
            tables.clear()
            assert main(list(COMMANDS[name])) == 0
            by_command[name] = [*tables]
        return by_command[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr(show, "lay_out", noted)
        yield run


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_the_tables_of_every_command_fit(name: str, width: int, printed: Callable[[str], list[Grid]]) -> None:
    tables = printed(name)
    assert tables
    for grid in tables:
        check(grid, width)


def test_the_table_of_a_search_fits() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    screen = Screen(quiet=False)
    screen._err = console
    screen.grid([("0.05", "0.0001", "98.12 %", "97.90 %"), ("0.5", "0", "diverged", "")])
    assert "98.12 %" in console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, console.file.getvalue().splitlines())) < 80  # type: ignore[attr-defined]


CELLS = st.text("0123456789.-eE", min_size=1, max_size=14)
WORDS = st.text("abcdefgh ", max_size=90)


@given(data=st.data(), width=st.integers(40, 160), columns=st.integers(2, 12), remarks=st.booleans())
def test_any_table_fits(data: st.DataObject, width: int, columns: int, remarks: bool) -> None:
    titles = data.draw(st.lists(st.text("abcd", min_size=1, max_size=9), min_size=columns, max_size=columns))
    keys = data.draw(st.integers(1, columns))
    row = st.tuples(*[CELLS] * columns, *([WORDS] if remarks else []))
    grid = Grid([*titles, *([REMARK] if remarks else [])], data.draw(st.lists(row, max_size=4)), keys, keys)
    check(grid, width)


def check(grid: Grid, width: int) -> None:
    """No line is wider than the terminal, no cell is cut, and remarks have room."""
    lines = [line.text for line in lay_out(grid, width, ruled=True)]
    assert max(map(cell_len, lines), default=0) <= width
    text = "\n".join(lines)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for word in " ".join(grid.titles[:-1] if grid.rows else ()).split():
        assert word in text, word
    remarked = grid.titles[-1] == REMARK
    for row in grid.rows:
        for cell in row[: -1 if remarked else None]:
            assert cell in text or len(cell) > width - 20, cell  # longer ones are names of files
        for word in row[-1].split() if remarked else ():
            assert word in text or len(word) > width - 20, word
    for line in lines:
        if line.endswith(f" {REMARK}"):
            longest = max(len(row[-1]) for row in grid.rows)
            assert width - line.index(REMARK) >= min(LEAST, longest)
            assert layout.LEAST_REMARK >= LEAST


def test_the_smallest_change_that_fits() -> None:
    grid = Grid(("method", "to nearest witness", REMARK), [("fast-lin", "-12.8 %", "one two three " * 5)])

    def text(width: int) -> list[str]:
        return [line.text for line in lay_out(grid, width, ruled=False)]

    assert text(140) == [
        "method    to nearest witness  remark",
        f"fast-lin  -12.8 %             {'one two three ' * 5}".rstrip(),
    ]
    assert text(64)[:2] == [
        "method    to nearest witness  remark",
        "fast-lin  -12.8 %             one two three one two three one",
    ]
    assert text(52)[:3] == [
        "method    to nearest  remark",
        "          witness",
        "fast-lin  -12.8 %     one two three one two three",
    ]
    assert text(40) == [
        "method    to nearest witness",
        "fast-lin  -12.8 %",
        "",
        "fast-lin: one two three one two three",
        "  one two three one two three one two",
        "  three",
    ]
    assert text(20)[:4] == ["method    to nearest", "          witness", "fast-lin  -12.8 %", ""]


def test_columns_that_do_not_fit_stand_in_a_table_of_their_own() -> None:
    grid = Grid(("network", "LP", "CROWN"), [("a-long-name", "0.123456789", "0.987654321")])
    assert [line.text for line in lay_out(grid, 30, ruled=False)] == [
        "network      LP",
        "a-long-name  0.123456789",
        "",
        "network      CROWN",
        "a-long-name  0.987654321",
    ]
    assert [line.text for line in lay_out(grid, 23, ruled=False)] == [
        "network  a-long-name",
        "LP       0.123456789",
        "CROWN    0.987654321",
    ]


def test_remarks_below_a_table_say_what_they_are_about() -> None:
    titles = ("image", "label", "rival", "a title that leaves no room", REMARK)
    rows = [("0", "7", "1", "0.5", "lost"), ("0", "7", "2", "0.5", ""), ("1", "7", "2", "0.5", "lost")]
    both = "image 0, label 7, rival 1; image 1, label 7, rival 2: lost"
    for shown, note in ((rows, both), (rows[1:], "image 1: lost")):
        lines = [line.text for line in lay_out(Grid(titles, shown, keys=3), 36, ruled=False)]
        assert " ".join(" ".join(lines).split()).endswith(note)


@pytest.mark.parametrize(
    ("terminal", "every", "whole"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_many_answers_do_not_scroll_away(terminal: bool, every: bool, whole: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80, color_system=None)
    screen = Screen(False, every)
    screen._out = console
    screen.each(("image", "distance"), [(str(image), f"0.{image:03}") for image in range(100)], keys=1, right=1)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    images = [int(line.split()[0]) for line in lines if line.strip()[:1].isdecimal()]
    assert images == ([*range(100)] if whole else [*range(10), *range(95, 100)])
    assert ("... 85 more; --all shows every one" in lines) is not whole


def test_long_lines_go_on_below_their_beginning() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    screen = Screen(quiet=False)
    screen._out = console
    screen.line("question", "norm inf, fast-lin, target untargeted, every input valid")
    screen.line("proof", f"/{'folder/' * 20}proof.json")
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "question            norm inf, fast-lin, target untargeted,",
        "                    every input valid",
        f"proof               /{'folder/' * 20}proof.json",  # whole, to be copied
    ]
