"""ONNX nodes on images: attributes, operator sets, inputs without a batch, exporters, and networks of others."""

import io
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import NodeProto
from onnx.defs import onnx_opset_version
from torch import nn
from torch.nn import functional

from relucert.errors import UnsupportedError
from relucert.inputs.loading import load
from relucert.inputs.loading.onnx_file import OLDEST
from tests.inputs.loading.image_models import assert_same as assert_same_as_module
from tests.inputs.loading.onnx_models import Array, Axis, model, node, numbers, write
from tests.inputs.loading.test_onnx_file import assert_same, whole
from tests.shared import SHARED

Case = tuple[NodeProto, dict[str, Array], tuple[Axis, ...]]

PICTURE: tuple[Axis, ...] = ("batch", 2, 5, 4)
LINE: tuple[Axis, ...] = ("batch", 2, 7)
KERNEL, BIAS = numbers(4, 2, 3, 2), numbers(4, seed=1)
STATISTICS = {"s": numbers(2), "b": numbers(2, seed=1), "m": numbers(2, seed=2), "v": np.abs(numbers(2, seed=3))}

NODES: dict[str, Case] = {
    "Conv": (node("Conv", "x w b", "h", pads=[1, 0, 0, 2], strides=[1, 2]), {"w": KERNEL, "b": BIAS}, PICTURE),
    "Conv, upper": (node("Conv", "x w", "h", auto_pad="SAME_UPPER", strides=[2, 1]), {"w": KERNEL}, PICTURE),
    "Conv, lower": (node("Conv", "x w", "h", auto_pad="SAME_LOWER", strides=[1, 3]), {"w": KERNEL}, PICTURE),
    "Conv, valid": (node("Conv", "x w", "h", auto_pad="VALID", dilations=[2, 1]), {"w": KERNEL}, PICTURE),
    "Conv, groups": (node("Conv", "x w", "h", group=2), {"w": KERNEL[:, :1]}, PICTURE),
    "Conv of a line": (node("Conv", "x w", "h", pads=[0, 2]), {"w": KERNEL[..., 0]}, LINE),
    "ConvTranspose": (
        node("ConvTranspose", "x w b", "h", strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 2]),
        {"w": numbers(2, 3, 3, 2), "b": BIAS[:3]},
        PICTURE,
    ),
    "ConvTranspose, upper": (
        node("ConvTranspose", "x w", "h", strides=[2, 2], auto_pad="SAME_UPPER"),
        {"w": numbers(2, 3, 3, 3)},
        PICTURE,
    ),
    "ConvTranspose, shape": (
        node("ConvTranspose", "x w", "h", strides=[2, 2], output_shape=[10, 8]),
        {"w": numbers(2, 3, 3, 3)},
        PICTURE,
    ),
    "BatchNormalization": (node("BatchNormalization", "x s b m v", "h", epsilon=0.01), STATISTICS, PICTURE),
    "AveragePool": (node("AveragePool", "x", "h", kernel_shape=[2, 3], pads=[1, 0, 0, 1]), {}, PICTURE),
    "AveragePool, padded": (
        node("AveragePool", "x", "h", kernel_shape=[2, 3], pads=[1, 0, 0, 1], count_include_pad=1),
        {},
        PICTURE,
    ),
    "AveragePool, upper": (
        node("AveragePool", "x", "h", kernel_shape=[2, 2], auto_pad="SAME_UPPER", strides=[2, 2]),
        {},
        PICTURE,
    ),
    "MaxPool": (node("MaxPool", "x", "h", kernel_shape=[2, 3], pads=[0, 1, 1, 0], strides=[2, 1]), {}, PICTURE),
    "MaxPool, lower": (
        node("MaxPool", "x", "h", kernel_shape=[3, 3], auto_pad="SAME_LOWER", strides=[2, 3]),
        {},
        PICTURE,
    ),
    "MaxPool, rounded up": (
        node("MaxPool", "x", "h", kernel_shape=[2, 3], strides=[2, 3], ceil_mode=1, dilations=[2, 1]),
        {},
        PICTURE,
    ),
    "MaxPool of a line": (node("MaxPool", "x", "h", kernel_shape=[3], pads=[1, 1]), {}, LINE),
    "GlobalAveragePool": (node("GlobalAveragePool", "x", "h"), {}, PICTURE),
    "GlobalMaxPool": (node("GlobalMaxPool", "x", "h"), {}, PICTURE),
    "ReduceMax": (node("ReduceMax", "x", "h", axes=[1, 3]), {}, PICTURE),
    "ReduceMin": (node("ReduceMin", "x", "h", axes=[2], keepdims=0), {}, PICTURE),
    "Pad": (node("Pad", "x p c", "h"), {"p": whole(0, 0, 1, 0, 0, 1, 0, 2), "c": np.float32(0.3)}, PICTURE),
    "Pad, cut": (node("Pad", "x p", "h"), {"p": whole(0, 0, -1, 1, 0, 0, -2, 0)}, PICTURE),
    "Pad, reflected": (node("Pad", "x p", "h", mode="reflect"), {"p": whole(0, 0, 2, 1, 0, 0, 0, 3)}, PICTURE),
    "Pad, edge": (node("Pad", "x p", "h", mode="edge"), {"p": whole(0, 1, 2, 1, 0, 0, 0, 3)}, PICTURE),
    "Resize": (
        node("Resize", "x - f", "h", nearest_mode="floor", coordinate_transformation_mode="asymmetric"),
        {"f": np.array([1, 1, 2, 3], np.float32)},
        PICTURE,
    ),
    **{
        f"Resize, {mode}, {transform}": (
            node("Resize", "x - f", "h", mode=mode, coordinate_transformation_mode=transform),
            {"f": np.array([1, 1, 2, 1.5], np.float32)},
            PICTURE,
        )
        for mode in ("linear", "cubic")
        for transform in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    },
    "Resize, symmetric": (
        node("Resize", "x - f", "h", mode="linear", coordinate_transformation_mode="half_pixel_symmetric"),
        {"f": np.array([1, 1, 1.25, 2], np.float32)},
        PICTURE,
    ),
    "Resize, another cubic": (
        node("Resize", "x - - s", "h", mode="cubic", cubic_coeff_a=-0.5),
        {"s": whole(5, 2, 7, 6)},
        (5, 2, 5, 4),
    ),
    "Resize by sizes": (node("Resize", "x - - s", "h"), {"s": whole(5, 2, 10, 12)}, (5, 2, 5, 4)),
    "DepthToSpace": (node("DepthToSpace", "x", "h", blocksize=2, mode="CRD"), {}, ("batch", 8, 2, 3)),
    "SpaceToDepth": (node("SpaceToDepth", "x", "h", blocksize=2), {}, ("batch", 1, 4, 6)),
    "Split": (node("Split", "x s", "g h", axis=2), {"s": whole(2, 3)}, PICTURE),
    "Gather": (node("Gather", "x i", "h", axis=3), {"i": whole(3, 0, 3)}, PICTURE),
    "Expand": (node("Expand", "x s", "h"), {"s": whole(1, 2, 5, 4)}, ("batch", 2, 1, 4)),
    "Tile": (node("Tile", "x s", "h"), {"s": whole(1, 2, 1, 3)}, PICTURE),
    "Concat": (node("Concat", "x x", "h", axis=2), {}, PICTURE),
    "Where": (node("Where", "m x c", "h"), {"m": numbers(5, 4) > 0, "c": numbers(2, 1, 1)}, PICTURE),
    "Einsum": (node("Einsum", "x w", "h", equation="b...w, wk -> b...k"), {"w": numbers(4, 3)}, PICTURE),
    "MatMul": (node("MatMul", "x w", "h"), {"w": numbers(4, 3)}, PICTURE),
    "MatMul from the left": (node("MatMul", "w x", "h"), {"w": numbers(3, 5)}, PICTURE),
    "Add, wider": (node("Add", "x c", "h"), {"c": numbers(3, 1, 1)}, ("batch", 1, 5, 4)),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    entry, constants, axes = NODES[name]
    proto = model([entry, node("Flatten", "h")], constants, axes)
    assert_same(load(write(tmp_path, proto)), proto)


OLD = {
    9: [node("Pad", "x", "g", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.5), node("Upsample", "g f", "h")],
    10: [node("Slice", "x s e a", "g"), node("Resize", "g f", "h")],
    11: [node("Split", "x", "f0 g", axis=2, split=[2, 3]), node("Clip", "g", "h")],
    18: [node("ReduceMax", "x a", "h")],
}


@pytest.mark.parametrize("version", OLD)
def test_operator_sets(version: int, tmp_path: Path) -> None:
    constants = {"f": np.array([1, 1, 2, 1], np.float32), "s": whole(1, 0), "e": whole(9, 3), "a": whole(2, 3)}
    used = {name: array for name, array in constants.items() if any(name in entry.input for entry in OLD[version])}
    proto = model([*OLD[version], node("Flatten", "h")], used, PICTURE, version=version)
    assert_same(load(write(tmp_path, proto)), proto)


@pytest.mark.parametrize("version", range(OLDEST, onnx_opset_version() + 1))
def test_every_operator_set_that_onnx_knows(version: int, tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v", "n"), node("Relu", "n", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2]), node("Flatten", "p", "f"), node("MatMul", "f g"),
    ]  # fmt: skip
    constants = {**STATISTICS, "w": numbers(2, 2, 3, 2), "g": numbers(8, 3)}
    proto = model(nodes, constants, PICTURE, version=version)
    network = load(write(tmp_path, proto))
    weights = {name: torch.from_numpy(array) for name, array in constants.items()}
    at = torch.from_numpy(numbers(3, 2, 5, 4))
    normalised = functional.batch_norm(
        functional.conv2d(at, weights["w"]), weights["m"], weights["v"], weights["s"], weights["b"]
    )
    expected = functional.max_pool2d(normalised.relu(), 2, 1).flatten(1) @ weights["g"]
    torch.testing.assert_close(network(at), expected, rtol=1e-4, atol=1e-5)


REFUSED: dict[str, tuple[Case, str]] = {
    "channels last": ((node("Conv", "x w", "h"), {"w": KERNEL}, ("batch", 5, 4, 2)), "they have their channels first"),
    "three axes": ((node("Conv", "x w", "h"), {"w": KERNEL[..., None]}, (*PICTURE, 3)), "of three axes"),
    "a smaller image": ((node("Conv", "x w", "h"), {"w": KERNEL}, ("batch", 2, 2, 4)), "smaller than the kernel"),
    "uneven groups": ((node("Conv", "x w", "h", group=3), {"w": KERNEL[:, :1]}, PICTURE), "in 3 groups"),
    "negative padding": ((node("Conv", "x w", "h", pads=[0, 0, -1, 0]), {"w": KERNEL}, PICTURE), "negative padding"),
    "strides of one axis": ((node("Conv", "x w", "h", strides=[2]), {"w": KERNEL}, PICTURE), "strides, pads or dilat"),
    "a flat value, same size": (
        (node("MaxPool", "x", "h", kernel_shape=[2, 2], auto_pad="SAME_UPPER"), {}, LINE),
        "not .batch, channels, height, width",
    ),
    "zeros after one axis": (
        (node("ConvTranspose", "x w", "h", output_padding=[1]), {"w": KERNEL[:2]}, PICTURE), "output_padding=.1.",
    ),
    "a flat value": ((node("MaxPool", "x", "h", kernel_shape=[2, 2]), {}, LINE), "not .batch, channels, height, width"),
    "no window": ((node("MaxPool", "x", "h", kernel_shape=[6, 1]), {}, PICTURE), "windows of 6"),
    "a computed kernel": ((node("Conv", "x x", "h"), {}, (2, 2, 1, 1)), "a computed input 1"),
    "resizing without the outside": (
        (
            node("Resize", "x - f", "h", mode="cubic", exclude_outside=1),
            {"f": np.array([1, 1, 2, 2], np.float32)},
            PICTURE,
        ),
        "exclude_outside=1",
    ),
    "resizing of a part": (
        (
            node("Resize", "x - f", "h", mode="linear", coordinate_transformation_mode="tf_crop_and_resize"),
            {"f": np.array([1, 1, 2, 2], np.float32)},
            PICTURE,
        ),
        "coordinate_transformation_mode=tf_crop_and_resize",
    ),
    "statistics of the batch": (
        (node("BatchNormalization", "x s b m v", "h", training_mode=1), STATISTICS, PICTURE), "training_mode=1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused(name: str, tmp_path: Path) -> None:
    (entry, constants, axes), reason = REFUSED[name]
    entry.name = "odd"
    with pytest.raises(UnsupportedError, match=rf"{reason}.* at node odd") as caught:
        load(write(tmp_path, model([entry, node("Flatten", "h")], constants, axes)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "axes"),
    [
        ([node("MatMul", "x w", "h"), node("Relu", "h")], (4,)),
        ([node("MatMul", "v x", "h"), node("Relu", "h")], (4,)),
        ([node("Reshape", "x s", "h"), node("Conv", "h k", "i"), node("Flatten", "i")], (2, 3, 4)),
        ([node("Transpose", "x", "h", perm=[2, 0, 1]), node("Reshape", "h t")], (1, 2, 3)),
    ],
)
def test_an_input_may_have_no_batch(nodes: list[NodeProto], axes: tuple[Axis, ...], tmp_path: Path) -> None:
    constants = {
        "w": numbers(4, 3), "v": numbers(3, 4), "k": numbers(2, 2, 2, 2), "s": whole(1, 2, 3, 4), "t": whole(6)
    }  # fmt: skip
    network = load(write(tmp_path, model(nodes, constants, axes)))
    assert network.input_shape == axes
    assert len(network.shapes[-1]) == 1


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    body = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(8, 3)).eval()


@pytest.mark.parametrize("dynamo", [False, True])
def test_what_the_exporters_of_torch_write_is_read(dynamo: bool, tmp_path: Path) -> None:
    path = tmp_path / "exported.onnx"
    module = convolutional()
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, 2, 8, 4),), path, dynamo=dynamo, verbose=False)
    network = load(path)
    assert network.describe().startswith("2x8x4 - 4x8x4 - ")
    assert_same_as_module(network, module, tolerance=1e-5)


VNNCOMP = SHARED / "vnncomp"
FAMILIES = {
    "acasxu": "ACASXU_run2a_1_1*.onnx", "oval21": "*.onnx", "resnet": "*.onnx", "safenlp": "*.onnx", "test": "*.onnx",
    "sat_relu": "sat_v18*.onnx", "tllverifybench": "*N=M=8*_0_0.onnx", "verivital": "*.onnx",
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_networks_of_the_competition_load(family: str) -> None:
    paths = sorted((VNNCOMP / family).rglob(FAMILIES[family]))
    if not paths:
        pytest.skip(f"{VNNCOMP / family} is not there")
    for path in paths:
        assert load(path).nodes
