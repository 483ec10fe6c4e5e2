"""The command with the library behind it, on the bundled network and images."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relucert
from relucert import data
from relucert.methods.table import METHODS
from tests.cli.conftest import Command, single_line


def _run(command: Command, path: Path, *argv: str) -> list[dict[str, Any]]:
    outcome = command("certify", *argv, "--json", str(path), "--overwrite")
    assert (outcome.code, outcome.err) == (0, "")
    record = json.loads(path.read_text())
    assert record["complete"]
    rows: list[dict[str, Any]] = record["results"]
    return rows


def test_shells_reach_the_method(command: Command, tmp_path: Path) -> None:
    images = data.bundled().first(3)
    for given, shells in (((), 30), (("--shells", "2"), 2)):
        rows = _run(command, tmp_path / "run.json", "--images", "3", "--method", "fast-lip", *given)
        certificates = relucert.certify("mnist-2x20", images.images, images.labels, method="fast-lip", shells=shells)
        assert [row["radius"] for row in rows] == [certificate.radius for certificate in certificates]
    for arguments, message in (
        (("--method", "fast-lip", "--shells", "0"), "whole number >= 1"),
        (("--shells", "3"), "'fast-lin' has no shells"),
    ):
        outcome = command("certify", "--images", "1", *arguments)
        assert outcome.code == 2
        assert message in outcome.err


@pytest.mark.parametrize("norm", ["inf", "2", "1", "1.5"])
def test_the_command_equals_the_library(command: Command, tmp_path: Path, norm: str) -> None:
    rows = _run(command, tmp_path / "run.json", "--images", "5", "--norm", norm)
    images = data.bundled().first(5)
    certificates = relucert.certify(relucert.load("mnist-2x20"), images.images, images.labels, norm=norm)
    assert [row["radius"] for row in rows] == [certificate.radius for certificate in certificates]
    assert [row["target"] for row in rows] == [certificate.target for certificate in certificates]
    assert all(row["proven"] for row in rows)


def test_methods_and_arithmetics(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    radii = {
        (method, arithmetic): [
            row["radius"]
            for row in _run(command, path, "--images", "1", "--method", method, "--arithmetic", arithmetic)
        ]
        for method in METHODS
        for arithmetic in ("rigorous", "float")
    }
    for method in METHODS:
        assert radii[method, "rigorous"] == pytest.approx(radii[method, "float"], rel=1e-3)
    assert sum(radii["interval", "rigorous"]) < sum(radii["fast-lin", "rigorous"])


def test_all_rivals(command: Command, tmp_path: Path) -> None:
    rows = _run(command, tmp_path / "run.json", "--images", "2", "--target", "all")
    assert len(rows) == 18
    assert {row["target"] for row in rows if row["image"] == 0} == set(range(10)) - {7}
    weakest = _run(command, tmp_path / "run.json", "--images", "2")
    for image in range(2):
        least = min(row["radius"] for row in rows if row["image"] == image)
        assert weakest[image]["radius"] == pytest.approx(least, rel=3e-4)


def test_a_target_class(command: Command, tmp_path: Path) -> None:
    rows = _run(command, tmp_path / "run.json", "--images", "2", "--target", "7")
    assert rows[0]["radius"] is None  # the first image shows a 7
    assert "own label" in rows[0]["reason"]
    assert rows[1]["target"] == 7


def test_own_images_without_labels(command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", data.bundled().images[:3].numpy().reshape(3, 28, 28))
    outcome = command("certify", "--data", str(tmp_path / "own.npy"))
    assert outcome.code == 0
    assert "clean accuracy      unknown" in outcome.out


def test_a_wrong_label_has_no_radius(command: Command, tmp_path: Path) -> None:
    images = data.bundled().first(2)
    np.savez(tmp_path / "own.npz", images=images.images.numpy(), labels=np.array([7, 3]))
    outcome = command("certify", "--data", str(tmp_path / "own.npz"), "--at", "0")
    assert outcome.code == 0
    assert "clean accuracy      50.0 % (1 of 2)" in outcome.out
    assert "certified accuracy  50.0 % (1 of 2) at radius 0" in outcome.out


def test_everything_bundled_with_a_picture(command: Command, tmp_path: Path) -> None:
    rows = _run(command, tmp_path / "run.json", "--plot", str(tmp_path / "run.png"))
    assert len(rows) == 100
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert sum(row["proven"] for row in rows) > 90


def test_a_small_memory_budget_changes_nothing(command: Command, tmp_path: Path) -> None:
    ample = _run(command, tmp_path / "run.json", "--images", "6")
    scarce = _run(command, tmp_path / "run.json", "--images", "6", "--memory", "1M")
    radii = [[row["radius"] for row in rows] for rows in (ample, scarce)]
    assert radii[0] == pytest.approx(radii[1], rel=3e-4)


def _images(**changes: Any) -> dict[str, Any]:
    images = data.bundled().first(2)
    assert images.labels is not None
    return {"images": images.images.numpy(), "labels": images.labels.numpy(), **changes}


BAD_DATA: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": (_images(images=np.full((2, 784), np.nan)), "NaN"),
    "infinite": (_images(images=np.full((2, 784), np.inf)), "infinite"),
    "shape": (_images(images=np.zeros((2, 783))), "783"),
    "label": (_images(labels=np.array([7, 10])), "10"),
    "negative label": (_images(labels=np.array([-1, 7])), "-1"),
    "labels": (_images(labels=np.array([7])), "1 label"),
    "empty": (_images(images=np.zeros((0, 784))), "no images"),
    "bytes": (_images(images=np.zeros((2, 784), np.uint8)), "scale the pixels"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(command: Command, tmp_path: Path, case: str) -> None:
    arrays, words = BAD_DATA[case]
    np.savez(tmp_path / "own.npz", **arrays)
    single_line(command("certify", "--data", str(tmp_path / "own.npz")), [words])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--norm", "0.5"], "0.5"),
        (["--norm", "two"], "two"),
        (["--norm", "nan"], "nan"),
        (["--method", "fastlim"], "fast-lin"),
        (["--target", "nobody"], "runner-up"),
        (["--target", "10"], "10 classes"),
        (["--target", "-1"], "-1"),
        (["--arithmetic", "exact"], "rigorous"),
        (["--tolerance", "0"], "tolerance"),
        (["--tolerance", "nan"], "tolerance"),
        (["mnist-9x9"], "mnist-2x20"),
        (["missing.onnx"], "missing.onnx"),
        (["missing.safetensors"], "missing.safetensors"),
        (["empty.onnx"], "empty.onnx"),
        (["text.onnx"], "text.onnx"),
        (["text.safetensors"], "text.safetensors"),
        (["half.safetensors"], "half.safetensors"),
        (["pickle.pt"], "pickle"),
        (["pickle.onnx"], "pickle"),
        (["."], "."),
    ],
)
def test_bad_questions(
    command: Command, argv: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relucert.save(relucert.load("mnist-2x20"), "whole.safetensors")
    contents = {
        "empty.onnx": b"",
        "text.onnx": b"not a network\n",
        "text.safetensors": b"not a network\n",
        "half.safetensors": Path("whole.safetensors").read_bytes()[:20_000],
        "pickle.pt": pickle.dumps({"weight": [1.0]}),
        "pickle.onnx": pickle.dumps({"weight": [1.0]}),
    }
    for name, content in contents.items():
        Path(name).write_bytes(content)
    single_line(command("certify", *argv, "--images", "2", "--json", "run.json"), [words])
    assert not Path("run.json").exists()


def test_the_installed_command() -> None:
    ended = subprocess.run(
        [Path(sys.executable).with_name("relucert"), "certify", "--images", "3", "--quiet"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "mean radius" in ended.stdout
