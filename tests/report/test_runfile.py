from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from relucert.errors import InputError
from relucert.inputs.storage import files
from relucert.report.runfile import RunFile

HEAD = {"relucert": "0", "options": {"norm": "inf"}}


def _read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def test_readable_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with RunFile(HEAD, path, None):
        record = _read(path)
        assert record.pop("seconds") >= 0
        assert record == {**HEAD, "complete": False, "results": []}


def test_saved_while_the_next_answer_is_awaited(tmp_path: Path) -> None:
    """Answers that came just after a saving do not wait for the next answer."""
    path = tmp_path / "run.json"
    with RunFile(HEAD, path, tmp_path / "run.csv", interval=0.01) as record:
        record.add({"image": 0})
        record.add({"image": 1})
        deadline = time.monotonic() + 30
        while (tmp_path / "run.csv").read_text() != "image\n0\n1\n":  # written after the JSON file
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(_read(path)["results"]) == 2
        assert not _read(path)["complete"]
        record.finish()
    assert _read(path)["complete"]


def test_saved_when_the_work_fails(tmp_path: Path) -> None:
    path = tmp_path / "run.json"

    def work() -> None:
        with RunFile(HEAD, path, None) as record:
            record.add({"image": 0})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert _read(path)["results"] == [{"image": 0}]
    assert list(tmp_path.iterdir()) == [path]


def test_no_number_json_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with RunFile(HEAD, path, None) as record:
        record.add({"radius": math.inf})
        with pytest.raises(ValueError, match="JSON"):
            record.add({"radius": math.nan})
        record.add({"box": (-math.inf, 0.5)})
        record.add({"box": [[0.0, -math.inf], [math.inf, 0.5]]})
    boxes = [{"box": ["-inf", 0.5]}, {"box": [[0.0, "-inf"], ["inf", 0.5]]}]
    assert _read(path)["results"] == [{"radius": "inf"}, *boxes]


def test_csv_cells(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    with RunFile(HEAD, None, path) as record:
        record.add({"a": None, "b": True, "c": 0.1, "d": 'x, "y"'})
    assert path.read_text() == 'a,b,c,d\n,true,0.1,"x, ""y"""\n'


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "real" / "run.json")
    files.write(tmp_path / "link.json", b"1")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real" / "run.json").read_bytes() == b"1"


def test_a_failed_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    files.write(path, b"old")

    def full(temporary: object, place: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"run\.json: No space"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_checking_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    files.check_writable(path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    files.check_writable(path)
    assert path.read_text() == "old"
    with pytest.raises(InputError, match="no folder"):
        files.check_writable(path / "below")
