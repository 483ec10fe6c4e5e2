"""Bars on terminals: they fit, and what does not is left out whole."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress

from relucert.common.progress import Progress
from relucert.common.terminal import LEAST_BAR, Bar, counting_bars

SEARCH = Progress(
    done=3, total=100, image=3, stage="refinement", lower=0.0217712, upper=0.0270391, nodes=12_345, open=678, rows=9,
    bound=-0.00262,
)  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_news_that_do_not_fit_are_left_out_whole(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    bars = counting_bars(console)
    assert isinstance(bars, RichProgress)
    Bar(bars, "searching", 100).tell(SEARCH)
    with console.capture() as captured:
        console.print(bars.get_renderable())
    (line,) = captured.get().splitlines()
    assert len(line) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in line
    assert "3/100" in line.replace(" ", "")
    assert "-:--:--" in line
    said = re.split(r"  | [\N{BOX DRAWINGS HEAVY HORIZONTAL}\N{BOX DRAWINGS HEAVY LEFT}]", line)[0]
    whole = f"searching {SEARCH.doing}"
    assert whole.startswith("searching image 3")
    assert whole[: len(said) + 1] in (said, f"{said},", f"{said}:")
    assert line.index("3/100") - len(said) > LEAST_BAR
    if width == 200:
        assert said == whole
