"""Stores of answers: whatever happened to the file, what is whole is used, and the rest is told or refused."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

import relucert
from relucert import Network
from relucert.answers.certificates import Certificate, Exact, Rounding, UpperBound
from relucert.answers.verdicts import RobustnessVerdict
from relucert.errors import RemarkWarning, StoreError
from relucert.inputs.storage import journal
from relucert.inputs.storage.codec import TYPES, decode, encode
from relucert.inputs.storage.journal import Journal
from relucert.inputs.storage.store import About, Anew, Store, open_store
from tests.nets import mlp

ASKED = {"command": "certify", "norm": math.inf, "scale": torch.ones(3), "box": (0.0, 1.0)}
KEYS: list[About] = [
    {"method": "", "image": image, "pixels": f"pixels {image}", "rivals": [1, 2]} for image in range(3)
]


def certificate(image: int, **changes: Any) -> Certificate:
    plain = Certificate(image, 0, 1, math.inf, "crown", Rounding.RIGOROUS, 0.1 * (image + 1), None, 0.5, 3)
    return replace(plain, **changes)


def _filled(path: Path) -> bytes:
    with Store(path, ASKED) as store:
        for key in KEYS:
            store.add([(key, certificate(key["image"]))])
    return path.read_bytes()


def _there(path: Path) -> list[bool]:
    with Store(path, ASKED) as store:
        return [store.get(key) == certificate(key["image"]) for key in KEYS]


def test_answers_come_back_bit_by_bit() -> None:
    witness = torch.tensor([[0.1, -0.0], [5e-324, 1 / 3]], dtype=torch.float64)
    answers: list[Any] = [
        certificate(0, radius=math.inf, box=(-math.inf, 0.5), input_scale=torch.tensor([1.0, 0.0])),
        UpperBound(1, 0, 2, 2.0, "best", 1 / 3, witness.half(), 2, (torch.zeros(2), torch.ones(2)), None, 1.0),
        Exact(2, 0, None, 1.0, "exact", 0.1, None, False, None, None, "time", 1.0, 7),
        RobustnessVerdict("violated", witness, torch.ones(2), None, 1.0, 0, "attack", (Fraction(1, 3),), ("a",), False),
    ]
    for answer in answers:
        again = decode(json.loads(json.dumps(encode(answer), allow_nan=False)))
        assert type(again) is type(answer)
        for one in fields(answer):
            assert _same(getattr(answer, one.name), getattr(again, one.name)), one.name
    assert {"Certificate", "UpperBound", "Exact", "Estimate", "RobustnessVerdict"} <= TYPES.keys()


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and one.numpy().tobytes() == other.numpy().tobytes())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def test_a_file_cut_off_anywhere_keeps_its_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    content = _filled(path)
    for length in range(0, len(content), 41):
        path.write_bytes(content[:length])
        whole = content[:length].count(b"\n")
        if length and content[length - 1 : length] != b"\n":
            with pytest.warns(RemarkWarning, match="cut off"):
                answered = _there(path)
        else:
            answered = _there(path)
        assert answered == [place < whole - 1 for place in range(3)]
        assert _there(path) == answered  # mended


def test_a_damaged_record_in_the_middle_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    content = _filled(path)
    place = content.index(b"0.2")
    path.write_bytes(content[:place] + b"9" + content[place + 1 :])  # a larger radius: nobody may believe it
    with pytest.warns(RemarkWarning, match="1 damaged record is left out"):
        assert _there(path) == [True, False, True]
    with pytest.warns(RemarkWarning), Store(path, ASKED) as store:
        store.add([(KEYS[1], certificate(1))])
    with pytest.warns(RemarkWarning):
        assert _there(path) == [True, True, True]


def test_what_is_no_answer_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    _filled(path)
    strange: list[dict[str, Any]] = [
        {}, {"method": "", "image": 0, "pixels": "", "rivals": [], "answer": {"Certificate": {"radius": 9.0}}},
        {"method": "", "image": 0, "pixels": "", "rivals": [], "answer": {"os": "system"}},
        {"method": "", "image": 1, "pixels": "", "rivals": [], "answer": encode(certificate(0))},
    ]  # fmt: skip
    with Journal(path, _silence) as file:
        file.append(strange)
    with pytest.warns(RemarkWarning, match="4 records are none of ours"):
        assert _there(path) == [True, True, True]


def _silence(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"norm": 2.0}, r"norm is inf, not 2\.0"),
        ({"scale": torch.tensor([1.0, 1.0, 2.0])}, "scale is sha256"),
        ({"box": None, "command": "exact"}, "command is certify, not exact, box is"),
        ({"more": 1}, "more is None, not 1"),
    ],
)
def test_another_question_is_refused_and_the_difference_told(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.answers"
    content = _filled(path)
    with pytest.raises(StoreError, match=said):
        Store(path, {**ASKED, **changes})
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b'{"a": 1}', b"my notes\nwithout an end", b"\x08\x07\x12 an\nonnx file"])
def test_a_file_that_is_not_ours_stays_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is no store of answers"), pytest.warns(RemarkWarning, match="damaged"):
        Store(path, ASKED)
    assert path.read_bytes() == content


def test_a_store_without_answers_takes_another_question(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    Store(path, ASKED).close()
    with Store(path, {**ASKED, "norm": 2.0}) as store:
        store.add([(KEYS[0], certificate(0))])
    with pytest.raises(StoreError, match=r"norm is 2\.0, not inf"):
        Store(path, ASKED)


def test_an_interruption_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.answers"

    def interrupt(file: int) -> None:
        raise KeyboardInterrupt

    with Store(path, ASKED) as store:
        store.add([(KEYS[0], certificate(0))])
        with monkeypatch.context() as patch:
            patch.setattr(journal, "SYNCED", -1.0)
            patch.setattr("os.fsync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.add([(KEYS[1], certificate(1))])
        store.add([(KEYS[2], certificate(2))])
    assert _there(path) == [True, False, True]


def test_an_answer_about_another_image_is_not_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "a.answers", ASKED) as store, pytest.raises(AssertionError):
        store.add([(KEYS[0], certificate(1))])


def test_answers_of_another_series_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.answers"
    _filled(path)
    monkeypatch.setattr(relucert, "__version__", "99.0.0")
    with pytest.raises(StoreError, match=r"this is 99\.0\.0"):
        Store(path, ASKED)


def test_where_evaluations_round_is_part_of_the_question(tmp_path: Path) -> None:
    network = mlp(3, 4, 2)
    first, *rest = network.nodes
    moved = Network(network.input_shape, (replace(first, roundings=100), *rest))
    options: dict[str, Any] = {"images": torch.zeros(1, 3), "store": tmp_path / "a.answers"}
    relucert.certify(network, inference="float32", **options)
    with pytest.raises(StoreError, match="network"):
        relucert.certify(moved, inference="float32", **options)


def test_another_format_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    _filled(path)
    first, *others = path.read_bytes().split(b"\n")
    head = json.loads(first.partition(b" ")[2])
    text = json.dumps({**head, "format": 99}).encode()
    other = hashlib.sha256(text).hexdigest()[: journal.DIGITS].encode() + b" " + text
    contents = {b"\n".join([other, *others]): "in format 99", b"my notes\n": "no store of answers"}
    for content, said in contents.items():
        path.write_bytes(content)
        with pytest.raises(StoreError, match=said), pytest.warns() if b"notes" in content else _nothing():
            Store(path, ASKED)
        assert path.read_bytes() == content
    open_store(Anew(path), ASKED).close()
    assert _there(path) == [False, False, False]


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_two_runs_can_t_share_a_store(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    with Store(path, ASKED):
        with pytest.raises(StoreError, match="in use by another run"):
            Store(path, ASKED)
        with pytest.raises(StoreError, match="in use by another run"):
            open_store(Anew(path), ASKED).close()
    assert _there(path) == [False, False, False]


def test_failed_answers_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.answers"
    with Store(path, ASKED) as store:
        store.add([(KEYS[0], certificate(0, failed=True)), (KEYS[1], certificate(1))])
    assert _there(path) == [False, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder where nobody may write")
def test_a_folder_that_can_t_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't keep answers in /proc/"):
        Store(Path("/proc/a.answers"), ASKED)
    with pytest.raises(StoreError, match="can't keep answers"):
        Store(tmp_path, ASKED)


def test_a_full_disk_leaves_whole_records(tmp_path: Path) -> None:
    """A disk with room for half a record."""

    class Full:
        def __init__(self, file: Any) -> None:
            self.file, self.room = file, 100

        def write(self, content: bytes) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            written = self.file.write(content[: self.room])
            self.room = 0
            return int(written)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    path = tmp_path / "a.answers"
    content = _filled(path)
    with Store(path, ASKED) as store:
        store._journal._file = Full(store._journal._file)  # type: ignore[assignment]
        with pytest.raises(StoreError, match="No space left on device"):
            store.add([({"image": 9, "pixels": "pixels 9"}, certificate(9))])
    assert path.read_bytes() == content
