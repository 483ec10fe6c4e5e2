"""Images in another layout or another range, and targets from a file, on every command that takes images."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import relucert
from relucert.network import Linear, Relu, Reshape
from tests.cli.conftest import Command, Outcome, single_line
from tests.nets import chain

COMMANDS: dict[str, list[str]] = {
    "certify": [],
    "attack": ["--steps", "2", "--no-polish"],
    "exact": ["--time-limit", "0.2"],
    "estimate": ["--batches", "2", "--samples", "2"],
    "compare": ["--methods", "fast-lin,interval"],
}
BUNDLED = relucert.data.bundled().first(12)
NOISE = np.random.default_rng(0).normal(size=(4, 5, 6, 3)).astype(np.float32)  # colours last


@pytest.fixture
def network(tmp_path: Path) -> str:
    """The file of a network of pictures with three colours, first."""
    draw = torch.Generator().manual_seed(0)
    hidden, last = (torch.randn(*shape, generator=draw) for shape in ((8, 90), (4, 8)))
    built = chain(
        (3, 5, 6), Reshape((3, 5, 6), (90,)), Linear(hidden, torch.zeros(8)), Relu(), Linear(last, torch.zeros(4))
    )
    relucert.save(built, tmp_path / "colours.safetensors")
    return str(tmp_path / "colours.safetensors")


def rows(path: Path) -> list[tuple[int, int, float | None]]:
    """What a run is about and says; seconds differ from run to run."""
    results = json.loads(path.read_text())["results"]
    return [(row["image"], row["label"], row.get("radius")) for row in results]


@pytest.mark.parametrize("name", COMMANDS)
def test_another_layout_is_refused_unless_it_is_said(name: str, command: Command, network: str, tmp_path: Path) -> None:
    np.save(tmp_path / "last.npy", NOISE)
    np.save(tmp_path / "first.npy", NOISE.transpose(0, 3, 1, 2))
    question = [name, network, *COMMANDS[name], "--quiet"]
    single_line(command(*question, "--data", str(tmp_path / "last.npy")), ["NHWC", "--layout nhwc", "(5, 6, 3)"])
    runs = {
        "turned": ["last.npy", "--layout", "nhwc"],
        "first": ["first.npy"],
        "said": ["first.npy", "--layout", "nchw"],
    }
    for run, (file, *layout) in runs.items():
        record = ["--json", str(tmp_path / f"{run}.json")]
        outcome = command(*question, "--data", str(tmp_path / file), *layout, *record)
        assert (outcome.code, outcome.err) == (0, "")
    assert rows(tmp_path / "turned.json") == rows(tmp_path / "first.json") == rows(tmp_path / "said.json")
    assert json.loads((tmp_path / "turned.json").read_text())["options"]["layout"] == "nhwc"


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--layout", "nhwc"], ["--data FILE"]),
        (["--layout", "nhwc", "--data", "mnist"], ["--data FILE"]),
        (["--layout", "nwhc"], ["invalid choice", "nchw", "nhwc"]),
        (["--layout", "nhwc", "--data", "flat.npy"], ["(N, H, W, C)", "(4, 90)"]),
    ],
)
def test_a_layout_is_about_ones_own_pictures(
    argv: list[str], parts: list[str], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("flat.npy", NOISE.reshape(4, 90))
    single_line(command("certify", *argv), parts)


def warning(outcome: Outcome) -> str:
    """The one line of warning beside a run that went well."""
    assert outcome.code == 0
    assert outcome.err.startswith("relucert: warning: ")
    assert outcome.err.count("\n") == 1
    return outcome.err


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_another_range_is_one_line_of_warning(name: str, quiet: list[str], command: Command, tmp_path: Path) -> None:
    assert BUNDLED.labels is not None
    images = {"unit": BUNDLED.images + 0.5, "bytes": (BUNDLED.images + 0.5) * 255, "right": BUNDLED.images}
    for called, pixels in images.items():
        np.savez(tmp_path / f"{called}.npz", images=pixels, labels=BUNDLED.labels)
    question = [name, *COMMANDS[name], *quiet, "--images", "2", "--data"]
    said = warning(command(*question, str(tmp_path / "unit.npz")))
    assert "mnist-2x20 was trained on inputs from -0.5 to 0.5" in said
    assert "images - 0.5" in said
    if name == "certify":
        assert "images / 255 - 0.5" in warning(command(*question, str(tmp_path / "bytes.npz")))
        assert command(*question, str(tmp_path / "right.npz")).err == ""


def test_labels_met_by_chance_are_a_line_of_warning(command: Command, tmp_path: Path) -> None:
    assert BUNDLED.labels is not None
    np.savez(tmp_path / "shifted.npz", images=BUNDLED.images, labels=(BUNDLED.labels + 1) % 10)
    assert "no more than chance" in warning(command("certify", "--data", str(tmp_path / "shifted.npz"), "--quiet"))


def test_the_range_of_ones_own_network_is_minded(command: Command, network: str, tmp_path: Path) -> None:
    relucert.save(replace(relucert.load(network), input_range=(0, 1)), network)
    np.save(tmp_path / "first.npy", NOISE.transpose(0, 3, 1, 2))
    assert "trained on inputs from 0 to 1" in warning(
        command("certify", network, "--data", str(tmp_path / "first.npy"))
    )


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("form", ["npy", "txt"])
def test_targets_from_a_file(name: str, form: str, command: Command, tmp_path: Path) -> None:
    assert BUNDLED.labels is not None
    targets = ((BUNDLED.labels + 3) % 10).tolist()
    file, record = tmp_path / f"targets.{form}", tmp_path / "run.json"
    if form == "npy":
        np.save(file, np.array(targets, dtype=np.uint8))
    else:
        file.write_text("\n".join(map(str, targets)) + "\n\n")
    outcome = command(
        name, *COMMANDS[name], "--images", "3", "--target-file", str(file), "--json", str(record), "--quiet"
    )
    assert (outcome.code, outcome.err) == (0, "")
    assert f"target per image, from {file}" in outcome.out
    run = json.loads(record.read_text())
    assert {(row["image"], row["target"]) for row in run["results"]} == set(enumerate(targets[:3]))
    assert run["options"]["target_file"] == str(file)
    report = command("report", str(record), "-o", str(tmp_path / "report.html"))
    assert report.code == 0


@pytest.mark.parametrize(
    ("content", "argv", "parts"),
    [
        ("1\n2\n", [], ["one per image, 100 in all, not 2"]),
        ("1\n2\n", ["--images", "3"], ["one per image, 3 in all, not 2"]),
        ("7\n", ["--images", "1"], ["image 0", "class 7", "own label"]),
        ("10\n", ["--images", "1"], ["target class 10", "0 to 9"]),
        ("1\nrunner-up\n", [], ["targets.txt, line 2", "a class index", "'runner-up'"]),
        ("-1\n", ["--images", "1"], ["line 1", "'-1'"]),
        ("", ["--images", "1"], ["whole numbers"]),
        ("1\n", ["--target", "all"], ["not allowed with"]),
        (None, [], ["targets.txt", "no such file"]),
    ],
)
def test_bad_targets_are_one_line(
    content: str | None,
    argv: list[str],
    parts: list[str],
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("targets.txt").write_text(content)
    single_line(command("certify", "--target-file", "targets.txt", *argv), parts)


@pytest.mark.parametrize("content", [np.zeros(3), np.zeros((3, 1), dtype=int), np.array(["a"])])
def test_arrays_that_are_no_targets_are_one_line(content: np.ndarray, command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "targets.npy", content)
    single_line(command("certify", "--target-file", str(tmp_path / "targets.npy")), ["one whole number per image"])


def test_a_text_that_is_none_is_one_line(command: Command, tmp_path: Path) -> None:
    (tmp_path / "targets.txt").write_bytes(b"\xff\xfe\x00")
    single_line(command("certify", "--target-file", str(tmp_path / "targets.txt")), ["one class per line"])
