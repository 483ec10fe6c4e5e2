"""The table of attacks: which methods there are, and for which norms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from relucert.arithmetic.norm import Norm
from relucert.attacks.minimum_norm import decoupled_direction, fast_minimum_norm, scattered_minimum_norm
from relucert.attacks.penalised import carlini_wagner_inf, carlini_wagner_two, elastic_net
from relucert.attacks.pursuit import Pursuit
from relucert.attacks.radius_search import projected_gradient
from relucert.common import names
from relucert.common.names import AttackName
from relucert.errors import InputError

Attack = Callable[[Pursuit, int, list[torch.Generator]], None]  # with a number of steps, and a generator per image

ONE, TWO, INFINITE, ANY = Norm(1.0), Norm(2.0), Norm(math.inf), None
ATTACKS: dict[AttackName, dict[Norm | None, tuple[Attack, ...]]] = {
    "best": {
        ONE: (fast_minimum_norm, elastic_net, scattered_minimum_norm),
        TWO: (fast_minimum_norm, decoupled_direction, scattered_minimum_norm),
        ANY: (fast_minimum_norm, projected_gradient, scattered_minimum_norm),
    },
    "fmn": {ANY: (fast_minimum_norm,)},
    "pgd": {ANY: (projected_gradient,)},
    "cw": {TWO: (carlini_wagner_two,), INFINITE: (carlini_wagner_inf,)},
    "ead": {ONE: (elastic_net,)},
    "ddn": {TWO: (decoupled_direction,)},
}


def find_attacks(method: str, norm: Norm) -> tuple[Attack, ...]:
    """The attacks that a method runs, one after the other."""
    table = ATTACKS[names.ATTACKS.find(method)]
    if norm not in table and ANY not in table:
        known = " or ".join(str(known_norm) for known_norm in table)
        others = ", ".join(name for name, norms in ATTACKS.items() if norm in norms or ANY in norms)
        raise InputError(f"the method {method!r} is for p = {known}; with p = {norm} use one of {others}")
    return table[norm if norm in table else ANY]
