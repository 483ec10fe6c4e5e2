"""Layers of straight pieces: as affine maps and ReLU they compute, exactly, what torch and onnxruntime compute."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import NodeProto, TensorProto
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import relucert
from relucert import RemarkWarning
from relucert.errors import MismatchError, UnsupportedError
from relucert.inputs.loading import load
from relucert.inputs.loading.assembly import Assembly
from relucert.network import Network, Relu
from tests.inputs.loading.image_models import Function, Layer
from tests.inputs.loading.onnx_models import Array, Axis, model, node, write
from tests.inputs.loading.test_onnx_file import FLAT, IMAGE, assert_same, whole
from tests.inputs.loading.test_torch_module import assert_same as assert_same_as_module
from tests.rational import evaluate_graph

Formula = Callable[[Fraction], Fraction]

ZERO, SLOPE = Fraction(0), Fraction(0.1)


def leaky(x: Fraction, slope: Fraction = SLOPE) -> Fraction:
    return x if x > 0 else slope * x


def clipped(x: Fraction, low: float, high: float) -> Fraction:
    return min(max(x, Fraction(low)), Fraction(high))


EXACT: dict[str, tuple[Layer, Formula]] = {
    "leaky relu": (nn.LeakyReLU(0.1), leaky),
    "leaky relu in place": (lambda x: functional.leaky_relu_(x * 3, 0.1), lambda x: leaky(x * 3)),
    "prelu": (nn.PReLU(init=0.25).double(), lambda x: leaky(x, Fraction(1, 4))),
    "rrelu": (nn.RReLU(), lambda x: leaky(x, (Fraction(1 / 8) + Fraction(1 / 3)) / 2)),
    "abs": (torch.abs, abs),
    "clamp": (lambda x: x.clamp(-0.1, 0.7), lambda x: clipped(x, -0.1, 0.7)),
    "clamp below": (lambda x: x.clamp(min=0.3), lambda x: max(x, Fraction(0.3))),
    "clamp above": (lambda x: x.clamp_max(0.3), lambda x: min(x, Fraction(0.3))),
    "clamp without an end": (lambda x: x.clamp(-0.1, torch.inf), lambda x: max(x, Fraction(-0.1))),
    "clamp by tensors": (lambda x: x.clamp(torch.tensor(0.5), torch.tensor(0.75)), lambda x: clipped(x, 0.5, 0.75)),
    "relu6": (nn.ReLU6(), lambda x: clipped(x, 0, 6)),
    "hardtanh": (nn.Hardtanh(-0.2, 0.6), lambda x: clipped(x, -0.2, 0.6)),
    "hardsigmoid": (nn.Hardsigmoid(), lambda x: clipped(x + 3, 0, 6) / 6),
    "softshrink": (nn.Softshrink(0.5), lambda x: x - clipped(x, -0.5, 0.5)),
    "threshold": (nn.Threshold(0.1, 0.1), lambda x: max(x, Fraction(0.1))),
    "maximum": (lambda x: torch.maximum(x, torch.tensor(-0.5)), lambda x: max(x, Fraction(-1, 2))),
    "maximum of values": (lambda x: torch.maximum(x / 3, 1 - x), lambda x: max(x / 3, 1 - x)),
    "minimum": (lambda x: torch.min(x, torch.tensor(0.5)), lambda x: min(x, Fraction(1, 2))),
    "minimum of values": (lambda x: torch.min(x / 3, 1 - x), lambda x: min(x / 3, 1 - x)),
    "true division": (lambda x: torch.true_divide(x, 3), lambda x: x / 3),
}

POINT = [Fraction(number) for number in (-7.3, -0.15, -0.05, 0.0, 0.05, 0.55, 1.9, 8.1)]


@pytest.mark.parametrize("name", EXACT)
def test_a_layer_is_exact_in_real_arithmetic(name: str) -> None:
    layer, formula = EXACT[name]
    module = Function(layer)
    network = load(module.eval(), input_shape=(len(POINT),))
    assert evaluate_graph(network, POINT)[-1] == [formula(number) for number in POINT]
    assert_same_as_module(network, module)


@pytest.mark.parametrize(("name", "bends"), [("leaky relu", 1), ("abs", 1), ("maximum of values", 1), ("clamp", 2)])
def test_a_layer_costs_one_relu_for_each_bend(name: str, bends: int) -> None:
    network = load(Function(EXACT[name][0]), input_shape=(4,))
    assert sum(isinstance(entry.operation, Relu) for entry in network.nodes) == bends


SHAPED: dict[str, Layer] = {
    "sum": lambda x: x.sum(2),
    "sum of two axes": lambda x: x.sum((1, -1), keepdim=True).flatten(1),
    "mean": lambda x: x.mean(dim=1),
    "mean of the last axis": lambda x: x.mean(-1, keepdim=True).flatten(1),
    "prelu of channels": nn.Sequential(nn.PReLU(2), nn.Flatten()),
}


@pytest.mark.parametrize("name", SHAPED)
def test_layers_over_axes(name: str) -> None:
    module = Function(SHAPED[name])
    if isinstance(SHAPED[name], nn.Module):
        with torch.no_grad():
            next(module.parameters()).copy_(torch.tensor([0.3, -0.7]))
    assert_same_as_module(load(module, input_shape=(2, 3)), module)


def test_a_mean_is_divided_by_its_count() -> None:
    network = load(Function(lambda x: x.mean(1, keepdim=True)), input_shape=(len(POINT),))
    assert evaluate_graph(network, POINT)[-1] == [sum(POINT, start=ZERO) / len(POINT)]


Case = tuple[Sequence[NodeProto], Mapping[str, Array], Sequence[Axis]]

LOW, HIGH = np.float32(-0.4), np.float32(0.3)
ENDS = {"a": LOW, "b": HIGH}
SLOPES = np.array([0.1, -0.2, 0.3, 1.5], np.float32)

NODES: dict[str, Case] = {
    "LeakyRelu": ([node("LeakyRelu", "x")], {}, FLAT),
    "LeakyRelu alpha": ([node("LeakyRelu", "x", alpha=0.3)], {}, FLAT),
    "PRelu": ([node("PRelu", "x s")], {"s": SLOPES}, FLAT),
    "PRelu of channels": ([node("PRelu", "x s", "h"), node("Flatten", "h")], {"s": SLOPES[:2, None]}, IMAGE),
    "Abs": ([node("Abs", "x")], {}, FLAT),
    "Clip": ([node("Clip", "x a b")], ENDS, FLAT),
    "Clip below": ([node("Clip", "x a")], ENDS, FLAT),
    "Clip above": ([node("Clip", "x - b")], ENDS, FLAT),
    "Clip at the last numbers": (
        [node("Clip", "x a b", "h"), node("Relu", "h")],
        {"a": np.finfo(np.float32).min, "b": np.finfo(np.float32).max},
        FLAT,
    ),
    "HardSigmoid": ([node("HardSigmoid", "x")], {}, FLAT),
    "HardSigmoid alpha": ([node("HardSigmoid", "x", alpha=0.7, beta=0.1)], {}, FLAT),
    "Shrink": ([node("Shrink", "x", lambd=0.3, bias=0.3)], {}, FLAT),
    "Max": ([node("Max", "a x b")], ENDS, FLAT),
    "Max of values": ([node("Neg", "x", "h"), node("Max", "x h b")], ENDS, FLAT),
    "Max of one": ([node("Max", "x", "h"), node("Relu", "h")], {}, FLAT),
    "Min": ([node("Min", "x b")], ENDS, FLAT),
    "Min of values": ([node("Neg", "x", "h"), node("Min", "a x h")], ENDS, FLAT),
    "Sum": ([node("Sum", "a x b x")], ENDS, FLAT),
    "Mean": ([node("Mean", "x a b")], ENDS, FLAT),
    "ReduceSum": ([node("ReduceSum", "x i")], {"i": whole(-1)}, FLAT),
    "ReduceSum without its axis": ([node("ReduceSum", "x i", keepdims=0)], {"i": whole(1)}, IMAGE),
    "ReduceSum of nothing": (
        [node("ReduceSum", "x i", "h", noop_with_empty_axes=1), node("Relu", "h")],
        {"i": whole()},
        FLAT,
    ),
    "ReduceMean": ([node("ReduceMean", "x", axes=[1], keepdims=0)], {}, IMAGE),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    proto = model(*NODES[name])
    assert_same(load(write(tmp_path, proto)), proto)


def test_forms_of_older_operator_sets(tmp_path: Path) -> None:
    nodes = [node("Clip", "x", "h", min=-0.4, max=0.3), node("ReduceSum", "h", axes=[1])]
    proto = model(nodes, {}, version=10)
    assert_same(load(write(tmp_path, proto)), proto)
    proto = model([node("ReduceMean", "x i")], {"i": whole(1)}, version=18)
    assert_same(load(write(tmp_path, proto)), proto)


def test_changes_of_precision_are_remarked(tmp_path: Path) -> None:
    def halved(images: Tensor) -> Tensor:
        return (images.half() * 0.3).float() - 1

    with pytest.warns(RemarkWarning, match="changes of precision"):
        network = load(Function(halved), input_shape=(4,))
    images = torch.randn(5, 4)
    torch.testing.assert_close(network(images), halved(images), rtol=1e-2, atol=1e-2)
    nodes = [node("Cast", "x", "h", to=TensorProto.DOUBLE), node("Cast", "h", "i", to=TensorProto.FLOAT)]
    proto = model([*nodes, node("Relu", "i")], {})
    with pytest.warns(RemarkWarning, match="changes of precision"):
        network = load(write(tmp_path, proto))
    assert_same(network, proto)


def computed_weights(module: nn.Module) -> Network:
    with pytest.warns(RemarkWarning, match="are taken as computed"):
        return load(module)


def test_weights_computed_from_weights_are_remarked(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for parametrized in (parametrizations.weight_norm, parametrizations.spectral_norm):
        module = nn.Sequential(parametrized(nn.Linear(6, 4)), nn.ReLU(), nn.Linear(4, 2)).eval()
        network = computed_weights(module)
        assert [entry.operation.name for entry in network.nodes] == ["linear", "relu", "linear"]
        images = torch.randn(5, 6)
        with torch.no_grad():
            torch.testing.assert_close(network(images), module(images))
    proto = model([node("Mul", "c c", "d"), node("Add", "x d")], {"c": SLOPES})
    with pytest.warns(RemarkWarning, match="weights that Mul computes"):
        assert_same(load(write(tmp_path, proto)), proto)


def test_whole_numbers_computed_for_a_shape_are_no_remark(tmp_path: Path) -> None:
    nodes = [node("Mul", "two two", "n"), node("Concat", "one n", "s", axis=0), node("Reshape", "x s")]
    proto = model(nodes, {"two": whole(2), "one": whole(-1)}, IMAGE)
    network = load(write(tmp_path, proto))
    assert network.remarks == ()
    assert_same(network, proto)


JUMPS: dict[str, tuple[Layer | NodeProto, str]] = {
    "hardshrink": (nn.Hardshrink(), "hardshrink: jumps, and no bounds follow jumps"),
    "threshold": (nn.Threshold(0.1, 0.0), "a jump: threshold and value differ"),
    "sign": (torch.sign, "sign: jumps"),
    "Shrink": (node("Shrink", "x"), "a jump: zero up to 0.5, and nearer to zero by 0 from there on"),
    "Shrink to the other side": (node("Shrink", "x", lambd=-0.5, bias=-0.5), "a jump"),
    "Round": (node("Round", "x"), "Round: jumps"),
}


@pytest.mark.parametrize("name", JUMPS)
def test_jumps_are_refused_with_their_reason(name: str, tmp_path: Path) -> None:
    layer, reason = JUMPS[name]
    source: Any = layer
    if isinstance(layer, NodeProto):
        source = write(tmp_path, model([layer], {}))
    elif not isinstance(layer, nn.Module):
        source = Function(layer)
    with pytest.raises(UnsupportedError, match=reason):
        load(source, input_shape=(4,))


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: torch.maximum(x, x.cumsum(1)),
        lambda x: x.sum(),
        lambda x: x.mean(0, keepdim=True) + x,
        lambda x: functional.threshold(x, 0.0, 1.0),
    ],
)
def test_what_is_not_lowered_is_refused(layer: Any) -> None:
    with pytest.raises(UnsupportedError):
        load(Function(layer), input_shape=(4,))


def test_what_is_lowered_is_certified() -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 8), nn.Hardtanh(-0.5, 1.5), nn.Linear(8, 6), nn.PReLU()]
    module = nn.Sequential(*layers, nn.Linear(6, 3))
    images = torch.randn(4, 4)
    for image, certificate in zip(images, relucert.certify(module, images, norm=2), strict=True):
        assert certificate.radius is not None
        assert certificate.radius > 0
        moved = image + functional.normalize(torch.randn(500, 4)) * certificate.radius
        assert bool((module(moved).argmax(1) == certificate.label).all())


WIDE: dict[str, Layer] = {
    "clamp above": lambda x: x.clamp(max=9e38),
    "clamp below": lambda x: x.clamp(min=-9e38),
    "a wider constant": lambda x: (x * torch.ones(2, dtype=torch.float64)).clamp(max=9e38),
}


@pytest.mark.parametrize("name", WIDE)
def test_ends_of_a_clip_in_float64_stay(name: str) -> None:
    """They are beyond float32's numbers, and not beyond those of the network."""
    layer = nn.Linear(2, 2, bias=False, dtype=torch.float32 if name == "a wider constant" else torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1e30, 0.0], [0.0, 1.0]]))
    network = load(nn.Sequential(layer, Function(lambda x: WIDE[name](x) * 1e-30))).cast(torch.float64)
    points = torch.tensor([[1e9, 0.0], [-1e9, 0.0], [3.0, 0.0]], dtype=torch.float64)
    ends = {"clamp below": (-9e8, 1e9)}.get(name, (-1e9, 9e8))
    expected = points[:, 0].clamp(*ends)
    assert torch.allclose(network(points)[:, 0], expected, rtol=1e-6)


def test_ends_beyond_the_precision_are_no_ends() -> None:
    """As exporters write a clip with one end: no ReLU stands for the other one."""
    largest = torch.finfo(torch.float32).max
    network = load(Function(lambda x: (x * 2).clamp(-largest, largest)), input_shape=(2,))
    assert not any(isinstance(node.operation, Relu) for node in network.nodes)


@pytest.mark.parametrize("name", ["clamp above", "clamp below"])
def test_a_clip_that_is_dropped_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with the original goes as far out as the precision does."""
    monkeypatch.setattr(Assembly, "widest", torch.float32)
    torch.manual_seed(0)
    layer = nn.Linear(2, 2, dtype=torch.float64)
    with pytest.raises(MismatchError, match="differs from torch"):
        load(nn.Sequential(layer, Function(WIDE[name])))
