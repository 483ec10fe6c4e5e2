"""Rows that are quadratic functions of few inputs: bounds hold at every point, products cancel, and cuts end."""

import random
import time

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.bounding import quadratic_zonotopes
from relucert.bounding.fused import Fused, fuse
from relucert.bounding.quadratic_zonotopes import QuadraticBounds, RowBounds, least_on_cube
from relucert.branch_and_bound.box_tree import BoxProver, BoxTree
from relucert.branch_and_bound.quadratic_boxes import QuadraticVisitor
from relucert.network import Network
from relucert.query.problem import Problem


class Step(nn.Module):
    """One step of a controlled system, `x + f(x)`, and how a quadratic function of x changes by it."""

    form: Tensor

    def __init__(self, seed: int, gain: float = 0.4, activation: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.field = nn.Sequential(nn.Linear(3, 6), activation(), nn.Linear(6, 3))
        self.gain = gain
        root = torch.randn(3, 3)
        self.register_buffer("form", root.T @ root + 0.1 * torch.eye(3))

    def forward(self, x: Tensor) -> Tensor:
        move = 0.02 * self.field(x) - self.gain * x
        change = (move * ((x + x + move) @ self.form)).sum(1, keepdim=True)
        height = (x * (x @ self.form)).sum(1, keepdim=True)
        return torch.cat([change, height, x + move], 1)


class Alternatives(nn.Module):
    """The larger of two quadratic functions, or of three, as one output each."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.step = Step(seed)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.step(x)
        larger = outputs[:, :1] + torch.relu(outputs[:, 1:2] - outputs[:, :1])
        return torch.cat([larger, larger + torch.relu(outputs[:, 2:3] - larger)], 1)


class Reused(nn.Module):
    """A random graph in which every value may be used again, shifted and reshaped ones among them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        torch.manual_seed(seed)
        self.mixing = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        draw = random.Random(self.seed)
        values, squares = [x, x + 5.0], [x * x]
        for mixing in self.mixing:
            value = draw.choice(values)
            values.append(draw.choice([value + draw.random(), 0.5 * value, mixing(value), torch.relu(value - 0.1)]))
            values.append(draw.choice(values) + draw.choice(values).reshape(-1, 3))
            chosen = draw.choice(values)
            squares.append(0.1 * chosen * chosen)
        return torch.cat([draw.choice(squares) + draw.choice(values) + draw.choice(squares) for _ in range(2)], 1)


MODULES = [Step(0), Step(1, 0.1), Step(2, 0.4, nn.Tanh), Step(3, 0.2, nn.GELU), Alternatives(4), Alternatives(5)]
MODULES += [Reused(seed) for seed in range(12)]


def loaded(module: nn.Module) -> Network:
    return relucert.load(module, input_shape=(3,))


def question(network: Network, radius: float = 1.0) -> Problem:
    count = network.classes
    rows, offsets = torch.eye(count, dtype=torch.float64)[None], torch.zeros(1, count, dtype=torch.float64)
    centre = torch.tensor([[0.1, -0.2, 0.3]], dtype=torch.float64)
    return Problem(network, Region.around(centre, radius, "inf"), Property(rows, offsets))


def fused(problem: Problem) -> Fused:
    result = BoxTree(problem).fused
    assert result is not None
    return result


def inside(low: Tensor, high: Tensor, count: int, seed: int) -> Tensor:
    """Points of boxes, corners among them: (boxes, count, inputs)."""
    drawn = torch.rand(len(low), count, low.shape[1], dtype=torch.float64, generator=torch.manual_seed(seed))
    return low[:, None] + (high - low)[:, None] * (1.5 * drawn - 0.25).clamp(0, 1)


def some_boxes(problem: Problem, seed: int) -> tuple[Tensor, Tensor]:
    drawn = torch.rand(40, 2, 3, dtype=torch.float64, generator=torch.manual_seed(seed)).sort(1).values
    shrunk = (
        drawn.mean(1, keepdim=True) + (drawn - drawn.mean(1, keepdim=True)) * torch.logspace(-6, 0, 40)[:, None, None]
    )
    ends = problem.region.centre[:, None] + (2 * shrunk - 1) * problem.region.radius
    return ends[:, 0].contiguous(), ends[:, 1].contiguous()


@pytest.mark.parametrize("number", range(len(MODULES)))
def test_bounds_hold_at_every_point(number: int) -> None:
    problem = question(loaded(MODULES[number]))
    form = fused(problem)
    low, high = some_boxes(problem, number)
    bounds = QuadraticBounds(form)(low, high)
    points = inside(low, high, 400, number)
    values = problem.prop.values(problem.exact(points.flatten(0, 1))).unflatten(0, points.shape[:2])
    lower = torch.where(form.groups, bounds.lower[:, None], -torch.inf).amax(2)
    assert bool((lower <= values.amin(1) + 1e-13 * values.abs().amax()).all())
    assert bool((values.amin(1) - lower)[:8].amax() < 1e-3), "tiny boxes have tight bounds"
    left = (points - (low + high)[:, None] / 2) / (high - low)[:, None] * 2
    lines = (left[:, :, None] * bounds.slopes[:, None]).sum(3) + bounds.floor[:, None]
    below = torch.where(form.groups, lines[:, :, None], -torch.inf).amax(3)
    assert bool((below <= values + 1e-12 * values.abs().amax()).all())


def test_products_cancel() -> None:
    """`(x + y) (x + y) - 4 x y - (x - y) (x - y) = 0`: one by one, products would leave a gap of the boxes' squares."""

    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b = x[:, :1], x[:, 1:2]
            return (a + b) * (a + b) - 4 * a * b - (a - b) * (a - b) + x[:, 2:] + 2

    problem = question(loaded(Nothing()))
    bounds = QuadraticBounds(fused(problem))(problem.region.centre - 1, problem.region.centre + 1)
    assert bounds.lower.item() == pytest.approx(1.3, abs=1e-9)


def test_least_on_a_cube() -> None:
    generator = torch.manual_seed(0)
    slopes = (
        torch.randn(200, 1, 5, dtype=torch.float64, generator=generator) * torch.logspace(-2, 2, 200)[:, None, None]
    )
    form = torch.randn(200, 4, 4, dtype=torch.float64, generator=generator)
    form = form + form.transpose(1, 2)
    used = torch.tensor([0, 1, 3, 4])
    least = least_on_cube(slopes, form, used)[:, 0]
    points = (torch.rand(200, 5000, 5, dtype=torch.float64, generator=generator) * 3 - 1.5).clamp(-1, 1)
    values = (points * slopes).sum(2) + ((points[..., used] @ form) * points[..., used]).sum(2)
    assert bool((least <= values.amin(1) + 1e-9).all())
    steep = values.amin(1)[-20:]
    assert torch.allclose(least[-20:], steep, rtol=0.2), "where slopes decide, a corner is the least point"


def test_tiny_coefficients_do_not_underflow() -> None:
    """`s x + q x^2` is least at `-s^2 / (4 q)`, where the square of the slope alone may be 0."""
    slopes, form = torch.tensor([[[1.0, -0.5]]]).double(), torch.tensor([[[1.0, 0.2], [0.2, 2.0]]]).double()
    least = least_on_cube(slopes, form, torch.arange(2))
    for factor in (1e-120, 1e-170, 1e-250):
        tiny = least_on_cube(factor * slopes, factor * form, torch.arange(2))
        torch.testing.assert_close(tiny / factor, least, rtol=1e-12, atol=0)


def test_boxes_in_chunks_have_the_same_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = question(loaded(MODULES[4]))
    low, high = some_boxes(problem, 4)
    together = QuadraticBounds(fused(problem))(low, high)
    monkeypatch.setattr(quadratic_zonotopes, "CHUNK", 1)
    for table, alone in zip(together, QuadraticBounds(fused(problem))(low, high), strict=True):
        torch.testing.assert_close(table, alone, rtol=1e-9, atol=1e-9)


def test_a_box_in_which_nothing_can_be_violated_is_closed() -> None:
    """One alternative is violated on the left alone, the other on the right alone."""

    class Valley(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            square = 0.01 * x * x
            left, right = 1 + 1.5 * x + square, 1 - 1.5 * x + 2 * square
            unused = torch.relu(x * torch.ones(4)).sum(1, keepdim=True)
            return left + torch.relu(right - left) + 0.0 * unused

    network = relucert.load(Valley(), input_shape=(1,))
    region = Region.around(torch.zeros(1, 1).double(), 1.0, "inf")
    prop = Property(torch.ones(1, 1, 1).double(), torch.zeros(1, 1).double())
    prover = BoxProver(Problem(network, region, prop), lambda point: False, time.monotonic() + 20)
    with torch.no_grad():
        assert prover.run()[0]


@pytest.mark.parametrize("number", [0, 2, 4])
def test_clipped_boxes_keep_every_violation(number: int) -> None:
    problem = question(loaded(MODULES[number]))
    visitor = QuadraticVisitor(problem, lambda point: False, fused=fused(problem))
    boxes = visitor.root()
    low, high = some_boxes(problem, 7)
    boxes = boxes.pick(torch.zeros(len(low), dtype=torch.long))
    boxes = type(boxes)(low, high, torch.rand(boxes.open.shape, generator=torch.manual_seed(1)) < 0.6, boxes.names)
    clipped = visitor._clipped(boxes, visitor.bounds(low, high))
    points = inside(low, high, 2000, 3)
    values = problem.prop.values(problem.exact(points.flatten(0, 1))).unflatten(0, points.shape[:2])
    violated = ((values <= 0) & boxes.open[:, None]).any(2)
    kept = ((points >= clipped.low[:, None]) & (points <= clipped.high[:, None])).all(2)
    assert bool((kept | ~violated).all())
    assert bool((clipped.low >= low).all())
    assert bool((clipped.high <= high).all())


def test_bounds_that_are_no_numbers_close_and_clip_nothing() -> None:
    problem = question(loaded(MODULES[0]))
    visitor = QuadraticVisitor(problem, lambda point: False, fused=fused(problem))
    boxes = visitor.root()
    bounds = visitor.bounds(boxes.low, boxes.high)
    for spoilt in (torch.nan, -torch.inf):
        clipped = visitor._clipped(boxes, RowBounds(*(torch.full_like(table, spoilt) for table in bounds)))
        assert bool((clipped.low == boxes.low).all())
        assert bool((clipped.high == boxes.high).all())
    visitor.bounds = lambda low, high: RowBounds(*(torch.full_like(table, torch.nan) for table in bounds))  # type: ignore[assignment]
    with torch.no_grad():
        assert visitor.visit(boxes).size >= 2, "a box that is not proven is cut"


def decreasing(limit: float) -> Problem:
    """A step changes the quadratic function by less than the limit."""
    network = loaded(Step(0, 0.3))
    rows = torch.tensor([[[-1.0, 0, 0, 0, 0]]], dtype=torch.float64)
    return Problem(
        network, Region.around(torch.zeros(1, 3).double(), 0.5, "inf"), Property(rows, torch.tensor([[limit]]))
    )


def test_a_search_proves_what_holds_and_nothing_else() -> None:
    points = inside(torch.full((1, 3), -0.5).double(), torch.full((1, 3), 0.5).double(), 200_000, 0)[0]
    largest = float(decreasing(0.0).exact(points)[:, 0].max())
    found: list[Tensor] = []

    def violates(point: Tensor) -> bool:
        found.append(point)
        return True

    def run(limit: float) -> tuple[bool, int]:
        prover = BoxProver(decreasing(limit), violates, time.monotonic() + 20)
        assert isinstance(prover.visitor, QuadraticVisitor)
        with torch.no_grad():
            return prover.run()[0], prover.nodes

    proven, nodes = run(largest + 0.01)
    assert proven
    assert not found
    assert nodes < 20_000
    assert not run(largest - 1e-4)[0]
    assert float(decreasing(largest - 1e-4).exact(found[-1][None])[0, 0]) >= largest - 1e-4


def test_networks_without_squares_keep_lines() -> None:
    problem = question(loaded(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))))
    assert fuse(problem.exact, problem.region, problem.prop) is None
