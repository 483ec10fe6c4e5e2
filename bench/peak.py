"""The peak memory of one radius on large networks, each in a process of its own: CIFAR-sized 5x[2048] by Fast-Lin, and
ResNet-18 at 224 pixels by intervals."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

from relucert.common.names import MethodName

HEADER = [
    "network", "method", "norm", "processor seconds to load", "per radius", "peak memory of the process, GB",
    "of which before the search, GB",
]  # fmt: skip
NETWORKS: dict[str, tuple[MethodName, tuple[str, ...]]] = {
    "5x[2048]": ("fast-lin", ("inf", "2", "1")),
    "ResNet-18": ("interval", ("inf",)),
}


def rows() -> list[list[str]]:
    return [_row(name, norm) for name, (_, norms) in NETWORKS.items() for norm in norms]


def _row(name: str, norm: str) -> list[str]:
    command = [sys.executable, "-m", "bench.peak", name, norm]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return output.split("|")


def measure(name: str, norm: str) -> list[str]:
    import torch

    import relucert
    from bench.networks import images, resnet18, trained

    torch.set_num_threads(1)
    method, _ = NETWORKS[name]
    started = time.process_time()
    if name == "ResNet-18":
        network, points = relucert.load(resnet18(), input_shape=(3, 224, 224)), torch.rand(1, 3, 224, 224)
    else:
        network, points = trained(3072, 2048, 2048, 2048, 2048, 10, steps=0), images(3072)[:1]
    before, loaded = _gigabytes(), time.process_time()
    (answer,) = relucert.certify(network, points, norm=norm, method=method)
    assert answer.proven
    seconds = [f"{loaded - started:.1f}", f"{time.process_time() - loaded:.1f}"]
    return [name, method, norm, *seconds, f"{_gigabytes():.2f}", f"{before:.2f}"]


def _gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    print("|".join(measure(*sys.argv[1:])), end="")
