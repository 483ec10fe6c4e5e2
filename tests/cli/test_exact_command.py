"""`relucert exact` and `relucert check`, end to end on a bundled network."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from relucert.data import bundled
from tests.cli.conftest import Command, single_line


def test_from_question_to_checked_proof(command: Command, tmp_path: Path) -> None:
    record, proof = tmp_path / "run.json", tmp_path / "proof.json.gz"
    ended = command(
        "exact", "mnist-2x20", "--images", "1", "--target", "runner-up", "--json", str(record), "--proof", str(proof)
    )
    assert ended.code == 0, ended
    assert "minimum distortion" in ended.out
    assert "closed              1 of 1" in ended.out
    (row,) = json.loads(record.read_text())["results"]
    assert row["closed"]
    assert row["proven"]
    assert 0 < row["lower"] <= row["upper"]
    checked = command("check", str(proof))
    assert checked.code == 0, checked
    assert f"within {row['lower']!r}" in checked.out
    assert "of image 0," in checked.out
    images = bundled()
    digest = hashlib.sha256(images.images[0].double().numpy().tobytes()).hexdigest()
    assert digest in checked.out
    for data, code in (("bundled", 0), (str(_shuffled(tmp_path)), 1), ("nowhere.npz", 2)):
        assert command("check", str(proof), "--data", data).code == code
    assert "checked" in command("check", str(proof), "--data", "bundled").out
    single_line(command("check", str(proof), "--data-dir", str(tmp_path)), ["--data"])
    again = command("exact", "mnist-2x20", "--images", "2", "--target", "5", "--proof", str(proof))
    single_line(again, ["a proof is about one question"])
    again = command("exact", "mnist-2x20", "--images", "1", "--target", "5", "--proof", str(proof))
    single_line(again, ["holds results of another question", "--overwrite"])
    other = command("check", str(proof), "mnist-3x20")
    assert other.code == 1
    assert "another network" in other.err
    proof.write_bytes(proof.read_bytes()[:-20])
    broken = command("check", str(proof))
    assert broken.code == 1
    assert "rejected" in broken.err
    assert broken.out == ""


def _shuffled(folder: Path) -> Path:
    path = folder / "images.npy"
    np.save(path, bundled().images.numpy()[::-1])
    return path


def test_no_time_and_no_box(command: Command) -> None:
    ended = command("exact", "--images", "2", "--time-limit", "0", "--no-box", "--norm", "1")
    assert ended.code == 0
    assert "closed              0 of 2" in ended.out
    assert "time limit" in ended.out


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--norm", "3"), ["norm 1, 2 or inf"]),
        (("--box", "1", "0"), ["box"]),
        (("--tolerance", "2"), ["tolerance"]),
        (("--time-limit", "-1"), ["-1"]),
        (("--proof", "proof.json", "--images", "2"), ["one question"]),
    ],
)
def test_errors_are_one_line(command: Command, options: tuple[str, ...], parts: list[str]) -> None:
    single_line(command("exact", *options), parts)


def test_a_missing_proof_is_an_error(command: Command, tmp_path: Path) -> None:
    single_line(command("check", str(tmp_path / "missing.json")), ["can't read"])
