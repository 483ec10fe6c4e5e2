"""Adversarial examples as arrays: what attacks and exact answers found, in one file that can be asked about again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import relucert
from relucert import data
from relucert.errors import InputError
from relucert.report.arrays import ExampleFile
from tests.cli.conftest import Command, single_line

ATTACK = ("attack", "--images", "3", "--steps", "20", "--quiet")
EXACT = ("exact", "--images", "2", "--target", "runner-up", "--quiet")


@pytest.mark.parametrize("arguments", [ATTACK, EXACT], ids=["attack", "exact"])
def test_what_was_found_is_saved(command: Command, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path, recorded = tmp_path / "examples.npz", tmp_path / "run.json"
    outcome = command(*arguments, "--save-arrays", str(path), "--json", str(recorded))
    assert (outcome.code, outcome.err) == (0, "")
    rows = json.loads(recorded.read_text())["results"]
    assert f"{len(rows)} adversarial examples in {path}" in outcome.out
    amount = "distance" if arguments is ATTACK else "upper"
    bundled = data.bundled()
    assert bundled.labels is not None
    with np.load(path) as saved:
        assert saved["images"].shape == saved["originals"].shape == (len(rows), 784)
        assert saved["indices"].tolist() == [row["image"] for row in rows]
        assert saved["targets"].tolist() == [row["target"] for row in rows]
        assert saved["distances"].tolist() == [row[amount] for row in rows]
        assert np.array_equal(saved["originals"], bundled.images[saved["indices"]].numpy())
        assert np.array_equal(saved["labels"], bundled.labels[saved["indices"]].numpy())
        far = np.abs(saved["images"].astype(float) - saved["originals"].astype(float)).max(1)
        assert far == pytest.approx(saved["distances"], rel=1e-6)
        scores = relucert.load("mnist-2x20")(torch.from_numpy(saved["images"]))
        places = np.arange(len(rows))
        assert (scores[places, saved["targets"]] >= scores[places, saved["labels"]]).all()
        assert saved["predicted"].tolist() == scores.argmax(1).tolist()
    again = command("certify", "--data", str(path), "--quiet")
    assert again.code == 0
    assert f"images              {len(rows)} of examples.npz" in again.out


@pytest.mark.parametrize("arguments", [ATTACK, EXACT], ids=["attack", "exact"])
def test_pictures_are_in_the_record(command: Command, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    recorded, table = tmp_path / "run.json", tmp_path / "run.csv"
    command(*arguments, "--json", str(recorded), "--csv", str(table))
    for row in json.loads(recorded.read_text())["results"]:
        assert row["picture"]["shape"] == [28, 28]
        assert row["picture"]["original"] != row["picture"]["adversarial"]
    assert "picture" not in table.read_text()


def test_arrays_of_another_question_stay(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "examples.npz"
    command(*ATTACK, "--save-arrays", str(path))
    first = path.read_bytes()
    assert command(*ATTACK, "--save-arrays", str(path)).code == 0  # the same question once more
    other = (*ATTACK, "--norm", "2", "--save-arrays", str(path))
    single_line(command(*other), ["results of another question", "--overwrite"])
    assert path.read_bytes() == first
    assert command(*other, "--overwrite").code == 0
    assert path.read_bytes() != first


def test_an_unfinished_run_does_not_replace_a_finished_one(tmp_path: Path) -> None:
    network, images = relucert.load("mnist-2x20"), data.bundled().first(2).images
    answers = relucert.attack(network, images, steps=20, polish=False)
    path = tmp_path / "examples.npz"
    assert ExampleFile(path, "a" * 64, False).write(network, images, answers[:1], complete=False) == (path, 1)
    assert ExampleFile(path, "a" * 64, False).write(network, images, answers, complete=True) == (path, 2)
    place, count = ExampleFile(path, "a" * 64, False).write(network, images, answers[:1], complete=False)
    assert (place, count) == (tmp_path / "examples.partial.npz", 1)
    with np.load(path) as saved:
        assert len(saved["images"]) == 2
    with pytest.raises(InputError, match=r"ends in \.npz"):
        ExampleFile(tmp_path / "examples.npy", "a" * 64, False)


def test_nothing_found_is_an_empty_file(tmp_path: Path) -> None:
    network, images = relucert.load("mnist-2x20"), data.bundled().first(1).images
    assert ExampleFile(tmp_path / "e.npz", "a" * 64, False).write(network, images, [], complete=True)[1] == 0
    with np.load(tmp_path / "e.npz") as saved:
        assert saved["images"].shape == saved["originals"].shape == (0, 784)


def test_bad_names_are_one_line(command: Command, tmp_path: Path) -> None:
    single_line(command(*ATTACK, "--save-arrays", str(tmp_path / "examples.npy")), ["ends in .npz"])
    single_line(command(*ATTACK, "--save-arrays", "/nowhere/examples.npz"), ["/nowhere"])
    path = str(tmp_path / "both.npz")
    single_line(command(*ATTACK, "--json", path, "--save-arrays", path), ["--save-arrays", "overwrite another"])
