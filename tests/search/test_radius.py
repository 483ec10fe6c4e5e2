"""The radius search: what it returns passed, is nearly the largest that would, and no liar can break it."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS, Arithmetic
from relucert.bounding.interval import Bounds
from relucert.common.deadline import TimeUp
from relucert.methods.method import Method
from relucert.methods.table import find_method, suited_network
from relucert.network import Network
from relucert.query.problem import Problem
from relucert.query.targets import rivals
from relucert.search.end import SearchEnd
from relucert.search.evaluation import Evaluation, Evaluator
from relucert.search.prediction import Correction
from relucert.search.radius import Searcher
from tests.method_tables import LINEAR, LIPSCHITZ
from tests.nets import NETWORKS, NORMS, centres, mlp


class Asked(NamedTuple):
    """Asked about the predicted class of some points."""

    centres: Tensor
    prop: Property


def ask(network: Network, target: str = "untargeted", count: int = 6) -> Asked:
    points = centres(network, count, seed=5)
    scores = network.cast(torch.float64)(points)
    labels = scores.argmax(1)
    return Asked(points, Property.margins(labels, rivals(target, scores, labels, 0), network.classes))


def search(
    network: Network, questions: Asked, norm: float = 2, method: str | Method = "fast-lin",
    proof: Arithmetic = RIGOROUS, tolerance: float = 1e-4,
) -> list[SearchEnd]:  # fmt: skip
    chosen = find_method(method) if isinstance(method, str) else method
    searcher = Searcher(network, chosen, proof, tolerance)
    region = Region.around(questions.centres, 0.0, norm)
    return sorted(searcher.run(region, questions.prop), key=lambda end: end.question)


def margin(network: Network, questions: Asked, radii: Tensor, norm: float, method: str = "fast-lin") -> Tensor:
    """The least rigorous margin at given radii."""
    chosen = find_method(method)
    double = suited_network(chosen, network, RIGOROUS).cast(torch.float64)
    region = Region.around(questions.centres, radii, norm)
    hidden = chosen.hidden(double, region, RIGOROUS)
    return chosen.margins(double, region, questions.prop, hidden, RIGOROUS).amin(1)


def _tolerances(method: str) -> list[float]:
    return [1e-4] if method == "crown" else [1e-2, 1e-4, 1e-7]


@pytest.mark.parametrize(
    ("method", "tolerance"),
    [(method, tolerance) for method in [*LINEAR, *LIPSCHITZ] for tolerance in _tolerances(method)],
)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "rectified input"])
@pytest.mark.sampled
def test_the_radius_passes_and_a_slightly_larger_one_fails(
    name: str, norm: float, method: str, tolerance: float
) -> None:
    network = NETWORKS[name]()
    questions = ask(network, count=3)
    ends = search(network, questions, norm, method, tolerance=tolerance)
    assert all(end.closed and end.radius is not None for end in ends)
    radii = torch.tensor([end.radius for end in ends], dtype=torch.float64)
    assert (margin(network, questions, radii, norm, method) > 0).all()
    assert (margin(network, questions, radii * (1 + 3 * tolerance), norm, method) <= 0).all()


def test_few_evaluations_are_spent() -> None:
    for sizes, most in (((20, 30, 10), 2), ((20, 30, 30, 10), 5), ((20, 30, 30, 30, 30, 10), 6)):
        network = mlp(*sizes, seed=4)
        ends = search(network, ask(network, count=20))
        assert max(end.evaluations for end in ends) <= most


@pytest.mark.parametrize("name", ["two layers", "five layers", "residual"])
def test_a_batch_equals_its_members(name: str) -> None:
    network = NETWORKS[name]()
    questions = ask(network)
    together = search(network, questions)
    for number, end in enumerate(together):
        (alone,) = search(
            network, Asked(questions.centres[number : number + 1], questions.prop.select(torch.tensor([number])))
        )
        assert end.radius == pytest.approx(alone.radius, rel=1e-4)
        assert end.weakest == alone.weakest


def test_a_network_without_relu_is_exact() -> None:
    network = mlp(6, 4)
    questions = ask(network)
    rows = questions.prop.rows
    forms = rows @ network.cast(torch.float64).nodes[0].operation.tensors()["weight"]
    margins = (rows @ network.cast(torch.float64)(questions.centres)[..., None]).squeeze(-1)
    for norm in NORMS:
        true = (margins / torch.linalg.vector_norm(forms, Norm(norm).dual, 2)).amin(1)
        for end, radius in zip(search(network, questions, norm), true.tolist(), strict=True):
            assert end.radius is not None
            assert radius * (1 - 1e-4) <= end.radius <= radius


def test_plain_arithmetic_finds_nearly_the_same() -> None:
    network = NETWORKS["five layers"]()
    questions = ask(network)
    for one, other in zip(search(network, questions), search(network, questions, proof=DOUBLE), strict=True):
        assert one.radius == pytest.approx(other.radius, rel=2e-4)


class Plain:
    """What the methods below have in common: nothing to start from, nothing to remark."""

    weaker: ClassVar[None] = None
    takes_inference: ClassVar[bool] = False
    needs_rectifiers = False

    def remark(self, point: Tensor, prop: Property) -> None:
        return None

    def bounds_stable_neurons(self, network: Network) -> bool:
        return True


@dataclass(frozen=True)
class Liar(Plain):
    """Fast-Lin, with margins that are tampered with whenever the search only predicts or explores."""

    lie: str
    name: str = "liar"

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return find_method("fast-lin").hidden(network, region, arithmetic)

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        honest = find_method("fast-lin").margins(network, region, prop, hidden, arithmetic)
        if arithmetic.rigorous:
            return honest
        noise = torch.sin(1e6 * region.radius)[:, None]
        return {
            "optimist": honest.abs() + 1,
            "pessimist": -honest.abs() - 1,
            "noisy": honest * (1 + noise) + noise,
            "wrong scale": honest + 3 * region.radius[:, None],
            "nan": honest * torch.nan,
            "infinite": honest * torch.inf,
        }[self.lie]


@pytest.mark.parametrize("lie", ["optimist", "pessimist", "noisy", "wrong scale", "nan", "infinite"])
def test_wrong_predictions_cost_time_but_not_truth(lie: str) -> None:
    network = NETWORKS["three layers"]()
    questions = ask(network)
    best = torch.tensor([end.radius for end in search(network, questions)], dtype=torch.float64)
    for end, honest in zip(search(network, questions, method=Liar(lie)), best.tolist(), strict=True):
        if end.radius is not None:
            assert end.radius <= honest * (1 + 1.1e-4)
        if lie == "wrong scale":
            assert end.radius == pytest.approx(honest, rel=3e-3)


def test_a_correction_is_a_parabola_unless_evaluations_far_apart_tell_another_power() -> None:
    def told(*evaluations: tuple[float, float]) -> list[float]:
        correction = Correction.none(1)
        for radius, amount in evaluations:
            one = torch.ones(1, dtype=torch.float64)
            correction = correction.evaluated(radius * one, amount * one)
        return [float(number) for number in correction.at(torch.tensor([[0.5, 1.0, 4.0]], dtype=torch.float64))[0]]

    assert told() == [0, 0, 0]
    assert told((2.0, 4.0)) == pytest.approx([0.25, 1, 16])
    assert told((2.0, 4.0), (1.0, 2.0)) == pytest.approx([1, 2, 8])
    assert told((2.0, 4.0), (4.0, 64.0)) == pytest.approx([1, 4, 64])  # no faster than a parabola
    assert told((1.0001, 1.5), (1.0, 2.0)) == pytest.approx([0.5, 2, 32])  # of the same radius, where more was found
    assert told((2.0, -4.0), (1.0, 2.0)) == pytest.approx([0.5, 2, 32])
    assert told((2.0, 0.0), (2.0, 0.0)) == [0, 0, 0]


@dataclass(frozen=True)
class Constant(Plain):
    """Margins of one value at every radius."""

    value: float
    name: str = "constant"

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        return find_method("interval").hidden(network, region, arithmetic)

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        return torch.full(prop.offsets.shape, self.value, dtype=arithmetic.dtype)


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("-inf")])
def test_nothing_proven_is_no_radius(value: float) -> None:
    network = NETWORKS["three layers"]()
    assert all(end.radius is None for end in search(network, ask(network, count=1), method=Constant(value)))


def test_a_margin_that_never_falls_ends_the_search_unclosed() -> None:
    network = NETWORKS["three layers"]()
    for end in search(network, ask(network), method=Constant(1.0)):
        assert end.radius is not None
        assert not end.closed


@pytest.mark.parametrize("predictions", [1, 2, 3, 5, 8])
def test_time_that_is_up_between_evaluations_loses_no_radius(predictions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was proven when predictions ran out of time is an answer."""
    network, left = NETWORKS["three layers"](), [predictions]
    predict, evaluate = Evaluator.predict, Evaluator.evaluate
    proven: list[float] = []

    def limited(*asked: Any, **options: Any) -> Tensor:
        left[0] -= 1
        if left[0] < 0:
            raise TimeUp
        return predict(*asked, **options)

    def watched(evaluator: Evaluator, asked: Problem, radii: Tensor, arithmetic: Arithmetic) -> Evaluation:
        evaluation = evaluate(evaluator, asked, radii, arithmetic)
        proven.extend(radii[(evaluation.margins > 0).all(1)].tolist() if arithmetic.rigorous else [])
        return evaluation

    monkeypatch.setattr(Evaluator, "predict", limited)
    monkeypatch.setattr(Evaluator, "evaluate", watched)
    questions = ask(network)
    ends = search(network, questions)
    assert len(ends) == len(questions.centres)
    assert max(end.radius or 0 for end in ends) == max(proven, default=0)


def test_tiny_radii_of_intervals_take_no_more_evaluations() -> None:
    """Deep networks have radii that float32 does not resolve: what it predicts would lead astray."""
    network = mlp(6, *[40] * 14, 4)
    ends = search(network, ask(network), norm=math.inf, method="interval")
    assert all(end.closed and end.radius is not None and 0 < end.radius < 1e-7 for end in ends)
    assert max(end.evaluations for end in ends) <= 14
