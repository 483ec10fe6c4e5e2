"""The peak memory of one radius on large networks, each in a process of its own: 5x[2048], convolutional and residual
networks of CIFAR's size by linear relaxations, and ResNet-18 at 224 pixels by intervals."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from relucert.common.names import MethodName

if TYPE_CHECKING:
    from relucert.network import Network

HEADER = [
    "network", "method", "norm", "processor seconds to load", "per radius", "peak memory of the process, GB",
    "of which before the search, GB",
]  # fmt: skip


class Question(NamedTuple):
    """One radius per norm: of which network, by which method."""

    load: Callable[[], Network]
    method: MethodName
    norms: tuple[str, ...] = ("inf",)


def _fully_connected() -> Network:
    from bench.networks import trained

    return trained(3072, 2048, 2048, 2048, 2048, 10, steps=0)


def _resnet18(width: int, classes: int, pixels: int) -> Network:
    import relucert
    from bench.networks import resnet18

    return relucert.load(resnet18(width, classes), input_shape=(3, pixels, pixels))


def _convolutional(name: str) -> Network:
    import torch

    import relucert
    from bench.convolutions import NETWORKS

    torch.manual_seed(0)
    make, shape, _ = NETWORKS[name]
    return relucert.load(make().eval(), input_shape=shape)


QUESTIONS = {
    "5x[2048]": Question(_fully_connected, "fast-lin", ("inf", "2", "1")),
    "cifar-cnn": Question(lambda: _convolutional("cifar-cnn"), "crown"),
    "resnet, stride 1": Question(lambda: _convolutional("resnet, stride 1"), "crown"),
    "ResNet-18 of width 8 at 32 pixels": Question(lambda: _resnet18(8, 10, 32), "fast-lin"),
    "ResNet-18": Question(lambda: _resnet18(64, 1000, 224), "interval"),
}


def rows() -> list[list[str]]:
    return [_row(name, norm) for name, question in QUESTIONS.items() for norm in question.norms]


def _row(name: str, norm: str) -> list[str]:
    command = [sys.executable, "-m", "bench.peak", name, norm]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return output.split("|")


def measure(name: str, norm: str) -> list[str]:
    import torch

    import relucert

    torch.set_num_threads(1)
    question = QUESTIONS[name]
    started = time.process_time()
    network = question.load()
    points = torch.rand(1, *network.input_shape, generator=torch.Generator().manual_seed(1)) - 0.5
    before, loaded = _gigabytes(), time.process_time()
    (answer,) = relucert.certify(network, points, norm=norm, method=question.method)
    assert answer.proven
    seconds = [f"{loaded - started:.1f}", f"{time.process_time() - loaded:.1f}"]
    return [name, question.method, norm, *seconds, f"{_gigabytes():.2f}", f"{before:.2f}"]


def _gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    print("|".join(measure(*sys.argv[1:])), end="")
