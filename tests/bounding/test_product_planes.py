"""McCormick's planes around products that are written in squares."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert import Network, Region
from relucert.arithmetic.property import Property
from relucert.arithmetic.rigor import DOUBLE, RECORDED, RIGOROUS, Arithmetic
from relucert.bounding.ascent import Effort
from relucert.bounding.backward import bound_forms
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds, Interval, propagate
from relucert.bounding.optimised import optimised_bounds, optimised_margins
from relucert.bounding.product_planes import SquareLines, gains
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN, FAST_LIN
from relucert.branch_and_bound.interval_ascent import IntervalAscent
from relucert.branch_and_bound.interval_nodes import IntervalNodes, NodeBounds
from relucert.network import Power
from relucert.query.problem import Problem
from tests.transformers import attention_network

SQUARE = Power(2)


class _Times(nn.Module):
    """A product of two numbers of the input, one of them shifted, and its negative."""

    def forward(self, inputs: Tensor) -> Tensor:
        product = inputs[:, :1] * (inputs[:, 1:] + 1)
        return torch.cat([product, -product], 1)


def _region(radius: float = 0.05) -> Region:
    centre = torch.linspace(-0.5, 0.5, 5, dtype=torch.float64)[None]
    return Region.around(centre, torch.tensor([radius], dtype=torch.float64), "inf")


def _points(region: Region) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    moves = 2 * torch.rand(3000, region.centre.shape[1], generator=generator, dtype=torch.float64) - 1
    return region.centre + region.radius[:, None] * torch.cat([moves, moves.sign()])


def _lower(network: Network, region: Region, hidden: Bounds, rows: Tensor, arithmetic: Arithmetic = RIGOROUS) -> Tensor:
    path = ReferencePath(network, region, hidden, CROWN, arithmetic)
    return bound_forms(path, network.output, rows[None]).lower[0]


def test_gains_lead_to_the_exact_offset_of_any_slopes() -> None:
    """In rational arithmetic: the offset with its gain is no higher than `4 x y - s p + t m` at any corner, and as high
    as at the least one where something is gained."""
    generator = torch.Generator().manual_seed(3)
    numbers = torch.randn(8, 300, generator=generator, dtype=torch.float64) * 10.0 ** torch.randint(
        -3, 4, (8, 300), generator=generator
    )
    first, second = (Interval(*torch.stack([numbers[i], numbers[i] + numbers[i + 1].abs()])) for i in (0, 2))
    plus = Interval(RIGOROUS.floor(first.lower + second.lower), RIGOROUS.ceil(first.upper + second.upper))
    minus = Interval(RIGOROUS.floor(first.lower - second.upper), RIGOROUS.ceil(first.upper - second.lower))
    shares = torch.rand(2, 300, generator=generator, dtype=torch.float64)
    slopes = [
        2 * (side.lower + share * (side.upper - side.lower)) for side, share in zip((plus, minus), shares, strict=True)
    ]
    gained = 0
    for sign in (1, -1):
        offsets = [SQUARE.least(slopes[0], *plus, RIGOROUS), SQUARE.largest(slopes[1], *minus, RIGOROUS)]
        if sign < 0:
            offsets = [SQUARE.largest(slopes[0], *plus, RIGOROUS), SQUARE.least(slopes[1], *minus, RIGOROUS)]
        lines = SquareLines(slopes[0], offsets[0], slopes[1], offsets[1])
        gain = gains((first, second), lines, torch.full((300,), sign > 0), RIGOROUS)
        assert bool((gain >= 0).all())
        for case in range(300):
            corners = itertools.product(*([Fraction(float(end[case])) for end in side] for side in (first, second)))
            s, t = (Fraction(float(slope[case])) for slope in slopes)
            exact = min(sign * (4 * x * y - s * (x + y) + t * (x - y)) for x, y in corners)
            own = sign * (Fraction(float(offsets[0][case])) - Fraction(float(offsets[1][case])))
            proven = own + Fraction(float(gain[case]))
            assert proven <= exact
            if gain[case] > 0:
                gained += 1
                size = max(abs(exact), abs(own), Fraction(1))
                assert exact - proven <= size * Fraction(1, 10**9) + Fraction(1, 10**6)
    assert gained > 100


@pytest.mark.parametrize("end", [torch.inf, torch.nan])
def test_unknown_factors_gain_nothing(end: float) -> None:
    known, unknown = (Interval(torch.tensor([-1.0]).double(), torch.tensor([last]).double()) for last in (1.0, end))
    lines = SquareLines(*(torch.tensor([number]).double() for number in (0.0, -torch.inf, 0.0, 4.0)))
    for factors in ((known, unknown), (unknown, known)):
        assert float(gains(factors, lines, torch.tensor([True]), RIGOROUS)) == 0
    assert float(gains((known, known), lines, torch.tensor([True]), RIGOROUS)) == 0  # what was infinite stays so


@pytest.mark.parametrize("centre", [(0.0, -1.0), (0.5, 1.0), (-2.0, 3.0)])
def test_optimised_planes_around_one_product_are_exact(centre: tuple[float, float]) -> None:
    """The convex hull of a product over a box is what McCormick's planes make; tangents and chords are looser."""
    network = relucert.load(_Times().double(), input_shape=(2,))
    region = Region.around(torch.tensor([centre]).double(), torch.tensor([1.0]).double(), "inf")
    hidden = hidden_bounds(network, region, CROWN, RIGOROUS)
    rows = torch.eye(2, dtype=torch.float64)
    corners = [(centre[0] + i) * (centre[1] + j + 1) for i, j in itertools.product((-1, 1), repeat=2)]
    lower = optimised_margins(
        network, region, rows[None], torch.zeros(1, 2).double(), hidden, effort=Effort(200, decay=0.97, least=0)
    )[0]
    exact = torch.tensor([min(corners), -max(corners)]).double()
    assert bool((lower <= exact).all())
    torch.testing.assert_close(lower, exact, rtol=0, atol=0.02)


@pytest.mark.parametrize("arithmetic", [DOUBLE, RIGOROUS], ids=["float", "rigorous"])
def test_planes_gain_and_enclose_samples(arithmetic: Arithmetic) -> None:
    """The margins with intervals of the factors are above those without, and below all samples; so is every neuron."""
    network, region = attention_network(), _region(0.5)
    values = network.values(_points(region))
    hidden = hidden_bounds(network, region, CROWN, arithmetic)
    slack = 0 if arithmetic is RIGOROUS else 1e-12
    for value, interval in hidden.items():
        assert bool(((interval.lower - slack <= values[value]) & (values[value] <= interval.upper + slack)).all())
    rows = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    lower = _lower(network, region, hidden, rows, arithmetic)
    assert bool((lower - slack <= (values[-1] @ rows.T)).all())
    without = {value: hidden[value] for value in network.preactivations}
    assert set(without) < set(hidden)
    loose = _lower(network, region, without, rows, arithmetic)
    assert bool((lower >= loose - 1e-9).all())
    assert float((lower - loose).max()) > 5e-3


def test_optimised_neurons_of_attention_enclose_samples() -> None:
    network, region = attention_network(), _region()
    values = network.values(_points(region))
    known = hidden_bounds(network, region, CROWN, RIGOROUS)
    bounds = optimised_bounds(network, region, known=known)
    assert set(bounds) == set(known)
    for value, interval in bounds.items():
        assert bool(((interval.lower <= values[value]) & (values[value] <= interval.upper)).all())
    deep = {value for value in network.bounded if network.activation_depths[value]}
    assert deep
    assert all(_width(bounds[value]) <= _width(known[value]) for value in deep)
    assert sum(_width(bounds[value]) for value in deep) < 0.999 * sum(_width(known[value]) for value in deep)


def test_squares_follow_from_their_factors_where_they_do_not_ascend() -> None:
    network, region = attention_network(), _region(0.3)
    known = hidden_bounds(network, region, CROWN, RIGOROUS)
    fewer, more = (optimised_bounds(network, region, known=known, squares=squares) for squares in (False, True))
    squares = [value for value in network.factor_roots if network.activation_depths[value]]
    assert squares
    for value in squares:
        assert _width(more[value]) < _width(fewer[value]) <= _width(known[value])


def _width(interval: Interval) -> float:
    return float((interval.upper - interval.lower).sum())


def test_proof_files_do_without_planes() -> None:
    network, region = attention_network(), _region()
    recorded = hidden_bounds(network, region, CROWN, RECORDED)
    assert set(recorded) == set(network.preactivations)
    path = ReferencePath(network, region, recorded, CROWN, RECORDED)
    assert not path.products


def test_nodes_with_split_squares_hold_where_they_are() -> None:
    """Halves of squares' intervals make those of the factors shorter; bounds hold at all samples within a node."""
    network, region = attention_network(), _region()
    rows = torch.eye(3, dtype=torch.float64)
    hidden = hidden_bounds(network, region, CROWN, RIGOROUS)
    ascent = IntervalAscent(network, region, rows, torch.zeros(3).double())
    proof = NodeBounds(network, region, rows, torch.zeros(3).double(), RIGOROUS)
    points = _points(region)
    values, margins, met = network.values(points), network(points), 0
    whole = ascent.roots(hidden)
    for product in network.products:
        columns = proof.layout.sources[network.source(product.plus)]
        middle = (whole.lower[:, columns.start] + whole.upper[:, columns.start]) / 2
        for side in ("upper", "lower"):
            ends = getattr(whole, side).clone()
            ends[:, columns.start] = middle
            nodes: IntervalNodes = whole._replace(**{side: ends})
            lower, nodes = ascent.run(nodes, 10, torch.inf)
            proven = proof.lower(nodes)
            assert bool((proven <= lower + 1e-4).all())
            reached = values[network.source(product.plus)][:, 0]
            inside = reached <= middle[0] if side == "upper" else reached >= middle[0]
            met += int(inside.sum())
            assert bool((proven <= margins[inside].amin(0)).all())
    assert met > 0


def test_factors_that_nobody_bounded_are_bounded_by_intervals() -> None:
    """From the weights as they are stored: those that an ascent has in float32 are others."""
    network, region = attention_network().cast(torch.float64), _region()
    hidden = hidden_bounds(network, region, CROWN, RIGOROUS)
    without = {value: hidden[value] for value in network.preactivations}
    ascent = IntervalAscent(network, region, torch.eye(3).double(), torch.zeros(3).double())
    nodes, unbounded = ascent.roots(without), set(network.bounded) - set(network.preactivations)
    assert unbounded
    for value in unbounded:
        expected, columns = propagate(network, region, without, value, RIGOROUS), ascent.layout.sources[value]
        assert torch.equal(nodes.lower[:1, columns], expected.lower)
        assert torch.equal(nodes.upper[:1, columns], expected.upper)


def test_zonotopes_of_exponentials_stay_within_the_domain_of_reciprocals() -> None:
    """The sum of a softmax's exponentials is at least 1, which a zonotope may not know."""
    network, region = attention_network(), _region(0.8)
    bounds = hidden_bounds(network, region, FAST_LIN, RIGOROUS)
    assert not any(bool(end.isnan().any()) for interval in bounds.values() for end in interval)


def test_what_is_no_number_leaves_the_other_bound() -> None:
    nothing = torch.full((1, 2), torch.nan)
    known = Interval(torch.zeros(1, 2), torch.ones(1, 2))
    for met in (known.meet(Interval(nothing, nothing)), Interval(nothing, nothing).meet(known)):
        assert torch.equal(met.lower, known.lower)
        assert torch.equal(met.upper, known.upper)


def test_charges_of_own_lines_are_those_of_their_slopes() -> None:
    """Slopes of reciprocals of large numbers are tiny: what is charged for them must not be that of a ReLU's."""
    network = relucert.load(_Shares().double(), input_shape=(4,)).cast(torch.float64)
    centre = torch.tensor([[2e2, 2.5e2, 3e2, 2.2e2]]).double()
    region = Region.around(centre, torch.tensor([5.0]).double(), "inf")
    rows, offsets = torch.eye(2, dtype=torch.float64), torch.zeros(2).double()
    network = Problem(network, region, Property(rows[None], offsets[None])).balanced().network
    nodes = IntervalAscent(network, region, rows, offsets).roots(hidden_bounds(network, region, CROWN, RIGOROUS))
    nodes = nodes._replace(slopes=torch.zeros_like(nodes.slopes))
    proven, computed = (NodeBounds(network, region, rows, offsets, arithmetic) for arithmetic in (RIGOROUS, DOUBLE))
    torch.testing.assert_close(proven.lower(nodes), computed.lower(nodes), rtol=1e-6, atol=1e-6)


class _Shares(nn.Module):
    """Mean of numbers weighted by their cubes' shares, as in Pensieve's networks, and its negative."""

    def forward(self, inputs: Tensor) -> Tensor:
        cubes = torch.relu(inputs) ** 3
        weights = torch.tensor([[1.0, 2.0, 4.0, 8.0]], dtype=torch.float64)
        mean = (cubes * (1 / cubes.sum(1, keepdim=True)) * weights).sum(1, keepdim=True)
        return torch.cat([mean, -mean], 1)
