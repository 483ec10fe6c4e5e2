"""`relucert verify --instances`: a whole list of properties, with a table that can be resumed."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from relucert.verification.instances import Table, read_instances
from relucert.verification.instances import run as verdicts


def run(arguments: argparse.Namespace) -> int:
    """Runs all instances that the table does not have yet, and shows all."""
    import torch

    from relucert.cli.show import Screen

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    instances = read_instances(arguments.instances)
    path = arguments.csv or Path(f"{arguments.instances.stem}-verdicts.csv")
    table = Table(path, arguments.overwrite)
    screen = Screen(quiet=arguments.quiet)
    rows: list[dict[str, Any]] = []
    with screen.progress("verifying", len(instances)) as bar:
        for row in verdicts(instances, table, arguments.time_limit, arguments.seed, arguments.inference):
            rows.append(row)
            bar.advance(len(rows), len(instances))
    if not arguments.quiet:
        titles = ["network", "property", "verdict", "seconds", "method", "remark"]
        cells = [[Path(row["onnx"]).name, Path(row["vnnlib"]).name, row["result"], row["seconds"], row["method"],
                  row["reason"]] for row in rows]  # fmt: skip
        screen.columns(titles, cells)
    counts = Counter(row["result"] for row in rows)
    screen.line("verdicts", ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    screen.line("table", str(path))
    return 0
