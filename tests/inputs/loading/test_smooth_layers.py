"""Smooth activations from torch and ONNX: the operation that they are, and the same values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import NodeProto
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.errors import MismatchError, UnsupportedError
from relucert.inputs.loading import load
from relucert.network import Network
from relucert.network.fingerprint import fingerprint
from tests.inputs.loading.image_models import Function
from tests.inputs.loading.onnx_models import model, node, write
from tests.inputs.loading.test_onnx_file import FLAT, assert_same

ROOT_TWO, TANH_FACTOR = 2.0**0.5, (2 / torch.pi) ** 0.5


def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(TANH_FACTOR * (x + 0.044715 * torch.pow(x, 3.0))))


def scaled_gelu(x: Tensor) -> Tensor:
    y = 3 * x
    return 0.5 * y * (torch.erf(y * 0.5**0.5) + 1)


LAYERS: dict[str, tuple[Any, set[str]]] = {
    "sigmoid": (nn.Sigmoid(), {"sigmoid"}),
    "tanh": (torch.tanh, {"tanh"}),
    "erf": (torch.erf, {"erf"}),
    "softplus": (nn.Softplus(), {"softplus"}),
    "softplus with a beta": (nn.Softplus(beta=2.5), {"softplus"}),
    "log-sigmoid": (nn.LogSigmoid(), {"softplus"}),
    "silu": (nn.SiLU(), {"silu"}),
    "silu written out": (lambda x: x * torch.sigmoid(x), {"silu"}),
    "silu as a quotient": (lambda x: x / (1 + torch.exp(-x)), {"silu"}),
    "silu of twice": (lambda x: (2 * x) * torch.sigmoid(2 * x), {"silu"}),
    "quick gelu": (quick_gelu, {"silu"}),
    "gelu": (nn.GELU(), {"gelu"}),
    "gelu by tanh": (nn.GELU(approximate="tanh"), {"gelu tanh"}),
    "gelu written out": (lambda x: x * 0.5 * (1.0 + torch.erf(x / ROOT_TWO)), {"gelu"}),
    "gelu of an affine function": (scaled_gelu, {"gelu"}),
    "gelu by tanh written out": (tanh_gelu, {"gelu tanh"}),
    "elu": (nn.ELU(), {"elu"}),
    "elu with an alpha": (nn.ELU(alpha=0.3), {"elu"}),
    "selu": (nn.SELU(), {"elu"}),
    "celu": (nn.CELU(alpha=1.5), {"elu"}),
    "mish": (nn.Mish(), {"mish"}),
    "mish written out": (lambda x: x * torch.tanh(functional.softplus(x)), {"mish"}),
    "hard swish": (nn.Hardswish(), {"hard swish"}),
    "softsign": (nn.Softsign(), {"softsign"}),
    "tanhshrink": (nn.Tanhshrink(), {"tanh"}),
    "exp": (torch.exp, {"exp"}),
    "expm1": (torch.expm1, {"exp"}),
    "sigmoid written out": (lambda x: 1 / (1 + torch.exp(-x)), {"sigmoid"}),
    "log": (lambda x: torch.log(x * x + 1), {"log", "power"}),
    "log1p": (lambda x: torch.log1p(x.square()), {"log", "power"}),
    "sqrt": (lambda x: torch.sqrt(x.abs() + 0.1), {"sqrt", "relu"}),
    "sqrt of what may be negative": (lambda x: torch.sqrt(x + 1), {"sqrt"}),
    "rsqrt": (lambda x: torch.rsqrt(x**2 + 0.1), {"sqrt", "power", "reciprocal"}),
    "reciprocal": (lambda x: 1 / (2 + torch.tanh(x)), {"reciprocal", "tanh"}),
    "division of a constant": (lambda x: 3.5 / (2 + torch.tanh(x)), {"reciprocal", "tanh"}),
    "powers": (lambda x: x**2 + x**3 - x.pow(-2) * 0.1, {"power", "reciprocal"}),
    "products of powers": (lambda x: x * x * x, {"power"}),
    "root as a power": (lambda x: (x.abs() + 1) ** 0.5 + (x.abs() + 1) ** -0.5, {"sqrt", "reciprocal", "relu"}),
    "sine and cosine": (lambda x: torch.sin(x) + torch.cos(2 * x), {"sin", "cos"}),
}


def activations(network: Network) -> set[str]:
    return {activation.name for activation in network.activations.values()}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_the_operation_that_it_is(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer, expected = LAYERS[name]
    module = nn.Sequential(nn.Linear(4, 5), Function(layer), nn.Linear(5, 3)).eval()
    network = load(module)
    assert activations(network) == expected
    images = torch.randn(40, 4)
    with torch.no_grad():
        scores = module(images)
    known = scores.isfinite().all(1)
    torch.testing.assert_close(network(images)[known], scores[known], rtol=1e-4, atol=1e-5)
    path = tmp_path / "kept.safetensors"
    relucert.save(network, path)
    assert fingerprint(load(path)) == fingerprint(network)


def test_parameters_are_part_of_what_a_network_is() -> None:
    layers = [nn.ELU(0.5), nn.ELU(0.6), nn.Softplus(2.0), nn.Softplus(2.5), nn.GELU(), nn.GELU(approximate="tanh")]
    networks = [load(nn.Sequential(nn.Identity(), layer), input_shape=(3,)) for layer in layers]
    assert len({fingerprint(network) for network in networks}) == len(layers)


REFUSED: list[tuple[Any, str]] = [
    (nn.Softplus(threshold=5), "threshold=5"),
    (lambda x: x**1.5, "an exponent of 1.5"),
    (lambda x: x**0, "an exponent of 0"),
    (lambda x: x ** torch.tensor([2.0, 3.0, 2.0, 2.0]), "several exponents"),
]


@pytest.mark.parametrize(("layer", "reason"), REFUSED)
def test_what_is_another_function_is_refused(layer: Any, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load(nn.Sequential(nn.Linear(4, 4), Function(layer)))


NO_GATES: list[Any] = [
    lambda x: x * torch.tanh(x),
    lambda x: x * (1 + torch.erf(x / 1.5)),
    lambda x: x * (2 + torch.erf(x / ROOT_TWO)),
    lambda x: x * torch.tanh(functional.softplus(x + 1)),
    lambda x: x / (2 + x.abs()),
]


@pytest.mark.parametrize("layer", NO_GATES)
def test_what_is_another_function_is_a_product(layer: Any) -> None:
    network = load(nn.Sequential(nn.Linear(4, 4), Function(layer)))
    assert [node.operation.name for node in network.nodes].count("power") == 2


def test_what_is_nowhere_defined_is_refused() -> None:
    with pytest.raises(MismatchError, match="not defined or too large"):
        load(nn.Sequential(Function(lambda x: torch.log(-1 - x * x)), nn.Linear(4, 2)), input_shape=(4,))


ONE = np.array(1, np.float32)
GELU: list[NodeProto] = [
    node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d"),
    node("Mul", "d half"),
]  # fmt: skip
GELU_NUMBERS = {"root": np.array(2**0.5, np.float32), "one": ONE, "half": np.array(0.5, np.float32)}
NODES: dict[str, tuple[list[NodeProto], dict[str, Any], set[str]]] = {
    **{
        name: ([node(name, "x")], {}, {operation})
        for name, operation in {
            "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Softplus": "softplus", "Softsign": "softsign",
            "Exp": "exp", "Elu": "elu", "Selu": "elu", "Celu": "elu", "Mish": "mish", "HardSwish": "hard swish",
            "Sin": "sin", "Cos": "cos", "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Gelu": "gelu",
        }.items()
    },
    "Elu alpha": ([node("Elu", "x", alpha=0.25)], {}, {"elu"}),
    "Selu alpha": ([node("Selu", "x", alpha=1.25, gamma=0.5)], {}, {"elu"}),
    "Gelu by tanh": ([node("Gelu", "x", approximate="tanh")], {}, {"gelu tanh"}),
    "Pow": ([node("Pow", "x two")], {"two": np.array(2, np.float32)}, {"power"}),
    "Pow of whole numbers": ([node("Pow", "x two")], {"two": np.array(3, np.int64)}, {"power"}),
    "GELU": (GELU, GELU_NUMBERS, {"gelu"}),
    "SiLU": ([node("Sigmoid", "x", "a"), node("Mul", "x a")], {}, {"silu"}),
    "SiLU the other way": ([node("Sigmoid", "x", "a"), node("Mul", "a x")], {}, {"silu"}),
    "square": ([node("Mul", "x x")], {}, {"power"}),
    "Div": ([node("Div", "c x")], {"c": np.array([1, 2, 3, 4], np.float32)}, {"reciprocal"}),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_the_operation_that_it_is(name: str, tmp_path: Path) -> None:
    nodes, constants, expected = NODES[name]
    proto = model(nodes, constants, FLAT, version=20)
    network = load(write(tmp_path, proto))
    assert activations(network) == expected
    if expected.isdisjoint({"log", "sqrt"}):  # onnxruntime gives no numbers at random inputs
        assert_same(network, proto)
