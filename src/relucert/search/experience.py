"""What searches of one network learn from each other: where the next one begins."""

from __future__ import annotations

import json
from dataclasses import dataclass

from torch import Tensor

from relucert.network import Network

FIRST_SHARES = (0.7, 0.45)  # of the first-order radius, with one layer of ReLUs and for each further: where to start
LEAST_SHARE = 0.1  # where an evaluation tells only of unstable neurons: with few of them it tells little
LIKELY = (0.01, 1.0)  # shares to learn from
GROWTH = 0.55  # how much faster than linearly the bounds are guessed to grow, for each layer of ReLUs before


@dataclass
class Experience:
    """Guesses for the first evaluation of a search, improved by each search.

    Attributes:
        growth: By value, the exponent with which bounds grow with the radius.
        first_share: The radius of the first evaluation, as a share of the first-order radius.
    """

    growth: dict[int, float]
    first_share: float

    @classmethod
    def none(cls, network: Network, bounds_stable_neurons: bool) -> Experience:
        """Guesses from the depth of the network alone."""
        depths = network.activation_depths
        share = FIRST_SHARES[0] * FIRST_SHARES[1] ** max(0, depths[-1] - 1)
        return cls(
            {value: 1 + GROWTH * depths[value] for value in network.preactivations},
            share if bounds_stable_neurons else max(share, LEAST_SHARE),
        )

    def learn(self, growth: dict[int, float], shares: Tensor) -> None:
        """Learns from one search.

        Args:
            growth: By value, the exponent with which bounds grew.
            shares: The radii of the second evaluations, as shares of the first-order radii: (batch,).
        """
        self.growth |= growth
        finite = shares[shares.isfinite()].clamp(*LIKELY)
        if len(finite):
            self.first_share += float(finite.mean() - self.first_share) / 2

    def to_json(self) -> str:
        return json.dumps([sorted(self.growth.items()), self.first_share])

    @classmethod
    def from_json(cls, text: str) -> Experience:
        growth, first_share = json.loads(text)
        return cls(dict(growth), first_share)
