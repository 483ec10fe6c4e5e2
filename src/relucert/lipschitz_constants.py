"""`relucert.lipschitz`: how steep the margins of a network can be within a ball."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from relucert.answers import LipschitzBound, Rounding, parse_rounding
from relucert.errors import InputError
from relucert.loading import load
from relucert.methods.lipschitz import LipschitzMethod
from relucert.methods.table import METHODS, find_method
from relucert.network import Network
from relucert.query.property import Property
from relucert.region import Ball
from relucert.rigor import DOUBLE, RIGOROUS, check_subnormals


def lipschitz(
    network: Network | torch.nn.Module | str,
    ball: Ball,
    prop: Property,
    *,
    method: str = "fast-lip",
    arithmetic: str = "rigorous",
) -> list[LipschitzBound]:
    """Upper bounds of the Lipschitz constants of the margins over each ball, one answer a ball.

    A constant is about the ball's own norm: within the ball no two points x and y have margins that differ by more
    than the constant times the norm of x - y. method: "fast-lip", "lipschitz-norm" or "op-norm", which knows no ball.
    """
    known, chosen = load(network), _plain_method(method)
    rounding = parse_rounding(arithmetic)
    kind = RIGOROUS if rounding is Rounding.RIGOROUS else DOUBLE
    _check(known, ball, prop)
    if kind.rigorous:
        check_subnormals()
    with torch.inference_mode():
        cast, double = known.cast(kind.dtype), ball.cast(kind.dtype)
        rows = Property(prop.labels.long(), prop.rivals.long()).rows(known.classes, kind.dtype)
        found = chosen.constants(cast, ball.norm, rows, chosen.hidden(cast, double, kind), kind)[:, -1]
        found = found.nan_to_num(nan=torch.inf, posinf=torch.inf)  # where numbers overflow nothing is known
    columns = zip(prop.labels.tolist(), prop.rivals.tolist(), ball.radius.tolist(), found.tolist(), strict=True)
    return [
        LipschitzBound(label, tuple(rivals), tuple(values), radius, ball.norm.p, method, rounding)
        for label, rivals, radius, values in columns
    ]


def _plain_method(name: str) -> LipschitzMethod:
    """A method of this family with the ball in one piece."""
    methods = {given: method for given in METHODS if isinstance(method := find_method(given), LipschitzMethod)}
    if name not in list(methods):
        raise InputError(f"no Lipschitz constants by {name!r}; known are {', '.join(methods)}")
    return replace(methods[name], shells=1)


def _check(network: Network, ball: object, prop: object) -> None:
    if not isinstance(ball, Ball) or not isinstance(prop, Property) or not bool(ball.points.isfinite().all()):
        raise InputError("a Lipschitz constant needs a relucert.Ball around finite numbers, and a relucert.Property")
    tensors: tuple[object, object] = (prop.labels, prop.rivals)
    if not all(isinstance(own, Tensor) and own.numel() for own in tensors):
        raise InputError("a property needs tensors of labels and rivals, and at least one of each")
    count, size = len(ball.radius), network.sizes[0]
    if ball.points.shape[1] != size:
        raise InputError(f"the ball has {ball.points.shape[1]} coordinates, the network {size}")
    if not bool((torch.isfinite(ball.radius) & (ball.radius > 0)).all()):
        raise InputError("a Lipschitz constant needs a ball with a finite radius > 0")
    if prop.labels.shape != (count,) or prop.rivals.ndim != 2 or len(prop.rivals) != count:
        shapes = f"{tuple(prop.labels.shape)} and {tuple(prop.rivals.shape)}"
        raise InputError(f"{count} balls need labels ({count},) and rivals ({count}, rows), not {shapes}")
    for classes in (prop.labels, prop.rivals):
        if classes.is_floating_point() or bool(((classes < 0) | (classes >= network.classes)).any()):
            raise InputError(f"labels and rivals are classes from 0 to {network.classes - 1}")
    if bool((prop.labels[:, None] == prop.rivals).any()):
        raise InputError("a label is no rival of its own")
