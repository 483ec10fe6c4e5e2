"""Whole folders of VNN-COMP, by category, on all cores: a table of verdicts beside other tools' published counts.

python -m bench.competition FOLDER --record FILE [BENCHMARK ...] [--limit S] [--share S] [--at-most N]

The folder has one folder per benchmark, with its networks and properties, and their list: `instances.csv` in each, as
the competition has it, or `expected.csv` for all, with the verdicts that several tools agree on. A run that was stopped
goes on. Every violation is replayed here by onnxruntime, apart from what the library did.
"""

from __future__ import annotations

import argparse
import ast
import csv
import gzip
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import record

if TYPE_CHECKING:
    import relucert

MOST_TOOLS = 3  # that are named, those with the most decided
MEANING = {"sat": "violated", "unsat": "holds"}
HEADER = [
    "benchmark", "instances", "holds", "violated", "open", "refused", "not as listed", "s in all, median, longest",
    "decided by other tools, whole benchmark, published",
]  # fmt: skip


class Instance(NamedTuple):
    """A line of a list: the files of the networks, by their names where there are several, and of the property."""

    benchmark: str
    networks: dict[str, Path]
    query: Path
    limit: float
    listed: str

    @property
    def name(self) -> str:
        networks = "+".join(path.name.removesuffix(".onnx") for path in self.networks.values())
        return f"{self.benchmark}/{networks}/{self.query.name.removesuffix('.vnnlib')}"


def instances(folder: Path) -> Iterator[Instance]:
    """All instances below a folder."""
    stated = folder / "expected.csv"
    listed = list(csv.DictReader(stated.read_text().splitlines())) if stated.exists() else []
    for row in listed:
        place = folder / row["benchmark"]
        networks = {"": place / row["onnx"]}
        yield Instance(row["benchmark"], networks, place / row["vnnlib"], float(row["seconds"]), row["verdict"])
    for path in sorted(folder.glob("*/instances.csv")):
        if any(row["benchmark"] == path.parent.name for row in listed):
            continue
        for onnx, vnnlib, seconds in csv.reader(path.read_text().splitlines()):
            named = dict(ast.literal_eval(onnx)) if onnx.startswith("[") else {"": onnx}
            networks = {name: path.parent / file for name, file in named.items()}
            yield Instance(path.parent.name, networks, path.parent / vnnlib, float(seconds), "")


def answer(instance: Instance) -> record.Row:
    """The verdict, and whether onnxruntime shows the violation."""
    import relucert

    row = {"benchmark": instance.benchmark, "listed": instance.listed, "limit": instance.limit}
    networks = {name: _plain_or_packed(path) for name, path in instance.networks.items()}
    single, query = networks.get(""), _plain_or_packed(instance.query)
    try:
        given = {name: str(path) for name, path in networks.items()} if single is None else str(single)
        verdict = relucert.verify(given, query, time_limit=instance.limit, workers=1)
    except relucert.RelucertError as error:
        return {**row, "status": "refused", "reason": str(error)}
    told = {"status": verdict.status, "reason": verdict.reason, "method": verdict.method, "nodes": verdict.nodes}
    if verdict.status == "violated" and single is not None:
        told["replayed"] = _replayed(single, query, verdict)
    return {**row, **told}


def _plain_or_packed(plain: Path) -> Path:
    """A file, or its compressed copy where only that is there."""
    packed = plain.with_name(f"{plain.name}.gz")
    return packed if packed.exists() and not plain.exists() else plain


def _replayed(network: Path, query: Path, verdict: relucert.Verdict) -> bool:
    """Whether the witness, evaluated by onnxruntime in the network's own precision, meets all of a violation."""
    import onnxruntime

    import relucert

    stored = network.read_bytes()
    model = gzip.decompress(stored) if network.suffix == ".gz" else stored
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert verdict.witness is not None
    assert verdict.coordinates is not None
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in given.shape]
    dtype = "float64" if "double" in given.type else "float32"
    (outputs,) = session.run(None, {given.name: verdict.witness.numpy().astype(dtype).reshape(shape)})
    scores = [Fraction(float(number)) for number in outputs.flatten()]
    return any(
        violation.has_inputs(verdict.coordinates)
        and all(one.is_met_by(one.excess(verdict.coordinates, scores)) for one in violation.constraints)
        for violation in relucert.Query.read(query).violations
    )


def rows(answers: Sequence[record.Row], tools: Sequence[dict[str, str]]) -> Iterator[list[str]]:
    for name in dict.fromkeys(row["benchmark"] for row in answers):
        found = [row for row in answers if row["benchmark"] == name]
        counts = [
            str(sum(row["status"] == status for row in found)) for status in ("holds", "violated", "unknown", "refused")
        ]
        differing = [
            row["question"].split("/")[-1]
            for row in found
            if row["status"] in MEANING.values() and row["listed"] and row["status"] != MEANING[row["listed"]]
        ]
        others = [
            (int(tool["unsat"]) + int(tool["sat"]), f"{tool['tool']} of {tool['instances']}")
            for tool in tools
            if int(tool["instances"]) and (tool["benchmark"].startswith(name) or name.startswith(tool["benchmark"]))
        ]
        best = [f"{decided} by {whom}" for decided, whom in sorted(others, reverse=True)[:MOST_TOOLS]]
        seconds = record.spent(row["seconds"] for row in found)
        yield [name, str(len(found)), *counts, ", ".join(differing) or "none", seconds, "; ".join(best)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("benchmarks", nargs="*")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds, where the instance allows more")
    parser.add_argument("--share", type=float, default=1.0, help="of the instance's own seconds")
    parser.add_argument("--at-most", type=int, default=10**6, help="instances of each benchmark, the first")
    parser.add_argument("--tools", type=Path, help="a CSV file of other tools' counts: benchmark,tool,instances,...")
    record.add_arguments(parser)
    arguments = parser.parse_args()
    asked: dict[str, Instance] = {}
    counts: dict[str, int] = {}
    for one in instances(arguments.folder):
        counts[one.benchmark] = counts.get(one.benchmark, 0) + 1
        wanted = not arguments.benchmarks or one.benchmark in arguments.benchmarks
        if wanted and counts[one.benchmark] <= arguments.at_most:
            asked[one.name] = one._replace(limit=min(arguments.limit, arguments.share * one.limit))
    answers = list(record.filled(arguments, asked, answer).values())
    tools = list(csv.DictReader(arguments.tools.read_text().splitlines())) if arguments.tools else []
    print(record.table(HEADER, rows(answers, tools)))
    missed = [row["question"] for row in answers if row.get("replayed") is False]
    print(f"\nwitnesses that onnxruntime does not show: {', '.join(missed) or 'none'}")
    print(record.circumstances(answers))


if __name__ == "__main__":
    main()
