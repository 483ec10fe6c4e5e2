"""Table 1 of Salman et al. 2019: robust errors on MNIST, p = inf, pixels from 0 to 1, beside LP-ALL and MILP.

python -m bench.published.salman_errors FOLDER --record FILE [--images N] [--limit S] [--rows NAME ...]

The folder has the networks as .npz files; docs/benchmarks.md says where the originals are. Image after image, all rows
are asked about, on all cores; a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import relucert
from bench import record
from bench.published.networks import network_of, test_image
from relucert.network import Network


class Published(NamedTuple):
    """A row of the paper: the network, the radius and errors in % over 10,000 images."""

    network: str
    radius: str
    attack: float
    program_low: float
    program_high: float
    linear: float


PUBLISHED = {
    "adv": Published("adv-mlp-b-0.1", "0.1", 15.86, 16.25, 34.37, 61.59),
    "lpd": Published("lpd-mlp-b-0.1", "0.1", 13.39, 14.45, 14.45, 17.24),
    "nor-0.02": Published("nor-mlp-b", "0.02", 10.06, 10.16, 13.48, 26.41),
    "nor-0.03": Published("nor-mlp-b", "0.03", 20.37, 20.43, 48.67, 65.70),
    "nor-0.05": Published("nor-mlp-b", "0.05", 53.37, 53.37, 94.04, 97.95),
}
HEADER = [
    "network", "radius", "PGD, published", "MILP, published", "LP-ALL, published", "images", "attacked",
    "error, proven", "open", "s in all, median, longest",
]  # fmt: skip


class Question(NamedTuple):
    """One image of one row."""

    folder: Path
    row: str
    image: int
    limit: float


@functools.cache
def _network(folder: Path, name: str) -> Network:
    return network_of(folder / f"salman-{name}.npz", (784,))


def answer(question: Question) -> record.Row:
    """Whether an image keeps its class."""
    published = PUBLISHED[question.row]
    (verdict,) = relucert.robust_at(
        _network(question.folder, published.network), *test_image(question.image, (784,)), radius=published.radius,
        box=(0, 1), time_limit=question.limit, workers=1,
    )  # fmt: skip
    return {"status": verdict.status, "method": verdict.method, "nodes": verdict.nodes, "reason": verdict.reason}


def rows(answers: dict[str, record.Row]) -> Iterator[list[str]]:
    for name, published in PUBLISHED.items():
        found = [row for question, row in answers.items() if question.startswith(f"{name} ")]
        if not found:
            continue
        count, open_ = len(found), sum(row["status"] == "unknown" for row in found)
        violated = [row for row in found if row["status"] == "violated"]
        attacked = sum(row["method"] != "branch and bound" for row in violated)
        low, high = (100 * number / count for number in (len(violated), len(violated) + open_))
        yield [
            published.network, published.radius, f"{published.attack} %",
            f"{published.program_low} to {published.program_high} %", f"{published.linear} %", str(count),
            f"{100 * attacked / count:.1f} %", f"{low:.1f} to {high:.1f} %" if open_ else f"{low:.1f} %", str(open_),
            record.spent(row["seconds"] for row in found),
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for an image")
    parser.add_argument("--rows", nargs="*", choices=list(PUBLISHED), default=list(PUBLISHED))
    record.add_arguments(parser)
    arguments = parser.parse_args()
    asked = {
        f"{row} {image}": Question(arguments.folder, row, image, arguments.limit)
        for image in range(arguments.images)
        for row in arguments.rows
    }
    answers = record.filled(arguments, asked, answer)
    print(record.table(HEADER, rows(answers)))
    print(f"\n{record.circumstances(answers.values())}")


if __name__ == "__main__":
    main()
