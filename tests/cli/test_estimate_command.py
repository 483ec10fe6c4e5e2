"""`relucert estimate`: the library's answers, and not a word of certification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import relucert
from relucert import data
from tests.cli.conftest import Command, single_line

FEW = ("--images", "2", "--batches", "12", "--samples", "20")


def test_the_command_equals_the_library(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    question = ("--norm", "2", "--target", "runner-up", "--box", "-0.5", "0.5", "--radius", "3", "--seed", "4")
    outcome = command("estimate", *FEW, *question, "--json", str(path))
    assert (outcome.code, outcome.err) == (0, "")
    record = json.loads(path.read_text())
    assert record["complete"]
    images = data.bundled().first(2)
    answers = relucert.estimate(
        "mnist-2x20", images.images, images.labels, norm="2", target="runner-up", box=(-0.5, 0.5), radius=3.0,
        seed=4, batches=12, samples=20,
    )  # fmt: skip
    assert [row["value"] for row in record["results"]] == pytest.approx([answer.value for answer in answers])
    assert not any(row["proven"] for row in record["results"])


@pytest.mark.parametrize("target", ["untargeted", "all"])
def test_the_mean_is_over_images(command: Command, tmp_path: Path, target: str) -> None:
    path = tmp_path / "run.json"
    outcome = command("estimate", *FEW, "--target", target, "--json", str(path))
    by_image: dict[int, list[float]] = {}
    for row in json.loads(path.read_text())["results"]:
        by_image.setdefault(row["image"], []).append(row["value"])
    mean = sum(min(values) for values in by_image.values()) / 2
    assert f"mean estimate       {mean:.4g} over 2 of 2 images, " in outcome.out
    assert "of 2 fitted" in outcome.out


def test_nothing_is_called_certified(command: Command) -> None:
    outcome = command("estimate", *FEW)
    assert outcome.code == 0
    assert "estimate (not certified)" in outcome.out
    assert "certified" not in outcome.out.replace("not certified", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--samples", "0"), "whole number >= 1"),
        (("--radius", "0"), "finite number > 0"),
        (("--radius", "inf"), "a finite number"),
        (("--box", "1", "0"), "a box"),
        (("--norm", "0.5"), "p >= 1"),
        (("--json", "/nowhere/run.json"), "/nowhere"),
    ],
)
def test_bad_options_are_one_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    single_line(command("estimate", "--images", "1", *arguments), [message])
