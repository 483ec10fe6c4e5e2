"""What each ATen operator of an exported torch program becomes."""

from relucert.loading.torch_rules import activations, arithmetic, images, moves
from relucert.loading.torch_rules.call import Call, Reference, Rule

__all__ = ["MOVES", "RULES", "Call", "Reference", "Rule"]

RULES: dict[str, Rule] = {**activations.RULES, **arithmetic.RULES, **images.RULES, **moves.RULES}
"""Operators on values that depend on the input."""

MOVES = frozenset({
    "alias", "clone", "contiguous", "detach", "full", "lift_fresh_copy", "ones", "scalar_tensor", "t", "zeros",
    *moves.RULES,
})  # fmt: skip
"""Operators that may create or rearrange constants: none of them rounds."""
