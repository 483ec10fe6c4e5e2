"""The network and its operations; importing this package registers them all."""

from relucert.arithmetic.forms import LinearForms, Rows, Shape, Windows
from relucert.network.activation import Activation
from relucert.network.add import Add
from relucert.network.batch_scale import BatchScale
from relucert.network.convolution import Convolution
from relucert.network.graph import Network, Node
from relucert.network.index_map import IndexMap
from relucert.network.inference import INFERENCES, REAL, Inference, find_inference
from relucert.network.linear import Linear
from relucert.network.operation import Affine, Operation, Units
from relucert.network.pull_back import INPUT, pull_back, transposed, unit_forms
from relucert.network.registry import Layer, find
from relucert.network.relu import Relu
from relucert.network.reshape import Reshape
from relucert.network.scale import Scale
from relucert.network.shift import Shift

__all__ = [
    "INFERENCES", "INPUT", "REAL", "Activation", "Add", "Affine", "BatchScale", "Convolution", "IndexMap", "Inference",
    "Layer", "Linear",
    "LinearForms", "Network", "Node", "Operation", "Relu", "Reshape", "Rows", "Scale", "Shape", "Shift", "Units",
    "Windows", "find", "find_inference", "pull_back", "transposed", "unit_forms",
]  # fmt: skip
