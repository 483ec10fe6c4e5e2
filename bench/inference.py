"""What a certificate about the network as it runs costs: radii about every evaluation in float32 beside those about
real arithmetic, on the same images in turns, with the time of both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

import relucert
from bench.networks import images
from relucert.common.names import InferenceName
from relucert.network import Network

HEADER = [
    "network", "norm", "target", "method", "images", "real, ms", "float32, ms", "slower", "loss of the mean",
    "mean loss", "median loss", "largest loss",
]  # fmt: skip
CASES = (
    *(("mnist-2x20", norm, "untargeted", "fast-lin", 100) for norm in ("inf", "2", "1")),
    ("mnist-2x20", "inf", "untargeted", "crown", 100),
    *(("mnist-3x1024", norm, "untargeted", "fast-lin", 10) for norm in ("inf", "2", "1")),
    ("mnist-3x1024", "inf", "untargeted", "crown", 10),
    ("mnist-cnn", "inf", "untargeted", "fast-lin", 4),
)
ROUNDS = 3  # of which the fastest counts
TOLERANCE = 1e-5  # of radii that are compared: the loss is a thousandth


def rows() -> Iterator[list[str]]:
    for name, norm, target, method, count in CASES:
        network = relucert.load(name)
        data = images(network.sizes[0])[:count]
        question: dict[str, Any] = {"norm": norm, "target": target, "method": method}
        relucert.certify(network, data[:1], **question)  # imports, and warms up
        timed: dict[InferenceName, list[float]] = {"real": [_timed(network, data, question, "real")]}
        timed["float32"] = [_timed(network, data, question, "float32")]
        for _ in range(ROUNDS - 1):
            for inference, measured in timed.items():
                measured.append(_timed(network, data, question, inference))
        seconds = {inference: min(measured) for inference, measured in timed.items()}
        real, rounded = _radii(network, data, question)
        losses = sorted(1 - other / one for one, other in zip(real, rounded, strict=True))
        yield [
            name, norm, target, method, str(len(losses)), f"{1e3 * seconds['real']:.1f}",
            f"{1e3 * seconds['float32']:.1f}", f"{seconds['float32'] / seconds['real']:.2f}x",
            f"{1 - sum(rounded) / sum(real):.2%}", f"{sum(losses) / len(losses):.2%}",
            f"{losses[len(losses) // 2]:.2%}", f"{max(losses):.2%}",
        ]  # fmt: skip


def _timed(network: Network, data: torch.Tensor, question: dict[str, Any], inference: InferenceName) -> float:
    """Seconds of processor time per radius."""
    started = time.process_time()
    relucert.certify(network, data, **question, inference=inference, workers=1)
    return (time.process_time() - started) / len(data)


def _radii(network: Network, data: torch.Tensor, question: dict[str, Any]) -> tuple[list[float], list[float]]:
    """In real arithmetic and in float32, of the images that have one in real arithmetic."""
    real, rounded = (
        relucert.certify(network, data, **question, inference=inference, tolerance=TOLERANCE, workers=1)
        for inference in ("real", "float32")
    )
    pairs = [(one.radius, other.radius or 0.0) for one, other in zip(real, rounded, strict=True) if one.radius]
    return [one for one, _ in pairs], [other for _, other in pairs]


def main() -> None:
    """This table alone: `OMP_NUM_THREADS=1 python -m bench.inference`."""
    torch.set_num_threads(1)
    print(*HEADER, sep=" | ")
    for row in rows():
        print(*row, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
