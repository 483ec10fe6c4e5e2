"""The command around a stand-in library: what it shows, records and does when stopped."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from relucert.data import bundled
from relucert.errors import BudgetError
from relucert.network.fingerprint import fingerprint
from tests.cli import fake
from tests.cli.conftest import Command, single_line

StandIn = Callable[[fake.Library], None]
HOUR = timedelta(hours=1)
ROW_KEYS = {
    "image", "row", "label", "target", "norm", "method", "arithmetic", "radius", "reason", "seconds", "evaluations",
    "proven", "box", "input_scale", "failed", "due_to", "inference",
}  # fmt: skip


def test_table_and_summary(command: Command, stand_in: StandIn) -> None:
    stand_in(fake.Library())
    outcome = command("certify", "--images", "5", "--at", "0.03", "--at", "0.02")
    assert outcome.code == 0
    assert outcome.err == ""
    lines = [line.split() for line in outcome.out.splitlines()]
    assert ["image", "label", "rival", "certified", "radius", "remark"] in lines
    assert ["0", "7", "8", "0.012345"] in lines  # rounded down: 0.012345678 would print as 0.012346
    assert ["3", "0", "-", "-", "the", "network", "takes", "it", "for", "class", "8"] in lines
    assert "mean radius         0.03395 over 4 of 5 images" in outcome.out
    first, second = (line for line in outcome.out.splitlines() if line.startswith("certified accuracy"))
    assert first.endswith("60.0 % (3 of 5) at radius 0.02")
    assert second.endswith("40.0 % (2 of 5) at radius 0.03")


def test_the_summary_of_one_image_and_one_rival(command: Command, stand_in: StandIn) -> None:
    stand_in(fake.Library())
    out = command("certify", "--images", "1", "--target", "runner-up").out
    assert "mean radius         0.012345 over 1 of 1 image\n" in out
    assert "100.0 % (1 of 1) at radius 0.0123, against target runner-up alone\n" in out


def test_float_arithmetic_certifies_nothing(command: Command, stand_in: StandIn) -> None:
    stand_in(fake.Library())
    outcome = command("certify", "--images", "5", "--arithmetic", "float")
    assert outcome.code == 0
    assert "radius (rounding ignored)" in outcome.out
    assert "not certified: rounding ignored" in outcome.out
    assert "certified" not in outcome.out.replace("not certified: rounding ignored", "")


def test_quiet_leaves_the_summary(command: Command, stand_in: StandIn) -> None:
    stand_in(fake.Library())
    outcome = command("certify", "--images", "5", "--quiet")
    assert "image  label" not in outcome.out
    assert "mean radius" in outcome.out


def test_output_in_a_pipe_is_plain(command: Command, stand_in: StandIn) -> None:
    stand_in(fake.Library())
    outcome = command("certify", "--images", "5")
    assert outcome.out.isascii()
    assert "\x1b" not in outcome.out


def test_json(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library())
    path = tmp_path / "run.json"
    assert command("certify", "--images", "5", "--norm", "2", "--json", str(path)).code == 0
    record = _strict(path)
    assert set(record) == {
        "command", "relucert", "versions", "machine", "started", "seconds", "question", "complete", "network",
        "data", "options", "results",
    }  # fmt: skip
    assert record["command"] == "certify"
    assert record["complete"] is True
    about = {"name": "toy", "layers": "784-4-10", "parameters": 3190, "classes": 10}
    assert record["network"] == {**about, "sha256": fingerprint(fake.network())}
    images = bundled().first(5)
    assert record["data"] == {"name": images.name, "images": 5, "sha256": images.sha256()}
    assert datetime.now(timezone.utc) - datetime.fromisoformat(record["started"].replace("Z", "+00:00")) < HOUR
    assert 0 <= record["seconds"] < 3600
    assert record["options"] == {
        "network": "mnist-2x20", "data": None, "data_dir": None, "pixels": None, "images": 5, "norm": "2",
        "method": "fast-lin",
        "target": "untargeted", "arithmetic": "rigorous", "tolerance": 1e-4, "memory": 2**30, "seed": 0,
        "shells": None, "time_limit": None, "budget": None, "threads": None, "box": None, "scale": None,
        "layout": None, "target_file": None, "inference": "real", "proofs": None, "workers": None, "ray": None,
    }  # fmt: skip
    assert [row["image"] for row in record["results"]] == [0, 1, 2, 3, 4]
    assert all(set(row) == ROW_KEYS for row in record["results"])
    assert [row["radius"] for row in record["results"]] == [fake.radius(image) for image in range(5)]
    assert [row["proven"] for row in record["results"]] == [True, True, True, False, True]


def test_csv_equals_json(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library())
    assert command("certify", "--json", str(tmp_path / "run.json"), "--csv", str(tmp_path / "run.csv")).code == 0
    with (tmp_path / "run.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    record = _strict(tmp_path / "run.json")
    rows = record["results"]
    assert len(rows) == 100
    for row, cell in zip(rows, cells, strict=True):
        mark = cell.pop("question")
        assert cell == {name: _cell(value) for name, value in row.items()}
        assert record["question"].startswith(mark)
        assert len(mark) == 16


def test_an_error_loses_nothing(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library(fault=BudgetError("image 7 needs more than the budget"), fault_at=7))
    path = tmp_path / "run.json"
    outcome = command("certify", "--json", str(path))
    assert outcome.code == 2
    assert outcome.err.splitlines() == [
        "relucert: stopped after 7 of 100 images; the same command goes on from here",
        "relucert: error: image 7 needs more than the budget",
    ]
    record = _strict(path)
    assert (record["complete"], len(record["results"])) == (False, 7)
    assert "mean radius" in outcome.out


def test_an_interrupt_loses_nothing(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library(fault=KeyboardInterrupt(), fault_at=12))
    paths = [tmp_path / name for name in ("run.json", "run.csv", "run.png")]
    outcome = command("certify", "--json", str(paths[0]), "--csv", str(paths[1]), "--plot", str(paths[2]))
    assert outcome.code == 130
    assert outcome.err == "relucert: stopped after 12 of 100 images; the same command goes on from here\n"
    record = _strict(paths[0])
    assert (record["complete"], len(record["results"])) == (False, 12)
    assert len(paths[1].read_text().splitlines()) == 13
    assert paths[2].stat().st_size > 1000
    assert "mean radius" in outcome.out
    assert sorted(tmp_path.iterdir()) == sorted([*paths, tmp_path / "run.json.answers"])


def test_several_plots(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library())
    paths = [tmp_path / name for name in ("run.png", "run.svg", "run.pdf")]
    plots = [argument for path in paths for argument in ("--plot", str(path))]
    assert command("certify", "--images", "5", "--quiet", *plots).code == 0
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert "<!-- radius, p = inf -->" in paths[1].read_text()


def test_an_interrupt_before_the_first_answer(command: Command, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(fake.Library(fault=KeyboardInterrupt()))
    outcome = command("certify", "--json", str(tmp_path / "run.json"))
    assert (outcome.code, outcome.out) == (130, "")
    assert _strict(tmp_path / "run.json")["results"] == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_from_outside(tmp_path: Path, stop: signal.Signals) -> None:
    path = tmp_path / "run.json"
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.fake", "0.05", "certify", "--json", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (path.exists() and _strict(path)["results"]):
        assert time.monotonic() < deadline, "no answer was ever recorded"
        time.sleep(0.05)
    running.send_signal(stop)
    out, err = running.communicate(timeout=60)
    record = _strict(path)
    assert record["complete"] is False
    assert 0 < len(record["results"]) < 100
    assert "Traceback" not in err
    if stop == signal.SIGINT:
        assert running.returncode == 130
        assert f"stopped after {len(record['results'])} of 100 images" in err
        assert "mean radius" in out


def test_a_reader_that_leaves(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    path = tmp_path / "run.json"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.cli.fake", "0", "certify", "--json", str(path)],
        stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert _strict(path)["complete"] is True


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--images", "0"], ["--images", "'0'"]),
        (["--images", "-3"], ["--images"]),
        (["--images", "101"], ["100 images", "101"]),
        (["--memory", "lots"], ["--memory", "'lots'", "512M"]),
        (["--memory", "0G"], ["--memory"]),
        (["--tolerance", "small"], ["--tolerance", "'small'"]),
        (["--seed", "-1"], ["--seed"]),
        (["--seed", str(2**63)], ["--seed"]),
        (["--threads", "0"], ["--threads"]),
        (["--threads", "1e9"], ["--threads"]),
        (["--threads", "1000000"], ["--threads"]),
        (["--at", "nan"], ["--at", "nan"]),
        (["--at", "-0.1"], ["--at"]),
        (["--at", "inf"], ["--at"]),
        (["--mehtod", "interval"], ["--mehtod"]),
        (["--imag", "3"], ["--imag"]),
        (["a", "b"], ["unrecognized", "b"]),
        (["--data", "nothing.npz"], ["nothing.npz", "no such file"]),
        (["--data", "nothing.txt"], ["nothing.txt", ".npz"]),
        (["--json", "nowhere/run.json"], ["nowhere", "no folder"]),
        (["--csv", "nowhere/run.csv"], ["nowhere", "no folder"]),
        (["--plot", "nowhere/run.png"], ["nowhere", "no folder"]),
        (["--plot", "run.bmp"], ["run.bmp", ".png"]),
        (["--plot", "run"], [".png"]),
        (["--json", "."], ["not a regular file"]),
        (["--json", "/dev/null"], ["not a regular file"]),
        (["--json", "same", "--csv", "./same"], ["--csv", "overwrite"]),
        (["--plot", "a.png", "--plot", "./a.png"], ["--plot", "overwrite"]),
        (["--plot", "a.png", "--plot", "a.gif"], ["a.gif", ".png"]),
        (["net.onnx", "--json", "net.onnx"], ["--json", "overwrite"]),
        (["--data", "images.npz", "--csv", "images.npz"], ["--csv", "overwrite"]),
    ],
)
def test_bad_options(
    command: Command,
    stand_in: StandIn,
    argv: list[str],
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in(fake.Library())
    monkeypatch.chdir(tmp_path)
    single_line(command("certify", *argv), parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [[], ["cerfity"], ["--quick"]])
def test_bad_commands(command: Command, argv: list[str]) -> None:
    single_line(command(*argv), ["--help"])


def test_bundled_images_that_do_not_fit(command: Command, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(fake.Library())
    monkeypatch.setattr(fake, "network", lambda: NARROW)
    single_line(command("certify"), ["784", "12 numbers", "--data"])


def test_out_of_memory_is_one_line(command: Command, stand_in: StandIn) -> None:
    stand_in(fake.Library(fault=RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 9 bytes")))
    single_line(command("certify"), ["can't allocate memory"])


def test_version(command: Command) -> None:
    assert re.fullmatch(r"relucert \d+\.\d+\.\d+\n", command("--version").out)


NARROW = fake.network(inputs=12)


def _strict(path: Path) -> dict[str, Any]:
    """JSON without the tokens that only some readers know."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    record: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    return record


def _cell(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
