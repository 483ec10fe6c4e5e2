"""Layers that only move numbers, by the names of ATen: each runs itself at a tensor of positions."""

from __future__ import annotations

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering.moves import move
from relucert.inputs.loading.operands import Operand
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule


def _reshape(assembly: Assembly, call: TorchCall) -> Operand:
    return assembly.reshape(call.operand("self"), call.shape)


def _move(assembly: Assembly, call: TorchCall) -> Operand:
    source = next(iter(call.arguments))  # `self` or `input`

    def run(tensors: list[Tensor]) -> Tensor:
        moved: Tensor = call.run({source: tensors[0]})
        return moved

    return move(assembly, run, [call.operand(source)])


def _join(assembly: Assembly, call: TorchCall) -> Operand:
    def run(tensors: list[Tensor]) -> Tensor:
        joined: Tensor = call.run({"tensors": tensors})
        return joined

    return move(assembly, run, call.operands("tensors"))


def _pad(assembly: Assembly, call: TorchCall) -> Operand:
    fill = call.arguments["value"] or 0

    def run(tensors: list[Tensor]) -> Tensor:
        plain = {"value": 0} if fill else {}
        padded: Tensor = call.run({"self": tensors[0], **plain})
        return padded

    return move(assembly, run, [call.operand("self")], float(fill))


def _pick(assembly: Assembly, call: TorchCall) -> Operand:
    """Picks coordinates by an index, whose tensors must be constants."""
    indices = call.arguments["indices"] if "indices" in call.arguments else [call.arguments["index"]]
    if any(entry is not None and not isinstance(entry.operand, Tensor) for entry in indices):
        raise UnsupportedError("a computed index")
    return _move(assembly, call)


RULES: dict[str, TorchRule] = {
    **{name: TorchRule(_reshape) for name in ("view", "_unsafe_view", "reshape")},
    **{name: TorchRule(_reshape) for name in ("flatten.using_ints", "unflatten.int")},
    **{name: TorchRule(_reshape) for name in ("squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze")},
    **{
        name: TorchRule(_move)
        for name in ("permute", "transpose.int", "slice.Tensor", "select.int", "flip", "roll", "rot90")
    },
    **{name: TorchRule(_move) for name in ("expand", "repeat", "tile", "repeat_interleave.self_int")},
    **{name: TorchRule(_move) for name in ("upsample_nearest1d.vec", "upsample_nearest2d.vec")},
    **{name: TorchRule(_move) for name in ("_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec")},
    **{name: TorchRule(_move) for name in ("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col")},
    **{name: TorchRule(_move, several=True) for name in ("split.Tensor", "split_with_sizes", "unbind.int")},
    **{name: TorchRule(_pick) for name in ("index.Tensor", "index_select", "gather")},
    **{name: TorchRule(_join) for name in ("cat", "stack", "hstack", "vstack", "dstack")},
    **{name: TorchRule(_pad) for name in ("pad", "constant_pad_nd")},
}
