"""Convolutions, pooling and batch normalisation, by the names of ONNX."""

from __future__ import annotations

from collections.abc import Sequence

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import convolutions, pooling
from relucert.inputs.loading.lowering.convolutions import Geometry, Padding
from relucert.inputs.loading.onnx_rules.call import OnnxCall, OnnxRule, single
from relucert.inputs.loading.operands import Operand

_SAME: dict[str, Padding] = {"SAME_UPPER": "same upper", "SAME_LOWER": "same lower"}


def _geometry(call: OnnxCall, axes: int) -> Geometry:
    attributes = call.attributes
    mode = call.text("auto_pad", "NOTSET")
    pads = attributes.get("pads", [0] * (2 * axes)) if mode == "NOTSET" else [0] * (2 * axes)
    padding = _SAME.get(mode, (pads[:axes], pads[axes:]))
    return Geometry(attributes.get("strides", [1] * axes), padding, attributes.get("dilations", [1] * axes))


def _convolution(assembly: Assembly, call: OnnxCall) -> Operand:
    weight, bias = call.constant(1), call.optional_constant(2)
    geometry, groups = _geometry(call, weight.ndim - 2), call.attributes.get("group", 1)
    return convolutions.convolution(assembly, call.value(0), weight, bias, geometry, groups)


def _transposed_convolution(assembly: Assembly, call: OnnxCall) -> Operand:
    weight, bias = call.constant(1), call.optional_constant(2)
    axes = weight.ndim - 2
    geometry, extra = _geometry(call, axes), call.attributes.get("output_padding", [0] * axes)
    sizes = assembly.shape(call.value(0))[-axes:]
    outputs = call.attributes.get("output_shape", [])[-axes:]
    if not outputs and isinstance(geometry.padding, str):
        outputs = [size * stride for size, stride in zip(sizes, geometry.stride, strict=True)]
    if outputs:
        geometry = Geometry(geometry.stride, _cut(geometry, sizes, outputs, weight.shape[2:], extra), geometry.dilation)
    groups = call.attributes.get("group", 1)
    return convolutions.transposed_convolution(assembly, call.value(0), weight, bias, geometry, groups, extra)


def _cut(
    geometry: Geometry, sizes: Sequence[int], outputs: Sequence[int], kernel: Sequence[int], extra: Sequence[int]
) -> Padding:
    """The padding, before and after each axis, with which a transposed convolution has outputs of these sizes."""
    before, after = [], []
    for axis, size in enumerate(sizes):
        extent = geometry.dilation[axis] * (kernel[axis] - 1) + 1
        total = geometry.stride[axis] * (size - 1) + extra[axis] + extent - outputs[axis]
        lesser = total // 2
        before.append(lesser if geometry.padding == "same upper" else total - lesser)
        after.append(total - before[-1])
    return before, after


def _batch_norm(assembly: Assembly, call: OnnxCall) -> Operand:
    gain, bias, mean, variance = (call.constant(position) for position in range(1, 5))
    epsilon = call.attributes.get("epsilon", single(1e-5))
    return convolutions.batch_norm(assembly, call.value(0), gain, bias, mean, variance, epsilon)


def _windows(assembly: Assembly, call: OnnxCall) -> pooling.Windows:
    kernel = call.attributes["kernel_shape"]
    sizes = assembly.shape(call.value(0))[-len(kernel) :]
    return pooling.windows(sizes, kernel, _geometry(call, len(kernel)), bool(call.attributes.get("ceil_mode", 0)))


def _average(assembly: Assembly, call: OnnxCall) -> Operand:
    padded, axes = bool(call.attributes.get("count_include_pad", 0)), len(call.attributes["kernel_shape"])
    return pooling.average(assembly, call.value(0), axes, _windows(assembly, call), padded)


def _largest(assembly: Assembly, call: OnnxCall) -> Operand:
    axes = len(call.attributes["kernel_shape"])
    return pooling.largest(assembly, call.value(0), axes, _windows(assembly, call))


def _whole(assembly: Assembly, call: OnnxCall) -> tuple[int, pooling.Windows]:
    """The axes of an image after its channels, and one window on them."""
    axes = len(assembly.full_shape(call.value(0))) - 2
    if axes < 1:
        raise UnsupportedError(f"on a value of shape {assembly.full_shape(call.value(0))}, which is no image")
    return axes, pooling.adaptive(assembly.shape(call.value(0))[-axes:], [1] * axes)


def _average_of_all(assembly: Assembly, call: OnnxCall) -> Operand:
    axes, windows = _whole(assembly, call)
    return pooling.average(assembly, call.value(0), axes, windows, padded=False)


def _largest_of_all(assembly: Assembly, call: OnnxCall) -> Operand:
    return pooling.largest(assembly, call.value(0), *_whole(assembly, call))


_KERNEL = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_POOLING = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")

RULES: dict[str, OnnxRule] = {
    "AveragePool": OnnxRule(_average, (*_POOLING, "count_include_pad")),
    "BatchNormalization": OnnxRule(_batch_norm, ("epsilon", "momentum"), {"training_mode": 0, "spatial": 1}),
    "Conv": OnnxRule(_convolution, _KERNEL),
    "ConvTranspose": OnnxRule(_transposed_convolution, (*_KERNEL, "output_padding", "output_shape")),
    "GlobalAveragePool": OnnxRule(_average_of_all),
    "GlobalMaxPool": OnnxRule(_largest_of_all),
    "MaxPool": OnnxRule(_largest, _POOLING, {"storage_order": 0}),
}
