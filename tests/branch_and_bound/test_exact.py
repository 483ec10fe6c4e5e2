"""Exact answers against another's arithmetic, against every other method, and at the edges of what can be asked."""

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, minimize
from torch import Tensor

import relucert
from relucert import Exact, Network
from relucert.answers.verdicts import LATE
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region, RegionShape
from relucert.attacks.witness import AdversarialCheck, AdversarialPoint
from relucert.branch_and_bound import exact_search
from relucert.branch_and_bound.exact_search import ExactSearch
from relucert.branch_and_bound.prove import Outcome
from relucert.common.progress import Progress
from relucert.errors import InputError
from relucert.experiments.comparison.order import STRONGER
from relucert.network import Linear, Relu
from relucert.network.linear_regions import affine_values, form_gradients
from relucert.query.problem import Problem
from tests.milp import nearest
from tests.nets import NETWORKS, centres, chain, mlp, residual

BOX = (-1.5, 1.5)
ENDS = ["inf", "2", "1"]


def asked(network: Network, count: int = 2) -> Tensor:
    return centres(network, count).clamp(*BOX)


def single(network: Network, image: Tensor, **options: Any) -> Exact:
    (answer,) = relucert.exact(network, image[None], **options)
    return answer


def check_interval(network: Network, image: Tensor, answer: Exact, box: tuple[float, float] | None = BOX) -> None:
    """Closed, and the witness is what it is said to be."""
    assert answer.closed
    assert answer.proven
    assert answer.reason is None
    assert answer.lower is not None
    assert answer.upper is not None
    assert answer.witness is not None
    assert answer.upper * (1 - 1e-3) <= answer.lower <= answer.upper
    point = answer.witness.double().flatten()
    assert float(Norm(answer.norm).distance(point, image)) <= answer.upper
    assert box is None or bool(((point >= box[0]) & (point <= box[1])).all())
    scores = network.cast(torch.float64)(point[None])[0]
    assert scores[answer.target] >= scores[answer.label] - 1e-9


@pytest.mark.parametrize("box", [BOX, None])
@pytest.mark.parametrize("norm", ["inf", "1"])
@pytest.mark.parametrize("network", [mlp(4, 6, 3), mlp(3, 4, 3, 3, seed=4), residual()], ids=["two", "three", "skips"])
def test_agrees_with_a_mixed_integer_program(network: Network, norm: str, box: tuple[float, float] | None) -> None:
    for image in asked(network, 1):
        answer = single(network, image, norm=norm, target="runner-up", box=box)
        assert answer.target is not None
        radius = 20.0 if answer.upper is None else 2 * answer.upper
        assert answer.label is not None
        other = nearest(network, image, answer.label, answer.target, float(norm), radius, box)
        assert answer.unreachable == (other is None)
        if other is None:
            continue
        check_interval(network, image, answer, box)
        assert other[0] == pytest.approx(answer.upper, rel=1.1e-3)


def nearest_of_all_pieces(network: Network, image: Tensor, label: int, rival: int, box: tuple[float, float]) -> float:
    """p = 2 by brute force: a quadratic program in every linear region of a network with one hidden layer."""
    (value,) = network.preactivations
    exact, least = network.cast(torch.float64), math.inf
    lead = torch.zeros(1, 1, network.classes, dtype=torch.float64)
    lead[..., rival], lead[..., label] = 1, -1
    for active in itertools.product([False, True], repeat=network.sizes[value]):
        pattern = {value: torch.tensor([active])}
        at_image = affine_values(exact, pattern, image[None])
        signs = torch.where(pattern[value], 1.0, -1.0).double()
        rows = torch.cat(
            [
                form_gradients(exact, pattern, exact.output, lead)[0],
                form_gradients(exact, pattern, value, torch.diag(signs[0])[None])[0],
            ]
        )
        behind = torch.cat([(lead[0] @ at_image[-1][0]), signs[0] * at_image[value][0]])
        sides = LinearConstraint(rows.numpy(), -behind.numpy(), np.inf)
        bounds = [(box[0] - float(pixel), box[1] - float(pixel)) for pixel in image]
        solution = minimize(
            lambda offset: (float(offset @ offset), 2 * offset), np.zeros(len(image)), jac=True, method="SLSQP",
            bounds=bounds, constraints=[sides], options={"ftol": 1e-14, "maxiter": 200},
        )  # fmt: skip
        if solution.success and (rows.numpy() @ solution.x >= -behind.numpy() - 1e-7).all():
            least = min(least, math.sqrt(solution.fun))
    return least


def test_agrees_with_every_piece_for_the_euclidean_norm() -> None:
    network = mlp(3, 5, 3, seed=7)
    for image in asked(network, 3):
        answer = single(network, image, norm="2", target="runner-up", box=BOX)
        check_interval(network, image, answer)
        assert answer.target is not None
        assert answer.label is not None
        least = nearest_of_all_pieces(network, image, answer.label, answer.target, BOX)
        assert least == pytest.approx(answer.upper, rel=1.1e-3)


# They may take minutes to close; "rectified input" never does: its scores tie on whole regions.
SLOW = [("image residual", "1"), ("image residual", "2")]


@pytest.mark.parametrize("norm", ENDS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_lies_between_certificates_and_attacks(name: str, norm: str) -> None:
    network = NETWORKS[name]()
    image = asked(network, 1)[0]
    limit = 2.0 if name == "rectified input" or (name, norm) in SLOW else 60.0
    answer = single(network, image, norm=norm, target="runner-up", box=None, time_limit=limit)
    (attacked,) = relucert.attack(network, image[None], norm=norm, target="runner-up", box=None)
    radii = [
        relucert.certify(network, image[None], norm=norm, target="runner-up", method=method)[0].radius or 0.0
        for method in STRONGER[0]
    ]
    if limit == 60.0:
        check_interval(network, image, answer, None)
        assert answer.lower is not None
        assert max(radii) <= answer.lower * (1 + 1e-3)
    assert answer.lower is not None
    assert answer.upper is not None
    assert attacked.distance is not None
    assert all(weaker <= stronger * (1 + 1e-4) for weaker, stronger in itertools.pairwise(radii))
    assert answer.lower <= attacked.distance
    assert radii[-1] <= answer.upper


@pytest.mark.parametrize("norm", ENDS)
@pytest.mark.sampled
def test_untargeted_is_the_least_of_all_rivals(norm: str) -> None:
    network = mlp(5, 8, 4, seed=5)
    image = asked(network, 1)[0]
    whole = single(network, image, norm=norm, box=BOX)
    each = relucert.exact(network, image[None], norm=norm, target="all", box=BOX)
    uppers = {answer.target: answer.upper for answer in each if answer.upper is not None}
    assert whole.upper == pytest.approx(min(uppers.values()), rel=1.1e-3)
    assert uppers[whole.target] == pytest.approx(whole.upper, rel=1.1e-3)


@pytest.mark.parametrize("norm", ENDS)
def test_a_box_only_takes_adversarial_points_away(norm: str) -> None:
    network = mlp(5, 8, 4, seed=6)
    image = asked(network, 1)[0]
    inside, anywhere = (single(network, image, norm=norm, target=rival(network, image), box=box) for box in (BOX, None))
    assert anywhere.lower is not None
    assert inside.unreachable or (inside.upper is not None and inside.upper >= anywhere.lower)


def rival(network: Network, image: Tensor) -> int:
    return int(network.cast(torch.float64)(image[None])[0].argsort()[-2])


def constant(lead: float) -> Network:
    """Two scores that differ by `lead`, or by a little less."""
    hidden = Linear(torch.tensor([[1.0, -1.0], [0.5, 1.0]]), torch.tensor([0.1, -0.2]))
    last = Linear(torch.tensor([[0.0, 0.0], [0.1, 0.1]]), torch.tensor([lead, 0.0]))
    return chain((2,), hidden, Relu(), last)


@pytest.mark.parametrize("norm", ENDS)
def test_what_cannot_be_reached_is_said_to_be_so(norm: str) -> None:
    image = torch.tensor([0.2, -0.1], dtype=torch.float64)
    answer = single(constant(5.0), image, norm=norm, box=(-0.5, 0.5))
    assert answer.unreachable
    assert answer.closed
    assert answer.proven
    assert answer.lower is None
    assert answer.upper is None
    assert answer.witness is None
    assert answer.reason is not None
    assert "no valid input" in answer.reason
    within_reach = single(constant(0.05), image, norm=norm, box=(-0.5, 0.5))
    assert within_reach.closed
    assert not within_reach.unreachable


@pytest.mark.parametrize("norm", ENDS)
@pytest.mark.sampled
def test_time_limits(norm: str) -> None:
    network = mlp(6, 40, 40, 40, 4, seed=8)
    image = asked(network, 1)[0]
    answer = single(network, image, norm=norm, box=BOX, time_limit=0)
    (certified,) = relucert.certify(network, image[None], norm=norm, box=BOX)
    assert not answer.closed
    assert answer.upper is None
    assert answer.lower == certified.radius
    assert answer.reason is not None
    assert "time limit" in answer.reason
    later = single(network, image, norm=norm, box=BOX, time_limit=1.0)
    assert later.lower is not None
    assert certified.radius is not None
    assert later.lower >= certified.radius
    assert later.upper is None or later.upper >= later.lower
    assert later.closed or later.reason is not None


def test_misclassified_and_pointless_questions() -> None:
    network = mlp(4, 6, 3)
    image = asked(network, 1)
    predicted = int(network.cast(torch.float64)(image)[0].argmax())
    (wrong,) = relucert.exact(network, image, [(predicted + 1) % 3], box=BOX)
    assert (wrong.lower, wrong.upper, wrong.closed) == (0.0, 0.0, True)
    assert wrong.reason is not None
    assert "misclassified" in wrong.reason
    (pointless,) = relucert.exact(network, image, target=predicted, box=BOX)
    assert pointless.lower is None
    assert not pointless.closed
    assert not pointless.proven
    assert pointless.reason is not None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"norm": "3"}, "norm 1, 2 or inf"),
        ({"box": (1.0, 0.0)}, "box"),
        ({"box": (-0.01, 0.01)}, "outside the box"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"time_limit": -1}, "time limit"),
        ({"time_limit": math.nan}, "time limit"),
        ({"target": 7}, "7"),
        ({"seed": -1}, "seed"),
        ({"proof": "no/such/folder/proof.json"}, "folder"),
        ({"proof": "proof.json", "target": "all"}, "one question"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], named: str) -> None:
    network = mlp(4, 6, 3)
    with pytest.raises(InputError, match=named) as raised:
        relucert.exact_each(network, asked(network, 1), **({"box": BOX} | options))
    assert "\n" not in str(raised.value)


def test_progress_and_interruption() -> None:
    network = mlp(6, 20, 20, 4, seed=9)
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        if progress.nodes:
            seen.append(progress)
            raise KeyboardInterrupt

    answers = relucert.exact_each(network, asked(network, 2), box=BOX, progress=watch)
    kept = next(answers)
    with pytest.raises(KeyboardInterrupt):
        next(answers)
    assert (seen[0].stage, seen[0].image) == ("cuts", 0)
    assert seen[0].lower is not None
    assert kept.failed
    assert kept.reason is not None
    assert "interrupted" in kept.reason
    assert kept.lower is not None
    assert kept.upper is not None
    assert 0 < kept.lower <= kept.upper
    with pytest.raises(KeyboardInterrupt):
        relucert.exact(network, asked(network, 1), box=BOX, progress=watch)


@pytest.mark.parametrize("network", [mlp(2, 20, 20, 4, seed=9), mlp(30, 20, 20, 4, seed=9)], ids=["cuts", "splits"])
def test_a_search_tells_how_far_it_is(network: Network) -> None:
    seen: list[Progress] = []
    image = asked(network, 1)[0]
    (nearest,) = relucert.attack(network, image[None], box=BOX)
    assert nearest.distance is not None
    (verdict,) = relucert.robust_at_each(
        network, image[None], radius=0.9 * nearest.distance, box=BOX, progress=seen.append
    )
    seen = [state for state in seen if state.nodes is not None]
    assert verdict.to_json()["stage"] == (seen[-1].stage if seen else None)
    assert verdict.stage in (None, "cuts", "root", "tree", "certificates", "refinement")
    nodes = [state.nodes or 0 for state in seen]
    assert nodes == sorted(nodes)
    for state in seen:
        assert (state.open or 0) >= 0
        assert 0 <= (state.rows or 0) <= 3
        assert str(state.stage) in str(state)


def test_a_broken_search_keeps_what_is_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, no answer is closed by it, and the interval so far stands."""
    network = mlp(4, 6, 3)

    def fail(*given: object) -> None:
        raise RuntimeError("no memory\nat all")

    monkeypatch.setattr("relucert.branch_and_bound.node_tree.proven_bounds", fail)
    (answer,) = relucert.exact(network, asked(network, 1), box=BOX)
    (certified,) = relucert.certify(network, asked(network, 1), box=BOX)
    assert not answer.closed
    assert answer.lower is not None
    assert certified.radius is not None
    assert answer.lower >= certified.radius
    assert answer.reason is not None
    assert "no memory at all" in answer.reason


def test_bounds_that_are_no_numbers_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network = mlp(4, 6, 3)
    monkeypatch.setattr(
        "relucert.branch_and_bound.node_tree.proven_bounds",
        lambda stages, rows, nodes: torch.full((len(nodes.rows),), torch.nan),
    )
    (answer,) = relucert.exact(network, asked(network, 1), box=BOX)
    (certified,) = relucert.certify(network, asked(network, 1), box=BOX)
    assert not answer.closed
    assert answer.reason is not None
    assert answer.lower is not None
    assert certified.radius is not None
    assert answer.lower >= certified.radius


def test_what_takes_too_long_at_the_goal_is_proven_as_far_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the search of a region proves every radius up to 0.99, where a violation lies at 1, and none
    beyond; 0.975 is certified to begin with."""

    def stand_in(problem: Problem, *_: object, **__: object) -> Outcome:
        easy = float(problem.region.radius) <= 0.99
        return Outcome(easy, None if easy else LATE, 1, "tree")

    monkeypatch.setattr(exact_search, "prove", stand_in)
    network, centre = mlp(3, 4, 3), torch.zeros(3, dtype=torch.float64)
    region, shape = Region.around(centre[None], 1.0, "inf"), RegionShape(Norm.parse("inf"))
    rows = torch.tensor([[[1.0, -1.0, 0.0]]], dtype=torch.float64)
    problem = Problem(network, region, Property(rows, torch.zeros(1, 1, dtype=torch.float64)))
    check, violation = AdversarialCheck(network, shape), AdversarialPoint(centre + 1, 1.0)
    search = ExactSearch(problem, check, time.monotonic() + 60, 1e-3, 0.975, violation)
    search.run()
    assert search.failure == LATE
    assert 0.985 < search.lower <= 0.99


def test_answers_are_the_same_twice_and_leave_the_network_alone() -> None:
    network = mlp(5, 8, 4, seed=5)
    before = [tensor.clone() for node in network.nodes for tensor in node.operation.tensors().values()]
    first, second = (relucert.exact(network, asked(network), box=BOX) for _ in range(2))
    assert [(answer.lower, answer.upper) for answer in first] == [(answer.lower, answer.upper) for answer in second]
    after = [tensor for node in network.nodes for tensor in node.operation.tensors().values()]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_few_nodes_close_the_interval() -> None:
    """Near the minimum distortion margins are close to 0: nodes need their whole ascents, or their trees never end."""
    network = mlp(6, 10, 8, 4, seed=1)
    image = centres(network, 1).float().double().clamp(-1.5, 1.25)
    (answer,) = relucert.exact(network, image, norm="1")
    assert answer.closed
    assert answer.nodes < 5000
