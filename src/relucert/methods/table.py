"""A method, as the radius search sees it, and the table of those that exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol

from torch import Tensor

from relucert.bounding.backward import minimise
from relucert.bounding.forward import Bounds, forward
from relucert.bounding.relaxers import RELAXERS, Relaxer, parallel
from relucert.errors import InputError
from relucert.methods.lipschitz import LipschitzMethod, fast_lip
from relucert.methods.lipschitz_norm import LipschitzNorm
from relucert.methods.operator_norm import OperatorNorm
from relucert.methods.programs import ProgramMethod
from relucert.network import Network
from relucert.query.property import Property
from relucert.region import Ball
from relucert.rigor import Arithmetic


class Method(Protocol):
    """Lower bounds of margins in two steps: the neurons of the hidden layers first (for all rivals at once, the
    costly part), then the margins. Network and ball come in the arithmetic's dtype; with a rigorous arithmetic
    every result must be proven."""

    @property
    def name(self) -> str: ...

    @property
    def weaker(self) -> Method | None:
        """A cheaper method whose margins are never larger: the search starts from its radius, and where even the
        margins are costly predicts with those of the last of such a row of methods."""

    def remark(self, point: Tensor) -> str | None:
        """What there is to say about the answers around a point, if anything."""

    def hidden(self, network: Network, ball: Ball, arithmetic: Arithmetic) -> Bounds:
        """Bounds of every neuron before its ReLU."""

    def margins(self, network: Network, ball: Ball, prop: Property, hidden: Bounds, arithmetic: Arithmetic) -> Tensor:
        """Lower bounds of the property's margins: (batch, rows)."""


@dataclass(frozen=True)
class LinearMethod:
    """Bounds by linear relaxation: hidden layers forward, the few rows of the margins backward."""

    name: str
    relaxer: Relaxer
    weaker: ClassVar[None] = None

    def remark(self, point: Tensor) -> None:
        return None

    def hidden(self, network: Network, ball: Ball, arithmetic: Arithmetic) -> Bounds:
        return forward(network, ball, self.relaxer, arithmetic, network.rectified)

    def margins(self, network: Network, ball: Ball, prop: Property, hidden: Bounds, arithmetic: Arithmetic) -> Tensor:
        rows = prop.rows(network.classes, arithmetic.dtype)
        return minimise(network, ball, rows, network.output, hidden, self.relaxer, arithmetic)


METHODS: dict[str, Callable[[], Method]] = {
    **{name: partial(LinearMethod, name, relaxer) for name, relaxer in RELAXERS.items()},
    "fast-lip": lambda: LipschitzMethod("fast-lip", fast_lip),
    "lipschitz-norm": lambda: LipschitzMethod("lipschitz-norm", LipschitzNorm()),
    "op-norm": lambda: LipschitzMethod("op-norm", OperatorNorm(), shells=1, local=False),
    "lp": lambda: ProgramMethod("lp", LinearMethod("fast-lin", parallel)),
    "lp-full": lambda: ProgramMethod("lp-full", METHODS["lp"](), full=True),
}


def find_method(name: str, shells: int | None = None, time_limit: float | None = None) -> Method:
    """A method of its own for every call: what it remembers of a network is never shared."""
    if name not in list(METHODS):
        raise InputError(f"unknown method {name!r}; known are {', '.join(METHODS)}")
    method = METHODS[name]()
    if shells is not None:
        if not isinstance(method, LipschitzMethod) or not method.local:
            raise InputError(f"the method {name!r} has no shells; leave them out")
        method = replace(method, shells=shells)
    if time_limit is not None:
        if not isinstance(method, ProgramMethod):
            raise InputError(f"the method {name!r} has no programs with a time limit; leave it out")
        method = method.limited(time_limit)
    return method
