"""Records of long runs go on where they were stopped, and tables count nothing that was not asked."""

from __future__ import annotations

import json
from pathlib import Path

from bench import competition, record
from bench.published import mipverify


def _length(question: str) -> record.Row:
    return {"length": len(question)}


def test_a_record_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text('{"question": "a", "length": 3}\n{"question": "b", "len')  # killed while it wrote
    rows = record.fill(path, {"a": "another", "b": "three"}, _length, workers=1)
    assert (rows["a"]["length"], rows["b"]["length"]) == (3, 5)
    assert record.read(path) == rows


def test_lists_of_instances_are_joined(tmp_path: Path) -> None:
    (tmp_path / "expected.csv").write_text("benchmark,onnx,vnnlib,seconds,verdict\none,a.onnx,p.vnnlib,10,sat\n")
    for name, line in (("one", "a.onnx,other.vnnlib,5"), ("two", "\"[('f', 'a.onnx'), ('g', 'b.onnx')]\",q.vnnlib,7")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "instances.csv").write_text(line + "\n")
    one, two = competition.instances(tmp_path)
    assert (one.name, one.limit, one.listed) == ("one/a/p", 10.0, "sat")
    assert (two.name, two.limit, list(two.networks)) == ("two/a+b/q", 7.0, ["f", "g"])


def test_wrong_verdicts_are_named() -> None:
    answers = [
        {"question": f"b/n/{number}", "benchmark": "b", "status": status, "listed": listed, "seconds": 1.0}
        for number, (status, listed) in enumerate([("holds", "unsat"), ("holds", "sat"), ("unknown", "sat")])
    ]
    (row,) = competition.rows(answers, [])
    assert row[:7] == ["b", "3", "2", "0", "1", "0", "1"]


def test_distances_that_nobody_asked_for_are_not_counted() -> None:
    statuses = ["holds", "violated", "violated"]
    answers: list[record.Row] = [
        {"name": "feasibility", "image": image, "status": status, "seconds": 1.0}
        for image, status in enumerate(statuses)
    ]
    answers.append({"name": "closest", "image": 1, "status": "unknown", "seconds": 2.0})
    first, second = mipverify.rows(json.loads(json.dumps(answers)))
    assert first[2:6] == ["3", "1", "2", "0"]
    assert second[2:6] == ["2", "1", "0", "1"]
