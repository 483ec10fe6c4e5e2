"""Records of long runs: one line of JSON per answered question, so that a run that was stopped goes on where it was.

Questions are shared among processes of one thread each. Seconds are processor time, which other work on the machine
changes little; limits of time, which the library keeps, are by the clock.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

Row = dict[str, Any]
Question = TypeVar("Question")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of every resumable run."""
    parser.add_argument("--record", type=Path, required=True, help="a file of JSON lines, which is gone on with")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    parser.add_argument("--show", action="store_true", help="only make the table of what the record has")


def read(path: Path) -> dict[str, Row]:
    """The rows of a record by their questions; a line that was cut off while it was written is left out."""
    rows: dict[str, Row] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row["question"]] = row
    return rows


def fill(
    path: Path, questions: Mapping[str, Question], answer: Callable[[Question], Row], workers: int
) -> dict[str, Row]:
    """The rows of all questions: those of the record, and those answered now, which are added to it one by one."""
    rows = read(path)
    missing = [name for name in questions if name not in rows]
    if missing:
        path.parent.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("spawn")
        with (
            path.open("a") as file,
            ProcessPoolExecutor(max(1, min(workers, len(missing))), context, _one_thread) as pool,
        ):
            if file.tell() and not path.read_bytes().endswith(b"\n"):
                file.write("\n")  # after a line that was cut off
            futures = {pool.submit(_timed, answer, questions[name]): name for name in missing}
            try:
                for future in as_completed(futures):
                    rows[futures[future]] = row = {"question": futures[future], **future.result()}
                    file.write(json.dumps(row) + "\n")
                    file.flush()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return {name: rows[name] for name in questions}


def filled(
    arguments: argparse.Namespace, questions: Mapping[str, Question], answer: Callable[[Question], Row]
) -> dict[str, Row]:
    """What `fill` gives, by a command's arguments; with --show, whatever the record has."""
    return read(arguments.record) if arguments.show else fill(arguments.record, questions, answer, arguments.workers)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _timed(answer: Callable[[Question], Row], question: Question) -> Row:
    started, clock = time.process_time(), time.monotonic()
    row = answer(question)
    spent = {"seconds": time.process_time() - started, "clock": time.monotonic() - clock}
    return {**row, **spent, "date": time.strftime("%Y-%m-%d"), "machine": machine()}


def machine() -> str:
    """The processor's name and how many cores it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def circumstances(rows: Iterable[Row]) -> str:
    """Where and when the rows were measured."""
    told = list(rows)
    machines, dates = ({row[name] for row in told} for name in ("machine", "date"))
    return f"{'; '.join(sorted(machines))}; one thread per question; {' and '.join(sorted(dates))}"


def spent(seconds: Iterable[float]) -> str:
    """Processor seconds: total, median and longest."""
    told = sorted(seconds)
    return f"{sum(told):.0f} s, {told[len(told) // 2]:.2f} s, {told[-1]:.1f} s" if told else ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
