"""Convolutions, pooling and batch normalisation, by the names of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.local import Axis
from relucert.inputs.loading.lowering import convolutions, pooling
from relucert.inputs.loading.lowering.convolutions import image_shape
from relucert.inputs.loading.onnx_rules.call import OnnxCall, OnnxRule, single
from relucert.inputs.loading.operands import Operand

_SAME = ("SAME_UPPER", "SAME_LOWER")


def _axes(call: OnnxCall, count: int) -> list[Axis]:
    """How a kernel moves along each axis; without the zeros that `auto_pad` asks for."""
    zeros, ones = [0] * count, [1] * count
    pads = call.attributes.get("pads", zeros * 2) if call.text("auto_pad", "NOTSET") == "NOTSET" else zeros * 2
    columns = call.attributes.get("strides", ones), pads[:count], pads[count:], call.attributes.get("dilations", ones)
    if any(len(column) != count for column in columns):
        raise UnsupportedError(f"strides, pads or dilations of more or fewer than {count} axes")
    return [Axis(*entries) for entries in zip(*columns, strict=True)]


def _padded(call: OnnxCall, axis: Axis, total: int) -> Axis:
    """The axis with this much padding; of an odd number, more is after it with SAME_UPPER, otherwise before it."""
    before = total // 2 if call.text("auto_pad", "NOTSET") == "SAME_UPPER" else total - total // 2
    return replace(axis, before=before, after=total - before)


def _padded_axes(assembly: Assembly, call: OnnxCall, kernel: Sequence[int]) -> list[Axis]:
    """How a kernel moves along each axis."""
    axes = _axes(call, len(kernel))
    if call.text("auto_pad", "NOTSET") not in _SAME:
        return axes
    sizes = image_shape(assembly, call.value(0), len(kernel))[2:]
    return [
        _padded(call, axis, max(0, (size - 1) // axis.stride * axis.stride + axis.extent(taps) - size))
        for axis, size, taps in zip(axes, sizes, kernel, strict=True)
    ]


def _convolution(assembly: Assembly, call: OnnxCall) -> Operand:
    weight, bias, groups = call.constant(1), call.optional_constant(2), call.attributes.get("group", 1)
    axes = _padded_axes(assembly, call, weight.shape[2:])
    return convolutions.convolution(assembly, call.value(0), weight, bias, axes, groups)


def _transposed_convolution(assembly: Assembly, call: OnnxCall) -> Operand:
    weight, bias, groups = call.constant(1), call.optional_constant(2), call.attributes.get("group", 1)
    kernel = weight.shape[2:]
    axes, extra = _axes(call, len(kernel)), call.attributes.get("output_padding", [0] * len(kernel))
    sizes = image_shape(assembly, call.value(0), len(kernel))[2:]
    outputs = call.attributes.get("output_shape", [])[-len(kernel) :]
    if len(extra) != len(kernel) or len(outputs) not in (0, len(kernel)):
        raise UnsupportedError(f"output_padding={extra}, output_shape={outputs} for a kernel of {len(kernel)} axes")
    if not outputs and call.text("auto_pad", "NOTSET") in _SAME:
        outputs = [size * axis.stride for size, axis in zip(sizes, axes, strict=True)]
    if outputs:
        axes = [
            _padded(call, axis, axis.stride * (size - 1) + more + axis.extent(taps) - output)
            for axis, size, more, taps, output in zip(axes, sizes, extra, kernel, outputs, strict=True)
        ]
    axes = [replace(axis, after=axis.after - more) for axis, more in zip(axes, extra, strict=True)]
    return convolutions.transposed_convolution(assembly, call.value(0), weight, bias, axes, groups)


def _batch_norm(assembly: Assembly, call: OnnxCall) -> Operand:
    gain, bias, mean, variance = (call.constant(position) for position in range(1, 5))
    epsilon = call.attributes.get("epsilon", single(1e-5))
    return convolutions.batch_norm(assembly, call.value(0), gain, bias, mean, variance, epsilon)


def _windows(assembly: Assembly, call: OnnxCall) -> list[pooling.Window]:
    kernel = call.attributes["kernel_shape"]
    return pooling.windows(_padded_axes(assembly, call, kernel), kernel, bool(call.attributes.get("ceil_mode", 0)))


def _average(assembly: Assembly, call: OnnxCall) -> Operand:
    padded = bool(call.attributes.get("count_include_pad", 0))
    return pooling.average(assembly, call.value(0), _windows(assembly, call), padded)


def _largest(assembly: Assembly, call: OnnxCall) -> Operand:
    return pooling.largest(assembly, call.value(0), _windows(assembly, call))


def _whole(assembly: Assembly, call: OnnxCall) -> list[pooling.Window]:
    """One window on the axes of an image after its channels."""
    full = assembly.full_shape(call.value(0))
    if len(full) < 3:
        raise UnsupportedError(f"on a value of shape {full}, which is no image")
    return pooling.adaptive(full[2:], [1] * (len(full) - 2))


def _average_of_all(assembly: Assembly, call: OnnxCall) -> Operand:
    return pooling.average(assembly, call.value(0), _whole(assembly, call), padded=False)


def _largest_of_all(assembly: Assembly, call: OnnxCall) -> Operand:
    return pooling.largest(assembly, call.value(0), _whole(assembly, call))


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
