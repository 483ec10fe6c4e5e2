"""Convolutions, pooling and batch normalisation, by the names of ATen."""

from __future__ import annotations

from collections.abc import Callable

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import convolutions, pooling
from relucert.inputs.loading.lowering.convolutions import Geometry, repeated
from relucert.inputs.loading.operands import Operand
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule

Translate = Callable[[Assembly, TorchCall], Operand]


def _convolution(assembly: Assembly, call: TorchCall) -> Operand:
    weight = call.constant("weight")
    axes = weight.ndim - 2
    dilation = repeated(call.sizes("dilation"), axes)
    padding = call.arguments["padding"]
    if padding == "same":  # an odd zero comes after; the stride is 1
        totals = [step * (taps - 1) for step, taps in zip(dilation, weight.shape[2:], strict=True)]
        ends = [total // 2 for total in totals], [total - total // 2 for total in totals]
    else:
        zeros = [0] * axes if padding == "valid" else call.sizes("padding")
        ends = zeros, zeros
    geometry = Geometry.of(axes, call.sizes("stride"), ends, dilation)
    bias = call.optional("bias")
    return convolutions.convolution(assembly, call.operand("input"), weight, bias, geometry, call.arguments["groups"])


def _transposed_convolution(assembly: Assembly, call: TorchCall) -> Operand:
    weight = call.constant("weight")
    zeros = call.sizes("padding")
    geometry = Geometry.of(weight.ndim - 2, call.sizes("stride"), (zeros, zeros), call.sizes("dilation"))
    groups, extra = call.arguments["groups"], call.sizes("output_padding")
    bias = call.optional("bias")
    return convolutions.transposed_convolution(assembly, call.operand("input"), weight, bias, geometry, groups, extra)


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


def _windows(assembly: Assembly, call: TorchCall, axes: int) -> pooling.Windows:
    kernel = repeated(call.sizes("kernel_size"), axes)
    zeros = call.sizes("padding")
    dilation = call.sizes("dilation") if "dilation" in call.arguments else [1]
    geometry = Geometry.of(axes, call.sizes("stride") or kernel, (zeros, zeros), dilation)
    sizes = assembly.shape(call.operand("self"))[-axes:]
    return pooling.windows(sizes, kernel, geometry, bool(call.arguments["ceil_mode"]))


def _average(axes: int) -> Translate:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        windows = _windows(assembly, call, axes)
        padded, divisor = bool(call.arguments["count_include_pad"]), call.arguments.get("divisor_override")
        return pooling.average(assembly, call.operand("self"), axes, windows, padded, divisor)

    return translate


def _largest(axes: int, windows: Callable[[Assembly, TorchCall, int], pooling.Windows] = _windows) -> Translate:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        return pooling.largest(assembly, call.operand("self"), axes, windows(assembly, call, axes))

    return translate


def _adaptive_average(axes: int) -> Translate:
    def translate(assembly: Assembly, call: TorchCall) -> Operand:
        windows = _adaptive(assembly, call, axes)
        return pooling.average(assembly, call.operand("self"), axes, windows, padded=False)

    return translate


def _adaptive(assembly: Assembly, call: TorchCall, axes: int) -> pooling.Windows:
    return pooling.adaptive(assembly.shape(call.operand("self"))[-axes:], call.sizes("output_size"))


_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_POOLING = ("self", "kernel_size", "stride", "padding", "ceil_mode")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d.input")

_NORM = ("input", "weight", "bias", "running_mean", "running_var", "momentum", "eps")

RULES: dict[str, TorchRule] = {
    "convolution": TorchRule(_any_convolution, (*_CONVOLUTION, "transposed", "output_padding")),
    **{f"conv{axes}d": TorchRule(_convolution, _CONVOLUTION) for axes in (1, 2)},
    **{f"conv{axes}d.padding": TorchRule(_convolution, _CONVOLUTION) for axes in (1, 2)},
    **{name: TorchRule(_transposed_convolution, (*_CONVOLUTION, "output_padding")) for name in _TRANSPOSED},
    "native_batch_norm": TorchRule(_any_batch_norm, (*_NORM, "training")),
    "_native_batch_norm_legit_no_training": TorchRule(_batch_norm, _NORM),
    "_native_batch_norm_legit.no_stats": TorchRule(_batch_norm_of_the_batch),
    **{f"max_pool{axes}d": TorchRule(_largest(axes), (*_POOLING, "dilation")) for axes in (1, 2)},
    **{f"max_pool{axes}d_with_indices": TorchRule(_largest(axes), (*_POOLING, "dilation")) for axes in (1, 2)},
    "avg_pool1d": TorchRule(_average(1), (*_POOLING, "count_include_pad")),
    "avg_pool2d": TorchRule(_average(2), (*_POOLING, "count_include_pad", "divisor_override")),
    **{f"adaptive_avg_pool{axes}d": TorchRule(_adaptive_average(axes), ("self", "output_size")) for axes in (1, 2)},
    **{f"adaptive_max_pool{axes}d": TorchRule(_largest(axes, _adaptive), ("self", "output_size")) for axes in (1, 2)},
}
