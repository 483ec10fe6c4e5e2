"""Certificates and bounds of networks as they are evaluated in floating point: no evaluation leaves or breaks them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import relucert
from relucert.bounding.noise import rounds
from relucert.common.names import InferenceName, MethodName
from relucert.errors import InputError
from relucert.methods.table import METHODS
from relucert.network import Linear, Network, Relu, find_inference
from tests.float_evaluation import EVALUATIONS, ORDERS, Evaluation
from tests.method_tables import FORMS
from tests.nets import NETWORKS, centres, chain, mlp

HONOURING = [name for name, make in METHODS.items() if make().takes_inference]
NOISY = ("two layers", "five layers", "residual", "skipping", "normalised", "convolutional", "image residual")


def pooled() -> Network:
    """Max and average pooling, leaky ReLU, clip and batch normalisation, as an import writes them."""
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(2)
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), norm, nn.MaxPool2d(2), nn.LeakyReLU(0.1), nn.AvgPool2d(2),
        nn.Hardtanh(-0.5, 0.6), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip
    norm.running_mean = torch.full((2,), 0.3)
    norm.running_var = torch.full((2,), 0.4)
    return relucert.load(module.eval(), input_shape=(1, 8, 8))


def points_within(centre: np.ndarray, radius: float) -> np.ndarray:
    """Corners, random points and the centre of a cube, as float32 numbers within it."""
    generator = np.random.default_rng(0)
    corners, inner = generator.choice([-1.0, 1.0], (10, centre.size)), generator.uniform(-1, 1, (5, centre.size))
    steps = np.concatenate([corners, inner, np.zeros((1, centre.size))])
    points = (centre + radius * steps).astype(np.float32)
    return np.where(np.abs(points - centre) <= radius, points, np.float32(centre))


@pytest.mark.parametrize("name", NOISY)
def test_no_evaluation_leaves_the_bounds(name: str) -> None:
    network = NETWORKS[name]()
    centre = centres(network, 1).float().double()
    points = points_within(centre.numpy()[0], 0.05)
    computed = {way: evaluation.values(network, points) for way, evaluation in EVALUATIONS.items()}
    for method, form in FORMS:
        region = relucert.Region.around(centre, 0.05, "inf")
        intervals = relucert.bounds(network, region, method=method, form=form, inference="float32")
        real = relucert.bounds(network, region, method=method, form=form)
        for way, values in computed.items():
            for value, interval in zip((*network.preactivations, network.output), intervals, strict=True):
                inside = (values[value] >= interval.lower.numpy()) & (values[value] <= interval.upper.numpy())
                assert inside.all(), (method, form, way)
        assert all(bool((one.lower <= other.lower).all()) for one, other in zip(intervals, real, strict=True))
        assert any(bool((one.upper > other.upper).all()) for one, other in zip(intervals, real, strict=True))


@pytest.mark.parametrize(
    ("name", "method"),
    [("residual", method) for method in HONOURING] + [("convolutional", "fast-lin"), ("image residual", "crown")],
)
@pytest.mark.sampled
def test_no_evaluation_breaks_a_certificate(name: str, method: MethodName) -> None:
    network = NETWORKS[name]()
    images = centres(network, 2).float()
    answers = relucert.certify(network, images, method=method, inference="float32")
    real = relucert.certify(network, images, method=method)
    for image, answer, ideal in zip(images, answers, real, strict=True):
        assert (answer.inference, answer.proven, ideal.inference) == ("float32", True, "real")
        assert answer.radius is not None
        assert ideal.radius is not None
        assert 0.9 * ideal.radius < answer.radius <= ideal.radius * (1 + 2e-4)
        points = points_within(image.double().numpy(), answer.radius)
        for evaluation in EVALUATIONS.values():
            scores = evaluation.values(network, points)[-1]
            assert (scores.argmax(1) == answer.label).all()


@pytest.mark.parametrize("inference", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["two layers", "residual", "convolutional", "image residual"])
def test_no_evaluation_in_half_precision_leaves_the_bounds(name: str, inference: InferenceName) -> None:
    dtype = getattr(torch, inference)
    network = NETWORKS[name]().cast(dtype)
    centre = centres(network, 1).to(dtype).double()
    rounded = torch.from_numpy(points_within(centre.numpy()[0], 0.05)).to(dtype).double()
    points = torch.where((rounded - centre).abs() <= 0.05, rounded, centre).numpy()
    evaluations = [Evaluation(order, fused, precision=dtype) for order in ORDERS.values() for fused in (False, True)]
    computed = [evaluation.values(network, points) for evaluation in evaluations]
    for method, form in FORMS:
        region = relucert.Region.around(centre, 0.05, "inf")
        intervals = relucert.bounds(network, region, method=method, form=form, inference=inference)
        for values in computed:
            for value, interval in zip((*network.preactivations, network.output), intervals, strict=True):
                inside = (values[value] >= interval.lower.numpy()) & (values[value] <= interval.upper.numpy())
                assert inside.all(), (method, form)


@pytest.mark.parametrize("name", ["two layers", "residual", "convolutional"])
def test_adversarial_points_within_a_radius_break_nothing(name: str) -> None:
    """Witnesses from beyond the certified radius, moved into it: no point of the ball is nearer to a rival."""
    network = NETWORKS[name]()
    images = centres(network, 2).float()
    answers = relucert.certify(network, images, method="crown", inference="float32")
    for image, answer, found in zip(images, answers, relucert.attack(network, images, steps=40), strict=True):
        assert answer.radius is not None
        assert found.witness is not None
        step = (found.witness.flatten() - image).double()
        moved = (image.double() + step / step.abs().max() * answer.radius).float()
        inside = (moved.double() - image.double()).abs() <= answer.radius
        point = torch.where(inside, moved, image).numpy()[None]
        for evaluation in EVALUATIONS.values():
            assert evaluation.values(network, point)[-1].argmax() == answer.label


def test_layers_as_an_import_writes_them() -> None:
    network = pooled()
    centre = centres(network, 1).float().double()
    points = points_within(centre.numpy()[0], 0.02)
    (*_, interval) = relucert.bounds(network, relucert.Region.around(centre, 0.02, "inf"), inference="float32")
    for evaluation in EVALUATIONS.values():
        scores = evaluation.values(network, points)[-1]
        assert ((scores >= interval.lower.numpy()) & (scores <= interval.upper.numpy())).all()


def test_what_only_selects_numbers_adds_no_noise(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.MaxPool1d(3), nn.ReLU6(), nn.Flatten())
    network = relucert.load(layers, input_shape=(1, 12))
    relucert.save(network, tmp_path / "selecting.safetensors")
    for known in (network, relucert.load(tmp_path / "selecting.safetensors")):
        computed = known.evaluated_in(find_inference("float32"))
        affine = [value for value, node in computed.steps() if not isinstance(node.operation, Relu)]
        assert not any(rounds(computed, value) for value in affine)
    rounding = relucert.load(nn.Sequential(nn.AvgPool1d(3), nn.Flatten()), input_shape=(1, 12))
    computed = rounding.evaluated_in(find_inference("float32"))
    assert any(rounds(computed, value) for value, _ in computed.steps())


def test_a_certificate_in_real_arithmetic_that_float32_breaks() -> None:
    """2**24 + 1 - 2**24 is 1, and 0 as float32 sums it from the left: below the rival's 1/2."""
    weight = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    network = chain((3,), Linear(weight, torch.tensor([0.0, 0.5])))
    image = torch.tensor([[2.0**24, 1.0, -(2.0**24)]])
    (ideal,) = relucert.certify(network, image, [0], tolerance=1e-6)
    assert ideal.proven
    assert ideal.radius is not None
    assert ideal.radius > 0.1
    terms = np.float32(2.0**24), np.float32(1.0), np.float32(-(2.0**24))
    assert (terms[0] + terms[1]) + terms[2] < np.float32(0.5)
    assert Evaluation(ORDERS["sequential"]).values(network, image.numpy())[-1].argmax() == 1
    (answer,) = relucert.certify(network, image, [0], tolerance=1e-6, inference="float32")
    assert answer.radius is None
    assert answer.reason


HOSTILE = st.one_of(
    st.floats(-4, 4, width=32),
    st.sampled_from([0.0, 1e-38, -1e-40, 2.0**-126, 1e-20, 16777216.0, -16777216.0, 1.0 + 2.0**-23]),
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(HOSTILE, min_size=12, max_size=12),
    st.lists(HOSTILE, min_size=6, max_size=6),
    st.lists(HOSTILE, min_size=3, max_size=3),
    st.sampled_from([0.0, 1e-3, 1.0]),
)
def test_hostile_weights(first: list[float], second: list[float], point: list[float], radius: float) -> None:
    network = chain(
        (3,),
        Linear(torch.tensor(first[:9]).reshape(3, 3), torch.tensor(first[9:])),
        Relu(),
        Linear(torch.tensor(second).reshape(2, 3), torch.zeros(2)),
    )
    centre = torch.tensor([point]).double()
    points = points_within(centre.numpy()[0], radius)
    computed = [evaluation.values(network, points)[-1] for evaluation in EVALUATIONS.values()]
    for method, form in FORMS:
        region = relucert.Region.around(centre, radius, "inf")
        (*_, interval) = relucert.bounds(network, region, method=method, form=form, inference="float32")
        for scores in computed:
            assert not ((scores < interval.lower.numpy()) | (scores > interval.upper.numpy())).any()


def test_overflow_is_no_certificate() -> None:
    """In float16 the first layer is beyond the largest number, although the scores are not."""
    network = chain(
        (2,),
        Linear(torch.full((2, 2), 200.0), torch.zeros(2)),
        Relu(),
        Linear(torch.tensor([[2.0**-10, 0.0], [0.0, -(2.0**-10)]]), torch.zeros(2)),
    )
    image = torch.full((1, 2), 300.0)
    assert relucert.certify(network, image, [0])[0].proven
    assert relucert.certify(network, image, [0], inference="float32")[0].proven
    assert relucert.certify(network, image, [0], inference="float16")[0].radius is None


@pytest.mark.parametrize("inference", ["float16", "bfloat16"])
def test_half_precisions(inference: InferenceName) -> None:
    network = mlp(6, 8, 4, seed=3, dtype=getattr(torch, inference))
    image = centres(network, 1).to(getattr(torch, inference)).double()
    (answer,) = relucert.certify(network, image, inference=inference)
    (ideal,) = relucert.certify(network, image)
    assert ideal.radius is not None
    assert answer.radius is None or answer.radius < ideal.radius
    if inference == "float16":
        assert answer.radius is not None
        points = points_within(image.numpy()[0], answer.radius).astype(np.float16)
        points = np.where(np.abs(points - image.numpy()) <= answer.radius, points, image.numpy()).astype(np.float16)
        for order in ORDERS.values():
            scores = Evaluation(order, dtype=np.dtype(np.float16)).values(network, points)[-1]
            assert (scores.argmax(1) == answer.label).all()


def test_sums_too_long_for_a_precision_certify_nothing() -> None:
    network = mlp(1100, 3, dtype=torch.float16)
    (answer,) = relucert.certify(network, centres(network, 1), inference="float16")
    assert answer.radius is None
    assert "float16" in str(answer.reason)


class Halved(nn.Module):
    """Scores that are halves of precision on the way."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (values.half() * 2).float()


def test_refusals() -> None:
    network, image = mlp(4, 3), torch.zeros(1, 4)
    for method in set(METHODS) - set(HONOURING):
        with pytest.raises(InputError, match=f"{method}.*float32"):
            relucert.certify(network, image, method=method, inference="float32")
    with pytest.raises(InputError, match="inference"):
        relucert.certify(network, image, inference="float8")  # type: ignore[arg-type]
    with pytest.warns(relucert.RemarkWarning):
        halved = relucert.load(Halved(), input_shape=(4,))
    with pytest.raises(InputError, match="casts"):
        relucert.certify(halved, image, inference="float32")
    with pytest.raises(InputError, match="float16 does not represent"):
        relucert.certify(network, image, inference="float16")
    with pytest.raises(InputError, match="float32 does not represent"):
        relucert.bounds(
            chain((1,), Linear(torch.tensor([[0.1]]).double() / 3, torch.zeros(1).double())),
            relucert.Region.around(torch.zeros(1, 1), 0.1, "inf"),
            inference="float32",
        )


def test_exact_intervals_about_float32() -> None:
    """The lower end holds in every evaluation, and the witness fails in that of PyTorch."""
    network = NETWORKS["residual"]()
    images = centres(network, 2).float()
    for image, answer in zip(images, relucert.exact(network, images, inference="float32"), strict=True):
        assert answer.inference == "float32"
        assert answer.lower is not None
        assert answer.upper is not None
        assert answer.witness is not None
        assert answer.lower < answer.upper < 1.01 * answer.lower
        points = points_within(image.double().numpy(), answer.lower)
        for evaluation in EVALUATIONS.values():
            assert (evaluation.values(network, points)[-1].argmax(1) == answer.label).all()
        assert answer.shown_by == "PyTorch in float32"
        assert answer.witness.dtype == torch.float32
        (scores,) = network(answer.witness[None])
        rivals = scores[[rival for rival in range(len(scores)) if rival != answer.label]]
        assert bool((rivals >= scores[answer.label]).any())
