"""A cache of what a method computes once per network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.network import Network

Kept = TypeVar("Kept")


class Memo(Generic[Kept]):
    """Results by network, norm, scale and arithmetic, held by the method that made them and gone with either."""

    def __init__(self, compute: Callable[[Network, Region, Arithmetic], Kept]) -> None:
        self._compute = compute
        self._kept: WeakKeyDictionary[Network, dict[tuple[Norm, bytes | None, Arithmetic], Kept]] = WeakKeyDictionary()

    def __call__(self, network: Network, region: Region, arithmetic: Arithmetic) -> Kept:
        known = self._kept.setdefault(network, {})
        scale = None if region.scale is None else region.scale.numpy().tobytes()
        key = region.norm, scale, arithmetic
        if key not in known:
            known[key] = self._compute(network, region, arithmetic)
        return known[key]
