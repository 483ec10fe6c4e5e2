"""Hints what to write in place of an operator that is not supported."""

from __future__ import annotations

from collections.abc import Iterable

_DIVIDES = "divides by what it computes: a batch normalisation in evaluation mode is affine"
_RANDOM = "random: pass training=self.training, and call eval() before an export"
_CHOOSES = "not a score of each class: return the scores themselves"
_SOLID = "of three axes; images have one or two"
_PRODUCTS = "products of what is computed: write that with matmul"
_LINEAR = "not among the resizes that only copy: use the mode 'nearest'"
_BRANCHES = "control flow: export the model without it, for inputs of one shape"

HINTS: dict[str, str] = {
    "instancenorm": _DIVIDES,
    **dict.fromkeys(("dropout", "nativedropout", "bernoulli", "rand", "randn", "randlike", "randnlike"), _RANDOM),
    **dict.fromkeys(("topk", "sort", "argsort", "argmin"), _CHOOSES),
    **dict.fromkeys(("conv3d", "convtranspose3d", "maxpool3d", "maxpool3dwithindices", "avgpool3d"), _SOLID),
    **dict.fromkeys(("adaptiveavgpool3d", "adaptivemaxpool3d"), _SOLID),
    **dict.fromkeys(("baddbmm", "attention", "einsum"), _PRODUCTS),
    **dict.fromkeys(("upsamplelinear1d", "upsamplebilinear2d", "upsamplebicubic2d"), _LINEAR),
    **dict.fromkeys(("if", "loop", "scan"), _BRANCHES),
    "to": "convert the whole model to one precision and leave the cast out",
    "cast": "convert the whole model to one precision and leave the cast out",
}
"""By the operator's name in lower case, without underscores; both importers look here."""


def hints(refused: Iterable[str]) -> list[str]:
    """One hint for each group of refused operators that has one; an entry may go on after the operator's name."""
    names: dict[str, list[str]] = {}
    for entry in refused:
        name = entry.split(" ")[0]
        key = name.lower().replace("_", "")
        hint = HINTS.get(key, HINTS.get(key.split(".")[0]))
        if hint is not None and name not in names.setdefault(hint, []):
            names[hint].append(name)
    return [f"{', '.join(group)}: {hint}" for hint, group in names.items()]
