"""Convolutions, pooling and batch normalisation, by the names of ATen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.local import Axis
from relucert.inputs.loading.lowering import convolutions, pooling, products, resizing
from relucert.inputs.loading.operands import Operand
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule


def _axes(call: TorchCall, stride: Sequence[int], before: Sequence[int], after: Sequence[int]) -> list[Axis]:
    """How a kernel moves along each axis; the dilation may be one number for all axes."""
    dilation = _repeated(call, "dilation", len(before)) if "dilation" in call.arguments else [1] * len(before)
    return [Axis(*numbers) for numbers in zip(stride, before, after, dilation, strict=True)]


def _repeated(call: TorchCall, name: str, axes: int) -> list[int]:
    """An argument with one number per axis; a single number is repeated for all axes."""
    numbers = call.sizes(name)
    return numbers * axes if len(numbers) == 1 else numbers


def _convolution(assembly: Assembly, call: TorchCall) -> Operand:
    weight = call.constant("weight")
    count = weight.ndim - 2
    padding = call.arguments["padding"]
    if padding == "same":  # an odd zero comes after; the stride is 1
        dilation = _repeated(call, "dilation", count)
        totals = [step * (taps - 1) for step, taps in zip(dilation, weight.shape[2:], strict=True)]
        before, after = [total // 2 for total in totals], [total - total // 2 for total in totals]
    else:
        before = after = [0] * count if padding == "valid" else _repeated(call, "padding", count)
    axes = _axes(call, _repeated(call, "stride", count), before, after)
    bias = call.optional("bias")
    return convolutions.convolution(assembly, call.operand("input"), weight, bias, axes, call.arguments["groups"])


def _transposed_convolution(assembly: Assembly, call: TorchCall) -> Operand:
    weight, bias = call.constant("weight"), call.optional("bias")
    names = ("stride", "padding", "output_padding")
    stride, before, extra = (_repeated(call, name, weight.ndim - 2) for name in names)
    axes = _axes(call, stride, before, [zeros - more for zeros, more in zip(before, extra, strict=True)])
    groups = call.arguments["groups"]
    return convolutions.transposed_convolution(assembly, call.operand("input"), weight, bias, axes, groups)


def _any_convolution(assembly: Assembly, call: TorchCall) -> Operand:
    return (_transposed_convolution if call.arguments["transposed"] else _convolution)(assembly, call)


def _any_batch_norm(assembly: Assembly, call: TorchCall) -> Operand:
    return (_batch_norm_of_the_batch if call.arguments["training"] else _batch_norm)(assembly, call)


def _batch_norm(assembly: Assembly, call: TorchCall) -> Operand:
    gain, bias = call.optional("weight"), call.optional("bias")
    mean, variance = call.constant("running_mean"), call.constant("running_var")
    return convolutions.batch_norm(assembly, call.operand("input"), gain, bias, mean, variance, call.arguments["eps"])


def _batch_norm_of_the_batch(assembly: Assembly, call: TorchCall) -> Operand:
    raise UnsupportedError("with statistics of the batch; use running ones, track_running_stats=True, in eval()")


def _instance_norm(assembly: Assembly, call: TorchCall) -> Operand:
    """A normalisation of every channel of an image; with running statistics it is a batch normalisation."""
    if not call.arguments["use_input_stats"]:
        return _batch_norm(assembly, call)
    value, gain, bias = call.operand("input"), call.optional("weight"), call.optional("bias")
    return products.group_norm(assembly, value, assembly.shape(value)[0], gain, bias, call.arguments["eps"])


def _windows(call: TorchCall, axes: int) -> list[pooling.Window]:
    kernel, zeros = _repeated(call, "kernel_size", axes), _repeated(call, "padding", axes)
    along = _axes(call, _repeated(call, "stride", axes) or kernel, zeros, zeros)
    return pooling.windows(along, kernel, bool(call.arguments["ceil_mode"]))


def _average(assembly: Assembly, call: TorchCall, axes: int) -> Operand:
    padded, divisor = bool(call.arguments["count_include_pad"]), call.arguments.get("divisor_override")
    return pooling.average(assembly, call.operand("self"), _windows(call, axes), padded, divisor)


def _largest(assembly: Assembly, call: TorchCall, axes: int) -> Operand:
    return pooling.largest(assembly, call.operand("self"), _windows(call, axes))


def _adaptive(assembly: Assembly, call: TorchCall, axes: int) -> list[pooling.Window]:
    return pooling.adaptive(assembly.shape(call.operand("self"))[-axes:], call.sizes("output_size"))


def _adaptive_average(assembly: Assembly, call: TorchCall, axes: int) -> Operand:
    return pooling.average(assembly, call.operand("self"), _adaptive(assembly, call, axes), padded=False)


def _adaptive_largest(assembly: Assembly, call: TorchCall, axes: int) -> Operand:
    return pooling.largest(assembly, call.operand("self"), _adaptive(assembly, call, axes))


def _interpolate(assembly: Assembly, call: TorchCall, weights: Callable[[Fraction], resizing.Weights]) -> Operand:
    """A size that is given tells the factors; factors that are given stay, though sizes are rounded down."""
    value, after = call.operand("input"), call.shape[2:]
    before, factors = assembly.full_shape(value)[2:], call.arguments["scale_factors"]
    if call.arguments["output_size"] is not None:
        factors = None
    stated = [Fraction(new, old) for new, old in zip(after, before, strict=True)] if factors is None else factors
    coordinates = [
        resizing.coordinates(old, new, Fraction(1 if old == new else factor), bool(call.arguments["align_corners"]))
        for old, new, factor in zip(before, after, stated, strict=True)
    ]
    return resizing.interpolate(assembly, value, coordinates, weights)


_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_POOLING = ("self", "kernel_size", "stride", "padding", "ceil_mode")
_MAXIMUM = (*_POOLING, "dilation")
_ADAPTIVE = ("self", "output_size")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d.input")
_RESIZING = ("input", "output_size", "align_corners", "scale_factors")
_LINEAR = TorchRule(partial(_interpolate, weights=resizing.linear_weights), _RESIZING)
_CUBIC = TorchRule(partial(_interpolate, weights=resizing.cubic_weights), _RESIZING)
_NORM = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")

RULES: dict[str, TorchRule] = {
    "convolution": TorchRule(_any_convolution, (*_CONVOLUTION, "transposed", "output_padding")),
    **dict.fromkeys(("conv1d", "conv2d", "conv1d.padding", "conv2d.padding"), TorchRule(_convolution, _CONVOLUTION)),
    **{name: TorchRule(_transposed_convolution, (*_CONVOLUTION, "output_padding")) for name in _TRANSPOSED},
    "native_batch_norm": TorchRule(_any_batch_norm, (*_NORM, "training")),
    "_native_batch_norm_legit_no_training": TorchRule(_batch_norm, _NORM),
    "_native_batch_norm_legit.no_stats": TorchRule(_batch_norm_of_the_batch),
    "instance_norm": TorchRule(_instance_norm, (*_NORM, "use_input_stats", "cudnn_enabled")),
    **dict.fromkeys(("max_pool1d", "max_pool1d_with_indices"), TorchRule(partial(_largest, axes=1), _MAXIMUM)),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), TorchRule(partial(_largest, axes=2), _MAXIMUM)),
    **dict.fromkeys(("upsample_linear1d.vec", "upsample_bilinear2d.vec"), _LINEAR),
    "upsample_bicubic2d.vec": _CUBIC,
    "avg_pool1d": TorchRule(partial(_average, axes=1), (*_POOLING, "count_include_pad")),
    "avg_pool2d": TorchRule(partial(_average, axes=2), (*_POOLING, "count_include_pad", "divisor_override")),
    **{f"adaptive_avg_pool{axes}d": TorchRule(partial(_adaptive_average, axes=axes), _ADAPTIVE) for axes in (1, 2)},
    **{f"adaptive_max_pool{axes}d": TorchRule(partial(_adaptive_largest, axes=axes), _ADAPTIVE) for axes in (1, 2)},
}
