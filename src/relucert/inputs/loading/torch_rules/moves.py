"""Layers that only move numbers, by the names of ATen: each runs itself at a tensor of positions."""

from __future__ import annotations

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly, Operand
from relucert.inputs.loading.lowering.moves import move
from relucert.inputs.loading.torch_rules.call import Call, Rule


def _reshape(assembly: Assembly, call: Call) -> Operand:
    return assembly.reshape(call.operand("self"), call.shape)


def _move(assembly: Assembly, call: Call) -> Operand:
    source = next(iter(call.arguments))  # `self` or `input`

    def run(tensors: list[Tensor]) -> Tensor:
        moved: Tensor = call.run({source: tensors[0]})
        return moved

    return move(assembly, run, [call.operand(source)])


def _join(assembly: Assembly, call: Call) -> Operand:
    def run(tensors: list[Tensor]) -> Tensor:
        joined: Tensor = call.run({"tensors": tensors})
        return joined

    return move(assembly, run, call.operands("tensors"))


def _pad(assembly: Assembly, call: Call) -> Operand:
    fill = call.arguments["value"] or 0

    def run(tensors: list[Tensor]) -> Tensor:
        plain = {"value": 0} if fill else {}
        padded: Tensor = call.run({"self": tensors[0], **plain})
        return padded

    return move(assembly, run, [call.operand("self")], float(fill))


def _pick(assembly: Assembly, call: Call) -> Operand:
    """Picks coordinates by an index, whose tensors must be constants."""
    given = call.arguments["indices"] if "indices" in call.arguments else [call.arguments["index"]]
    if any(entry is not None and not isinstance(entry.operand, Tensor) for entry in given):
        raise UnsupportedError("a computed index")
    return _move(assembly, call)


RULES: dict[str, Rule] = {
    **{name: Rule(_reshape) for name in ("view", "_unsafe_view", "reshape", "flatten.using_ints", "unflatten.int")},
    **{name: Rule(_reshape) for name in ("squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze")},
    **{
        name: Rule(_move)
        for name in ("permute", "transpose.int", "slice.Tensor", "select.int", "flip", "roll", "rot90")
    },
    **{name: Rule(_move) for name in ("expand", "repeat", "tile", "repeat_interleave.self_int")},
    **{name: Rule(_move) for name in ("upsample_nearest1d.vec", "upsample_nearest2d.vec")},
    **{name: Rule(_move) for name in ("_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec")},
    **{name: Rule(_move) for name in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col")},
    **{name: Rule(_move, several=True) for name in ("split.Tensor", "split_with_sizes", "unbind.int")},
    **{name: Rule(_pick) for name in ("index.Tensor", "index_select", "gather")},
    **{name: Rule(_join) for name in ("cat", "stack", "hstack", "vstack", "dstack")},
    **{name: Rule(_pad) for name in ("pad", "constant_pad_nd")},
}
