"""Quadratic certificates beside the methods that relax one neuron at a time, and the attack: radii and seconds.

python -m bench.quadratic, on one thread; with a number, that many images (5), and with names of networks after it only
those; a .npz file is read as `relucert paper --network-file` does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import relucert
from relucert.common.names import MethodName
from relucert.data import bundled
from relucert.experiments.paper.networks import from_file
from relucert.inputs.loading import zoo
from relucert.methods.sdp import QuadraticMethod
from relucert.methods.table import METHODS as KNOWN
from relucert.network import Network

BOX = (-0.5, 0.5)
METHODS = ("crown", "alpha", "sdp")
QUESTIONS = (
    ("mnist-3x1024", "inf", None), ("mnist-3x1024", "inf", BOX), ("mnist-3x1024", "2", None),
    ("mnist-3x1024", "2", BOX), ("mnist-3x1024", "1", None), ("mnist-4x1024", "inf", None),
    ("mnist-cnn", "inf", None), ("mnist-2x20", "inf", None), ("mnist-2x20", "2", None),
    ("mnist-3x20", "inf", None), ("mnist-3x20", "2", None),
)  # fmt: skip
SMALL = 100  # neurons of a network whose exact answers are known soon
HEADER = [
    "network", "norm", "box", "method", "images", "Fast-Lin", "radius", "least", "mean", "of the attack",
    "of exact's gap", "CPU s", "longest", "evaluation",
]  # fmt: skip


def rows(count: int = 5, names: Sequence[str] = ()) -> Iterator[list[str]]:
    """One row per question and method; networks that are not built here are left out."""
    for name, norm, box in QUESTIONS:
        if name in zoo.names() and (not names or name in names):
            yield from _rows(relucert.load(name), norm, box, count)
    for path in (Path(name) for name in names if name.endswith(".npz")):
        for norm in ("inf", "2"):
            yield from _rows(from_file(path).network, norm, None, count)


def _rows(network: Network, norm: str, box: tuple[float, float] | None, count: int) -> Iterator[list[str]]:
    images = bundled().images.double()
    labels = torch.as_tensor(bundled().labels)
    right = (network.cast(torch.float64)(images).argmax(1) == labels).nonzero().flatten()[:count]

    def radii(method: MethodName) -> tuple[torch.Tensor, list[float]]:
        values, seconds = [], []
        for place in right.tolist():
            started = time.process_time()
            chosen = images[place : place + 1], labels[place : place + 1]
            (answer,) = relucert.certify(network, *chosen, norm=norm, box=box, target="runner-up", method=method)
            values.append(answer.radius or 0.0)
            seconds.append(time.process_time() - started)
        return torch.tensor(values, dtype=torch.float64), seconds

    plain, _ = radii("fast-lin")
    attacks = relucert.attack(network, images[right], labels[right], norm=norm, box=box, target="runner-up")
    distances = torch.tensor([answer.distance or torch.nan for answer in attacks], dtype=torch.float64)
    exact = None
    if sum(network.sizes[value] for value in network.preactivations) <= SMALL:
        ends = relucert.exact(
            network, images[right], labels[right], norm=norm, box=box, target="runner-up", time_limit=60
        )
        exact = torch.tensor([end.lower or torch.nan for end in ends], dtype=torch.float64)
    for method in METHODS:
        if method not in KNOWN:
            continue
        with _Longest() as longest:
            values, seconds = radii(method)
        ratios = values / plain
        closed = None if exact is None else ((values - plain) / (exact - plain)).nanmean()
        assert exact is None or not bool((values > exact * (1 + 2e-3)).any())
        yield [
            network.name, norm, "no" if box is None else f"{box[0]:g}..{box[1]:g}", method, str(len(right)),
            f"{float(plain.mean()):.5g}", f"{float(values.mean()):.5g}", f"{float(ratios.min()):.2f}x",
            f"{float(ratios.mean()):.2f}x", f"{float((values / distances).nanmean()):.0%}",
            "" if closed is None else f"{float(closed):.0%}",
            f"{sum(seconds) / len(seconds):.1f}", f"{max(seconds):.1f}",
            f"{longest.seconds:.1f}" if method == "sdp" else "",
        ]  # fmt: skip


class _Longest:
    """The processor time of the longest evaluation at one radius, while it is in use."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> _Longest:
        self._margins = margins = QuadraticMethod.margins

        def timed(method: QuadraticMethod, *arguments: Any) -> torch.Tensor:
            started = time.process_time()
            result = margins(method, *arguments)
            self.seconds = max(self.seconds, time.process_time() - started)
            return result

        QuadraticMethod.margins = timed  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        QuadraticMethod.margins = self._margins  # type: ignore[method-assign]


def main() -> None:
    torch.set_num_threads(1)
    print("| " + " | ".join(HEADER) + " |")
    print("|" + "---|" * len(HEADER))
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2:]):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
