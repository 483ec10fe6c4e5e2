"""Table 2 of Salman et al. 2019: mean radii, p = inf, untargeted, on ten MNIST images, beside LP-ALL and PGD.

python -m bench.published.salman FOLDER [METHOD [NETWORK ...]], on one thread; `sdp` by default. The folder
has the networks and images as .npz files; docs/benchmarks.md says where the originals are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

import relucert
from bench.published.networks import network_of
from relucert.common import names

PUBLISHED = {
    "mlp-2-100-nor": (15.83, 28.14),
    "mlp-9-100-nor": (14.23, 31.37),
    "cnn-small-nor": (18.87, 52.70),
    "cnn-small-adv": (85.94, 155.16),
    "cnn-deep-1-nor": (19.58, 44.79),
}  # mean radii of LP-ALL and of PGD, in thousandths
HEADER = [
    "network",
    "LP-ALL, published",
    "PGD, published",
    "box",
    "method",
    "mean radius / 1e-3",
    "s a radius",
    "longest",
]


def rows(folder: Path, method: str, chosen: Sequence[str]) -> Iterator[list[str]]:
    images = torch.from_numpy(np.load(folder / "salman-ten-images.npz")["images"]).double()
    images = images / 255 if float(images.max()) > 1 else images
    for name, (program, attack) in PUBLISHED.items():
        if chosen and name not in chosen:
            continue
        shape = (784,) if "mlp" in name else (1, 28, 28)
        network = network_of(folder / f"salman-mnist-{name}.npz", shape)
        for box in (None, (0.0, 1.0)):
            radii, seconds = [], []
            for image in images:
                started = time.process_time()
                (answer,) = relucert.certify(
                    network, image.reshape(1, *shape), norm="inf", method=names.METHODS.find(method), box=box, workers=1
                )
                seconds.append(time.process_time() - started)
                radii.append(answer.radius or 0.0)
            yield [
                name, f"{program:.2f}", f"{attack:.2f}", "none" if box is None else "0 to 1", method,
                f"{1e3 * sum(radii) / len(radii):.2f}", f"{sum(seconds) / len(seconds):.1f}", f"{max(seconds):.1f}",
            ]  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    method = sys.argv[2] if len(sys.argv) > 2 else "sdp"
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER))
    for row in rows(Path(sys.argv[1]), method, sys.argv[3:]):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
