"""Networks without some neurons: those that are inactive in a region are 0 there, so nothing changes without them."""

from __future__ import annotations

from torch import Tensor

from relucert.network.graph import Network
from relucert.network.linear import Linear
from relucert.network.relu import Relu


def can_be_cut(network: Network, value: int) -> bool:
    """Whether neurons of a pre-activation can be left out: linear layers alone are before it and after its ReLU."""
    if value == 0 or not isinstance(network.node(value).operation, Linear):
        return False
    after = network.users[value]
    return bool(after) and all(
        isinstance(network.node(relu).operation, Relu)
        and relu != network.output
        and all(isinstance(network.node(use).operation, Linear) for use in network.users[relu])
        for relu in after
    )


def without_neurons(network: Network, value: int, kept: Tensor) -> Network:
    """The same network with these neurons, (count,), of a pre-activation alone; values keep their numbers.

    It computes the same wherever the neurons left out are not positive.
    """
    layer = network.node(value).operation
    assert isinstance(layer, Linear)
    operations: dict[int, Linear] = {value: Linear(layer.weight[kept], layer.bias[kept])}
    for relu in network.users[value]:
        for use in network.users[relu]:
            after = network.node(use).operation
            assert isinstance(after, Linear)
            operations[use] = after.restrict(kept)
    return network.with_operations(operations)
