"""The prover's one door for given regions: do the rows of a property stay positive in a region?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.attacks.witness import Witness
from relucert.branch_and_bound.nodes import NodeBounder
from relucert.branch_and_bound.proof import Tree
from relucert.branch_and_bound.prover import Prover
from relucert.network import Network
from relucert.query.property import Property
from relucert.region import RegionShape


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of it.

    Attributes:
        proven: Whether every row is proven to stay positive in the whole region.
        failure: Why the search ended where it is not, and no violation ended it.
        nodes: How many nodes were bounded.
        tree: The record of the search, where one was kept, and its bounder.
    """

    proven: bool
    failure: str | None
    nodes: int
    tree: Tree | None
    bounder: NodeBounder


def prove(
    network: Network,
    centre: Tensor,
    shape: RegionShape,
    radius: float,
    prop: Property,
    ends: float,
    violates: Callable[[Tensor], bool],
    *,
    record: bool = False,
    report: Callable[[int], None] = lambda nodes: None,
) -> Outcome:
    """Tries to prove that the rows stay positive, until it is proven, a violation ends the search, or time does.

    Args:
        network: Its outputs are what the rows are about.
        centre: (size,), in float64.
        shape: The norm, the valid inputs and the scale.
        radius: How far the region reaches.
        prop: A batch of one.
        ends: When time is over, on the monotonic clock.
        violates: Judges a point (size,) that the search came upon; True ends the search.
        record: Whether to keep a record of the search, for a proof.
        report: Called now and then with the nodes bounded so far.
    """
    bounder = NodeBounder(network, centre, shape, prop)
    tree = Tree(prop.rows.shape[1]) if record else None
    prover = Prover(bounder, _Judge(violates), ends, None, tree, report)
    with torch.inference_mode():
        attempt = prover.run(radius, [bounder.roots()])
    return Outcome(attempt.proven, attempt.failure, prover.nodes, tree, bounder)


@dataclass(frozen=True)
class _Judge:
    """A judge by a function: whatever violates is in the region."""

    violates: Callable[[Tensor], bool]

    def beyond(self, centre: Tensor, point: Tensor, prop: Property) -> Witness | None:
        return Witness(point, 0.0) if self.violates(point) else None
