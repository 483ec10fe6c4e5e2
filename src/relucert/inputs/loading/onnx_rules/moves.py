"""Layers that only move numbers, by the names of ONNX: most run themselves at a tensor of positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import ceil, floor, prod

import numpy as np
import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import resizing
from relucert.inputs.loading.lowering.moves import choose, move
from relucert.inputs.loading.onnx_rules.call import OnnxCall, OnnxRule
from relucert.inputs.loading.operands import Operand


def _move(assembly: Assembly, call: OnnxCall) -> Operand:
    for position in range(1, len(call.inputs)):
        call.optional_constant(position)
    return move(assembly, lambda tensors: call.run({0: tensors[0]}), [call.value(0)])


def _join(assembly: Assembly, call: OnnxCall) -> Operand:
    return move(assembly, lambda tensors: call.run(dict(enumerate(tensors))), call.operands())


_PADS = ("constant", "edge", "reflect", "wrap")  # NumPy has the same names


def _pad(assembly: Assembly, call: OnnxCall) -> Operand:
    """The margins were an attribute before operator set 11 and are an input since."""
    rank = len(assembly.full_shape(call.value(0)))
    margins, mode = call.whole(1, "pads"), call.text("mode", "constant")
    constant = call.optional_constant(2)
    fill = call.attributes.get("value", 0.0) if constant is None else constant.item()
    axes = range(rank) if call.optional(3) is None else [axis % rank for axis in call.constant(3).tolist()]
    if margins is None or mode not in _PADS:
        raise UnsupportedError(f"mode={mode}")
    ends = [(0, 0)] * rank
    for number, axis in enumerate(axes):
        ends[axis] = margins[number], margins[number + len(margins) // 2]

    def run(tensors: list[Tensor]) -> Tensor:
        added = [(max(0, first), max(0, last)) for first, last in ends]
        padded = np.pad(tensors[0].numpy(), added, mode)  # type: ignore[call-overload]
        kept = tuple(slice(max(0, -first), min(0, last) or None) for first, last in ends)  # negative: cut off
        return torch.from_numpy(padded[kept].copy())

    return move(assembly, run, [call.value(0)], float(fill))


def _resize(assembly: Assembly, call: OnnxCall) -> Operand:
    """To the nearest coordinates, or between several; the factors are the second input of Upsample, the third of Resize
    since set 11."""
    before, mode = assembly.full_shape(call.value(0)), call.text("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise UnsupportedError(f"mode={mode}")
    sizes = call.optional_constant(3)
    stored = call.attributes.get("scales")
    factors = call.optional_constant(2 if len(call.inputs) > 2 else 1) if stored is None else torch.tensor(stored)
    axes = [axis % len(before) for axis in call.attributes.get("axes", range(len(before)))]
    if sizes is not None:
        after = [int(size) for size in _with(before, axes, sizes.tolist())]
        scales = [Fraction(new, old) for new, old in zip(after, before, strict=True)]
    elif factors is not None:
        scales = [Fraction(factor) for factor in _with([1.0] * len(before), axes, factors.tolist())]
        after = [floor(scale * old) for scale, old in zip(scales, before, strict=True)]
    else:
        raise UnsupportedError("without sizes or factors")
    if mode != "nearest":
        return _interpolate(assembly, call, scales, after)
    sources = [
        [_nearest(call, index, scale, old, new) for index in range(new)]
        for scale, old, new in zip(scales, before, after, strict=True)
    ]

    def run(tensors: list[Tensor]) -> Tensor:
        result = tensors[0]
        for axis, picked in enumerate(sources):
            result = result.index_select(axis, torch.tensor(picked, dtype=torch.long))
        return result

    return move(assembly, run, [call.value(0)])


def _interpolate(assembly: Assembly, call: OnnxCall, scales: Sequence[Fraction], after: Sequence[int]) -> Operand:
    """The linear or cubic interpolation with these factors, to this shape; both have the batch first."""
    value, before = call.value(0), assembly.full_shape(call.value(0))
    assembly.without_batch(tuple(after))
    coefficient = Fraction(call.attributes.get("cubic_coeff_a", -0.75))
    coordinates = [
        [_origin(call, index, scale, old, new) for index in range(new)]
        for scale, old, new in zip(scales, before, after, strict=True)
    ]
    cubic = call.text("mode", "nearest") == "cubic"
    weights = partial(resizing.cubic_weights, coefficient=coefficient) if cubic else resizing.linear_weights
    return resizing.interpolate(assembly, value, coordinates[len(before) - len(assembly.shape(value)) :], weights)


def _with(defaults: Sequence[float], axes: Sequence[int], replacements: Sequence[float]) -> list[float]:
    """The defaults, with the replacements at these axes."""
    numbers = list(defaults)
    for axis, number in zip(axes, replacements, strict=True):
        numbers[axis] = number
    return numbers


_ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "floor": floor,
    "ceil": ceil,
    "round_prefer_floor": lambda coordinate: ceil(coordinate - Fraction(1, 2)),
    "round_prefer_ceil": lambda coordinate: floor(coordinate + Fraction(1, 2)),
}


def _nearest(call: OnnxCall, index: int, scale: Fraction, old: int, new: int) -> int:
    """The coordinate that is copied to this index of an axis; operator sets below 11 know one way only."""
    rounding = call.text("nearest_mode", "floor" if _is_plain(call) else "round_prefer_floor")
    if rounding not in _ROUNDINGS:
        raise UnsupportedError(f"nearest_mode={rounding}")
    return min(max(_ROUNDINGS[rounding](_origin(call, index, scale, old, new)), 0), old - 1)


def _is_plain(call: OnnxCall) -> bool:
    """Whether a resize is one of operator sets below 11."""
    return "coordinate_transformation_mode" not in call.attributes and len(call.inputs) < 3


def _origin(call: OnnxCall, index: int, scale: Fraction, old: int, new: int) -> Fraction:
    """The coordinate of the original axis that this index of the resized one has."""
    transform = "asymmetric" if _is_plain(call) else call.text("coordinate_transformation_mode", "half_pixel")
    half = Fraction(1, 2)
    origins = {
        "half_pixel": (index + half) / scale - half,
        "half_pixel_symmetric": Fraction(old, 2) * (1 - new / (scale * old)) + (index + half) / scale - half,
        "asymmetric": index / scale,
        "align_corners": Fraction(index * (old - 1), max(1, new - 1)),
        "pytorch_half_pixel": (index + half) / scale - half if new > 1 else Fraction(0),
    }
    if transform not in origins:
        raise UnsupportedError(f"coordinate_transformation_mode={transform}")
    return origins[transform]


def _reshape(assembly: Assembly, call: OnnxCall) -> Operand:
    before = assembly.full_shape(call.value(0))
    wanted = call.constant(1).flatten().tolist()
    if not call.attributes.get("allowzero", 0):
        kept = [*before, *([0] * len(wanted))]
        wanted = [kept[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    stated = prod(size for size in wanted if size != -1)
    after = tuple(prod(before) // stated if size == -1 and stated else size for size in wanted)
    if prod(after) != prod(before):
        raise UnsupportedError(f"{before} to {tuple(wanted)} does not keep the count of numbers")
    return assembly.reshape(call.value(0), after)


RULES: dict[str, OnnxRule] = {
    "Concat": OnnxRule(_join, ("axis",)),
    "DepthToSpace": OnnxRule(_move, ("blocksize", "mode")),
    "Expand": OnnxRule(_move),
    "Flatten": OnnxRule(_move, ("axis",)),
    "Gather": OnnxRule(_move, ("axis",)),
    "Pad": OnnxRule(_pad, ("mode", "pads", "value")),
    "Reshape": OnnxRule(_reshape, ("allowzero",)),
    "Resize": OnnxRule(
        _resize,
        ("axes", "coordinate_transformation_mode", "mode", "nearest_mode", "cubic_coeff_a", "extrapolation_value"),
        {"antialias": 0, "exclude_outside": 0, "keep_aspect_ratio_policy": b"stretch"},
    ),
    "Slice": OnnxRule(_move, ("axes", "ends", "starts")),
    "SpaceToDepth": OnnxRule(_move, ("blocksize",)),
    "Split": OnnxRule(_move, ("axis", "num_outputs", "split"), several=True),
    "Squeeze": OnnxRule(_move, ("axes",)),
    "Tile": OnnxRule(_move),
    "Transpose": OnnxRule(_move, ("perm",)),
    "Unsqueeze": OnnxRule(_move, ("axes",)),
    "Where": OnnxRule(lambda assembly, call: choose(assembly, call.constant(0), call.operand(1), call.operand(2))),
    "Upsample": OnnxRule(_resize, ("mode", "scales")),
}
