"""What each ONNX operator becomes (operator sets 7 and later)."""

from relucert.loading.onnx_rules import activations, arithmetic, images, moves
from relucert.loading.onnx_rules.call import PRECISIONS, Call, Rule

__all__ = ["MOVES", "PRECISIONS", "RULES", "Call", "Rule"]

RULES: dict[str, Rule] = {**activations.RULES, **arithmetic.RULES, **images.RULES, **moves.RULES}
"""Operators on values that depend on the input."""

MOVES = frozenset({"Constant", "ConstantOfShape", "Identity", "Shape", *moves.RULES}) - {"Resize", "Upsample"}
"""Operators that may create or rearrange constants: none of them rounds."""
