"""Pre-activations that are moves, scales and sums of far fewer numbers, bounded by the intervals of those numbers.

Attention multiplies every query with every key: the squares that stand for such products, and the differences of
scores in a softmax, are as many as there are pairs. In large networks the queries, keys and scores are pulled back
alone, and the pairs follow by interval arithmetic, as with McCormick's planes over a box. That loses what both numbers
of a pair have in common, so smaller networks do without.
"""

from __future__ import annotations

from collections.abc import Collection

from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds, Interval, propagate
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReferencePath


class NarrowBounds:
    """The bounds of narrow values, each pulled back once for the wide pre-activations in a row that are made of it."""

    def __init__(self) -> None:
        self._latest = Bounds()  # of the narrow values that the last wide pre-activation is made of

    def interval(self, path: ReferencePath, value: int, sources: Collection[int], arithmetic: Arithmetic) -> Interval:
        """The bounds of a wide pre-activation, from the path's bounds of every pre-activation before it.

        sources: the narrow values; those of the whole network, as one that lost neurons has fewer wide values.
        """
        self._latest = {source: self._latest.get(source) or enclose(path, source) for source in sources}
        return propagate(path.network, path.region, path.bounds, value, arithmetic, ends=self._latest)
