"""One hard question on all cores: seconds by the clock until it is decided, by one process and by several.

    python -m bench.team NETWORK IMAGE RADIUS [NETWORK IMAGE RADIUS ...] [--workers 2] [--limit 600]

NETWORK: a file or a zoo name for MNIST; IMAGE: the number of a bundled image; RADIUS: for p = infinity, in the box of
valid pixels. Both are asked in turn. Take figures while nothing else runs.
"""

from __future__ import annotations

import argparse

from rich.console import Console

import relucert
from bench.run import show  # before NumPy and PyTorch, which it limits to one thread
from relucert import data

BOX = (-0.5, 0.5)
HEADER = ["network", "image", "radius", "verdict", "one process, s", "nodes", "workers, s", "nodes", "ratio"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", help="NETWORK IMAGE RADIUS, three for each question")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one question may take")
    arguments = parser.parse_args()
    given = arguments.questions
    if len(given) % 3:
        parser.error("a question is a network, an image and a radius")
    rows = [
        _row(name, int(image), float(radius), arguments.workers, arguments.limit)
        for name, image, radius in zip(given[::3], given[1::3], given[2::3], strict=True)
    ]
    show(Console(width=120), "one question", HEADER, rows)


def _row(name: str, image: int, radius: float, workers: int, limit: float) -> list[str]:
    images = data.bundled()
    assert images.labels is not None
    alone, shared = (
        relucert.robust_at(
            name, images.images[image : image + 1], images.labels[image : image + 1], radius=radius, box=BOX,
            time_limit=limit, workers=count,
        )[0]
        for count in (1, workers)
    )  # fmt: skip
    verdict = alone.status if alone.status == shared.status else f"{alone.status}, {shared.status}"
    ratio = alone.seconds / shared.seconds
    cells = [f"{alone.seconds:.1f}", str(alone.nodes), f"{shared.seconds:.1f}", str(shared.nodes), f"{ratio:.2f}"]
    return [name, str(image), f"{radius:g}", verdict, *cells]


if __name__ == "__main__":
    main()
