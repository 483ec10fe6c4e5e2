"""Concretisation of linear forms over a ball that a box cuts: the most that they can gain, for p = 1 and p = 2.

With coordinates that go down by at most `below` and up by at most `above`, a form c is split into a sum a + b: a gains
its dual norm times the radius, b gains |b_i| times the room of coordinate i. Every split is an upper bound. Those here
are the best, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relucert.arithmetic.rigor import Arithmetic

LARGEST = 4  # coefficients that are sorted first, for p = 1; where they do not suffice, four times as many
ROUNDS = 8  # of the active-set iteration for p = 2, at most: any level is sound
SQUARED_TINY = 2.0**-500  # above the root of a million squares that underflow

Walls = tuple[Tensor, Tensor]
"""How far the coordinates of positive and of negative coefficients may move, (batch, size) each, none negative: for a
form's fall the room below and above, for its rise the room above and below."""


def diamond_gains(forms: Tensor, wall_pairs: Sequence[Walls], radius: Tensor, arithmetic: Arithmetic) -> list[Tensor]:
    """For p = 1: the largest coefficients are spent first, each up to its wall.

    By duality the gain is the least of `level * radius + sum of (size - level)+ * room` over all levels >= 0.

    Args:
        forms: (batch or 1, forms, size).
        wall_pairs: The walls of each gain to compute, none beyond the radius.
        radius: (batch,).

    Returns:
        Upper bounds of the gains, (batch, forms) for each pair of walls.
    """
    forms = forms.expand(len(radius), -1, -1)
    positive = forms.clamp(min=0)
    negative = positive - forms
    gains = []
    for down, up in wall_pairs:
        level = _level(positive, negative, down, up, radius)
        spent = _beyond(positive, level) @ down[..., None] + _beyond(negative, level) @ up[..., None]
        gain = arithmetic.above(level * radius[:, None], 1) + spent.squeeze(-1)
        gains.append(arithmetic.above(gain, forms.shape[-1] + 4))
    return gains


def _beyond(sizes: Tensor, level: Tensor) -> Tensor:
    return (sizes - level[..., None]).clamp_(min=0)


def _level(positive: Tensor, negative: Tensor, down: Tensor, up: Tensor, radius: Tensor) -> Tensor:
    """The optimal dual variable, (batch, forms): the size of the coefficient on which the last of the radius is spent,
    0 where the room ends first."""
    with torch.no_grad():
        roomy = [(room > 0)[:, None].to(positive.dtype) for room in (down, up)]
        movable = torch.addcmul(positive * roomy[0], negative, roomy[1])
        return _marginal(movable, positive > 0, down, up, radius, LARGEST)


def _marginal(movable: Tensor, rising: Tensor, down: Tensor, up: Tensor, radius: Tensor, most: int) -> Tensor:
    """`_level`, by sorting the `most` largest coefficients, and more of them for the forms that do not spend the radius
    on these.

    Args:
        movable: The sizes of coefficients, 0 where a coordinate has no room: (batch, forms, size).
        rising: Whether coefficients are positive.
    """
    most = min(most, movable.shape[-1])
    sizes, order = movable.topk(most, -1)
    expanded = (room[:, None].expand(-1, movable.shape[1], -1) for room in (down, up))
    downs, ups = (room.gather(-1, order) for room in expanded)
    spent = torch.where(rising.gather(-1, order), downs, ups).cumsum(-1)
    last = (spent < radius[:, None, None]).sum(-1, keepdim=True)
    level = torch.where(last < most, sizes.gather(-1, last.clamp(max=most - 1)), 0).squeeze(-1)
    open_forms = (last == most).squeeze(-1).any(0).nonzero().flatten()
    if most < movable.shape[-1] and len(open_forms):
        more = _marginal(movable[:, open_forms], rising[:, open_forms], down, up, radius, 4 * most)
        level[:, open_forms] = more
    return level


def sphere_gains(forms: Tensor, wall_pairs: Sequence[Walls], radius: Tensor, arithmetic: Arithmetic) -> list[Tensor]:
    """For p = 2: coordinates move in proportion to their coefficients until they meet a wall.

    Coordinates without room gain nothing, those with room for the whole radius meet no wall: only those between are
    compared with their walls. The arguments are those of `diamond_gains`.
    """
    limit = radius[:, None]
    positive = forms.clamp(min=0)
    negative = positive - forms
    squares = positive.square(), negative.square()
    gains = []
    for walls in wall_pairs:
        free = [(room >= limit).to(forms.dtype)[..., None] for room in walls]
        squared = (squares[0] @ free[0] + squares[1] @ free[1]).squeeze(-1)
        down, up = (torch.where((room > 0) & (room < limit), room, 0) for room in walls)
        coordinates = (down + up).any(0).nonzero().flatten()
        coefficients = forms[..., coordinates]
        rising = (coefficients > 0).to(forms.dtype)
        room = rising * down[:, None, coordinates] + (1 - rising) * up[:, None, coordinates]
        sizes = coefficients.abs() * (room > 0).to(forms.dtype)
        gains.append(_sphere_gain(squared, sizes, room, limit, forms.shape[-1], arithmetic))
    return gains


def _sphere_gain(
    squared: Tensor, sizes: Tensor, room: Tensor, radius: Tensor, terms: int, arithmetic: Arithmetic
) -> Tensor:
    """An upper bound of the gain, (batch, forms).

    Args:
        squared: The sum of squares of the coefficients that can meet no wall, (batch, forms).
        sizes: The absolute values of the coefficients that can, (batch, forms, coordinates).
        room: How far the coordinates of these may move.
        radius: (batch, 1).
        terms: How many coordinates a form has, which bounds its roundings.
    """
    with torch.no_grad():
        walled = torch.zeros_like(room, dtype=torch.bool)
        for _ in range(ROUNDS):
            remaining = (radius.square() - (room.square() * walled).sum(-1)).clamp(min=0).sqrt()
            moving = (squared + (sizes.square() * ~walled).sum(-1)).sqrt()
            level = torch.where(remaining > 0, moving / remaining, 0)
            met = walled | (sizes > level[..., None] * room)
            if bool((met == walled).all()):
                break
            walled = met
    kept = torch.minimum(sizes, level[..., None] * room)
    total = squared + kept.square().sum(-1)
    length = arithmetic.above(root(total), terms + 6) + (SQUARED_TINY if arithmetic.rigorous else 0)
    walled_gain = arithmetic.above(((sizes - kept) * room).sum(-1), terms + 3)
    return arithmetic.above(arithmetic.above(length * radius, 1) + walled_gain, 1)


def root(squared: Tensor) -> Tensor:
    """The square root; at 0 its gradient is 0, too."""
    return torch.where(squared == 0, squared, torch.where(squared == 0, 1, squared).sqrt())
