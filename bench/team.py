"""One hard question on all cores: seconds by the clock until it is decided, by one process and by several.

    python -m bench.team NETWORK IMAGE RADIUS [NETWORK IMAGE RADIUS ...] [--workers 2] [--limit 900]
    python -m bench.team --published FOLDER

NETWORK: a file or a zoo name for MNIST; IMAGE: the number of a bundled image; RADIUS: for p = infinity, in the box of
valid pixels. Of a published network, an .npz file, IMAGE is that of MNIST's test set. With --published, the hard
questions of `PUBLISHED` are asked. Both are asked in turn. Take figures while nothing else runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

import relucert
from bench.run import show  # before NumPy and PyTorch, which it limits to one thread
from relucert import data

if TYPE_CHECKING:
    from torch import Tensor

    from relucert.network import Network

BOX, PUBLISHED_BOX = (-0.5, 0.5), (0, 1)
PUBLISHED = [
    ("salman-nor-mlp-b.npz", 675, 0.05),
    ("salman-nor-mlp-b.npz", 675, 0.0499),
    ("salman-nor-mlp-b.npz", 987, 0.0504),
    ("salman-nor-mlp-b.npz", 176, 0.03),
    ("salman-nor-mlp-b.npz", 176, 0.0299),
]  # of the first 1,000 images, at radii at which they take one process a minute or more
HEADER = ["network", "image", "radius", "verdict", "one process, s", "nodes", "workers, s", "nodes", "ratio"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", help="NETWORK IMAGE RADIUS, three for each question")
    parser.add_argument("--published", type=Path, help="a folder with published networks, as bench.published has them")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds that one question may take")
    arguments = parser.parse_args()
    given = arguments.questions
    if len(given) % 3 or not (given or arguments.published):
        parser.error("a question is a network, an image and a radius")
    asked = [(name, int(image), float(radius)) for name, image, radius in zip(*(iter(given),) * 3, strict=True)]
    if arguments.published is not None:
        asked += [(str(arguments.published / name), image, radius) for name, image, radius in PUBLISHED]
    rows = [_row(*question, arguments.workers, arguments.limit) for question in asked]
    show(Console(width=120), "one question", HEADER, rows)


def _row(name: str, image: int, radius: float, workers: int, limit: float) -> list[str]:
    network, images, labels, box = _question(name, image)
    alone, shared = (
        relucert.robust_at(network, images, labels, radius=radius, box=box, time_limit=limit, workers=count)[0]
        for count in (1, workers)
    )
    verdict = alone.status if alone.status == shared.status else f"{alone.status}, {shared.status}"
    ratio = alone.seconds / shared.seconds
    cells = [f"{alone.seconds:.1f}", str(alone.nodes), f"{shared.seconds:.1f}", str(shared.nodes), f"{ratio:.2f}"]
    return [Path(name).stem, str(image), f"{radius:g}", verdict, *cells]


def _question(name: str, image: int) -> tuple[str | Network, Tensor, Tensor, tuple[float, float]]:
    """The network, one image and its label, and the box of valid pixels."""
    if name.endswith(".npz"):
        from bench.published.networks import network_of, test_image

        return network_of(Path(name), (784,)), *test_image(image, (784,)), PUBLISHED_BOX
    images = data.bundled()
    assert images.labels is not None
    return name, images.images[image : image + 1], images.labels[image : image + 1], BOX


if __name__ == "__main__":
    main()
