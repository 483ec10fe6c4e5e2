"""ONNX files of some hundred bytes that would make gigabytes, or never end, are refused before they do."""

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import relucert
from relucert.errors import LoadError, UnsupportedError
from tests.inputs.loading.onnx_models import Array, Axis, model, node, numbers, write

HUGE = 10**10
MESSAGE = r"[\d,]+ numbers, more than the [\d,]+ that a file of its size may make"
WIDE = 10**5  # of pictures, which have the square of it

TOO_LARGE: dict[str, tuple[list[NodeProto], dict[str, Array], tuple[Axis, ...]]] = {
    "a constant": (
        [node("ConstantOfShape", "s", "c"), node("ReduceSum", "c", "r", keepdims=0), node("Add", "x r")],
        {"s": np.array([HUGE])},
        ("batch", 4),
    ),
    "an expanded constant": (
        [node("Expand", "v s", "c"), node("ReduceSum", "c", "r", keepdims=0), node("Add", "x r")],
        {"v": np.array([1], dtype=np.float32), "s": np.array([HUGE])},
        ("batch", 4),
    ),
    "a range": (
        [node("Range", "a b d", "c"), node("ReduceSum", "c", "r", keepdims=0), node("Add", "x r")],
        {"a": np.array(0, dtype=np.float64), "b": np.array(HUGE, dtype=np.float64), "d": np.array(1, dtype=np.float64)},
        ("batch", 4),
    ),
    "an expanded value": (
        [node("Expand", "x s", "c"), node("Flatten", "c")], {"s": np.array([1, HUGE, 1])}, ("batch", 1, 1)
    ),
    "a repeated value": ([node("Tile", "x s")], {"s": np.array([1, HUGE])}, ("batch", 4)),
    "a padded value": ([node("Pad", "x p")], {"p": np.array([0, 0, 0, HUGE])}, ("batch", 4)),
    "a resized value": (
        [node("Resize", "x - s", mode="nearest")], {"s": np.array([1, HUGE], dtype=np.float32)}, ("batch", 4)
    ),
    "a sum of a row and a column": (
        [node("Reshape", "x s", "c"), node("Reshape", "x t", "r"), node("Add", "c r", "z"), node("Flatten", "z")],
        {"s": np.array([0, WIDE, 1]), "t": np.array([0, 1, WIDE])},
        ("batch", WIDE),
    ),
    "the padding of a convolution": (
        [node("Conv", "x w", "c", pads=[WIDE] * 4, strides=[WIDE] * 2), node("Flatten", "c")],
        {"w": numbers(1, 1, 1, 1)},
        ("batch", 1, 4, 4),
    ),
    "the steps of a transposed convolution": (
        [node("ConvTranspose", "x w", "c", strides=[WIDE] * 2, pads=[2 * WIDE - 2] * 4), node("Flatten", "c")],
        {"w": numbers(1, 1, 1, 1)},
        ("batch", 1, 4, 4),
    ),
    "the padding of a pooling": (
        [node("AveragePool", "x", "c", kernel_shape=[WIDE] * 2, pads=[WIDE - 1] * 4), node("Flatten", "c")],
        {},
        ("batch", 1, 4, 4),
    ),
    "the input": ([node("ReduceSum", "x a")], {"a": np.array([1])}, ("batch", HUGE)),
    "a batch": ([node("Relu", "x")], {}, (HUGE, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_refused(name: str, tmp_path: Path) -> None:
    nodes, constants, axes = TOO_LARGE[name]
    path = write(tmp_path, model(nodes, constants, axes))
    assert path.stat().st_size < 400
    with pytest.raises(
        LoadError, match=r"[\d,]+ numbers, more than the [\d,]+ that a file of its size may make"
    ) as raised:
        relucert.load(path)
    assert not isinstance(raised.value, UnsupportedError)
    assert "\n" not in str(raised.value)


def test_many_small_results_add_up(tmp_path: Path) -> None:
    """A maximum over a window of 2^20 pixels is thousands of layers."""
    pooling = [node("MaxPool", "x", "c", kernel_shape=[1024, 1024]), node("Flatten", "c")]
    path = write(tmp_path, model(pooling, {}, ("batch", 1, 1024, 1024)))
    with pytest.raises(LoadError, match="values and computed constants have more numbers"):
        relucert.load(path)


def test_what_nobody_uses_is_not_computed(tmp_path: Path) -> None:
    """Neither here nor by the runtime that the network is compared with."""
    nodes = [node("ConstantOfShape", "s", "c"), node("ReduceSum", "c", "r", keepdims=0), node("Relu", "x")]
    network = relucert.load(write(tmp_path, model(nodes, {"s": np.array([HUGE])})))
    assert [one.operation.name for one in network.nodes] == ["relu"]


def test_a_loop_over_constants_is_not_run(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Identity", "go", "on"), node("Identity", "v", "w")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]),
        ],
    )
    nodes = [node("Loop", "n go v", "r", body=body), node("Add", "x r")]
    constants = {"n": np.array(2**60), "go": np.array(True), "v": np.array([0], dtype=np.float32)}
    with pytest.raises(UnsupportedError, match="Loop"):
        relucert.load(write(tmp_path, model(nodes, constants)))


def test_a_file_s_own_numbers_allow_more(tmp_path: Path) -> None:
    """A weight is transposed, however large it is."""
    weight = numbers(2100, 2100)
    nodes = [node("Transpose", "w", "t"), node("MatMul", "x t")]
    network = relucert.load(write(tmp_path, model(nodes, {"w": weight}, ("batch", 2100))))
    assert network.parameters >= weight.size > 2**22
