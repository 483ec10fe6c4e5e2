"""What a method computes once a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from relucert.network import Network
from relucert.norm import Norm
from relucert.rigor import Arithmetic

Kept = TypeVar("Kept")


class Memo(Generic[Kept]):
    """Results by network, norm and arithmetic, held by the method that made them and gone with either."""

    def __init__(self, compute: Callable[[Network, Norm, Arithmetic], Kept]) -> None:
        self._compute = compute
        self._kept: WeakKeyDictionary[Network, dict[tuple[Norm, Arithmetic], Kept]] = WeakKeyDictionary()

    def __call__(self, network: Network, norm: Norm, arithmetic: Arithmetic) -> Kept:
        known = self._kept.setdefault(network, {})
        if (norm, arithmetic) not in known:
            known[norm, arithmetic] = self._compute(network, norm, arithmetic)
        return known[norm, arithmetic]
