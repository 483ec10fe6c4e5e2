"""The translation of every ONNX operator (operator sets 7 and later)."""

from relucert.inputs.loading.onnx_rules import activations, arithmetic, images, moves
from relucert.inputs.loading.onnx_rules.call import PRECISIONS, OnnxCall, OnnxRule

__all__ = ["EXACT", "PRECISIONS", "RULES", "OnnxCall", "OnnxRule"]

RULES: dict[str, OnnxRule] = {**activations.RULES, **arithmetic.RULES, **images.RULES, **moves.RULES}
"""Operators on values that depend on the input."""

EXACT = frozenset({
    "Abs", "Clip", "Constant", "ConstantOfShape", "EyeLike", "GatherElements", "GatherND", "Identity", "Max", "Min",
    "Neg", "ReduceMax", "ReduceMin", "Relu", "ScatterElements", "ScatterND", "Shape", "Trilu", *moves.RULES,
}) - {"Resize", "Upsample"}  # fmt: skip
"""Operators that may create, select or rearrange constants: none of them rounds."""
