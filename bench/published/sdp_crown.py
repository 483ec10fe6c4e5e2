"""Table 1 of SDP-CROWN (ICML 2025): images whose class is proven to stay within a radius, p = 2.

python -m bench.published.sdp_crown FOLDER [IMAGES [NETWORK ...]], on one thread. The folder has the networks and images
as .npz files; docs/benchmarks.md says where the originals are.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import relucert
from bench.published.networks import network_of
from relucert.network import Network

MEAN = torch.tensor([125.3, 123.0, 113.9], dtype=torch.float64) / 255
DEVIATION = 0.225
TIME_LIMIT = 30.0
HEADER = ["network", "images", "proven", "attacked", "open", "s an image", "longest"]


def questions(folder: Path, names: Sequence[str]) -> Iterator[tuple[Network, Tensor, Tensor, float]]:
    """The networks with their images, (count, *shape), labels and radius."""
    for path in sorted(folder.glob("sdpcrown-*.npz")):
        name = path.stem.removeprefix("sdpcrown-")
        if name.endswith("images") or (names and name not in names):
            continue
        mnist = name.startswith("mnist")
        stored = np.load(folder / f"sdpcrown-{'mnist' if mnist else 'cifar'}-images.npz")
        pixels, labels = torch.from_numpy(stored["images"]).double() / 255, torch.from_numpy(stored["labels"]).long()
        if mnist:
            shape = (784,) if "mlp" in name else (1, 28, 28)
            yield network_of(path, shape), pixels.reshape(-1, *shape), labels, 1.0 if "mlp" in name else 0.3
        else:
            images = ((pixels - MEAN) / DEVIATION).permute(0, 3, 1, 2)
            yield network_of(path, (3, 32, 32)), images, labels, 24 / 255 / DEVIATION


def rows(folder: Path, count: int, names: Sequence[str]) -> Iterator[list[str]]:
    for network, images, labels, radius in questions(folder, names):
        statuses: Counter[str] = Counter()
        seconds = []
        for image, label in zip(images[:count], labels[:count], strict=True):
            started = time.process_time()
            (verdict,) = relucert.robust_at(
                network, image[None], label[None], radius=radius, norm=2, time_limit=TIME_LIMIT, workers=1
            )
            seconds.append(time.process_time() - started)
            statuses[verdict.status] += 1
        yield [
            network.name, str(len(seconds)), str(statuses["holds"]), str(statuses["violated"]),
            str(statuses["unknown"]), f"{sum(seconds) / len(seconds):.2f}", f"{max(seconds):.1f}",
        ]  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    folder, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER))
    for row in rows(folder, count, sys.argv[3:]):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
