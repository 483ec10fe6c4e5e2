"""The table of attacks: which methods there are, and for which norms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from relucert.arithmetic.norm import Norm
from relucert.attacks.minimum_norm import decoupled_direction, fast_minimum_norm, scattered_minimum_norm
from relucert.attacks.objective import AttackObjective
from relucert.attacks.penalised import carlini_wagner_l2, carlini_wagner_linf, elastic_net
from relucert.attacks.radius_search import projected_gradient
from relucert.common import names
from relucert.common.names import AttackName
from relucert.errors import InputError

Attack = Callable[
    [AttackObjective, int, list[torch.Generator]], None
]  # with a number of steps, and a generator per image

L1, L2, LINF, ANY = Norm(1.0), Norm(2.0), Norm(math.inf), None
ATTACKS: dict[AttackName, dict[Norm | None, tuple[Attack, ...]]] = {
    "best": {
        L1: (fast_minimum_norm, elastic_net, scattered_minimum_norm),
        L2: (fast_minimum_norm, decoupled_direction, scattered_minimum_norm),
        ANY: (fast_minimum_norm, projected_gradient, scattered_minimum_norm),
    },
    "fmn": {ANY: (fast_minimum_norm,)},
    "pgd": {ANY: (projected_gradient,)},
    "cw": {L2: (carlini_wagner_l2,), LINF: (carlini_wagner_linf,)},
    "ead": {L1: (elastic_net,)},
    "ddn": {L2: (decoupled_direction,)},
}


def find_attacks(method: str, norm: Norm) -> tuple[Attack, ...]:
    """The attacks that a method runs, one after the other."""
    table = ATTACKS[names.ATTACKS.find(method)]
    if norm not in table and ANY not in table:
        norms = " or ".join(str(listed) for listed in table)
        methods = ", ".join(name for name, by_norm in ATTACKS.items() if norm in by_norm or ANY in by_norm)
        raise InputError(f"the method {method!r} is for p = {norms}; with p = {norm} use one of {methods}")
    return table[norm if norm in table else ANY]
