"""Few numbers that many neurons are made of by moves, scales and sums: bounded first, by forms of their own.

Attention multiplies every query with every key: the squares that stand for such products, and the differences of
scores in a softmax, are as many as there are pairs.

- Where a product's factors have bounds, McCormick's planes hold (bounding/product_planes.py).
- In large networks the pairs themselves follow from these bounds by interval arithmetic. That loses what both numbers
  of a pair have in common, so smaller networks pull all of them back.
"""

from __future__ import annotations

from relucert.bounding.interval import Bounds
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReducedPath


def bound_sources(reduced: ReducedPath, value: int) -> Bounds:
    """Bounds the few numbers that a pre-activation is made of, as far as they are not known yet."""
    for source in sorted(_sources(reduced, value) - reduced.all_bounds.keys()):
        reduced.add(source, enclose(reduced.path, source), cut=False)
    return known_sources(reduced, value)


def known_sources(reduced: ReducedPath, value: int) -> Bounds:
    """The bounds of the few numbers that a pre-activation is made of, as far as they are known."""
    known = reduced.all_bounds
    return {source: known[source] for source in _sources(reduced, value) if source in known}


def _sources(reduced: ReducedPath, value: int) -> set[int]:
    """The few numbers that a pre-activation is made of, where they are worth forms of their own: in the whole network,
    as one that lost neurons has fewer wide values."""
    roots = set() if reduced.path.relaxer.parallel else reduced.whole.factor_roots.get(value, set())
    return roots | reduced.whole.narrow_sources.get(value, set())
