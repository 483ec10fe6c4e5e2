"""`verify`, `robust_at`, `attack` and `exact` about networks as they are evaluated in floating point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import relucert
from relucert import Query
from relucert.branch_and_bound import prove as proving
from relucert.common.names import InferenceName
from relucert.errors import InputError
from relucert.inputs.loading.runtime import Loaded, RoundedEvaluation, runtime_of
from relucert.network import Linear, Network, Relu, find_inference
from relucert.verification.problem import boxes_of
from tests.float_evaluation import EVALUATIONS
from tests.nets import NETWORKS, centres, chain, mlp
from tests.verification.networks import as_onnx

FLOAT32 = find_inference("float32")
BIG = 2.0**24


def cancelling() -> Network:
    """`x + 2**24 - 2**24` and 1/2: an `x` of 1 is 0 where float32 adds from the left."""
    first = Linear(torch.tensor([[1.0], [0.0]]), torch.tensor([BIG, 1.0]))
    return chain((1,), first, Relu(), Linear(torch.tensor([[1.0, -BIG], [0.0, 0.5]]), torch.zeros(2)))


def test_a_proof_in_real_arithmetic_that_float32_breaks() -> None:
    """At 1 the sum `2**24 + 1` rounds to `2**24`, so that the first output is 0 and not above 1/2."""
    network, query = cancelling(), Query.within([0.9], [1.1], [([[1, -1]], [0])])
    assert relucert.verify(network, query).holds
    broken = relucert.verify(network, query, inference="float32")
    assert (broken.status, broken.inference) == ("violated", "float32")
    assert broken.reason == "shown by PyTorch in float32"
    assert broken.witness is not None
    scores = network(broken.witness.float()[None])[0]
    assert bool(scores[0] <= scores[1])
    image = torch.tensor([[1.0]])
    assert relucert.robust_at(network, image, [0], radius=0.1)[0].holds
    (verdict,) = relucert.robust_at(network, image, [0], radius=0.1, inference="float32")
    assert (verdict.status, verdict.inference, verdict.method) == ("violated", "float32", "the image itself")
    (found,) = relucert.attack(network, image, [0], inference="float32")
    assert (found.distance, found.shown_by, found.inference) == (0.0, "PyTorch in float32", "float32")
    (interval,) = relucert.exact(network, image, [0], inference="float32")
    assert (interval.lower, interval.upper, interval.shown_by) == (0.0, 0.0, "PyTorch in float32")
    assert relucert.attack(network, image, [0])[0].distance != 0


def test_a_class_that_is_an_image_s_own_label_is_no_question_in_float32_either() -> None:
    network, images = mlp(4, 6, 3, seed=1), torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    label = int(network.cast(torch.float64)(images.double()).argmax(1)[0])
    for call in (relucert.attack, relucert.exact):
        first, *_ = call(network, images, target=label, inference="float32")
        assert first.reason == "the target is the image's own label"
    verdict, *_ = relucert.robust_at(network, images, target=label, radius=0.01, inference="float32")
    assert (verdict.status, verdict.reason) == ("unknown", "the target is the image's own label")


def test_the_files_own_runtime_shows_a_violation(tmp_path: Path) -> None:
    path = as_onnx(cancelling(), tmp_path / "cancelling.onnx")
    query = Query.within([0.9], [1.1], [([[1, -1]], [0])])
    assert relucert.verify(path, query, inference="float32").reason == "shown by onnxruntime in float32"
    (found,) = relucert.attack(path, torch.tensor([[1.0]]), [0], inference="float32")
    assert found.shown_by == "onnxruntime in float32"
    loaded = Loaded(relucert.load(path), path)
    (verdict,) = relucert.robust_at(loaded, torch.tensor([[1.0]]), [0], radius=0.1, inference="float32")
    assert "onnxruntime in float32" in str(verdict.reason)


class Counted(nn.Module):
    """The cancelling network as a module that counts its calls."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        first, _, last = (node.operation for node in cancelling().nodes)
        assert isinstance(first, Linear)
        assert isinstance(last, Linear)
        self.first, self.last = nn.Linear(1, 2), nn.Linear(2, 2)
        for layer, stored in ((self.first, first), (self.last, last)):
            layer.weight.data, layer.bias.data = stored.weight.clone(), stored.bias.clone()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        Counted.calls += 1
        scores: torch.Tensor = self.last(torch.relu(self.first(values)))
        return scores


def test_a_module_shows_its_violations_itself() -> None:
    module, point = Counted(), torch.tensor([1.0])
    network = relucert.load(module).evaluated_in(FLOAT32)
    runtime, before = runtime_of(module, network), Counted.calls
    assert torch.equal(runtime.run(point), module(point[None])[0])
    assert Counted.calls == before + 2
    assert runtime.by == "PyTorch in float32"
    query = Query.within([0.9], [1.1], [([[1, -1]], [0])])
    assert relucert.verify(module, query, inference="float32").status == "violated"
    with pytest.raises(InputError, match="stays in this process"):
        relucert.attack(module, point[None], [0], inference="float32", ray="auto")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name",
    ["two layers", "residual", pytest.param("five layers", marks=SLOW), pytest.param("convolutional", marks=SLOW)],
)
@pytest.mark.parametrize("share", [0.7, 1.1])
def test_no_evaluation_breaks_a_verdict(name: str, share: float) -> None:
    """Radii beyond what Fast-Lin certifies: branch and bound decides them."""
    network = NETWORKS[name]()
    images = centres(network, 1).float()
    intervals = relucert.exact(network, images, time_limit=60)
    for image, interval in zip(images, intervals, strict=True):
        assert interval.lower is not None
        radius = share * interval.lower
        (verdict,) = relucert.robust_at(network, image[None], radius=radius, inference="float32", time_limit=300)
        assert verdict.status == ("holds" if share < 1 else "violated"), verdict
        if share < 1:
            generator = np.random.default_rng(1)
            steps = generator.choice([-1.0, 1.0], (20, len(image)))
            points = (image.numpy() + np.float32(radius * (1 - 1e-6)) * steps).astype(np.float32)
            for evaluation in EVALUATIONS.values():
                assert (evaluation.values(network, points)[-1].argmax(1) == verdict.label).all()
        else:
            assert verdict.reason == "shown by PyTorch in float32"


def test_the_question_is_mathematics_and_the_network_is_not() -> None:
    """What a query adds rounds nothing, also with coefficients that float32 does not represent."""
    network = mlp(2, 4, 2).evaluated_in(FLOAT32)
    query = Query.within([0, 0], [1, 1], [([[0.1, -0.3], [1e-12, 1]], [0, 1])])
    ((_, problem),) = boxes_of(network, query.possible)
    count = len(network.nodes)
    assert problem.network.inference is FLOAT32
    assert len(problem.network.nodes) > count
    assert not any(problem.network.roundings[count + 1 :])
    assert any(problem.network.roundings[: count + 1])
    assert not any(node.exact for node in problem.network.nodes[:count])


@pytest.mark.parametrize("suited", [True, False], ids=["cuts", "splits"])
def test_bounds_decide_what_noise_leaves_open(suited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A margin of 2**-20, which rounding of numbers about 1000 may eat up: real arithmetic proves it, float32 does not.

    A margin that is wide enough is proven in both.
    """
    monkeypatch.setattr(proving, "suits_cuts", lambda *_: suited)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(1, 2000, (8, 2), generator=generator) / 1024
    first = Linear(torch.cat([weight, -weight]), torch.zeros(16))
    ones = torch.cat([torch.ones(1, 8), -torch.ones(1, 8)], 1) * 512
    network = chain((2,), first, Relu(), Linear(torch.cat([ones, ones]), torch.tensor([0.0, -(2.0**-20)])))
    query = Query.within([-1, -1], [1, 1], [([[1, -1]], [0])])
    assert relucert.verify(network, query, time_limit=20).holds
    verdict = relucert.verify(network, query, time_limit=20, inference="float32")
    assert verdict.status != "holds"
    wide = chain((2,), first, Relu(), Linear(torch.cat([ones, ones]), torch.tensor([0.0, -64.0])))
    assert relucert.verify(wide, query, time_limit=60, inference="float32").holds


HOSTILE = st.one_of(
    st.floats(-4, 4, width=32),
    st.sampled_from([0.0, 1e-38, -1e-40, 2.0**-126, 1e-20, BIG, -BIG, 1.0 + 2.0**-23]),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(HOSTILE, min_size=9, max_size=9), st.lists(HOSTILE, min_size=6, max_size=6))
def test_hostile_weights(first: list[float], second: list[float]) -> None:
    network = chain(
        (2,),
        Linear(torch.tensor(first[:6]).reshape(3, 2), torch.tensor(first[6:])),
        Relu(),
        Linear(torch.tensor(second).reshape(2, 3), torch.zeros(2)),
    )
    query = Query.within([-1, -1], [1, 1], [([[1, -1]], [0])])
    verdict = relucert.verify(network, query, time_limit=2, inference="float32")
    axis = np.linspace(-1, 1, 5, dtype=np.float32)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    if verdict.holds:
        for evaluation in EVALUATIONS.values():
            scores = evaluation.values(network, points)[-1]
            assert not (scores[:, 0] <= scores[:, 1]).any()
    if verdict.witness is not None:
        scores = network(verdict.witness.float()[None])[0].numpy()
        assert scores[0] <= scores[1]


@pytest.mark.parametrize("inference", ["float16", "bfloat16"])
def test_half_precisions(inference: InferenceName, tmp_path: Path) -> None:
    dtype = getattr(torch, inference)
    network = mlp(3, 5, 2, seed=3, dtype=dtype)
    query = Query.within([-2] * 3, [2] * 3, [([[1, -1]], [0])])
    verdict = relucert.verify(network, query, inference=inference)
    assert verdict.status == "violated"
    assert verdict.witness is not None
    assert torch.equal(verdict.witness.to(dtype).double(), verdict.witness)
    scores = network(verdict.witness.to(dtype)[None])[0]
    assert bool(scores[0] <= scores[1])
    far = Query.within([-2] * 3, [2] * 3, [([[1, -1]], [-1000])])
    assert relucert.verify(network, far, inference=inference).holds
    if inference == "float16":
        path = as_onnx(network, tmp_path / "half.onnx", half=True)
        assert relucert.verify(path, query, inference=inference).reason == "shown by onnxruntime in float16"
    image = centres(network, 1).to(dtype)
    (found,) = relucert.attack(network, image, inference=inference)
    assert found.witness is not None
    assert found.witness.dtype == dtype
    assert int(network(found.witness[None])[0].argmax()) == found.predicted


def test_what_selects_numbers_is_evaluated_without_rounding() -> None:
    """A maximum is one of its numbers, and not a sum that lost digits."""
    network = relucert.load(nn.Sequential(nn.MaxPool1d(3), nn.Flatten()), input_shape=(1, 9)).evaluated_in(FLOAT32)
    points = torch.tensor([[1e8, 1.1, -3e-9, 0.1, 0.3, 0.2, 1e-30, 0.7, -1e6]])
    assert torch.equal(RoundedEvaluation(network)(points), points.reshape(1, 3, 3).amax(2))


def test_a_box_without_a_number_of_the_precision() -> None:
    """No float32 number is in it: nothing is violated there, and what real arithmetic violates is not proven."""
    third = 1 / 3
    query = Query.within([third], [third], [([[1, 0]], [10])])
    network = mlp(1, 2, 2)
    assert relucert.verify(network, query).status == "violated"
    assert relucert.verify(network, query, inference="float32", time_limit=5).status == "unknown"


def test_refusals(tmp_path: Path) -> None:
    network, query = mlp(4, 3), Query.within([0] * 4, [1] * 4, [([[1, -1, 0]], [0])])
    with pytest.raises(InputError, match="proofs are about real arithmetic"):
        relucert.verify(network, query, inference="float32", proof=tmp_path / "proof.json")
    for call in (
        lambda: relucert.verify(network, query, inference="float8"),  # type: ignore[arg-type]
        lambda: relucert.attack(network, torch.zeros(1, 4), inference="float8"),  # type: ignore[arg-type]
        lambda: relucert.robust_at(network, torch.zeros(1, 4), radius=0.1, inference="float8"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match="inference"):
            call()
    with pytest.warns(relucert.RemarkWarning):
        ranked = relucert.load(nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)))
    assert relucert.verify(ranked, query).status != "unknown"
    with pytest.raises(InputError, match="round to the same number"):
        relucert.verify(ranked, query, inference="float32")


@pytest.mark.parametrize("name", ["two layers", pytest.param("residual", marks=SLOW)])
def test_methods_side_by_side(name: str) -> None:
    """The provable order holds among answers about float32; what says nothing about it is left out by name."""
    network = NETWORKS[name]()
    compared = relucert.compare(network, centres(network, 2).float(), inference="float32", steps=20, budget=10)
    answered = {name for question in compared.questions for name in question.answers}
    assert answered == {"interval", "fast-lin", "crown", "alpha", "lp", "lp-full", "sdp", "exact", "attack"}
    for method in ("fast-lip", "lipschitz-norm", "op-norm", "clever"):
        assert "float32" in compared.skipped[method]
        assert method in compared.skipped[method]
    assert {row["inference"] for row in compared.rows()} == {"float32"}
    assert "fast-lin in float32" in str(compared.summary())
    for question in compared.questions:
        real = relucert.certify(network, centres(network, 2).float())[question.image]
        assert question.answers["fast-lin"].radius <= (real.radius or 0) * (1 + 2e-4)
