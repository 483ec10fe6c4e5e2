"""Stored results: whatever happened to the file, what is whole is used and the rest is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relucert.errors import InputError
from relucert.paper.store import Key, Store, _checksum
from tests.comparison.answers import attacked, certified, estimated

SETTINGS = {"seed": 0}
KEYS: list[Key] = [
    ("mnist-2x20", "d", "inf", "random", name, None, "p", 4) for name in ("fast-lin", "attack", "clever")
]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _filled() -> Path:
    store = Store("toy", SETTINGS, _silence)
    for key, entry in zip(KEYS, (certified("fast-lin", 0.1, 4), attacked(0.2, 4), estimated(0.15, 4)), strict=True):
        store.add(key, entry)
    store.close()
    return store.path


def _silence(text: str) -> None:
    raise AssertionError(text)


def _figures(tell: list[str]) -> list[float | None]:
    store = Store("toy", SETTINGS, tell.append)
    store.close()
    return [None if (entry := store.get(key)) is None else entry.figure for key in KEYS]


def test_what_was_stored_comes_back() -> None:
    _filled()
    told: list[str] = []
    assert _figures(told) == [0.1, 0.2, 0.15]
    assert told == []


def test_estimates_stored_before_count_by_the_same_rule() -> None:
    path = _filled()
    *others, last = path.read_text().splitlines()
    line = json.loads(last)
    del line["row"]["fitted"]
    line["row"] |= {"value": None, "radius": line["row"].pop("sampling_radius")}
    line["sum"] = _checksum(line["row"])
    path.write_text("\n".join([*others, json.dumps(line), ""]))
    assert _figures([]) == [0.1, 0.2, 0.15]


def test_other_settings_and_other_networks_have_results_of_their_own() -> None:
    _filled()
    other = Store("toy", {"seed": 1}, _silence)
    assert other.get(KEYS[0]) is None
    other.close()
    same = Store("toy", SETTINGS, _silence)
    assert same.get((KEYS[0][0], "another digest", *KEYS[0][2:])) is None
    same.close()


def test_a_file_cut_off_anywhere_keeps_its_whole_lines() -> None:
    path = _filled()
    content = path.read_bytes()
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        whole = content[:length].count(b"\n")
        told: list[str] = []
        figures = _figures(told)
        assert [figure is not None for figure in figures] == [place < whole - 1 for place in range(3)]
        assert bool(told) == (length > 0 and content[length - 1 : length] != b"\n")
        told.clear()
        assert _figures(told) == figures  # mended
        assert told == []


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe", b"null", b"[]", b"{}", b"12", b'{"network": "a"}', b"",
        b'{"network":"n","digest":"d","norm":"inf","target":"t","method":"m","limit":null,"image":0,"row":{"kind":"certified"}}',
        b'{"network":"n","digest":"d","norm":"inf","target":"t","method":"m","limit":null,"image":0,"row":{"kind":"proof"}}',
        b'{"network":["n"],"digest":"d","norm":"inf","target":"t","method":"m","limit":null,"image":0,"row":{"kind":"upper",'
        b'"distance":"near","image":0,"seconds":1,"target":null}}',
    ],
)  # fmt: skip
def test_damaged_lines_are_told_and_left_out(line: bytes) -> None:
    path = _filled()
    head, first, *others = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([head, first, line, *others]))
    told: list[str] = []
    assert _figures(told) == [0.1, 0.2, 0.15]
    assert len(told) == 1
    assert "1 lines are damaged" in told[0]


@pytest.mark.parametrize("version", ["0.0.1", "9.9", 3, None])
def test_another_version_is_set_aside(version: object) -> None:
    path = _filled()
    head, *others = path.read_bytes().split(b"\n")
    content = b"\n".join([json.dumps({**json.loads(head), "relucert": version}).encode(), *others])
    path.write_bytes(content)
    told: list[str] = []
    assert _figures(told) == [None, None, None]
    assert len(told) == 1
    assert "set aside" in told[0]
    assert path.with_suffix(".old").read_bytes() == content
    assert _figures(told) == [None, None, None]
    assert len(told) == 1


def test_places_that_can_t_be_written_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _filled()
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="can't keep results"):
        Store("toy", SETTINGS, _silence)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match="can't keep results"):
        Store("toy", SETTINGS, _silence)
