"""`--outputs-within`: properties of the outputs of networks that give values, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import relucert
from relucert import Property
from tests.cli.conftest import Command, single_line
from tests.nets import centres, mlp

CONTROLLER = mlp(3, 8, 6, 1, seed=5)
STATES = centres(CONTROLLER, 3, seed=2)
END = 0.75  # some states are within, and each could leave
QUESTIONS = {
    "certify": ("--method", "crown"), "exact": ("--tolerance", "0.1"), "attack": ("--steps", "20"),
    "verify": ("--radius", "1/20"), "estimate": ("--batches", "20", "--samples", "20"),
    "compare": ("--methods", "crown,attack", "--steps", "20"),
}  # fmt: skip
VALUES = {
    "certify": ("radius",), "exact": ("lower",), "attack": ("distance",), "verify": ("status",), "estimate": ("value",),
    "compare": ("radius", "distance"),
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """The network and the states."""
    network, states = tmp_path / "controller.safetensors", tmp_path / "states.npy"
    relucert.save(CONTROLLER, network)
    np.save(states, STATES.numpy())
    return str(network), "--data", str(states)


def answers(name: str, stated: Property) -> list[object]:
    """What the library says."""
    images = STATES.float()
    if name == "certify":
        return [answer.radius for answer in relucert.certify(CONTROLLER, images, property=stated, method="crown")]
    if name == "exact":
        return [answer.lower for answer in relucert.exact(CONTROLLER, images, property=stated, tolerance=0.1)]
    if name == "attack":
        return [answer.distance for answer in relucert.attack(CONTROLLER, images, property=stated, steps=20)]
    if name == "estimate":
        found = relucert.estimate(CONTROLLER, images, property=stated, batches=20, samples=20)
        return [answer.value for answer in found]
    if name == "compare":
        compared = relucert.compare(CONTROLLER, images, property=stated, methods=["crown", "attack"], steps=20)
        return [row.get("radius", row.get("distance")) for row in compared.rows()]
    return [answer.status for answer in relucert.robust_at(CONTROLLER, images, property=stated, radius="1/20")]


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize(("ends", "low", "high"), [(("-0.75", "3/4"), -END, END), (("none", "0.75"), -np.inf, END)])
@pytest.mark.sampled
def test_the_answers_are_those_of_the_library(
    name: str, ends: tuple[str, str], low: float, high: float, files: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    record = tmp_path / "run.json"
    ended = command(name, *files, "--outputs-within", *ends, *QUESTIONS[name], "--json", str(record))
    assert ended.code == 0, ended
    assert "every output" in ended.out
    assert "accuracy" not in ended.out
    assert "None" not in ended.out
    written = json.loads(record.read_text())
    assert written["options"]["outputs_within"] == [None if np.isinf(low) else low, high]
    values = VALUES[name]
    expected = answers(name, Property.outputs_within(low, high))
    for row, answer in zip(written["results"], expected, strict=True):
        (value,) = (row[value] for value in values if value in row)
        assert value == (
            pytest.approx(answer, rel=0.2 if name == "exact" else 2e-3) if isinstance(answer, float) else answer
        )
    assert all(row["label"] is None for row in written["results"])
    page = tmp_path / "report.html"
    assert command("report", str(record), "--output", str(page)).code == 0
    other = command(name, *files, "--outputs-within", "-0.5", "0.5", *QUESTIONS[name], "--json", str(record))
    assert other.code == 2, other


def test_what_makes_no_sense_is_refused(files: tuple[str, ...], command: Command) -> None:
    single_line(command("certify", *files, "--outputs-within", "1", "0"), ["low end", "below its high end"])
    single_line(command("certify", *files, "--outputs-within", "none", "none"), ["nothing to prove"])
    single_line(command("certify", *files, "--outputs-within", "low", "1"), ["low end of outputs"])
    single_line(command("certify", *files, "--outputs-within", "0", "1", "--target", "1"), ["not allowed with"])
    single_line(command("certify", *files, "--outputs-within", "0", "1", "--plot", "a.png"), ["--plot", "classes"])
    single_line(command("verify", *files[:1], "a.vnnlib", "--outputs-within", "0", "1"), ["--outputs-within"])
