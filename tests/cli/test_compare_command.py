"""`relucert compare`: the table, the record, contradictions and interruptions."""

from __future__ import annotations

import base64
import csv
import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import relucert
from relucert import data
from relucert.answers.certificates import Answer
from relucert.cli import compare
from relucert.cli.main import build_parser
from relucert.experiments.comparison import methods
from relucert.experiments.comparison.methods import Contender, Setting
from relucert.methods.table import METHODS
from relucert.query.types import NetworkLike
from relucert.report.reading import AnswerKind
from tests.cli.conftest import Command, single_line
from tests.experiments.comparison.answers import certified
from tests.nets import mlp

FEW = ("compare", "--images", "2", "--steps", "20", "--batches", "12", "--samples", "16")


def test_defaults_are_those_of_the_library() -> None:
    given = vars(build_parser().parse_args(["compare"]))
    expected = inspect.signature(Setting).parameters
    assert {name: given[name] for name in compare.SETTING_OPTIONS} == {
        name: parameter.default
        for name, parameter in expected.items()
        if name not in ("norm", "property", "workers", "store", "progress")
    }


def test_the_record_has_every_answer(command: Command, tmp_path: Path) -> None:
    path, table = tmp_path / "run.json", tmp_path / "run.csv"
    outcome = command(*FEW, "--target", "runner-up", "--box", "-0.5", "0.5", "--json", str(path), "--csv", str(table))
    assert (outcome.code, outcome.err) == (0, "")
    record = json.loads(path.read_text())
    assert record["complete"]
    assert (record["command"], record["relucert"], record["skipped"]) == ("compare", relucert.__version__, {})
    assert {"versions", "machine", "network", "options"} <= set(record)
    kinds = {row["method"]: row["kind"] for row in record["results"]}
    assert {kinds[method] for method in METHODS} == {"certified"}
    assert (kinds["best"], kinds["clever"], kinds["exact"]) == ("upper", "estimate", "exact")
    for row in record["results"]:
        assert ("neurons" in row) == (row["method"] == "fast-lin")
        assert ("picture" in row) == (row["kind"] == "upper")
        if row["method"] == "fast-lin":
            assert [sum(layer.values()) for layer in row["neurons"]] == [20]
    picture = record["results"][-1]["picture"]
    assert picture["shape"] == [28, 28]
    shown = np.frombuffer(base64.b64decode(picture["original"]), dtype=np.uint8)
    assert np.array_equal(shown, (255 * (data.bundled().images[1] + 0.5)).round().numpy().astype(np.uint8))
    assert picture["adversarial"] != picture["original"]
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == [row["method"] for row in record["results"]]
    for contender in methods.find_contenders(None):
        assert f"\n{contender.name} " in f"\n{outcome.out}"
    assert "not certified" in outcome.out


def test_every_rival_is_counted_by_image(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    outcome = command(*FEW, "--methods", "fast-lin,op-norm", "--target", "all", "--json", str(path))
    assert outcome.code == 0
    rows = [row for row in json.loads(path.read_text())["results"] if row["method"] == "fast-lin"]
    assert len(rows) == 2 * 9
    (cells,) = [line.split() for line in outcome.out.splitlines() if line.startswith("fast-lin ")]
    assert cells[2] == "2"
    least = [min(row["radius"] for row in rows if row["image"] == image) for image in (0, 1)]
    assert float(cells[3]) == pytest.approx(sum(least) / 2, rel=1e-4)
    assert "questions" not in outcome.out


def test_inputs_that_are_no_pictures_or_coloured_ones(command: Command, tmp_path: Path) -> None:
    for size, shape in ((7, None), (3 * 16, [4, 4, 3])):
        network, images, path = tmp_path / f"{size}.safetensors", tmp_path / f"{size}.npy", tmp_path / f"{size}.json"
        relucert.save(mlp(size, 5, 3), str(network))
        np.save(images, torch.linspace(-1, 1, size)[None].numpy())
        outcome = command(
            *FEW[:1], str(network), "--data", str(images), "--no-box", "--methods", "attack", "--json", str(path)
        )
        assert outcome.code == 0
        picture = json.loads(path.read_text())["results"][0].get("picture")
        assert (picture and picture["shape"]) == shape


def _stand_in(monkeypatch: pytest.MonkeyPatch, fault: BaseException | None, radius: float) -> None:
    def ask(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
        yield certified("op-norm", radius, 0).answer
        if fault is not None and len(images) > 1:
            raise fault
        yield certified("op-norm", radius, 1).answer

    monkeypatch.setitem(methods.CONTENDERS, "op-norm", Contender("op-norm", AnswerKind.CERTIFIED, ask))


def test_a_contradiction_is_loud(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, None, 5.0)
    path = tmp_path / "run.json"
    outcome = command(*FEW, "--methods", "op-norm,attack", "--json", str(path))
    assert outcome.code == 3
    for part in ("CONTRADICTION", "image 0", "op-norm 5.0", "attack 0.0"):
        assert part in outcome.err
    record = json.loads(path.read_text())
    assert not record["complete"]
    kinds = [(row["kind"], row["image"]) for row in record["results"]]
    assert kinds == [("certified", 0), ("certified", 1), ("upper", 0)]  # the one that contradicts is on record
    assert record["results"][0]["radius"] == 5.0 > record["results"][-1]["distance"]


def test_an_interruption_keeps_what_is_done(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, KeyboardInterrupt(), 1e-4)
    path = tmp_path / "run.json"
    outcome = command(*FEW, "--methods", "fast-lin,op-norm,attack", "--json", str(path))
    assert outcome.code == 130
    assert "stopped after 3 answers" in outcome.err
    record = json.loads(path.read_text())
    assert [row["method"] for row in record["results"]] == ["fast-lin", "fast-lin", "op-norm"]
    assert not record["complete"]
    assert "fast-lin" in outcome.out


def test_a_slow_method_is_said_to_be_skipped(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    arguments = ("--batches", "100000", "--budget", "1", "--methods", "fast-lin,clever")
    outcome = command(*FEW, *arguments, "--json", str(path))
    assert outcome.code == 0
    assert "the first image took more than the budget of 1 s" in outcome.out
    assert "clever" in json.loads(path.read_text())["skipped"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "fast-lin,,lp"), "commas between"),
        (("--methods", "quick"), "unknown method 'quick'"),
        (("--budget", "0"), "> 0"),
        (("--steps", "0"), "whole number >= 1"),
        (("--norm", "0.5"), "p >= 1"),
        (("--norm", "3", "--methods", "lp"), "lp: skipped"),
        (("--target", "me"), "unknown target"),
        (("--json", "/nowhere/run.json"), "/nowhere"),
    ],
)
def test_bad_options_are_one_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    single_line(command("compare", "--images", "1", *arguments), [message])


def test_evaluated_in_float32(command: Command, tmp_path: Path) -> None:
    ended = command(
        "compare", "--images", "1", "--methods", "fast-lin,op-norm,attack", "--steps", "5", "--inference", "float32",
        "--json", str(tmp_path / "c.json"),
    )  # fmt: skip
    assert ended.code == 0, ended
    assert "evaluated in float32" in ended.out
    assert "op-norm" in ended.out
    content = json.loads((tmp_path / "c.json").read_text())
    assert {row["inference"] for row in content["results"]} == {"float32"}
    assert content["options"]["inference"] == "float32"
    assert "float32" in content["skipped"]["op-norm"]
