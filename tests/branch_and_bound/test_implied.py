"""Implied signs: none cuts off a violation, their splits cover a node, and networks of clauses are decided right."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import cheap_bounds
from relucert.bounding.record import Record
from relucert.branch_and_bound import implied as implied_signs
from relucert.branch_and_bound.dual_ascent import DualAscent, Nodes, join
from relucert.branch_and_bound.implied import Propagation, refutations, with_implied
from relucert.branch_and_bound.propagation import Implied
from relucert.branch_and_bound.prove import prove
from relucert.branch_and_bound.root import rooted
from relucert.branch_and_bound.stages import Stages
from relucert.branch_and_bound.tree import NeuronProver
from relucert.checker.check import check
from relucert.network import Linear, Network, Relu
from relucert.proofs.files import claimed, relaxation_evidence, write_proof
from relucert.query.problem import Problem
from tests.nets import NETWORKS, centres, chain

VARIABLES = 9


def clauses(count: int, seed: int) -> Tensor:
    """Random clauses, (count, variables): 1 where a variable has to be false, -1 where it has to be true."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.zeros(count, VARIABLES, dtype=torch.float64)
    for row in rows:
        chosen = torch.randperm(VARIABLES, generator=generator)[:3]
        row[chosen] = 2.0 * torch.randint(0, 2, (3,), generator=generator).double() - 1
    return rows


def satisfiable(rows: Tensor) -> bool:
    points = torch.tensor(list(itertools.product([0.0, 1.0], repeat=VARIABLES)), dtype=torch.float64)
    met = (points @ rows.T - (rows > 0).sum(1) + 1 <= 0).all(1)
    return bool(met.any())


def question(rows: Tensor) -> Problem:
    """Whether `max(p, q) > 0` in the unit box: p sums the violations of clauses, q is 0 where all inputs are 0 or 1."""
    count, unit = len(rows), torch.eye(VARIABLES, dtype=torch.float64)
    bias = torch.cat([1 - (rows > 0).sum(1), torch.zeros(VARIABLES), -torch.ones(VARIABLES)]).double()
    first = Linear(torch.cat([rows, unit, 2 * unit]), bias)
    p = torch.cat([torch.ones(count), torch.zeros(2 * VARIABLES)]).double()
    q = torch.cat([torch.zeros(count), torch.ones(VARIABLES), -torch.ones(VARIABLES)]).double()
    second = Linear(torch.stack([q - p, p]), torch.zeros(2, dtype=torch.float64))
    last = Linear(torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    network = chain((VARIABLES,), first, Relu(), second, Relu(), last)
    shape = RegionShape.parse(math.inf, (0.0, 1.0), None, (VARIABLES,))
    centre = torch.full((1, VARIABLES), 0.5, dtype=torch.float64)
    prop = Property(torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    return Problem(network, shape.around(centre, 0.5), prop)


@pytest.mark.parametrize(("count", "seed"), [(30, 0), (60, 1), (90, 3)])
def test_networks_of_clauses_are_decided(count: int, seed: int) -> None:
    rows = clauses(count, seed)
    asked = question(rows)
    prover = NeuronProver(asked, lambda point: float(asked.exact(point[None])) <= 0, time.monotonic() + 60)
    with torch.no_grad():
        proven, failure = prover.run()
    assert failure is None
    assert proven == (not satisfiable(rows))


def test_a_recorded_search_with_implied_signs_passes_its_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(clauses(90, 3))
    proposed = [0]
    honest = Propagation.propose

    def counted(self: Propagation, nodes: Nodes) -> Implied:
        result = honest(self, nodes)
        proposed[0] += int(result.signs.count_nonzero())
        return result

    monkeypatch.setattr(Propagation, "propose", counted)
    outcome = prove(asked, time.monotonic() + 60, lambda point: False, record=True)
    assert outcome.proven
    assert proposed[0]
    assert isinstance(outcome.record, Record)
    write_proof(tmp_path / "proof.json", claimed(asked, 0), relaxation_evidence(outcome.record, 0.5, asked.network))
    assert check(tmp_path / "proof.json", asked.network).radius == 0.5


def test_a_propagation_that_lies_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever signs are proposed, their opposites are bounded too: a satisfiable formula is not proven."""
    generator = torch.Generator().manual_seed(0)
    honest = Propagation.propose

    def faulty(self: Propagation, nodes: Nodes) -> Implied:
        result = honest(self, nodes)
        signs = (torch.randint(-6, 7, nodes.signs.shape, generator=generator) / 6).trunc().to(torch.int8)
        return result._replace(signs=signs.masked_fill(nodes.signs != 0, 0))

    monkeypatch.setattr(Propagation, "propose", faulty)
    rows = clauses(20, 0)
    assert satisfiable(rows)
    assert not prove(question(rows), time.monotonic() + 3, lambda point: False).proven


def built(network: Network, norm: float, radius: float) -> tuple[Stages, DualAscent, Propagation, Tensor]:
    """The search of one row that is 0.3 below its value at a corner of the region, and samples of the region."""
    shape = RegionShape.parse(norm, None, None, network.input_shape)
    centre = centres(network, 1).double()
    region = shape.around(centre, radius)
    steps = 2 * torch.rand(600, centre.shape[1], generator=torch.Generator().manual_seed(3), dtype=torch.float64) - 1
    steps = steps / steps.norm(norm, dim=1, keepdim=True) if norm != math.inf else steps
    points = centre + radius * steps
    row = torch.randn(1, network.classes, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    offset = -(network(points) @ row.T).quantile(0.3)[None]
    stages = rooted(network, region, cheap_bounds(network, region, RIGOROUS).bounds, math.inf)
    dual_ascent = DualAscent(stages, stages.pulled(network.output, row, offset))
    violating = (network(points) @ row.T)[:, 0] + offset[0] <= 0
    return stages, dual_ascent, Propagation(dual_ascent, region), points[violating]


def signs_at(stages: Stages, points: Tensor) -> tuple[Tensor, Tensor]:
    """The signs of all neurons that are unstable at the root, and how clear each is, relative to its width."""
    values = stages.exact.values(points)
    columns = []
    for stage in stages.stages:
        value = values[stage.value].flatten(1)[:, stage.neurons[: stage.unstable_count]]
        columns.append(value / (stage.upper - stage.lower))
    shares = torch.cat(columns, 1)
    return shares.sign().to(torch.int8), shares.abs()


@pytest.mark.parametrize("norm", [math.inf, 2.0])
@pytest.mark.parametrize("name", ["three layers", "residual", "skipping", "convolutional"])
def test_no_implied_sign_cuts_off_a_violation(name: str, norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implied_signs, "MOST_NUMBERS", 2**30)
    with torch.no_grad():
        stages, dual_ascent, proposer, points = built(NETWORKS[name]().cast(torch.float64), norm, 0.5)
        assert len(points)
        true, clear = signs_at(stages, points)
        roots = dual_ascent.roots().pick(torch.zeros(len(points), dtype=torch.long))
        split = torch.rand(true.shape, generator=torch.Generator().manual_seed(1)) < 0.5
        nodes = roots._replace(signs=torch.where(split, true, 0).to(torch.int8))
        implied = proposer.propose(nodes)
    assert not bool(implied.empty.any())
    wrong = (implied.signs != 0) & (implied.signs != true) & (clear > 1e-4)
    assert not bool(wrong.any())
    if norm == math.inf:
        assert bool((implied.signs != 0).any())


def test_splits_by_implied_signs_cover_the_node() -> None:
    """Every pattern of signs that a node allows is in exactly one of the nodes that stand for it."""
    signs = torch.tensor([[0, 1, 0, 0, 0]], dtype=torch.int8)
    node = Nodes(torch.zeros(1, dtype=torch.long), signs, torch.full((1, 5), 0.3))
    found = torch.tensor([[1, 0, 0, -1, 1]], dtype=torch.int8)
    nothing = torch.zeros(1, 5)
    implied = Implied(
        found, torch.tensor([[2, 0, 0, 1, 1]]), nothing > 0, nothing, nothing, torch.zeros(1) > 0, nothing
    )
    nodes = join([with_implied(node, implied), refutations(node, implied)])
    for pattern in itertools.product([-1, 1], repeat=5):
        inside = ((nodes.signs == 0) | (nodes.signs == torch.tensor(pattern))).all(1)
        assert int(inside.sum()) == (1 if pattern[1] == 1 else 0)
    assert bool((nodes.duals[nodes.signs == 0] == 0.3).all())
