"""ONNX files: every operator and attribute against onnxruntime, and whatever is not understood refused."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper
from torch import nn

from relucert.errors import InputError, LoadError, MismatchError, NetworkError, UnsupportedError
from relucert.inputs.loading import load, onnx_rules
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand
from relucert.network import Linear, Network, Reshape, Scale
from relucert.network.fingerprint import fingerprint
from tests.inputs.loading.onnx_models import Array, Axis, model, node, numbers, write

WEIGHT, SQUARE, BIAS = numbers(4, 3), numbers(4, 4, seed=1), numbers(3, seed=2)
POSITIVE = np.abs(numbers(4, seed=3)) + 0.5


def whole(*sizes: int) -> Array:
    return np.array(sizes, dtype=np.int64)


def assert_same(network: Network, proto: ModelProto, batch: int = 5, dtype: str = "float32") -> None:
    images = numbers(batch, *network.input_shape, seed=9, dtype=dtype)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": images})[0]
    scores = network.cast(torch.float64)(torch.from_numpy(images).double())
    tolerance = {"float16": 2e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(scores.numpy(), expected, rtol=tolerance, atol=tolerance)


Case = tuple[Sequence[NodeProto], Mapping[str, Array], Sequence[Axis]]

FLAT: Sequence[Axis] = ("batch", 4)
IMAGE: Sequence[Axis] = ("batch", 2, 2)

CASES: dict[str, Case] = {
    "gemm": ([node("Gemm", "x w")], {"w": WEIGHT}, FLAT),
    "gemm transposed": ([node("Gemm", "x w", transB=1)], {"w": WEIGHT.T.copy()}, FLAT),
    "gemm square": ([node("Gemm", "x w b", transB=0)], {"w": SQUARE, "b": POSITIVE}, FLAT),
    "gemm square transposed": ([node("Gemm", "x w b", transB=1)], {"w": SQUARE, "b": POSITIVE}, FLAT),
    "gemm bias": ([node("Gemm", "x w b")], {"w": WEIGHT, "b": BIAS}, FLAT),
    "gemm bias row": ([node("Gemm", "x w b")], {"w": WEIGHT, "b": BIAS[None]}, FLAT),
    "gemm bias number": ([node("Gemm", "x w b")], {"w": WEIGHT, "b": BIAS[0]}, FLAT),
    "gemm bias one": ([node("Gemm", "x w b")], {"w": WEIGHT, "b": BIAS[:1]}, FLAT),
    "gemm alpha": ([node("Gemm", "x w b", alpha=0.3)], {"w": WEIGHT, "b": BIAS}, FLAT),
    "gemm beta": ([node("Gemm", "x w b", beta=-0.7)], {"w": WEIGHT, "b": BIAS}, FLAT),
    "gemm beta zero": ([node("Gemm", "x w b", beta=0.0)], {"w": WEIGHT, "b": BIAS}, FLAT),
    "gemm alpha beta": ([node("Gemm", "x w b", alpha=2.5, beta=0.1)], {"w": WEIGHT, "b": BIAS}, FLAT),
    "gemm residual": ([node("Gemm", "x w x", beta=0.5)], {"w": SQUARE}, FLAT),
    "matmul": ([node("MatMul", "x w")], {"w": WEIGHT}, FLAT),
    "matmul add": ([node("MatMul", "x w", "h"), node("Add", "b h")], {"w": WEIGHT, "b": BIAS}, FLAT),
    "add left": ([node("Add", "c x")], {"c": POSITIVE}, FLAT),
    "add branches": ([node("MatMul", "x w", "h"), node("Add", "h x")], {"w": SQUARE}, FLAT),
    "sub right": ([node("Sub", "x c")], {"c": POSITIVE}, FLAT),
    "sub left": ([node("Sub", "c x")], {"c": POSITIVE}, FLAT),
    "sub branches": ([node("MatMul", "x w", "h"), node("Sub", "x h")], {"w": SQUARE}, FLAT),
    "mul": ([node("Mul", "x c")], {"c": POSITIVE}, FLAT),
    "mul left": ([node("Mul", "c x")], {"c": POSITIVE[None]}, FLAT),
    "div": ([node("Div", "x c")], {"c": POSITIVE}, FLAT),
    "neg": ([node("Neg", "x")], {}, FLAT),
    "relu": ([node("Relu", "x")], {}, FLAT),
    "clip": ([node("Clip", "x zero")], {"zero": np.float32(0)}, FLAT),
    "max": ([node("Max", "zero x")], {"zero": np.zeros(4, np.float32)}, FLAT),
    "identity": ([node("Identity", "x", "h"), node("Relu", "h")], {}, FLAT),
    "constant": ([node("Constant", "", "c", value_float=0.25), node("Mul", "x c")], {}, FLAT),
    "dropout": ([node("Dropout", "x", "h mask"), node("Relu", "h")], {}, FLAT),
    "dropout off": (
        [node("Dropout", "x ratio mode", "h"), node("Relu", "h")],
        {"ratio": np.float32(0.9), "mode": np.array(False)},
        FLAT,
    ),
    "cast to itself": ([node("Cast", "x", "h", to=TensorProto.FLOAT), node("Relu", "h")], {}, FLAT),
    "weight moved": (
        [node("Transpose", "w", "v", perm=[1, 0]), node("MatMul", "x v")],
        {"w": WEIGHT.T.copy()},
        FLAT,
    ),
    "flatten": ([node("Flatten", "x")], {}, IMAGE),
    "flatten axis": ([node("Flatten", "x", axis=-2)], {}, ("batch", 1, 2, 2)),
    "reshape": ([node("Reshape", "x s")], {"s": whole(-1, 4)}, IMAGE),
    "reshape zero": ([node("Reshape", "x s")], {"s": whole(0, -1)}, IMAGE),
    "reshape there and back": (
        [node("Reshape", "x s", "h"), node("Add", "h c", "i"), node("Reshape", "i t")],
        {"s": whole(-1, 2, 2), "t": whole(0, 4), "c": numbers(2, 1)},
        FLAT,
    ),
    "reshape by its own shape": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n"),
            node("Unsqueeze", "n axis", "m"),
            node("Concat", "m rest", "t", axis=0),
            node("Reshape", "x t"),
        ],
        {"zero": np.array(0), "axis": whole(0), "rest": whole(-1)},
        IMAGE,
    ),
    "squeeze": ([node("Squeeze", "x a")], {"a": whole(1, -1)}, ("batch", 1, 4, 1)),
    "unsqueeze": (
        [node("Unsqueeze", "x a", "h"), node("Mul", "h c", "i"), node("Flatten", "i")],
        {"a": whole(1, -1), "c": numbers(1, 4, 1)},
        FLAT,
    ),
    "normalisation": (
        [node("Sub", "x mean", "h"), node("Div", "h deviation", "i"), node("Flatten", "i")],
        {"mean": numbers(1, 2, 1, seed=4), "deviation": np.abs(numbers(2, 1, seed=5)) + 1},
        IMAGE,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_operator_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    proto = model(*CASES[name])
    network = load(write(tmp_path, proto))
    assert network.name == "model"
    assert_same(network, proto)


def test_a_model_that_treats_one_image_differently_is_refused(tmp_path: Path) -> None:
    proto = model([node("Squeeze", "x")], {}, ("batch", 1, 4))  # with a single image the batch axis goes, too
    with pytest.raises(MismatchError, match="on its own"):
        load(write(tmp_path, proto))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_tensors_keep_their_precision_and_values(dtype: str, tmp_path: Path) -> None:
    weight, bias = numbers(4, 3, dtype=dtype), numbers(3, seed=2, dtype=dtype)
    nodes = [node("Gemm", "x w b", "h"), node("Relu", "h", "i"), node("Mul", "i b")]
    proto = model(nodes, {"w": weight, "b": bias}, dtype=dtype)
    network = load(write(tmp_path, proto))
    linear = network.nodes[0].operation
    assert isinstance(linear, Linear)
    assert linear.weight.numpy().tobytes() == weight.T.copy().tobytes()
    assert linear.bias.numpy().tobytes() == bias.tobytes()
    assert str(linear.weight.dtype) == f"torch.{dtype}"
    assert_same(network, proto, dtype=dtype)


def test_alpha_and_beta_leave_the_stored_numbers_alone(tmp_path: Path) -> None:
    proto = model([node("Gemm", "x w b", alpha=0.1, beta=0.7)], {"w": WEIGHT, "b": BIAS})
    network = load(write(tmp_path, proto))
    assert [step.operation.name for step in network.nodes] == ["linear", "scale", "scale", "shift", "scale"]
    linear, scale = network.nodes[0].operation, network.nodes[1].operation
    assert isinstance(linear, Linear)
    assert torch.equal(linear.weight, torch.from_numpy(WEIGHT.T.copy()))
    assert isinstance(scale, Scale)
    assert scale.factor.item() == np.float32(0.1)


def test_a_product_and_its_bias_become_one_layer(tmp_path: Path) -> None:
    network = load(write(tmp_path, model(*CASES["matmul add"])))
    assert [step.operation.name for step in network.nodes] == ["linear"]


def test_nodes_the_output_does_not_need_are_not_judged(tmp_path: Path) -> None:
    proto = model([node("Sigmoid", "x", "unused"), node("Relu", "x")], {})
    assert [step.operation.name for step in load(write(tmp_path, proto)).nodes] == ["relu"]


@pytest.mark.parametrize("batch", [1, 2, 7, 20])
def test_a_fixed_batch_is_left_out(batch: int, tmp_path: Path) -> None:
    proto = model([node("Reshape", "x s")], {"s": whole(batch, -1)}, (batch, 2, 2))
    network = load(write(tmp_path, proto))
    assert network.input_shape == (2, 2)
    assert isinstance(network.nodes[0].operation, Reshape)
    assert_same(network, proto, batch=batch)


def test_moves_of_constants_follow_the_operator_set_of_the_file(tmp_path: Path) -> None:
    nodes = [node("Unsqueeze", "c", "d", axes=[0]), node("Squeeze", "d", "e", axes=[0]), node("Mul", "x e")]
    proto = model(nodes, {"c": POSITIVE}, version=11)
    assert_same(load(write(tmp_path, proto)), proto)


def test_squeeze_axes_were_an_attribute_once(tmp_path: Path) -> None:
    nodes = [node("Unsqueeze", "x", "h", axes=[1]), node("Squeeze", "h", "i", axes=[1]), node("Relu", "i")]
    proto = model(nodes, {}, version=11)
    assert_same(load(write(tmp_path, proto)), proto)


def test_open_image_axes_are_asked_for(tmp_path: Path) -> None:
    proto = model([node("Flatten", "x", "h"), node("Gemm", "h w")], {"w": WEIGHT}, ("batch", "height", 2))
    path = write(tmp_path, proto)
    with pytest.raises(InputError, match=r"\(\?, 2\); pass input_shape"):
        load(path)
    with pytest.raises(InputError, match="takes images of shape"):
        load(path, input_shape=(2, 3))
    assert load(path, input_shape=(2, 2)).input_shape == (2, 2)


def test_what_torch_exports_is_read(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)).eval()
    path = tmp_path / "exported.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.zeros(2, 3, 4),),
            path,
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            verbose=False,
        )
    network = load(path)
    assert network.name == "exported"
    images = torch.randn(6, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        expected = module.double()(images)
    torch.testing.assert_close(network.cast(torch.float64)(images), expected, rtol=1e-12, atol=1e-12)


def test_weights_beside_the_file_are_read(tmp_path: Path) -> None:
    proto = model([node("MatMul", "x w")], {"w": numbers(4, 300)})
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert_same(load(path), model([node("MatMul", "x w")], {"w": numbers(4, 300)}))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(LoadError):
        load(path)


def test_everything_unsupported_is_named_at_once(tmp_path: Path) -> None:
    nodes = [
        node("LpPool", "x", "a", kernel_shape=[1], name="pool"),
        node("Sinh", "a", "b"),
        node("Flatten", "b", "c"),
        node("Gemm", "c w", "d", transA=1),
        node("Acos", "d", "e"),
        node("Sinh", "e", "f"),
        node("Cast", "x", "g", to=TensorProto.INT32),
        node("Cast", "g", "h", to=TensorProto.FLOAT),
        node("Flatten", "h", "i"),
        node("Add", "f i"),
    ]
    with pytest.raises(UnsupportedError) as caught:
        load(write(tmp_path, model(nodes, {"w": SQUARE}, ("batch", 2, 2))))
    message = str(caught.value)
    assert "operators: Acos at the node of e, LpPool at node pool, Sinh at the node of b and the node of f" in message
    assert "Gemm (transA=1) at the node of d" in message
    assert "Cast (a change of type to type 6)" in message
    assert message.endswith("docs/networks.md lists what is supported")
    assert "\n" not in message


REFUSED: dict[str, tuple[Case, str]] = {
    "weight on the left": (([node("MatMul", "w x")], {"w": SQUARE}, (4, 4)), "over the first axis, the batch"),
    "other columns": (([node("MatMul", "x w")], {"w": numbers(3, 3)}, IMAGE), "weight of shape .* on a value of shape"),
    "constant for each image": (([node("Add", "x c")], {"c": numbers(2, 4)}, (2, 4)), "constant of shape"),
    "other constant": (([node("Add", "x c")], {"c": POSITIVE}, ("batch", 3)), "the shapes .* together"),
    "batch reshaped": (([node("Reshape", "x s")], {"s": whole(1, -1)}, IMAGE), "changes the first axis"),
    "batch flattened": (([node("Flatten", "x", axis=0)], {}, FLAT), "changes the first axis"),
    "batch unsqueezed": (([node("Unsqueeze", "x a")], {"a": whole(0)}, FLAT), "changes the first axis"),
    "dropout in training": (
        ([node("Dropout", "x r t")], {"r": np.float32(0.5), "t": np.array(True)}, FLAT),
        "training_mode",
    ),
    "random constants": (
        ([node("RandomNormal", "", "d", shape=[4]), node("Add", "x d")], {}, FLAT),
        "RandomNormal at",
    ),
    "sum of the batch": (([node("ReduceSum", "x a")], {"a": whole(0)}, FLAT), "the batch among them"),
    "sum of everything": (([node("ReduceSum", "x")], {}, FLAT), "the batch among them"),
    "batch transposed": (([node("Transpose", "x")], {}, ("batch", 3, 3)), "from one image of the batch to another"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused(name: str, tmp_path: Path) -> None:
    case, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason) as caught:
        load(write(tmp_path, model(*case)))
    assert "\n" not in str(caught.value)


def test_the_mask_of_a_dropout_is_refused(tmp_path: Path) -> None:
    nodes = [node("Dropout", "x", "h mask"), node("Cast", "mask", "m", to=1), node("Add", "h m")]
    with pytest.raises(UnsupportedError, match="its output 'mask'"):
        load(write(tmp_path, model(nodes, {})))


def test_other_domains_are_refused(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "h"), node("Gelu", "h", domain="com.microsoft")], {})
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(UnsupportedError, match=r"com\.microsoft\.Gelu"):
        load(write(tmp_path, proto))


def test_old_operator_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="operator set 6"):
        load(write(tmp_path, model([node("Relu", "x")], {}, version=6)))


def test_representations_that_onnxruntime_does_not_know_yet(tmp_path: Path) -> None:
    """ONNX's own helpers write the newest one that the package knows."""
    proto = model([node("MatMul", "x w")], {"w": WEIGHT})
    known = load(write(tmp_path, proto))
    proto.ir_version = onnx.IR_VERSION
    assert fingerprint(load(write(tmp_path, proto))) == fingerprint(known)


def test_several_inputs_or_outputs_are_refused(tmp_path: Path) -> None:
    proto = model([node("Add", "x z")], {})
    proto.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ("batch", 4)))
    with pytest.raises(UnsupportedError, match=r"\['x', 'z'\]"):
        load(write(tmp_path, proto))
    proto = model([node("Relu", "x"), node("Neg", "x", "z")], {})
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ("batch", 4)))
    with pytest.raises(UnsupportedError, match=r"\['y', 'z'\]"):
        load(write(tmp_path, proto))


def test_initializers_may_be_listed_as_inputs(tmp_path: Path) -> None:
    proto = model([node("MatMul", "x w")], {"w": WEIGHT})
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, WEIGHT.shape))
    assert_same(load(write(tmp_path, proto)), proto)


def test_inputs_of_whole_numbers_are_refused(tmp_path: Path) -> None:
    proto = model([node("Cast", "x", "h", to=TensorProto.FLOAT), node("Relu", "h")], {})
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    with pytest.raises(UnsupportedError, match="FLOAT16, FLOAT or DOUBLE"):
        load(write(tmp_path, proto))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(wrong: float, tmp_path: Path) -> None:
    weight = WEIGHT.copy()
    weight[1, 1] = wrong
    with pytest.raises(NetworkError, match="NaN or infinite"):
        load(write(tmp_path, model([node("MatMul", "x w")], {"w": weight})))


def test_an_output_that_is_no_vector_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="vector of class scores"):
        load(write(tmp_path, model([node("Relu", "x")], {}, IMAGE)))


def test_an_output_apart_from_the_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="does not depend"):
        load(write(tmp_path, model([node("Identity", "c")], {"c": POSITIVE})))


Change = Callable[[dict[str, Any]], dict[str, Any]]

FAULTS: dict[str, Change] = {
    "transB dropped": lambda attributes: {**attributes, "transB": 0},
    "alpha dropped": lambda attributes: {**attributes, "alpha": 1.0},
    "beta dropped": lambda attributes: {**attributes, "beta": 1.0},
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_import_is_noticed(fault: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = onnx_rules.RULES["Gemm"]

    def wrong(assembly: Assembly, call: onnx_rules.OnnxCall) -> Operand:
        changed = FAULTS[fault](dict(call.attributes))
        return right.translate(assembly, replace(call, attributes=changed))

    monkeypatch.setitem(onnx_rules.RULES, "Gemm", onnx_rules.OnnxRule(wrong, right.attributes, right.fixed))
    constants = {"w": numbers(4, 4, dtype=dtype), "b": numbers(4, seed=2, dtype=dtype)}
    nodes = [
        node("Gemm", "x w b", "h", transB=1, alpha=1.5, beta=0.5),
        node("Relu", "h", "i"),
        node("Gemm", "i w b", transB=1, alpha=1.5, beta=0.5),
    ]
    with pytest.raises(MismatchError, match="differs from onnxruntime"):
        load(write(tmp_path, model(nodes, constants, dtype=dtype)))
