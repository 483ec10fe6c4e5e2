"""Lipschitz methods: network x norm x method against sampled gradients, the paper's loops and rational arithmetic."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT, RIGOROUS, Arithmetic
from relucert.bounding.gradient import gradient_sizes
from relucert.bounding.interval import Bounds
from relucert.errors import InputError
from relucert.methods.lipschitz_norm import LipschitzNorm
from relucert.methods.operator_norm import OperatorNorm, induced_norms, spectral_norm
from relucert.methods.table import METHODS, find_method
from relucert.network import Linear, Network, Relu, Scale
from relucert.query.targets import rivals
from tests.literal import gradient_bounds
from tests.method_tables import CONSTANTS, SHELLED
from tests.nets import NETWORKS, NORMS, centres, chain, mlp
from tests.rational import exact

RADIUS = 0.2


def margins_of(network: Network, points: Tensor) -> Property:
    scores = network.cast(torch.float64)(points)
    labels = scores.argmax(1)
    return Property.margins(labels, rivals("all", scores, labels, 0), network.classes)


def gradients(network: Network, points: Tensor, row: Tensor) -> Tensor:
    """Of one form on the output at points: (points, input size)."""
    leaf = points.clone().requires_grad_()
    (network(leaf) @ row).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


def plain(network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
    return find_method("fast-lip", shells=1).hidden(network, region, arithmetic)


@pytest.mark.parametrize("arithmetic", [RIGOROUS, DOUBLE], ids=["rigorous", "float"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_enclose_sampled_gradients(name: str, norm: float, arithmetic: Arithmetic) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network)
    rows = margins_of(network, points).rows
    region = Region.around(points, RADIUS, norm)
    hidden = plain(network, region, arithmetic)
    sizes = gradient_sizes(network, rows, hidden, arithmetic)
    constants = {method: constant(network, region, rows, hidden, arithmetic) for method, constant in CONSTANTS.items()}
    generator = torch.Generator().manual_seed(3)
    for member, centre in enumerate(points):
        samples = Norm(norm).sample(centre, RADIUS, 200, generator)
        for number, row in enumerate(rows[member]):
            sampled = gradients(network, samples, row)
            assert (sampled.abs() <= sizes[member, number] + 1e-12).all()
            steepest = torch.linalg.vector_norm(sampled, Norm(norm).dual, 1).max()
            for constant in constants.values():
                assert steepest <= constant[member, number] + 1e-12


@pytest.mark.parametrize("shells", [1, 2, 7])
@pytest.mark.parametrize("method", SHELLED)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_margins_hold_at_samples(name: str, norm: float, method: str, shells: int) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network)
    prop = margins_of(network, points)
    region, chosen = Region.around(points, RADIUS, norm), find_method(method, shells)
    margins = chosen.margins(network, region, prop, chosen.hidden(network, region, RIGOROUS), RIGOROUS)
    generator = torch.Generator().manual_seed(4)
    for member, rows in enumerate(prop.rows):
        samples = Norm(norm).sample(points[member], RADIUS, 300, generator)
        assert (network(samples) @ rows.T >= margins[member]).all()


@pytest.mark.parametrize("depth", [2, 3, 4])
@pytest.mark.parametrize("seed", range(2))
def test_fast_lip_is_the_papers_algorithm(depth: int, seed: int) -> None:
    """Its loops on the same product read from the output, and, with one layer of ReLUs, in the published order too."""
    network = mlp(7, *[9] * (depth - 1), 4, seed=seed + 10 * depth, dtype=torch.float64)
    points = centres(network, 1, seed)
    row = torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    hidden = plain(network, Region.around(points, 0.3, "inf"), DOUBLE)
    sizes = gradient_sizes(network, row[None, None], hidden, DOUBLE)[0, 0]
    weights = [node.operation.weight.numpy() for node in network.nodes if isinstance(node.operation, Linear)]
    weights[-1] = row[None].numpy() @ weights[-1]
    patterns = [(interval.active[0].numpy(), interval.unstable[0].numpy()) for interval in hidden.values()]
    assert sum(int(unsure.sum()) for _, unsure in patterns) >= 3
    turned = gradient_bounds([weight.T for weight in reversed(weights)], patterns[::-1])
    np.testing.assert_allclose(sizes, turned[:, 0], rtol=1e-12, atol=1e-12)
    if depth == 2:
        np.testing.assert_allclose(sizes, gradient_bounds(weights, patterns)[0], rtol=1e-12, atol=1e-12)


def _rational_gradient(network: Network, row: list[Fraction], hidden: Bounds) -> list[Fraction]:
    """The same intervals without rounding, for the decisions that `hidden` makes."""
    low = high = row
    for value, node in reversed(list(network.steps())):
        if isinstance(node.operation, Linear):
            columns = list(zip(*[exact(line) for line in node.operation.weight], strict=True))
            ends = [[sorted((w * a, w * b)) for w, a, b in zip(column, low, high, strict=True)] for column in columns]
            low, high = ([sum((end[side] for end in products), Fraction(0)) for products in ends] for side in (0, 1))
        else:
            interval = hidden[value - 1]
            kept, unsure = interval.active[0].tolist(), interval.unstable[0].tolist()
            low = [min(a, Fraction(0)) if u else a * k for a, k, u in zip(low, kept, unsure, strict=True)]
            high = [max(b, Fraction(0)) if u else b * k for b, k, u in zip(high, kept, unsure, strict=True)]
    return [max(abs(a), abs(b)) for a, b in zip(low, high, strict=True)]


@pytest.mark.parametrize("sizes", [(3, 5, 2), (4, 6, 5, 3), (3, 5, 5, 4, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_rigorous_gradients_contain_the_exact_rational_ones(sizes: tuple[int, ...], seed: int) -> None:
    network = mlp(*sizes, seed=seed).cast(torch.float64)
    hidden = plain(network, Region.around(centres(network, 1, seed), 0.3, 2), RIGOROUS)
    row = torch.zeros(1, 1, sizes[-1], dtype=torch.float64)
    row[0, 0, :2] = torch.tensor([1.0, -1.0])
    rigorous = exact(gradient_sizes(network, row, hidden, RIGOROUS)[0, 0])
    for proven, true in zip(rigorous, _rational_gradient(network, exact(row[0, 0]), hidden), strict=True):
        assert true <= proven <= true + Fraction(1, 10**12)


@pytest.mark.parametrize("method", SHELLED)
@pytest.mark.parametrize("norm", NORMS)
def test_more_shells_never_lose(method: str, norm: float) -> None:
    network = NETWORKS["three layers"]().cast(torch.float64)
    region = Region.around(centres(network), RADIUS, norm)
    prop = margins_of(network, region.points)

    def margins(shells: int) -> Tensor:
        chosen = find_method(method, shells)
        return chosen.margins(network, region, prop, chosen.hidden(network, region, DOUBLE), DOUBLE)

    for fewer, more in itertools.pairwise(margins(shells) for shells in (1, 2, 4, 28)):  # each splits the former
        assert (more >= fewer - 1e-12).all()
    assert (margins(28) > margins(1)).any()


def test_one_pass_over_many_shells_equals_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS["residual"]().cast(torch.float64)
    region = Region.around(centres(network), RADIUS, 2)
    prop, chosen = margins_of(network, region.points), find_method("fast-lip", 5)

    def margins() -> Tensor:
        return chosen.margins(network, region, prop, chosen.hidden(network, region, DOUBLE), DOUBLE)

    together = margins()
    monkeypatch.setattr("relucert.methods.lipschitz.FORM_BYTES", 1)
    monkeypatch.setattr("relucert.bounding.nested.EFFICIENT_BYTES", 0)
    monkeypatch.setattr("relucert.bounding.nested.CHUNK_BYTES", 1)
    torch.testing.assert_close(margins(), together, rtol=0, atol=1e-12)


def test_a_hand_worked_margin() -> None:
    """f0 - f1 = 1 - relu(x) around x = -1: flat up to 0, so a shell within that costs nothing."""
    first = Linear(torch.ones(1, 1).double(), torch.zeros(1).double())
    last = Linear(torch.tensor([[-1.0], [0.0]]).double(), torch.tensor([1.0, 0.0]).double())
    network = chain((1,), first, Relu(), last)
    region = Region.around(torch.tensor([[-1.0]]), 1.5, "inf")
    prop = Property.margins(torch.tensor([0]), torch.tensor([[1]]), network.classes)
    for shells, margin in ((1, -0.5), (2, 0.25), (3, 0.5)):
        chosen = find_method("fast-lip", shells)
        margins = chosen.margins(network, region, prop, chosen.hidden(network, region, DOUBLE), DOUBLE)
        assert margins.tolist() == [[pytest.approx(margin)]]


def test_rounding_never_makes_a_margin() -> None:
    network = NETWORKS["five layers"]()
    points, chosen = centres(network), find_method("fast-lip")
    prop = margins_of(network, points)
    proven, guessed = (
        chosen.margins(
            cast, region, prop.cast(arithmetic.dtype), chosen.hidden(cast, region, arithmetic), arithmetic
        ).double()
        for arithmetic in (RIGOROUS, FLOAT)
        for cast, region in [(network.cast(arithmetic.dtype), Region.around(points, 0.05, 2).cast(arithmetic.dtype))]
    )
    torch.testing.assert_close(proven, guessed, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_lipschitz_norm_of_two_layers_is_the_appendix_formula(norm: float) -> None:
    network = mlp(6, 10, 4, dtype=torch.float64)
    region = Region.around(centres(network, 1), 0.9, norm)
    hidden = plain(network, region, DOUBLE)
    row = torch.tensor([1.0, -1.0, 0.0, 0.0], dtype=torch.float64)
    first, last = (node.operation.tensors()["weight"] for node in (network.nodes[0], network.nodes[2]))
    kept, unsure = hidden[1].active[0], hidden[1].unstable[0]
    q = Norm(norm).dual
    coefficients = row @ last
    expected = torch.linalg.vector_norm((coefficients * kept) @ first, q)
    expected = expected + sum(torch.linalg.vector_norm(coefficients[r] * first[r], q) for r in unsure.nonzero()[:, 0])
    constant = LipschitzNorm()(network, region, row[None, None], hidden, DOUBLE)
    assert unsure.sum() >= 2
    assert float(constant) == pytest.approx(float(expected))


@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (9, 5), (40, 40), (3, 200)])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_the_spectral_norm_is_proven_and_close(shape: tuple[int, int], scale: float) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * scale
    true = float(torch.linalg.svdvals(matrix)[0])
    assert true * (1 + 1e-12) <= float(spectral_norm(matrix, RIGOROUS)) <= true * (1 + 1e-8)
    assert float(spectral_norm(matrix, DOUBLE)) == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("matrix", [torch.zeros(3, 3), torch.ones(4, 2), torch.eye(5)], ids=["zeros", "ones", "eye"])
def test_singular_matrices_have_spectral_norms_too(matrix: Tensor) -> None:
    true = float(torch.linalg.svdvals(matrix.double())[0])
    (induced,) = induced_norms(
        Linear(matrix.double(), matrix.double()[:, 0]), [(matrix.shape[1],)], Norm(2), RIGOROUS, [None]
    )
    assert true <= induced <= true * (1 + 1e-8) + 1e-100


@pytest.mark.parametrize("norm", NORMS)
def test_induced_norms_bound_what_a_matrix_stretches(norm: float) -> None:
    generator = torch.Generator().manual_seed(2)
    matrix = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    (induced,) = induced_norms(Linear(matrix, matrix[:, 0]), [(5,)], Norm(norm), RIGOROUS, [None])
    points = torch.cat([torch.eye(5).double(), torch.randn(5000, 5, generator=generator, dtype=torch.float64).sign()])
    points = torch.cat([points, torch.randn(5000, 5, generator=generator, dtype=torch.float64)])
    lengths = torch.linalg.vector_norm(points @ matrix.T, norm, 1) / torch.linalg.vector_norm(points, norm, 1)
    assert lengths.max() <= induced * (1 + 1e-12)
    assert induced <= (1.001 if norm in (1, float("inf")) else 1.5) * lengths.max()


def test_op_norm_by_hand() -> None:
    """Layers measured in the maximum norm: 3 (row sums 3 and 1), then the difference of rows (1, 2): 3."""
    first = Linear(torch.tensor([[1.0, -2.0], [0.5, 0.5]]).double(), torch.zeros(2).double())
    last = Linear(torch.tensor([[1.0, 1.0], [0.0, -1.0]]).double(), torch.zeros(2).double())
    network = chain((2,), first, Relu(), Scale(torch.tensor(-2.0).double(), divide=False), last)
    row = torch.tensor([[[1.0, -1.0]]]).double()
    region = Region.around(torch.zeros(1, 2), 1.0, "inf")
    assert float(OperatorNorm()(network, region, row, {}, DOUBLE)) == pytest.approx(3 * 2 * 3)


def test_op_norm_needs_no_hidden_bounds_and_measures_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS["residual"]().cast(torch.float64)
    chosen, region = find_method("op-norm"), Region.around(centres(network), RADIUS, 2)
    prop = margins_of(network, region.points)
    assert chosen.hidden(network, region, RIGOROUS) == {}
    first = chosen.margins(network, region, prop, {}, RIGOROUS)
    monkeypatch.setattr("relucert.methods.operator_norm.induced_norms", None)
    assert torch.equal(chosen.margins(network, region, prop, {}, RIGOROUS), first)


@pytest.mark.parametrize("shells", [0, -3, 1.5, True])
def test_a_ball_needs_a_whole_number_of_shells(shells: int) -> None:
    with pytest.raises(InputError, match="shells >= 1"):
        find_method("fast-lip", shells)


def test_only_lipschitz_methods_have_shells() -> None:
    for name in [name for name in METHODS if name not in SHELLED]:
        with pytest.raises(InputError, match=f"'{name}' has no shells"):
            find_method(name, 3)


def test_weights_whose_squares_overflow_have_no_spectral_norm() -> None:
    assert math.isinf(spectral_norm(torch.full((2, 3), 1e200, dtype=torch.float64), RIGOROUS))
