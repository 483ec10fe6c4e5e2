"""One evaluation of all bounds against nothing but its matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import relucert
from bench.networks import images, trained
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import FLOAT, RIGOROUS, Arithmetic
from relucert.methods.table import find_method
from relucert.network import Linear, Network
from relucert.query.targets import rivals

HEADER = ["network", "norm", "arithmetic", "evaluation, ms", "products alone, ms", "ratio"]


def rows() -> list[list[str]]:
    cases = [("mnist-3x1024", relucert.load("mnist-3x1024")), ("4x[1024]", trained(784, 1024, 1024, 1024, 10))]
    return [
        _row(name, network, norm, arithmetic, arithmetic_name)
        for name, network in cases
        for norm in ("inf", "2", "1")
        for arithmetic, arithmetic_name in ((FLOAT, "float"), (RIGOROUS, "rigorous"))
    ]


def _row(name: str, network: Network, norm: str, arithmetic: Arithmetic, arithmetic_name: str) -> list[str]:
    data = images(network.sizes[0])[:1].double()
    scores = network.cast(torch.float64)(data)
    labels = scores.argmax(1)
    prop = Property.margins(labels, rivals("untargeted", scores, labels, 0), network.classes)
    radius = relucert.certify(network, data, norm=norm)[0].radius
    cast = network.cast(arithmetic.dtype)
    region = Region(data, torch.tensor([radius], dtype=torch.float64), Norm.parse(norm)).cast(arithmetic.dtype)
    method = find_method("fast-lin")

    def evaluate() -> None:
        method.margins(cast, region, prop.cast(arithmetic.dtype), method.hidden(cast, region, arithmetic), arithmetic)

    with torch.inference_mode():
        factors = _products(evaluate)
        whole, products = _medians(evaluate, lambda: [left @ right for left, right in factors])
    return [name, norm, arithmetic_name, f"{1e3 * whole:.2f}", f"{1e3 * products:.2f}", f"{whole / products:.2f}"]


def _products(evaluate: Callable[[], None]) -> list[tuple[Tensor, Tensor]]:
    """The factors of every matrix product of one evaluation."""
    factors: list[tuple[Tensor, Tensor]] = []
    linear, transpose = Linear.linear, Linear.transpose

    def record_linear(self: Linear, *inputs: Tensor) -> Tensor:
        factors.append((inputs[0].flatten(0, -2), self.weight.T))
        return linear(self, *inputs)

    def record_transpose(self: Linear, coefficients: Tensor) -> tuple[Tensor, ...]:
        factors.append((coefficients.flatten(0, -2), self.weight))
        return transpose(self, coefficients)

    with patch.object(Linear, "linear", record_linear), patch.object(Linear, "transpose", record_transpose):
        evaluate()
    return factors


def _medians(first: Callable[[], object], second: Callable[[], object], repeats: int = 25) -> tuple[float, float]:
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats):
        for place, task in enumerate((first, second)):
            started = time.perf_counter()
            task()
            seconds[place].append(time.perf_counter() - started)
    return float(np.median(seconds[0])), float(np.median(seconds[1]))
