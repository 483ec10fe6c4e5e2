"""`relucert attack`: the library's answers, recorded, shown and drawn."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

import relucert
from relucert import data
from tests.cli.conftest import Command, single_line
from tests.nets import mlp

FEW = ("--images", "2", "--steps", "20")


def test_the_command_equals_the_library(command: Command, tmp_path: Path) -> None:
    path, table, folder = tmp_path / "run.json", tmp_path / "run.csv", tmp_path / "pictures"
    outcome = command(
        "attack", *FEW, "--norm", "2", "--target", "runner-up", "--method", "ddn", "--seed", "4",
        "--json", str(path), "--csv", str(table), "--save", str(folder),
    )  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    record = json.loads(path.read_text())
    assert record["complete"]
    assert record["options"]["box"] is None
    images = data.bundled().first(2)
    answers = relucert.attack(
        "mnist-2x20", images.images, images.labels, norm="2", target="runner-up", method="ddn", seed=4, steps=20
    )
    assert [row["distance"] for row in record["results"]] == pytest.approx([answer.distance for answer in answers])
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == 2
    pictures = sorted(folder.iterdir())
    assert len(pictures) == 2
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert "mean distance" in outcome.out
    assert "certified" not in outcome.out


def test_a_misclassified_image_is_told_and_not_averaged(command: Command, tmp_path: Path) -> None:
    import numpy as np

    images = data.bundled().first(2)
    assert images.labels is not None
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, images=images.images.numpy(), labels=((images.labels + torch.tensor([0, 1])) % 10).numpy())
    outcome = command("attack", *FEW, "--data", str(wrong), "--save", str(tmp_path / "pictures"))
    assert outcome.code == 0
    assert "misclassified" in outcome.out
    assert "over the 1 found" in outcome.out
    assert len(list((tmp_path / "pictures").iterdir())) == 1


def test_colours_are_drawn_and_vectors_are_not(command: Command, tmp_path: Path) -> None:
    import numpy as np

    for size, drawn in ((3 * 16, True), (7, False)):
        network, images = tmp_path / f"{size}.safetensors", tmp_path / f"{size}.npy"
        relucert.save(mlp(size, 5, 3), str(network))
        np.save(images, np.zeros((1, size), dtype=np.float32))
        outcome = command(
            "attack", str(network), "--data", str(images), "--no-box", "--steps", "20", "--save", str(tmp_path / "p")
        )
        if drawn:
            assert (outcome.code, outcome.err) == (0, "")
        else:
            single_line(outcome, ["can't draw inputs of shape (7,)"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", "0"), "whole number >= 1"),
        (("--time-limit", "-1"), "seconds >= 0"),
        (("--time-limit", "inf"), "seconds >= 0"),
        (("--box", "1", "0"), "a box"),
        (("--box", "0", "0.5"), "--no-box"),
        (("--box", "0", "1", "--no-box"), "not allowed"),
        (("--method", "ead"), "'ead' is for p = 1"),
        (("--norm", "0.5"), "p >= 1"),
        (("--json", "/nowhere/run.json"), "/nowhere"),
        (("--save", "/nowhere/pictures"), "/nowhere"),
    ],
)
def test_bad_options_are_one_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    single_line(command("attack", "--images", "1", *arguments), [message])
