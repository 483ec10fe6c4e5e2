"""`relucert paper`: the protocol, the store behind it, what it exports."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import relucert
from relucert import data
from relucert.answers.certificates import Answer
from relucert.experiments.comparison import methods
from relucert.experiments.comparison.methods import Setting
from relucert.inputs.storage.journal import Journal
from relucert.query.types import NetworkLike
from tests.cli.conftest import Command, single_line

TOY = ("paper", "toy", "--networks", "mnist-2x20", "--norms", "inf", "--targets", "random")
QUICK = (*TOY, "--methods", "fast-lin,attack", "--steps", "5")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every question put to fast-lin and attack: the method, and how many images it was about."""
    questions: list[tuple[str, int]] = []
    for name in ("fast-lin", "attack"):
        contender = methods.CONTENDERS[name]

        def ask(
            network: NetworkLike,
            images: Tensor,
            labels: Tensor | None,
            setting: Setting,
            contender: methods.Contender = contender,
        ) -> Iterator[Answer]:
            questions.append((contender.name, len(images)))
            return contender.ask(network, images, labels, setting)

        monkeypatch.setitem(methods.CONTENDERS, name, replace(contender, ask=ask))
    return questions


def _cells(path: Path) -> dict[str, dict[str, Any]]:
    return {cell["method"]: cell for cell in json.loads(path.read_text())["cells"]}


def test_the_means_are_the_library_s(command: Command, tmp_path: Path) -> None:
    outcome = command(*QUICK, "--images", "4", "--seed", "3", "--json", str(tmp_path / "t.json"))
    assert (outcome.code, outcome.err) == (0, "")
    images = data.bundled().first(4)
    question: dict[str, Any] = {"norm": "inf", "target": "random", "seed": 3}
    certificates = relucert.certify("mnist-2x20", images.images, images.labels, **question)
    witnesses = relucert.attack("mnist-2x20", images.images, images.labels, steps=5, box=(-0.5, 0.5), **question)
    cells = _cells(tmp_path / "t.json")
    radii = [certificate.radius for certificate in certificates if certificate.radius]
    distances = [witness.distance for witness in witnesses if witness.distance]
    assert cells["fast-lin"]["mean"] == pytest.approx(np.mean(radii), rel=2e-4)
    assert cells["attack"]["mean"] == pytest.approx(np.mean(distances))
    assert (cells["fast-lin"]["published"], cells["fast-lin"]["same_network"]) == ("0.0309", False)


def test_misclassified_images_are_skipped(command: Command, tmp_path: Path) -> None:
    images = data.bundled()
    wrong = sum(answer.radius is None for answer in relucert.certify("mnist-2x20", images.images, images.labels))
    assert wrong
    command(*TOY, "--methods", "op-norm", "--json", str(tmp_path / "t.json"))
    assert _cells(tmp_path / "t.json")["op-norm"]["images"] == 100 - wrong


def test_a_second_run_asks_only_for_what_is_new(command: Command, tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    command(*QUICK, "--images", "3", "--json", str(first))
    assert asked == [("fast-lin", 1), ("attack", 1)] * 3  # one image at a time
    asked.clear()
    command(*QUICK, "--images", "3", "--json", str(second))
    assert asked == []
    assert _cells(first) == _cells(second)
    command(*QUICK, "--images", "4")
    assert asked == [("fast-lin", 1), ("attack", 1)]
    asked.clear()
    command(*QUICK, "--images", "4", "--budget", "70")
    assert asked == [("attack", 1)] * 4  # what does not depend on the budget stays
    asked.clear()
    command(*QUICK, "--images", "1", "--steps", "6")
    assert len(asked) == 2  # another effort has results of its own


def test_overwriting_asks_everything_again(command: Command, tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    command(*QUICK, "--images", "2")
    asked.clear()
    command(*QUICK, "--images", "2", "--overwrite")
    assert asked == [("fast-lin", 1), ("attack", 1)] * 2


def test_kill_loses_at_most_the_image_in_work(command: Command, tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "relucert", *QUICK, "--images", "7"], stdout=subprocess.DEVNULL)
    try:
        while (lines := sum(path.read_bytes().count(b"\n") for path in tmp_path.rglob("*.answers"))) < 5:
            assert process.poll() is None
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    outcome = command(*QUICK, "--images", "7", "--json", str(tmp_path / "t.json"))
    assert outcome.code == 0
    assert len(asked) <= 2 * 7 - (lines - 1)
    cells = _cells(tmp_path / "t.json")
    assert (cells["fast-lin"]["images"], cells["attack"]["images"]) == (7, 7)


def test_an_interruption_shows_what_is_done(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter([False, False, True])

    def ask(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
        if next(calls):
            raise KeyboardInterrupt
        return contender.ask(network, images, labels, setting)

    contender = methods.CONTENDERS["fast-lin"]
    monkeypatch.setitem(methods.CONTENDERS, "fast-lin", replace(contender, ask=ask))
    outcome = command(*TOY, "--methods", "fast-lin", "--images", "5", "--json", str(tmp_path / "t.json"))
    assert outcome.code == 130
    assert "the same command goes on from here" in outcome.err
    assert _cells(tmp_path / "t.json")["fast-lin"]["images"] == 2
    assert not json.loads((tmp_path / "t.json").read_text())["complete"]


def test_a_stored_contradiction_is_loud(command: Command, tmp_path: Path) -> None:
    command(*QUICK, "--images", "1")
    (path,) = tmp_path.rglob("*.answers")
    with Journal(path, print) as journal:
        records = list(journal.records)
        records[1]["answer"]["Certificate"]["radius"] = 7.5
        journal.restart()
        journal.append(records)
    outcome = command(*QUICK, "--images", "1")
    assert outcome.code == 3
    for part in ("CONTRADICTION", "mnist-2x20, p = inf, random", "image 0", "fast-lin 7.5", "attack"):
        assert part in outcome.err


def test_every_form_has_every_line(command: Command, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"t.{name}" for name in ("json", "csv", "markdown", "latex")}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    outcome = command("paper", "toy", "--images", "1", "--methods", "fast-lin,op-norm,lp", "--norms", "2,inf", *options)
    assert outcome.code == 0
    with paths["csv"].open() as file:
        rows = list(csv.DictReader(file))
    cells = json.loads(paths["json"].read_text())["cells"]
    assert len(rows) == len(cells) == 2 * 2 * 3 * 3
    assert [float(row["mean"]) for row in rows] == [cell["mean"] for cell in cells]
    markdown, latex = paths["markdown"].read_text(), paths["latex"].read_text()
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(table) == 2 * (2 + 12)
    assert {line.count("|") for line in table} == {4 + 3 + 1}
    assert latex.count(r" \\") == 2 * (1 + 12)
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert "†" not in latex
    for text in (outcome.out, markdown):
        assert "(0.0191)" in text  # another network: context
        assert "[0.0191]" not in text
        assert "(0.4811†)" in text


def test_networks_that_are_not_there_are_told(command: Command) -> None:
    arguments = ("--images", "1", "--norms", "2", "--targets", "random", "--methods", "op-norm")
    outcome = command("paper", "large", "--networks", "mnist-2x1024,mnist-3x1024", *arguments)
    assert outcome.code == 0
    assert "mnist-2x1024 is left out" in outcome.err
    assert "relucert zoo train mnist-2x1024" in outcome.err
    assert "mnist-3x1024" in outcome.out
    lonely = command("paper", "large", "--networks", "mnist-2x1024", *arguments)
    assert lonely.code == 2
    assert "has not been built yet" in lonely.err


def test_a_slow_method_is_left_out_and_said_to_be(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    effort = ("--images", "2", "--methods", "fast-lin,clever", "--batches", "100000", "--budget", "1")
    outcome = command(*TOY, *effort, "--json", str(path))
    assert outcome.code == 0
    assert "clever on mnist-2x20, p = inf is left out: image 0 took more than the budget of 1 s" in outcome.err
    assert list(json.loads(path.read_text())["skipped"]) == ["clever on mnist-2x20, p = inf"]
    assert _cells(path)["fast-lin"]["images"] == 2


def test_a_slow_method_is_not_tried_again(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is given more time than it was."""
    calls = []

    def slow(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
        calls.append(setting.budget)
        while True:
            time.sleep(0.01)

    monkeypatch.setitem(methods.CONTENDERS, "clever", replace(methods.CONTENDERS["clever"], ask=slow))
    effort = (*TOY, "--images", "2", "--methods", "fast-lin,clever")
    for budget, tries in (("0.2", [0.2]), ("0.2", [0.2]), ("0.1", [0.2]), ("0.3", [0.2, 0.3]), ("0.3", [0.2, 0.3])):
        path = tmp_path / f"{budget}.json"
        outcome = command(*effort, "--budget", budget, "--json", str(path))
        assert outcome.code == 0
        assert "clever on mnist-2x20, p = inf is left out: image 0 took more than the budget" in outcome.err
        assert calls == tries
        assert _cells(path)["fast-lin"]["images"] == 2
    assert "a larger --budget tries again" in outcome.err
    command(*effort, "--budget", "0.3", "--steps", "7")  # another effort
    assert len(calls) == 3
    command(*effort, "--budget", "0.3", "--overwrite")  # anew
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("huge",), "invalid choice"),
        (("toy", "--norms", "3"), "no norm '3'"),
        (("toy", "--targets", "worst"), "unknown target 'worst'"),
        (("toy", "--networks", "mnist-9x20"), "no network 'mnist-9x20'"),
        (("toy", "--methods", "quick"), "unknown method 'quick'"),
        (("toy", "--images", "0"), "whole number >= 1"),
        (("toy", "--budget", "0"), "> 0"),
        (("toy", "--network-file", "/nowhere/net.npz"), "/nowhere/net.npz"),
        (("defences", "--network-file", "/nowhere/net.onnx"), "/nowhere/net.onnx"),
        (("toy", "--markdown", "/nowhere/t.md"), "/nowhere"),
    ],
)
def test_bad_options_are_one_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    single_line(command("paper", *arguments), [message])


def test_a_cache_that_can_t_be_written_is_told(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    single_line(command(*QUICK, "--images", "1"), ["can't keep answers in"])


def test_answers_of_an_earlier_version_are_not_read(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "relucert" / "paper"
    folder.mkdir(parents=True)
    (folder / "toy-0123456789ab.jsonl").write_text("{}\n")
    outcome = command(*TOY, "--images", "1", "--methods", "op-norm")
    assert outcome.code == 0
    assert outcome.err.count("\n") == 1
    assert "earlier version are not read" in outcome.err


def test_a_network_of_another_size_is_refused(command: Command, tmp_path: Path) -> None:
    from tests.nets import mlp

    path = tmp_path / "odd.safetensors"
    relucert.save(mlp(784, 7, 10), str(path))
    single_line(command("paper", "toy", "--network-file", str(path)), ["mnist-2x7", "mnist-2x20, mnist-3x20"])


def test_evaluated_in_float32(command: Command, tmp_path: Path) -> None:
    """Answers of their own, and every table says what they are about."""
    real = command(*QUICK, "--images", "2", "--json", str(tmp_path / "real.json"))
    files = (
        "--json",
        str(tmp_path / "t.json"),
        "--markdown",
        str(tmp_path / "t.md"),
        "--latex",
        str(tmp_path / "t.tex"),
    )
    outcome = command(*QUICK, "--images", "2", "--inference", "float32", *files)
    assert (outcome.code, outcome.err) == (0, "")
    assert "in float32" in outcome.out
    assert "in float32" not in real.out
    for name in ("t.md", "t.tex"):
        text = (tmp_path / name).read_text()
        assert "Fast-Lin in float32" in text
        assert "the published numbers about real arithmetic" in text
    cells, others = _cells(tmp_path / "t.json"), _cells(tmp_path / "real.json")
    assert {cell["inference"] for cell in cells.values()} == {"float32"}
    assert {cell["inference"] for cell in others.values()} == {"real"}
    assert 0.99 * others["fast-lin"]["mean"] < cells["fast-lin"]["mean"] < others["fast-lin"]["mean"]


def test_stores_of_other_versions_and_damaged_ones_are_no_dead_end(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (*TOY, "--images", "1", "--methods", "op-norm", "--quiet")
    assert command(*asked).code == 0
    (store,) = (tmp_path / "cache").rglob("*.answers")
    store.write_bytes(b"0" + store.read_bytes()[1:])
    refused = command(*asked)
    assert refused.code == 2
    assert "first record is damaged" in refused.err
    assert "--overwrite" in refused.err
    assert command(*asked, "--overwrite").code == 0
    monkeypatch.setattr(relucert, "__version__", "9.9.9")
    assert command(*asked).code == 0
    assert len(list((tmp_path / "cache").rglob("*.answers"))) == 2
