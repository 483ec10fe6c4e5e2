"""What `relucert paper --json` records, on a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import relucert
from relucert.errors import LoadError
from relucert.report.page import page, read_any
from relucert.report.paper_table import Table
from tests.report import runs
from tests.report.test_page import EVIL, Outline


def _cell(method: str, answer_kind: str, **keys: Any) -> dict[str, Any]:
    cell = {
        "network": "mnist-2x20", "same_network": True, "norm": "2", "target": "random",
        "valid_inputs": "every input valid", "method": method, "kind": answer_kind, "images": 3, "mean": 0.123456,
        "seconds": 0.5, "closed": None, "published": "0.1", "published_is_a_bound": True, "published_seconds": 2.0,
    }  # fmt: skip
    return {**cell, **keys}


CELLS = [
    _cell("fast-lin", "certified"),
    _cell("lp", "certified", published="0.9", published_is_a_bound=False),
    _cell("exact", "exact", closed=2, published=None),
    _cell("clever", "estimate", images=2, published_is_a_bound=False),
    _cell("attack", "upper", same_network=True),
    _cell("fast-lin", "certified", network="mnist-3x20", same_network=False, mean=None, seconds=None, images=0),
]


def _write(path: Path, **changes: Any) -> Path:
    head = {"command": "paper", "relucert": relucert.__version__, "options": {"table": "toy"}, "complete": True}
    path.write_text(json.dumps({**head, "skipped": {"lp-full": "too slow"}, "cells": CELLS, **changes}))
    return path


def test_our_numbers_stand_beside_the_published(tmp_path: Path) -> None:
    table = read_any(_write(tmp_path / "t.json"))
    assert isinstance(table, Table)
    text = page(table)
    Outline(text)
    for words in (
        "<h1>The paper&#39;s table, computed anew</h1>",
        "0.12345<small> [0.1]</small>",  # rounded down
        "0.12346<small> [0.1]</small>",  # a distance, rounded up
        "[0.9\N{DAGGER}]",
        "2 closed",
        "2 of the images",
        ">clever (no bound)<",
        "(0.1)",
        "lp-full: too slow",
        "For reproduction",
    ):
        assert words in text, words
    assert "0.1\N{DAGGER}" not in text  # an estimate never was one
    assert "not finished" not in text
    assert "not finished" in page(read_any(_write(tmp_path / "t.json", complete=False)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": 3}, "no list of cells"),
        ({"cells": []}, "no results yet"),
        ({"cells": [3]}, "cell 0: it is no object"),
        ({"cells": [{**CELLS[0], "mean": "x"}]}, "cell 0: mean is 'x'"),
        ({"cells": [{**CELLS[0], "kind": "sure"}]}, "its kind is 'sure'"),
        ({"cells": [{**CELLS[0], "images": -1}]}, "images is -1"),
        ({"relucert": "99.0.0"}, "written by relucert 99.0.0"),
    ],
)
def test_anything_else_is_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=r"t\.json") as raised:
        read_any(_write(tmp_path / "t.json", **changes))
    assert message in str(raised.value)


def test_markup_is_shown_as_text(tmp_path: Path) -> None:
    cells = [{**CELLS[0], "network": EVIL, "method": EVIL, "target": EVIL, "published": EVIL, "norm": EVIL}]
    text = page(read_any(_write(tmp_path / "t.json", cells=cells, options={"table": EVIL}, skipped={EVIL: EVIL})))
    outline = Outline(text.encode(errors="replace").decode())
    assert outline.count("script") == 1
    assert outline.count("img") == 0


def test_runs_and_tables_share_a_page(tmp_path: Path) -> None:
    run = read_any(runs.write(tmp_path / "run.json", runs.invented(2)))
    text = page(run, read_any(_write(tmp_path / "t.json")))
    assert "How robust is mnist-2x20?" in text
    assert "<h2>The paper's table \N{LEFT DOUBLE QUOTATION MARK}toy" in text
    assert "<h3>run.json</h3>" in text


def test_what_is_evaluated_in_float32_is_told_apart(tmp_path: Path) -> None:
    cells = [_cell("fast-lin", "certified", inference="float32"), _cell("fast-lin", "certified", mean=0.2)]
    text = page(read_any(_write(tmp_path / "t.json", cells=cells)))
    assert "Ours are about every evaluation in float32, the published numbers about real arithmetic." in text
    assert "fast-lin in float32" in text
    assert "0.2" in text
    assert "0.1234" in text
    assert "every evaluation in" not in page(read_any(_write(tmp_path / "u.json")))
