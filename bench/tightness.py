"""What tighter bounds cost and gain: CROWN, optimised slopes, LP-Full and best beside Fast-Lin, in one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import relucert
from bench.networks import images
from relucert.network import Network

HEADER = [
    "network", "norm", "target", "box", "method", "images", "Fast-Lin, ms", "ms a radius", "slower", "mean radius",
    "radius", "evaluations",
]  # fmt: skip
BOX = (-0.5, 0.5)
BUDGET = 10.0


@dataclass(frozen=True)
class Case:
    """A question put to several methods: those that take long on the first few images alone."""

    name: str
    norm: str
    target: str
    box: tuple[float, float] | None
    methods: tuple[tuple[str, int], ...]


CASES = (
    *(
        Case("mnist-3x1024", norm, target, None, (("crown", 8), ("alpha", 8), ("lp-full", 2)))
        for norm in ("inf", "2", "1")
        for target in ("untargeted", "runner-up")
    ),
    *(Case("mnist-3x1024", norm, "untargeted", BOX, (("crown", 8), ("alpha", 4))) for norm in ("inf", "2", "1")),
    Case("mnist-3x1024", "inf", "runner-up", None, (("best", 2),)),
    Case("mnist-3x20", "inf", "runner-up", None, (("crown", 10), ("alpha", 10), ("lp-full", 10), ("best", 5))),
    Case("mnist-cnn", "inf", "untargeted", None, (("crown", 4), ("alpha", 4))),
)


def rows() -> Iterator[list[str]]:
    for case in CASES:
        yield from _rows(case)


def _rows(case: Case) -> Iterator[list[str]]:
    """Every method beside Fast-Lin on the same images; in a box also Fast-Lin's radius without it."""
    network = relucert.load(case.name)
    question: dict[str, Any] = {"norm": case.norm, "target": case.target, "box": case.box}
    most = max(count for _, count in case.methods)
    data = images(network.sizes[0])[:most]
    relucert.certify(network, data[:1], **question)  # imports, and warms up
    plain = _Timed.of(network, data, {**question, "method": "fast-lin"})
    for method, count in case.methods:
        options = {"budget": BUDGET} if method == "best" else {}
        timed = _Timed.of(network, data[:count], {**question, **options, "method": method})
        before = sum(plain.radii[:count]) / count
        yield [
            case.name, case.norm, case.target, "no" if case.box is None else f"{case.box[0]:g} to {case.box[1]:g}",
            method, str(count), f"{1e3 * plain.seconds:.1f}", f"{1e3 * timed.seconds:.1f}",
            f"{timed.seconds / plain.seconds:.1f}x", f"{sum(timed.radii) / count:.6f}",
            f"{sum(timed.radii) / count / before:.4f}x", f"{timed.evaluations:.1f}",
        ]  # fmt: skip


@dataclass(frozen=True)
class _Timed:
    """Seconds of processor time per radius, the radii, and the mean count of evaluations."""

    seconds: float
    radii: list[float]
    evaluations: float

    @classmethod
    def of(cls, network: Network, data: torch.Tensor, question: dict[str, Any]) -> _Timed:
        started = time.process_time()
        answers = relucert.certify(network, data, **question)
        seconds = (time.process_time() - started) / len(data)
        radii = [answer.radius or 0.0 for answer in answers]
        return cls(seconds, radii, sum(answer.evaluations for answer in answers) / len(data))


def main() -> None:
    """This table alone: `OMP_NUM_THREADS=1 python -m bench.tightness`."""
    torch.set_num_threads(1)
    print(*HEADER, sep=" | ")
    for row in rows():
        print(*row, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
