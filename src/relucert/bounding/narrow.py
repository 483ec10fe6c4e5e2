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
    """Bounds the few numbers that a pre-activation is made of, where they are worth it and not known yet.

    Those of the whole network count, as one that lost neurons has fewer wide values.
    """
    network, known = reduced.whole, reduced.all_bounds
    sources = set(network.narrow_sources.get(value, ()))
    if not reduced.path.relaxer.parallel:
        sources.update(network.factor_roots.get(value, ()))
    for source in sorted(sources - known.keys()):
        reduced.add(source, enclose(reduced.path, source), cut=False)
    return {source: known[source] for source in sources}
