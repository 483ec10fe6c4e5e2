"""One evaluation of all bounds of convolutional networks: in windows, and carried forward with all coefficients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import prod

import torch
from torch import Tensor, nn

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import FLOAT, RIGOROUS, Arithmetic
from relucert.bounding.forward import forward
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.names import MethodName
from relucert.methods.table import find_method
from relucert.network import Network
from relucert.query.targets import rivals

ROUNDS = 3
DENSE = 10**10  # multiplications beyond which the dense form is not waited for

HEADER = [
    "network", "radius", "unstable", "Fast-Lin, rigorous, ms", "float, ms", "CROWN, rigorous, ms", "float, ms",
    "dense Fast-Lin, rigorous, ms", "faster",
]  # fmt: skip


class Block(nn.Module):
    """Two convolutions with a skip connection, through a convolution of kernel 1 where shapes differ."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1)
        self.second = nn.Conv2d(after, after, 3, 1, 1)
        self.skip = nn.Identity() if before == after and stride == 1 else nn.Conv2d(before, after, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(images))) + self.skip(images))


def _convolutional(channels: int, layers: list[tuple[int, int, int, int]], size: int, widths: list[int]) -> nn.Module:
    """layers: output channels, kernel, stride, padding of each; size: numbers after the last of them."""
    modules: list[nn.Module] = []
    for outputs, kernel, stride, padding in layers:
        modules += [nn.Conv2d(channels, outputs, kernel, stride, padding), nn.ReLU()]
        channels = outputs
    modules.append(nn.Flatten())
    for width in widths:
        modules += [nn.Linear(size, width), nn.ReLU()]
        size = width
    return nn.Sequential(*modules, nn.Linear(size, 10))


def _residual() -> nn.Module:
    blocks = [nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), Block(8, 16, 2), Block(16, 16, 1)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(1024, 100), nn.ReLU(), nn.Linear(100, 10))


def _residual_of_whole_images() -> nn.Module:
    blocks = [nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(), Block(4, 4, 1), Block(4, 8, 2), Block(8, 16, 2)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(1024, 10))


CIFAR_CNN = [(32, 4, 2, 1), (64, 4, 2, 1)]
CONVBIG = [(32, 3, 1, 1), (32, 4, 2, 1), (64, 3, 1, 1), (64, 4, 2, 1)]
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int], float]] = {
    "mnist-cnn": (lambda: _convolutional(1, [(8, 4, 2, 0), (16, 4, 2, 0)], 400, [100]), (1, 28, 28), 0.1),
    "cifar-cnn": (lambda: _convolutional(3, CIFAR_CNN, 4096, [256]), (3, 32, 32), 0.008),
    "cifar-cnn, all unstable": (lambda: _convolutional(3, CIFAR_CNN, 4096, [256]), (3, 32, 32), 0.15),
    "resnet": (_residual, (3, 32, 32), 0.015),
    "resnet, stride 1": (_residual_of_whole_images, (3, 32, 32), 0.004),
    "resnet, stride 1, certified": (_residual_of_whole_images, (3, 32, 32), 0.0456),
    "convbig": (lambda: _convolutional(3, CONVBIG, 4096, [512, 512]), (3, 32, 32), 0.004),
}


def rows() -> Iterator[list[str]]:
    for name, (make, shape, radius) in NETWORKS.items():
        torch.manual_seed(0)
        network = relucert.load(make().eval(), input_shape=shape)
        point = torch.rand(1, prod(shape), generator=torch.Generator().manual_seed(1)).double()
        region = Region.around(point, radius, "inf")
        hidden = find_method("fast-lin").hidden(network.cast(torch.float64), region, RIGOROUS)
        unstable = sum(int(interval.unstable.sum()) for interval in hidden.values())
        seconds = [
            _evaluation(network, region, method, arithmetic)
            for method in ("fast-lin", "crown")
            for arithmetic in (RIGOROUS, FLOAT)
        ]
        dense = _dense(network, region)
        cells = ["", ""] if dense is None else [f"{1e3 * dense:.0f}", f"{dense / seconds[0]:.0f}x"]
        yield [name, f"{radius:g}", str(unstable), *(f"{1e3 * time:.1f}" for time in seconds), *cells]


def _evaluation(network: Network, region: Region, name: MethodName, arithmetic: Arithmetic) -> float:
    """Processor seconds of one evaluation of a method's margins, hidden layers included."""
    method, cast, here = find_method(name), network.cast(arithmetic.dtype), region.cast(arithmetic.dtype)
    scores = network.cast(torch.float64)(region.points)
    label = scores.argmax(1)
    prop = Property.margins(label, rivals("untargeted", scores, label, 0), network.classes).cast(arithmetic.dtype)
    return _least(lambda: method.margins(cast, here, prop, method.hidden(cast, here, arithmetic), arithmetic))


def _dense(network: Network, region: Region) -> float | None:
    """Processor seconds of the hidden layers carried forward with all coefficients; None where that takes too long."""
    from relucert.network.work import forward_work

    if forward_work(network) > DENSE:
        return None
    cast = network.cast(torch.float64)
    return _least(lambda: forward(cast, region, FAST_LIN, RIGOROUS, cast.preactivations), rounds=1)


def _least(run: Callable[[], object], rounds: int = ROUNDS) -> float:
    times = []
    with torch.inference_mode():
        for _ in range(rounds + 1):
            started = time.process_time()
            run()
            times.append(time.process_time() - started)
    return min(times[1:])
