"""Certificates of a large convolutional network with random weights: bounds, seconds and memory of each step.

python -m bench.large [RADIUS [RIVALS]], on one thread; p = 2, by default radius 0.1 and nine rivals. The network has
the shape of ConvLarge, 62,464 neurons; its highest output is raised by 6, so that there is a margin to be lost.
"""

from __future__ import annotations

import resource
import sys
import time

import torch
from torch import Tensor, nn

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.methods.quadratic.rows import RegionRows
from relucert.methods.table import METHODS
from relucert.network import Network

RAISED = 6.0


def large_network(image: Tensor) -> Network:
    """The network, in float64; image: whose class is raised, (1, 3, 32, 32)."""
    convolutions = [
        nn.Conv2d(3, 32, 3, 1, 1), nn.Conv2d(32, 32, 4, 2, 1), nn.Conv2d(32, 64, 3, 1, 1), nn.Conv2d(64, 64, 4, 2, 1)
    ]  # fmt: skip
    dense = [nn.Linear(4096, 512), nn.Linear(512, 512)]
    last = nn.Linear(512, 10)
    every: list[nn.Conv2d | nn.Linear] = [*convolutions, *dense, last]
    for layer in every:
        nn.init.kaiming_normal_(layer.weight)
    images = [step for layer in convolutions for step in (layer, nn.ReLU())]
    vectors = [step for layer in dense for step in (layer, nn.ReLU())]
    module = nn.Sequential(*images, nn.Flatten(), *vectors, last)
    with torch.no_grad():
        last.bias[int(module(image).argmax())] += RAISED
    return relucert.load(module, input_shape=(3, 32, 32)).cast(torch.float64)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    radius = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    image = torch.rand(1, 3, 32, 32)
    network, point = large_network(image), image.double().flatten(1)
    label, *rivals = network(point)[0].argsort(descending=True).tolist()
    prop = Property.margins(torch.tensor([label]), torch.tensor([rivals[:count]]), 10).cast(torch.float64)
    region, crown = Region.around(point, radius, 2.0), METHODS["crown"]()
    started = time.process_time()

    def tell(what: str, bounds: Tensor) -> None:
        nonlocal started
        seconds, memory = time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        least = ", ".join(f"{bound:.2f}" for bound in bounds.tolist())
        print(f"{what:<18} {seconds:6.1f} s  {memory:.2f} GB  {least}", flush=True)
        started = time.process_time()

    tell("at the centre", prop.values(network(point))[0])
    hidden = crown.hidden(network, region, RIGOROUS)
    tell("CROWN", crown.margins(network, region, prop, hidden, RIGOROUS)[0])
    rows = RegionRows.of(network, region, prop, hidden)
    print(
        f"{sum(network.sizes[value] for value in network.preactivations)} neurons, {rows.linearised.unstable} unstable"
    )
    every, endless = torch.arange(count), torch.full_like(rows.solver.bounds, torch.inf)
    tell("composed", rows.solver.start())
    rows.solver.ascend(every, endless)
    tell("composed, climbed", rows.solver.bounds)
    rows.solver.ascend_layered(every, endless)
    tell("layered", rows.solver.bounds)
    tell("proven", rows.prove())


if __name__ == "__main__":
    main()
