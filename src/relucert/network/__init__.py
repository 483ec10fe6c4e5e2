"""The network and its operations; importing this package registers them all."""

from relucert.arithmetic.forms import LinearForms, Rows, Shape
from relucert.arithmetic.windows import Windows
from relucert.network.activation import Activation
from relucert.network.add import Add
from relucert.network.algebraic import Log, Power, Reciprocal, Sqrt
from relucert.network.batch_scale import BatchScale
from relucert.network.convolution import Convolution
from relucert.network.exponentials import Elu, Exp, Softplus
from relucert.network.flat_affine import FlatAffine
from relucert.network.gated import Gelu, GeluTanh, HardSwish, Mish, Silu
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
from relucert.network.sigmoids import Erf, Sigmoid, Softsign, Tanh
from relucert.network.smooth_activation import SmoothActivation
from relucert.network.waves import Cos, Sin

__all__ = [
    "INFERENCES", "INPUT", "REAL", "Activation", "Add", "Affine", "BatchScale", "Convolution", "Cos", "Elu", "Erf",
    "Exp", "FlatAffine", "Gelu", "GeluTanh", "HardSwish", "IndexMap", "Inference", "Layer", "Linear", "LinearForms",
    "Log", "Mish", "Network", "Node", "Operation", "Power", "Reciprocal", "Relu", "Reshape", "Rows", "Scale", "Shape",
    "Shift", "Sigmoid", "Silu", "Sin", "SmoothActivation", "Softplus", "Softsign", "Sqrt", "Tanh", "Units", "Windows",
    "find", "find_inference", "pull_back", "transposed", "unit_forms",
]  # fmt: skip
