"""What workers gain and cost: one, two, and Ray on this machine, side by side; computed from it, larger machines.

python -m bench.workers
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import relucert
from relucert.data import bundled
from relucert.execution.execution import Execution

HEADER = ["network", "images", "one process, s", "two workers, s", "ratio", "Ray, two CPUs, s", "over two workers"]
CASES = (("mnist-3x1024", 200), ("mnist-2x20", 1000))
LARGE = 10_000
CORES = (1, 8, 64)


@dataclass(frozen=True)
class Measured:
    """Seconds by the clock, without the start-up of the workers."""

    alone: float
    shared: float
    on_ray: float | None
    images: int

    def cells(self) -> list[str]:
        ray = (
            ["no Ray", "-"] if self.on_ray is None else [f"{self.on_ray:.1f}", f"{self.on_ray / self.shared - 1:+.0%}"]
        )
        return [str(self.images), f"{self.alone:.1f}", f"{self.shared:.1f}", f"{self.alone / self.shared:.2f}", *ray]

    @property
    def overhead(self) -> float:
        """What an item costs beyond its work, in seconds of one of the two workers."""
        return max(0.0, 2 * self.shared - self.alone) / self.images


def measure(name: str, count: int) -> Measured:
    network, data = relucert.load(name), bundled()
    times = -(-count // len(data))
    images, labels = data.images.repeat(times, 1)[:count], data.labels
    assert labels is not None
    labels = labels.repeat(times)[:count]

    def seconds(place: Execution) -> float:
        few = 8 if name == "mnist-3x1024" else count
        relucert.certify(network, images[:few], labels[:few], workers=place)  # starts the workers, and warms up
        started = time.perf_counter()
        relucert.certify(network, images, labels, workers=place)
        return time.perf_counter() - started

    with Execution(1) as here, Execution(2) as pool:
        alone, shared = seconds(here), seconds(pool)
    return Measured(alone, shared, _on_ray(seconds), count)


def _on_ray(seconds: Any) -> float | None:
    if importlib.util.find_spec("ray") is None:
        return None
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with Execution(None, "auto") as cluster:
            return float(seconds(cluster))
    finally:
        ray.shutdown()


def rows() -> Iterator[list[str]]:
    """The measured cells, then what they say of larger machines."""
    for name, count in CASES:
        measured = measure(name, count)
        yield [name, *measured.cells()]
        if name == "mnist-3x1024":
            each = measured.alone / count + measured.overhead
            for cores in CORES:
                remark = f"computed: {LARGE:,} images on {cores} cores"
                yield [remark, "", f"{LARGE * each / cores:,.0f}", "", "", "", ""]


def main() -> None:
    import torch
    from rich.console import Console

    from bench.run import show

    torch.set_num_threads(1)
    show(Console(width=140), "Workers: Fast-Lin, p = inf, untargeted, seconds by the clock", HEADER, rows())


if __name__ == "__main__":
    main()
