"""MIPVerify's benchmark: MNIST test images 1 to 500 on the network WK17a, p = inf, 0.1, pixels from 0 to 1.

python -m bench.published.mipverify FOLDER --record FILE [--images N] [--limit S]

Two questions per image: whether its class stays within 0.1 (`feasibility`), and how near the nearest adversarial
example is, if it is within 0.1 (`closest`). The folder has the network as a .npz file; docs/benchmarks.md says where
the original is.
"""

from __future__ import annotations

import argparse
import functools
import time
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


class Question(NamedTuple):
    """An image, and the seconds for each of the two questions about it."""

    folder: Path
    image: int
    limit: float


@functools.cache
def _network(folder: Path) -> Network:
    return network_of(folder / "mipverify-wk17a.npz", (1, 28, 28))


def answer(question: Question) -> record.Row:
    """Whether an image keeps its class, and how near the nearest adversarial example is where it does not."""
    network = _network(question.folder)
    image, label = test_image(question.image, (1, 28, 28))
    started = time.process_time()
    (verdict,) = relucert.robust_at(
        network, image, label, radius=RADIUS, box=(0, 1), time_limit=question.limit, workers=1
    )
    row = {
        "feasibility": verdict.status, "feasibility_seconds": time.process_time() - started, "method": verdict.method,
        "nodes": verdict.nodes, "closest": verdict.status, "reason": verdict.reason,
    }  # fmt: skip
    if verdict.status == "violated":
        (nearest,) = relucert.exact(network, image, label, box=(0, 1), time_limit=question.limit, workers=1)
        row |= {
            "closest": "violated" if nearest.closed else "unknown", "lower": nearest.lower, "upper": nearest.upper,
            "reason": nearest.reason,
        }  # fmt: skip
    return row


def rows(answers: list[record.Row]) -> Iterator[list[str]]:
    for name, published in PUBLISHED.items():
        counts = (str(sum(row[name] == status for row in answers)) for status in ("holds", "violated", "unknown"))
        seconds = [row["seconds" if name == "closest" else "feasibility_seconds"] for row in answers]
        yield [name, published, str(len(answers)), *counts, record.spent(seconds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each call")
    record.add_arguments(parser)
    arguments = parser.parse_args()
    asked = {f"image {image}": Question(arguments.folder, image, arguments.limit) for image in range(arguments.images)}
    answers = list(record.filled(arguments, asked, answer).values())
    print(record.table(HEADER, rows(answers)))
    print(f"\n{record.circumstances(answers)}")


if __name__ == "__main__":
    main()
