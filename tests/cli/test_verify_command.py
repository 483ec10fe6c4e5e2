"""`relucert verify` in its three forms, end to end."""

from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import relucert
from tests.cli.conftest import Command, single_line
from tests.nets import mlp
from tests.verification.networks import as_onnx

HEAD = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (>= X_0 -0.1)) (assert (<= X_0 0.1)) (assert (>= X_1 0.3)) (assert (<= X_1 0.7))\n"
TRUE = HEAD + BOX + "(assert (<= Y_0 -50))"
FALSE = HEAD + BOX + "(assert (or (<= Y_0 Y_1) (>= Y_0 Y_1)))"
SCRIPTS = Path(__file__).parents[2] / "vnncomp_scripts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    as_onnx(mlp(2, 8, 8, 2, seed=6), tmp_path / "network.onnx")
    (tmp_path / "true.vnnlib").write_text(TRUE)
    (tmp_path / "false.vnnlib").write_text(FALSE)
    return tmp_path


def test_a_property_that_holds_is_proven_and_its_proof_checked(command: Command, folder: Path) -> None:
    network, proof = str(folder / "network.onnx"), str(folder / "proof.json.gz")
    asked = (network, str(folder / "true.vnnlib"))
    ended = command("verify", *asked, "--proof", proof, "--results", str(folder / "r.txt"))
    assert ended.code == 0, ended
    assert "holds" in ended.out
    assert (folder / "r.txt").read_text() == "unsat\n"
    checked = command("check", proof, network, "--property", str(folder / "true.vnnlib"))
    assert checked.code == 0, checked
    assert "holds" in checked.out
    other = command("check", proof, network, "--property", str(folder / "false.vnnlib"))
    assert other.code == 1
    assert "another property" in other.err
    assert command("check", proof, network, "--data", "bundled").code == 2  # images of another size
    single_line(command("verify", network, str(folder / "false.vnnlib"), "--proof", proof), ["--overwrite"])


def test_a_violation_is_written_as_the_competition_wants_it(command: Command, folder: Path) -> None:
    network, results, record = (str(folder / name) for name in ("network.onnx", "r.txt", "r.json"))
    asked = (network, str(folder / "false.vnnlib"))
    ended = command("verify", *asked, "--results", results, "--json", record, "--quiet")
    assert ended.code == 0, ended
    first, rest = Path(results).read_text().split("\n", 1)
    assert first == "sat"
    values = {name: Fraction(number) for name, number in re.findall(r"\((\w+) (-?[\d.]+)\)", rest)}
    assert sorted(values) == ["X_0", "X_1"]
    assert Fraction("-0.1") <= values["X_0"] <= Fraction("0.1")
    assert Fraction("0.3") <= values["X_1"] <= Fraction("0.7")
    session = onnxruntime.InferenceSession(network)
    point = np.array([[float(values["X_0"]), float(values["X_1"])]], dtype=np.float32)
    (outputs,) = session.run(None, {"x": point})
    (row,) = json.loads(Path(record).read_text())["results"]
    assert outputs[0].tolist() == row["outputs"]
    assert row["status"] == "violated"
    assert row["witness"] == [float(values["X_0"]), float(values["X_1"])]
    assert command("verify", *asked, "--results", results).code == 0  # a verdict may be replaced
    Path(results).write_text("a diary")
    single_line(command("verify", *asked, "--results", results), ["--overwrite"])


def test_no_time_is_a_timeout(command: Command, folder: Path) -> None:
    network = as_onnx(mlp(2, 40, 40, 40, 2, seed=1), folder / "hard.onnx")
    (folder / "hard.vnnlib").write_text(HEAD + BOX.replace("0.1", "90") + "(assert (<= Y_0 -3))")
    ended = command("verify", str(network), str(folder / "hard.vnnlib"), "--time-limit", "0", "--results",
                    str(folder / "r.txt"))  # fmt: skip
    assert ended.code == 0, ended
    assert (folder / "r.txt").read_text() == "timeout\n"


def test_images_at_a_radius(command: Command, tmp_path: Path) -> None:
    record, table = tmp_path / "run.json", tmp_path / "run.csv"
    ended = command(
        "verify", "mnist-2x20", "--radius", "0.01", "--images", "3", "--json", str(record), "--csv", str(table)
    )
    assert ended.code == 0, ended
    assert "3 of 3 clean" in ended.out
    rows = json.loads(record.read_text())["results"]
    assert len(rows) == 3
    assert {row["status"] for row in rows} <= {"holds", "violated"}
    page = tmp_path / "page.html"
    assert command("report", str(record), "-o", str(page)).code == 0
    assert "3 of 3" in page.read_text()
    assert len(table.read_text().splitlines()) == 4
    proof = tmp_path / "proof.json"
    ended = command("verify", "mnist-2x20", "--radius", "0.001", "--images", "1", "--proof", str(proof))
    assert ended.code == 0, ended
    assert "within 0.001" in command("check", str(proof)).out


def test_a_list_of_instances_is_resumed(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "list.csv").write_text(
        "network.onnx,true.vnnlib,20\nnetwork.onnx,false.vnnlib,20\nnetwork.onnx,missing.vnnlib,20\n"
    )
    ended = command("verify", "--instances", "list.csv")
    assert ended.code == 0, ended
    assert "1 unsat" in ended.out
    table = folder / "list-verdicts.csv"
    rows = _rows(table)
    assert [row["result"] for row in rows] == ["unsat", "sat", "error"]
    assert "missing.vnnlib" in rows[2]["reason"]
    records = _records(folder / "list-verdicts.csv.answers")
    assert records == 2  # what failed is tried again
    (folder / "missing.vnnlib").write_text(TRUE)
    for _ in range(2):
        before, table_before = records, table.read_text()
        ended = command("verify", "--instances", "list.csv", "--quiet")
        assert [row["result"] for row in _rows(table)] == ["unsat", "sat", "unsat"]
        records = _records(folder / "list-verdicts.csv.answers")
    assert (records, table.read_text()) == (before, table_before)  # nothing was done again
    (folder / "true.vnnlib").write_text(TRUE + "\n")  # another file is another question
    (folder / "list.csv").rename(folder / "other.csv")  # another name is not
    command("verify", "--instances", "other.csv", "--csv", "list-verdicts.csv", "--quiet")
    assert [row["result"] for row in _rows(table)] == ["unsat", "sat", "unsat"]
    assert _records(folder / "list-verdicts.csv.answers") == records + 1
    for name in ("network.onnx", "true.vnnlib"):  # nor are compressed copies
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    command("verify", "--instances", "other.csv", "--csv", "list-verdicts.csv", "--quiet")
    assert [row["result"] for row in _rows(table)] == ["unsat", "sat", "unsat"]
    assert _records(folder / "list-verdicts.csv.answers") == records + 1
    assert "holds" in command("verify", "network.onnx.gz", "true.vnnlib.gz").out
    refused = command("verify", "--instances", "other.csv", "--csv", "list-verdicts.csv", "--seed", "1")
    single_line(refused, ["answers another question", "seed is 0, not 1"])


def _records(path: Path) -> int:
    return path.read_bytes().count(b"\n") - 1


def test_workers_share_a_list(command: Command, folder: Path) -> None:
    lines = [f"network.onnx,{name}.vnnlib,{limit}\n" for limit in (20, 21) for name in ("true", "false", "missing")]
    (folder / "list.csv").write_text("".join(lines))
    rows = {}
    for workers in ("1", "2"):
        record, table = folder / f"{workers}.json", folder / f"{workers}.csv"
        files = ("--json", str(record), "--csv", str(table))
        ended = command("verify", "--instances", str(folder / "list.csv"), "--workers", workers, *files)
        assert ended.code == 0, ended
        content = json.loads(record.read_text())
        assert content["complete"]
        rows[workers] = [{**row, "seconds": 0} for row in content["results"]]
        assert [row["result"] for row in _rows(table)] == ["unsat", "sat", "error"] * 2
    assert rows["1"] == rows["2"]


def test_a_property_is_decided_once(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command shows what it recorded; another question is refused."""
    import relucert

    network, record, results = (str(folder / name) for name in ("network.onnx", "r.json", "r.txt"))
    asked = ("verify", network, str(folder / "false.vnnlib"), "--json", record)
    assert command(*asked).code == 0
    before = json.loads(Path(record).read_text())["results"]
    monkeypatch.setitem(vars(relucert), "verify", None)
    assert command(*asked, "--results", results).code == 0
    assert Path(results).read_text().startswith("sat\n((X_0 ")
    assert json.loads(Path(record).read_text())["results"] == before
    others = {("--seed", "3"): "seed is 0, not 3", ("--time-limit", "9"): "time_limit is None, not 9.0"}
    for other, said in others.items():
        single_line(command(*asked, *other), ["answers another question", said])
    asked = ("verify", network, str(folder / "true.vnnlib"), "--json", record)
    single_line(command(*asked), ["answers another question", "property is"])


def _rows(table: Path) -> list[dict[str, str]]:
    with table.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no instances"),
        ("a,b\n", "line 1"),
        ("a,b,c\n", "line 1"),
        ("a,b,1\n,b,1\n", "line 2"),
        ("a,b,-1\n", "line 1"),
    ],
)
def test_bad_lists(command: Command, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "list.csv").write_text(content)
    single_line(command("verify", "--instances", str(tmp_path / "list.csv"), "--csv", str(tmp_path / "t.csv")), [said])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say what to verify"),
        (("mnist-2x20", "nowhere.vnnlib"), "nowhere.vnnlib"),
        (("nowhere.onnx", "TRUE"), "nowhere.onnx"),
        (("mnist-2x20", "TRUE"), "about 2 inputs"),
        (("mnist-2x20", "TRUE", "--radius", "1"), "say what to verify"),
        (("mnist-2x20", "--radius", "-1"), "radius"),
        (("mnist-2x20", "--radius", "0.1", "--results", "r.txt"), "--results does not go with --radius"),
        (("mnist-2x20", "TRUE", "--box", "0", "1"), "--box does not go with a property"),
        (("--instances", "nowhere.csv"), "nowhere.csv"),
        (("--instances", "nowhere.csv", "--results", "a.txt"), "--results does not go with --instances"),
        (("mnist-2x20", "--radius", "0.1", "--threads", "2", "--workers", "2"), "workers have one thread each"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(folder)
    single_line(command("verify", *(word.replace("TRUE", "true.vnnlib") for word in arguments)), [said])


@pytest.mark.parametrize("script", ["install_tool", "prepare_instance", "run_instance"])
def test_the_scripts_of_the_competition_check_their_arguments(script: str) -> None:
    ended = subprocess.run([SCRIPTS / f"{script}.sh", "v0"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "v1" in ended.stderr


def test_evaluated_in_float32(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every form says so, on the screen and in its files; a table of instances keeps both."""
    monkeypatch.chdir(folder)
    robust = command(
        "verify", "mnist-2x20", "--radius", "0.01", "--images", "2", "--inference", "float32", "--json", "robust.json"
    )
    assert (robust.code, "evaluated in float32" in robust.out) == (0, True)
    content = json.loads((folder / "robust.json").read_text())
    assert content["options"]["inference"] == "float32"
    assert [row["inference"] for row in content["results"]] == ["float32"] * 2
    ended = command("verify", "network.onnx", "false.vnnlib", "--inference", "float32", "--json", "property.json")
    assert "evaluated in float32" in ended.out
    assert "shown by onnxruntime in float32" in ended.out
    assert json.loads((folder / "property.json").read_text())["results"][0]["inference"] == "float32"
    (folder / "list.csv").write_text("network.onnx,true.vnnlib,20\n")
    for inference in ("real", "float32"):
        asked = ("verify", "--instances", "list.csv", "--csv", f"{inference}.csv", "--inference")
        ended = command(*asked, inference)
        assert ended.code == 0, ended
        (row,) = _rows(folder / f"{inference}.csv")
        assert (row["inference"], row["result"]) == (inference, "unsat")
    single_line(command(*asked, "bfloat16"), ["answers another question", "inference is float32, not bfloat16"])
    single_line(command("verify", "--instances", "list.csv", "--inference", "float8"), ["inference", "float8"])


def test_an_attack_evaluated_in_float32(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    np.savez("points.npz", images=np.array([[0.25, 0.5]], np.float32), labels=np.array([0]))
    for name in ("attack", "exact"):
        asked = ("network.onnx", "--data", "points.npz", "--inference", "float32", "--json", f"{name}.json")
        ended = command(name, *asked)
        assert ended.code == 0, ended
        assert "evaluated in float32" in ended.out
        (row,) = json.loads((folder / f"{name}.json").read_text())["results"]
        assert (row["inference"], row["shown_by"]) == ("float32", "onnxruntime in float32")
        assert "shown by onnxruntime in float32" in ended.out


def test_a_verdict_about_a_file_that_was_replaced_meanwhile_is_not_kept(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, record = relucert.verify, folder / "r.json"

    def replacing(*arguments: Any, **options: Any) -> Any:
        as_onnx(mlp(2, 8, 8, 2, seed=7), folder / "network.onnx")
        return verify(*arguments, **options)

    monkeypatch.setattr(relucert, "verify", replacing)
    asked = (str(folder / "network.onnx"), str(folder / "true.vnnlib"))
    single_line(command("verify", *asked, "--json", str(record), "--quiet"), ["changed meanwhile"])
    assert not record.exists() or not json.loads(record.read_text())["results"]
    assert len((folder / "r.json.answers").read_text().splitlines()) == 1  # the head
