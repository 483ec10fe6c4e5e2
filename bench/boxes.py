"""What the box of valid inputs costs: one evaluation of all bounds with and without it, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

import relucert
from bench.networks import images
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import FLOAT, RIGOROUS, Arithmetic
from relucert.methods.table import find_method
from relucert.network import Network
from relucert.query.targets import rivals

BOX = (-0.5, 0.5)
REPEATS = 15
HEADER = ["network", "norm", "arithmetic", "without, ms", "with, ms", "ratio", "radius without", "radius with"]


def rows() -> list[list[str]]:
    network = relucert.load("mnist-3x1024")
    return [
        _row(network, norm, arithmetic, name)
        for norm in ("inf", "2", "1")
        for arithmetic, name in ((FLOAT, "float"), (RIGOROUS, "rigorous"))
    ]


def _row(network: Network, norm: str, arithmetic: Arithmetic, name: str) -> list[str]:
    data = images(network.sizes[0])[:1].double()
    radii = [relucert.certify(network, data, norm=norm, box=box)[0].radius or 0.0 for box in (None, BOX)]
    cast, method = network.cast(arithmetic.dtype), find_method("fast-lin")
    scores = network.cast(torch.float64)(data)
    labels = scores.argmax(1)
    prop = Property.margins(labels, rivals("untargeted", scores, labels, 0), network.classes).cast(arithmetic.dtype)

    def evaluation(box: object) -> Callable[[], object]:
        def evaluate() -> object:
            region = Region.around(data, radii[1], norm, box).cast(arithmetic.dtype)
            return method.margins(cast, region, prop, method.hidden(cast, region, arithmetic), arithmetic)

        return evaluate

    seconds: list[list[float]] = [[], []]
    with torch.inference_mode():
        for _ in range(REPEATS):
            for place, task in enumerate((evaluation(None), evaluation(BOX))):
                started = time.perf_counter()
                task()
                seconds[place].append(time.perf_counter() - started)
    without, within = (1e3 * float(np.median(times)) for times in seconds)
    figures = [f"{without:.1f}", f"{within:.1f}", f"{within / without:.2f}", *(f"{radius:.5g}" for radius in radii)]
    return ["mnist-3x1024", norm, name, *figures]
