"""LP and LP-Full against Fast-Lin: what a radius costs, and what it gains."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

import relucert
from bench.networks import images, trained
from relucert.common.names import MethodName
from relucert.network import Network

HEADER = ["network", "norm", "method", "images", "Fast-Lin, ms", "s a radius", "slower", "radius", "evaluations"]
NORMS = ("inf", "2", "1")


def rows() -> Iterator[list[str]]:
    for name in ("mnist-2x20", "mnist-3x20"):
        for norm in NORMS:
            yield from _compare(name, relucert.load(name), norm, ("lp", "lp-full"), 20)
    for name, network in (("2x[1024]", trained(784, 1024, 10)), ("mnist-3x1024", relucert.load("mnist-3x1024"))):
        for norm in NORMS:
            yield from _compare(name, network, norm, ("lp",), 3)


def _compare(
    name: str, network: Network, norm: str, methods: tuple[MethodName, ...], count: int
) -> Iterator[list[str]]:
    data = images(network.sizes[0])[:count]
    labels = network.cast(torch.float32)(data).argmax(1)
    relucert.certify(network, data[:1], labels[:1], norm=norm, method=methods[0])  # imports, and warms up
    plain, least, _ = _timed(network, data, labels, norm, "fast-lin")
    for method in methods:
        seconds, radius, evaluations = _timed(network, data, labels, norm, method)
        yield [
            name, norm, method, str(count), f"{1e3 * plain:.2f}", f"{seconds:.3f}", f"{seconds / plain:.0f}x",
            f"{100 * (radius / least - 1):+.2f} %", f"{evaluations:.1f}",
        ]  # fmt: skip


def _timed(
    network: Network, data: torch.Tensor, labels: torch.Tensor, norm: str, method: MethodName
) -> tuple[float, float, float]:
    """Seconds of processor time per radius, the mean radius and the mean count of evaluations."""
    started = time.process_time()
    answers = relucert.certify(network, data, labels, norm=norm, method=method)
    seconds = time.process_time() - started
    radii = sum(answer.radius or 0.0 for answer in answers)
    return seconds / len(data), radii / len(data), sum(answer.evaluations for answer in answers) / len(data)
