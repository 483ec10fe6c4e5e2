"""The network and its operations; importing this package registers them all."""

from relucert.network.add import Add
from relucert.network.graph import Network, Node
from relucert.network.linear import Linear
from relucert.network.operation import Affine, Operation, Shape, Units, find
from relucert.network.pull_back import INPUT, pull_back, transposed
from relucert.network.relu import Relu
from relucert.network.reshape import Reshape
from relucert.network.scale import Scale
from relucert.network.shift import Shift

__all__ = [
    "INPUT", "Add", "Affine", "Linear", "Network", "Node", "Operation", "Relu",
    "Reshape", "Scale", "Shape", "Shift", "Units", "find", "pull_back", "transposed",
]  # fmt: skip
