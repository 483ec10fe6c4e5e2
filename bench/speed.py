"""Radii against the paper's procedure: the same images, one after the other in one run, one thread."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

import relucert
from bench.algorithm1 import certified_radius
from bench.networks import images, layers, trained
from relucert.arithmetic.property import Property
from relucert.common.names import ArithmeticName
from relucert.network import Network
from relucert.query.targets import rivals

STARTS = {"inf": 0.03, "2": 0.6, "1": 3.0}  # where the bisection starts: the right order of magnitude, for free
ROUNDS = 3


@dataclass(frozen=True)
class Row:
    network: str
    norm: str
    target: str
    images: int
    baseline: float  # seconds per image
    rigorous: float
    plain: float
    difference: float  # of the mean radii, relatively
    evaluations: float

    def cells(self) -> list[str]:
        return [
            self.network, self.norm, self.target, str(self.images),
            f"{1e3 * self.baseline:.2f}", f"{1e3 * self.rigorous:.2f}", f"{1e3 * self.plain:.2f}",
            f"{self.baseline / self.rigorous:.1f}x", f"{self.baseline / self.plain:.1f}x",
            f"{100 * self.difference:+.3f} %", f"{self.evaluations:.1f}",
        ]  # fmt: skip


HEADER = [
    "network", "norm", "target", "images", "Algorithm 1, ms", "rigorous, ms", "float, ms",
    "rigorous", "float", "radius", "evaluations",
]  # fmt: skip


def rows() -> list[Row]:
    small, large = relucert.load("mnist-2x20"), relucert.load("mnist-3x1024")
    deep = trained(784, 1024, 1024, 1024, 10)
    cases = [
        ("mnist-2x20", small, "untargeted", 100),
        ("mnist-2x20", small, "runner-up", 100),
        ("mnist-3x1024", large, "untargeted", 8),
        ("4x[1024]", deep, "untargeted", 4),
    ]
    return [_row(name, network, norm, target, count) for name, network, target, count in cases for norm in STARTS]


def _row(name: str, network: Network, norm: str, target: str, count: int) -> Row:
    """The median of interleaved rounds."""
    data = images(network.sizes[0])[:count]
    scores = network.cast(torch.float64)(data.double())
    labels = scores.argmax(1)
    prop = Property.margins(labels, rivals(target, scores, labels, 0), network.classes)
    margins = prop.rows.float().numpy()
    chain, points = layers(network), data.numpy()
    seconds: list[list[float]] = [[], [], []]
    for _ in range(ROUNDS):
        started = time.perf_counter()
        wanted = [
            certified_radius(chain, x, rows, float(norm), STARTS[norm]) for x, rows in zip(points, margins, strict=True)
        ]
        seconds[0].append(time.perf_counter() - started)
        kinds: list[tuple[int, ArithmeticName]] = [(1, "rigorous"), (2, "float")]
        for place, arithmetic in kinds:
            started = time.perf_counter()
            answers = relucert.certify(network, data, labels, norm=norm, target=target, arithmetic=arithmetic)
            seconds[place].append(time.perf_counter() - started)
            if arithmetic == "rigorous":
                proven = answers
    radii = [answer.radius for answer in proven if answer.radius is not None]
    assert len(radii) == count
    baseline, rigorous, plain = (float(np.median(times)) / count for times in seconds)
    spent = float(np.mean([answer.evaluations for answer in proven]))
    return Row(name, norm, target, count, baseline, rigorous, plain, float(np.mean(radii) / np.mean(wanted)) - 1, spent)
