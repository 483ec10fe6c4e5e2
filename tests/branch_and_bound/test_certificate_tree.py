"""Branch and bound on quadratic certificates: what it proves holds, whatever its numbers are, and it decides."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import CROWN
from relucert.branch_and_bound import node_tree, tree
from relucert.branch_and_bound.certificate_tree import Ascended, CertificateNodes, CertificateTree
from relucert.branch_and_bound.pool import join
from relucert.methods.quadratic import rows
from relucert.methods.quadratic.dual import Weights
from relucert.methods.quadratic.feasible import feasible_joint
from relucert.methods.quadratic.proof import prove_margins
from relucert.methods.quadratic.rows import RegionRows, decided_rows
from relucert.network import Network
from relucert.query.problem import Problem
from tests.nets import NETWORKS, centres, mlp

NORMS = (math.inf, 2.0, 1.0)


def rooted(network: Network, radius: float, norm: float) -> CertificateTree:
    network = network.cast(torch.float64)
    centre = centres(network, 1).double()
    label = network(centre).argmax(1)
    rivals = torch.tensor([[rival for rival in range(network.classes) if rival != int(label)]])
    prop = Property.margins(label, rivals, network.classes).cast(torch.float64)
    region = Region.around(centre, radius, norm)
    decided = decided_rows(network, region, prop, hidden_bounds(network, region, CROWN, RIGOROUS), math.inf)
    assert decided is not None
    return CertificateTree(Problem(network, region, prop), decided)


def points_of(region: Region, count: int) -> torch.Tensor:
    """Random points of a ball, (count, inputs), half of them near its border."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(count, len(region.centre[0]), generator=generator, dtype=torch.float64)
    if region.norm.p == math.inf:
        directions = torch.where(torch.rand(count, 1, generator=generator) < 0.5, directions.sign(), directions)
    lengths = torch.linalg.vector_norm(directions, region.norm.p, dim=1, keepdim=True)
    shares = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** 0.2
    offsets: torch.Tensor = float(region.radius[0]) * (1 - 1e-12) * shares * directions / lengths
    return region.centre + offsets


def signs_at(found: RegionRows, points: torch.Tensor) -> torch.Tensor:
    """The signs of the neurons that are unstable at the root, (points, unstable)."""
    values = found.network.values(points)
    by_layer = [values[value][:, neurons.index] for value, neurons in found.linearised.neurons.items()]
    return torch.cat(by_layer, 1).sign()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional"])
def test_bounds_of_subdomains_hold_at_their_points(name: str, norm: float) -> None:
    """For any dual point and weights that are proven to be feasible, those of ascents at random nodes among them."""
    found = rooted(NETWORKS[name](), {math.inf: 0.2, 2.0: 0.5, 1.0: 1.0}[norm], norm)
    points = points_of(found.problem.region, 3000)
    signs, margins = signs_at(found.rows, points), found.problem.prop.values(found.rows.network(points))
    generator, checked = torch.Generator().manual_seed(1), 0
    nodes = found.roots(torch.arange(len(found.rows.forms)))
    for _ in range(5):
        ascended = found.ascend(nodes)
        every = torch.arange(nodes.size)
        for node, weights, least in zip(every, *_proofs(found, ascended), strict=True):
            if weights is None:
                continue
            wanted = nodes.signs[node]
            inside = ((wanted == 0) | (signs == wanted)).all(1)
            assert bool((margins[inside, nodes.rows[node]] >= least).all())
            checked += int(inside.sum())
        unsplit = nodes.signs == 0
        choice = torch.multinomial(unsplit.float() + 1e-9, 1, generator=generator)[:, 0]
        halves = ascended.nodes.split(choice)
        nodes = halves.pick(torch.randperm(halves.size, generator=generator)[: nodes.size])
    assert checked > 500


def _proofs(found: CertificateTree, ascended: Ascended) -> tuple[list[Weights | None], list[float]]:
    proofs: list[Weights | None] = []
    least: list[float] = []
    for node in range(ascended.nodes.size):
        own = ascended.weights.select(slice(node, node + 1)).map(torch.Tensor.double)
        weights = feasible_joint(found.rows.linearised, own, found.deviations)
        proofs.append(weights)
        if weights is None:
            least.append(-math.inf)
            continue
        single = ascended.nodes.pick(torch.tensor([node]))
        point = found.layout.point(single.table).map(torch.Tensor.double)
        forms, offsets = found.rows.forms[single.rows], found.rows.offsets[single.rows]
        least.append(float(prove_margins(found.rigorous, forms, offsets, weights, point, single.signs).bounds))
    return proofs, least


def only_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches whose linear trees have no time."""
    monkeypatch.setattr(rows, "FEWEST_UNSTABLE", 1)
    monkeypatch.setattr(tree, "BEFORE_REFINING", 1e-3)
    monkeypatch.setattr(tree, "CERTIFICATE_TIMES", 1e5)
    monkeypatch.setattr(node_tree, "ROOT_STEPS", 0)
    monkeypatch.setattr(node_tree, "STEPS", 0)


@pytest.mark.parametrize("norm", NORMS)
def test_it_decides_up_to_the_minimum_distortion_and_never_beyond(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(6, 10, 8, 4, seed=3)
    images = centres(network, 2)
    answers = relucert.exact(network, images, norm=norm)
    only_certificates(monkeypatch)
    for image, answer in zip(images, answers, strict=True):
        assert answer.lower is not None
        for share, held in ((0.9, True), (1.001, False)):
            (verdict,) = relucert.robust_at(network, image[None], radius=share * answer.lower, norm=norm, time_limit=60)
            assert verdict.holds == held


def test_it_proves_what_certificates_of_the_region_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(14, 16, 16, 3, seed=4)
    images = centres(network, 1)
    (certificate,) = relucert.certify(network, images, method="sdp")
    (exact,) = relucert.exact(network, images, tolerance=0.05)
    assert certificate.radius is not None
    assert exact.lower is not None
    radius = 0.3 * certificate.radius + 0.7 * exact.lower
    assert radius > 1.01 * certificate.radius
    only_certificates(monkeypatch)
    (verdict,) = relucert.robust_at(network, images, radius=radius, time_limit=60)
    assert verdict.holds
    assert verdict.stage == "certificates"


def test_a_split_halves_the_volume_and_keeps_the_rest() -> None:
    found = rooted(NETWORKS["three layers"](), 0.2, math.inf)
    roots = found.roots(torch.arange(len(found.rows.forms)))
    assert roots.volume == roots.size
    halves = roots.split(torch.zeros(roots.size, dtype=torch.long))
    assert halves.volume == roots.size
    assert halves.pick(slice(0, roots.size)).volume == roots.size / 2
    assert torch.equal(halves.table, torch.cat([roots.table, roots.table]))
    assert set(halves.signs[:, 0].tolist()) == {1, -1}


def test_another_process_continues_a_tree() -> None:
    found = rooted(NETWORKS["three layers"](), 0.3, math.inf)
    roots = found.roots(torch.arange(len(found.rows.forms)))
    sent_tree, sent_roots = pickle.loads(pickle.dumps((found, roots)))
    here = found.visitor(math.inf, lambda point: False).visit(roots)
    there = sent_tree.visitor(math.inf, lambda point: False).visit(sent_roots)
    assert isinstance(there, CertificateNodes)
    for table, same in zip(here, there, strict=True):
        assert torch.equal(table, same)


def test_rows_whose_ascents_break_off_are_given_up_and_the_others_go_on() -> None:
    found = rooted(NETWORKS["three layers"](), 0.3, math.inf)
    roots = found.roots(torch.arange(len(found.rows.forms)))
    broken = roots.pick(slice(0, 1))
    broken = broken._replace(table=torch.full_like(broken.table, torch.nan))
    whole = roots.pick(slice(1, None))
    alone, visitor = (found.visitor(math.inf, lambda point: False) for _ in range(2))
    assert torch.equal(visitor.visit(join([broken, whole])).signs, alone.visit(whole).signs)
    assert visitor.unsettled.tolist() == broken.rows.tolist()
    assert visitor.visit(broken).size == 0
    asking = found.visitor(math.inf, lambda point: False)
    asking.merge_record(whole, visitor.recorded())
    assert asking.unsettled.tolist() == broken.rows.tolist()


def test_rows_with_a_node_that_nothing_splits_further_are_given_up() -> None:
    found = rooted(NETWORKS["three layers"](), 3.0, math.inf)
    roots = found.roots(torch.arange(1))
    point = points_of(found.problem.region, 1)
    full = roots._replace(signs=signs_at(found.rows, point).to(torch.int8))
    visitor = found.visitor(math.inf, lambda point: False)
    assert visitor.visit(full).size == 0
    assert visitor.unsettled.tolist() == [0]


def test_rows_that_are_given_up_stay_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(14, 16, 16, 3, seed=4)
    only_certificates(monkeypatch)
    monkeypatch.setattr(CertificateTree, "proven", lambda tree, ascended, nodes: torch.zeros(len(nodes)).bool())
    monkeypatch.setattr(CertificateTree, "_scores", lambda tree, nodes, last: torch.zeros(nodes.signs.shape))
    monkeypatch.setattr(tree.NeuronProver, "_tree", lambda *_: False)
    (verdict,) = relucert.robust_at(network, centres(network, 1), radius=0.3, time_limit=1)
    assert verdict.status == "unknown"
