"""The translation of every ATen operator of an exported torch program."""

from relucert.inputs.loading.torch_rules import activations, arithmetic, images, moves, recurrent
from relucert.inputs.loading.torch_rules.call import Reference, TorchCall, TorchRule

__all__ = ["CASTS", "EXACT", "RULES", "Reference", "TorchCall", "TorchRule"]

RULES: dict[str, TorchRule] = {
    **activations.RULES, **arithmetic.RULES, **images.RULES, **moves.RULES, **recurrent.RULES,
}  # fmt: skip
"""Operators on values that depend on the input."""

EXACT = frozenset({
    "abs", "alias", "amax", "amin", "clamp", "clamp_max", "clamp_min", "clone", "contiguous", "detach", "eye", "full",
    "lift_fresh_copy", "maximum", "minimum", "neg", "ones", "relu", "scalar_tensor", "t", "tril", "triu", "zeros",
    *moves.RULES,
})  # fmt: skip
"""Operators that may create, select or rearrange constants: none of them rounds."""

CASTS = frozenset({"_to_copy", "to.dtype", "type_as"})
"""Operators that change the type of constants."""
