"""`relucert verify --instances`: the verdicts of a whole list of properties."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from relucert.api import instances
from relucert.api.instances import Decided, InstancesJob
from relucert.cli import options, record, runs
from relucert.cli.show import Screen
from relucert.common.words import counted
from relucert.report.runfile import RunFile

TITLES = ["network", "property", "verdict", "seconds", "method", "remark"]


def run(arguments: argparse.Namespace) -> int:
    """Decides all instances that the store does not have yet, records and shows all."""
    if arguments.csv is None and arguments.json is None:
        arguments.csv = Path(f"{arguments.instances.stem}-verdicts.csv")
    files = options.outputs(arguments, ("json", "csv"))
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    listed = instances.read_instances(arguments.instances)
    job = InstancesJob(listed, arguments.time_limit, arguments.seed, arguments.inference)
    screen, started = Screen(arguments.quiet, arguments.all), time.perf_counter()
    head, kept = _head(arguments, job), runs.store_path(arguments, files)
    with screen.progress("verifying", len(listed)) as bar, runs.execution(arguments, bar.tell) as workers:
        decided = instances.run(job, workers, kept)
        run_file = RunFile(head, files.get("json"), files.get("csv"), overwrite=arguments.overwrite)
        work = runs.collect(decided, run_file)
    _show(screen, work.answers)
    for path in files.values():
        screen.line("table" if path == files.get("csv") else "record", str(path))
    screen.line("time", f"{time.perf_counter() - started:.2f} s")
    code = runs.end(work, kept, screen, f"{len(work.answers)} of {counted(len(listed), 'instance')}")
    return 0 if code == runs.FAILED else code


def _head(arguments: argparse.Namespace, job: InstancesJob) -> dict[str, Any]:
    """The head of the record, before the verdicts; other files in the list belong to the same question."""
    question_options = {"time_limit": job.time_limit, "seed": job.seed, "inference": job.inference}
    digest = hashlib.sha256(json.dumps(job.digests).encode()).hexdigest()
    return {
        **record.circumstances(arguments),
        "question": record.question(str(job.asked["command"]), question_options),
        "instances": {"name": str(arguments.instances), "count": len(job.instances), "sha256": digest},
        "options": question_options
        | {"threads": arguments.threads, "workers": arguments.workers, "ray": arguments.ray},
    }


def _show(screen: Screen, decided: Sequence[Decided]) -> None:
    rows = [
        [Path(row.instance.onnx).name, Path(row.instance.vnnlib).name, row.result, f"{row.verdict.seconds:.3f}",
         row.verdict.method or "", row.reason or ""] for row in decided
    ]  # fmt: skip
    screen.each(TITLES, rows, keys=2)
    counts = Counter(row.result for row in decided)
    screen.line("verdicts", ", ".join(f"{count} {name}" for name, count in counts.most_common()))
