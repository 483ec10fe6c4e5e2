"""Layers that only move numbers, by the names of ATen: each runs itself at a tensor of positions."""

from __future__ import annotations

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering.moves import choose, move
from relucert.inputs.loading.operands import Operand
from relucert.inputs.loading.torch_rules.call import CONSTANT, VALUE, TorchCall, TorchRule, rule


def _reshape(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.reshape(call.operand("self"), call.shape)


def _move(assembly: Assembly, call: TorchCall) -> Operand:
    source = next(iter(call.arguments))  # `self` or `input`
    return move(assembly, lambda tensors: call.run({source: tensors[0]}), [call.operand(source)])


def _join(assembly: Assembly, call: TorchCall) -> Operand:
    return move(assembly, lambda tensors: call.run({"tensors": tensors}), call.operands("tensors"))


def _pad(assembly: Assembly, call: TorchCall) -> Operand:
    fill = call.arguments["value"] or 0
    plain = {"value": 0} if fill else {}
    return move(assembly, lambda tensors: call.run({"self": tensors[0], **plain}), [call.operand("self")], float(fill))


def _pick(assembly: Assembly, call: TorchCall) -> Operand:
    """Picks coordinates by an index, whose tensors must be constants."""
    indices = call.arguments["indices"] if "indices" in call.arguments else [call.arguments["index"]]
    if any(entry is not None and not isinstance(entry.operand, Tensor) for entry in indices):
        raise UnsupportedError("a computed index")
    return _move(assembly, call)


_WHERE = {"condition": CONSTANT, "self": VALUE, "other": VALUE}
_FILL = {"mask": CONSTANT, "value": VALUE, "self": VALUE}  # the value where the mask holds

RULES: dict[str, TorchRule] = {
    **dict.fromkeys((
        "view", "_unsafe_view", "reshape", "flatten.using_ints", "unflatten.int", "squeeze", "squeeze.dim",
        "squeeze.dims", "unsqueeze",
    ), TorchRule(_reshape)),
    **dict.fromkeys((
        "permute", "transpose.int", "slice.Tensor", "select.int", "flip", "roll", "rot90", "expand", "repeat", "tile",
        "repeat_interleave.self_int", "upsample_nearest1d.vec", "upsample_nearest2d.vec",
        "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "pixel_shuffle", "pixel_unshuffle",
        "channel_shuffle", "im2col",
    ), TorchRule(_move)),
    **dict.fromkeys(("split.Tensor", "split_with_sizes", "unbind.int"), TorchRule(_move, several=True)),
    **dict.fromkeys(("index.Tensor", "index_select", "gather"), TorchRule(_pick)),
    **dict.fromkeys(("cat", "stack", "hstack", "vstack", "dstack"), TorchRule(_join)),
    **dict.fromkeys(("pad", "constant_pad_nd"), TorchRule(_pad)),
    **dict.fromkeys(("where.self", "where.ScalarOther", "where.ScalarSelf"), rule(choose, **_WHERE)),
    **dict.fromkeys(("masked_fill.Scalar", "masked_fill.Tensor"), rule(choose, **_FILL)),
}  # fmt: skip
