"""Table 1 of SDP-CROWN (ICML 2025): images whose class is proven to stay within a radius, p = 2.

python -m bench.published.sdp_crown FOLDER [IMAGES [NETWORK ...]], on one thread. The folder has the networks and images
as .npz files; docs/benchmarks.md says where the originals are. Beside the verdicts stands an attack that shares nothing
with them: projected gradient descent from 20 random starts, in float32 (`pgd`).
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
STARTS, STEPS = 20, 40
STEP = 0.1  # of the radius
HEADER = [
    "network", "images", "proven", "violated", "open", "s an image", "longest", "wrong or fooled by PGD",
    "proven, yet fooled", "s an image of PGD",
]  # fmt: skip


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


def pgd(network: Network, image: Tensor, label: int, radius: float) -> bool:
    """Whether projected gradient descent on the margin of the nearest rival leaves the class, p = 2.

    Args:
        network: In float32.
        image: (1, inputs), in float32.
        label: The class that is to be left; an image of another class counts as left.
        radius: Of the ball.
    """
    generator = torch.Generator().manual_seed(0)
    moved = torch.randn(STARTS, image.shape[1], generator=generator)
    moved = radius * moved / moved.norm(dim=1, keepdim=True)
    moved[0] = 0
    for _ in range(STEPS + 1):
        moved.requires_grad_(True)
        scores = network(image + moved)
        rivals = scores.index_fill(1, torch.tensor([label]), -torch.inf).amax(1)
        margins = scores[:, label] - rivals
        if bool((margins < 0).any()):
            return True
        (slope,) = torch.autograd.grad(margins.sum(), moved)
        moved = moved.detach() - STEP * radius * slope / slope.norm(dim=1, keepdim=True).clamp(min=1e-20)
        moved = moved * (radius / moved.norm(dim=1, keepdim=True).clamp(min=radius))
    return False


def rows(folder: Path, count: int, names: Sequence[str]) -> Iterator[list[str]]:
    for network, images, labels, radius in questions(folder, names):
        statuses: Counter[str] = Counter()
        single = network.cast(torch.float32)
        seconds, attacked, contradicted, fooling = [], 0, 0, 0.0
        for image, label in zip(images[:count], labels[:count], strict=True):
            started = time.process_time()
            (verdict,) = relucert.robust_at(
                network, image[None], label[None], radius=radius, norm=2, time_limit=TIME_LIMIT, workers=1
            )
            seconds.append(time.process_time() - started)
            statuses[verdict.status] += 1
            started = time.process_time()
            fooled = pgd(single, image.float().reshape(1, -1), int(label), radius)
            fooling += time.process_time() - started
            attacked += fooled
            contradicted += fooled and verdict.status == "holds"
        yield [
            network.name, str(len(seconds)), str(statuses["holds"]), str(statuses["violated"]),
            str(statuses["unknown"]), f"{sum(seconds) / len(seconds):.2f}", f"{max(seconds):.1f}", str(attacked),
            str(contradicted), f"{fooling / len(seconds):.2f}",
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
