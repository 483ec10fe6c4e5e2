"""The peak memory of one radius on a CIFAR-sized 5x[2048] network, in a process of its own."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

HEADER = ["network", "norm", "seconds per radius", "peak memory of the process, GB", "of which before the search, GB"]
NORMS = ("inf", "2", "1")


def rows() -> list[list[str]]:
    return [_row(norm) for norm in NORMS]


def _row(norm: str) -> list[str]:
    command = [sys.executable, "-m", "bench.peak", norm]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return output.split("|")


def measure(norm: str) -> list[str]:
    import torch

    import relucert
    from bench.networks import images, trained

    torch.set_num_threads(1)
    network = trained(3072, 2048, 2048, 2048, 2048, 10, steps=0)
    before = _gigabytes()
    started = time.perf_counter()
    (answer,) = relucert.certify(network, images(3072)[:1], norm=norm)
    assert answer.proven
    return ["5x[2048]", norm, f"{time.perf_counter() - started:.1f}", f"{_gigabytes():.2f}", f"{before:.2f}"]


def _gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    print("|".join(measure(sys.argv[1])), end="")
