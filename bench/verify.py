"""Verdicts of the published instances, as one table: python -m bench.verify [BENCHMARK ...] [--share S] [--at-most N].

The instances are those of ../shared/vnncomp with its list of verdicts; of each benchmark the first N run, with the
given share of their time limit.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy and PyTorch are imported

SHARED = Path(__file__).parents[2] / "shared" / "vnncomp"
MEANING = {"sat": "violated", "unsat": "holds"}


def main() -> None:
    import torch
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmarks", nargs="*")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--at-most", type=int, default=10**6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with (SHARED / "expected.csv").open() as file:
        listed = list(csv.DictReader(file))
    names = arguments.benchmarks or list(dict.fromkeys(row["benchmark"] for row in listed))
    table = Table(
        "benchmark", "instances", "holds", "violated", "unknown", "not as listed", "seconds", "processor time"
    )
    for name in names:
        table.add_row(name, *_run(name, listed, arguments.share, arguments.at_most))
    Console(width=140).print(table)


def _run(name: str, listed: list[dict[str, str]], share: float, most: int) -> list[str]:
    """The cells of one benchmark; what differs from the list is named."""
    from relucert import verify

    counts = {"holds": 0, "violated": 0, "unknown": 0}
    differing, began, processor = [], time.monotonic(), time.process_time()
    chosen = [row for row in listed if row["benchmark"] == name][:most]
    for row in chosen:
        folder = SHARED / name
        verdict = verify(folder / row["onnx"], folder / row["vnnlib"], time_limit=share * float(row["seconds"]))
        counts[verdict.status] += 1
        if verdict.status != "unknown" and row["verdict"] and verdict.status != MEANING[row["verdict"]]:
            differing.append(Path(row["vnnlib"]).stem)
    spent = f"{time.monotonic() - began:.1f}", f"{time.process_time() - processor:.1f}"
    return [str(len(chosen)), *map(str, counts.values()), ", ".join(differing) or "none", *spent]


if __name__ == "__main__":
    main()
