"""MIPVerify's benchmark: MNIST test images 1 to 500 on the network WK17a, p = inf, 0.1, pixels from 0 to 1.

python -m bench.published.mipverify FOLDER --record FILE [--images N] [--limit S]

Two questions per image: whether its class stays within 0.1 (`feasibility`), and how near the nearest adversarial
example is, if it is within 0.1 (`closest`). The folder has the network as a .npz file; docs/benchmarks.md says where
the original is.
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

PUBLISHED = {"feasibility": "474, 22, 4; 1,297 s, later 862 to 958 s", "closest": "476, 23, 1; 2,140 s"}
HEADER = ["question", "published (HiGHS)", "images", "certified", "adversarial", "open", "s in all, median, longest"]
RADIUS = "0.1"
STATUSES = ("holds", "violated", "unknown")


class Question(NamedTuple):
    """One of the two questions about an image, and the seconds for it."""

    folder: Path
    name: str
    image: int
    limit: float


@functools.cache
def _network(folder: Path) -> Network:
    return network_of(folder / "mipverify-wk17a.npz", (1, 28, 28))


def answer(question: Question) -> record.Row:
    """Whether an image keeps its class, or how near the nearest adversarial example is."""
    network = _network(question.folder)
    image, label = test_image(question.image, (1, 28, 28))
    row = {"name": question.name, "image": question.image, "limit": question.limit}
    if question.name == "closest":
        (nearest,) = relucert.exact(network, image, label, box=(0, 1), time_limit=question.limit, workers=1)
        ends = {"lower": nearest.lower, "upper": nearest.upper, "reason": nearest.reason}
        return {**row, "status": "violated" if nearest.closed else "unknown", **ends}
    (verdict,) = relucert.robust_at(
        network, image, label, radius=RADIUS, box=(0, 1), time_limit=question.limit, workers=1
    )
    told = {"status": verdict.status, "method": verdict.method, "nodes": verdict.nodes, "reason": verdict.reason}
    return {**row, **told}


def rows(answers: list[record.Row]) -> Iterator[list[str]]:
    """The table: `closest` asks the first question of every image, and the second one where the first is violated."""
    first = {row["image"]: row for row in answers if row["name"] == "feasibility"}
    second = {row["image"]: row for row in answers if row["name"] == "closest"}
    asked = {image: row for image, row in first.items() if row["status"] != "violated"} | second
    for name, found in (("feasibility", first), ("closest", asked)):
        counts = (str(sum(row["status"] == status for row in found.values())) for status in STATUSES)
        further = second if name == "closest" else {}
        seconds = [first[image]["seconds"] + further.get(image, {"seconds": 0.0})["seconds"] for image in found]
        yield [name, PUBLISHED[name], str(len(found)), *counts, record.spent(seconds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each question")
    parser.add_argument("--questions", nargs="*", choices=list(PUBLISHED), default=list(PUBLISHED))
    record.add_arguments(parser)
    arguments = parser.parse_args()
    for name in arguments.questions:
        known = record.read(arguments.record)
        images = (
            range(arguments.images)
            if name == "feasibility"
            else [
                row["image"] for row in known.values() if row["name"] == "feasibility" and row["status"] == "violated"
            ]
        )
        asked = {f"{name} {image}": Question(arguments.folder, name, image, arguments.limit) for image in images}
        record.filled(arguments, asked, answer)
    answers = list(record.read(arguments.record).values())
    print(record.table(HEADER, rows(answers)))
    print(f"\n{record.circumstances(answers)}")


if __name__ == "__main__":
    main()
