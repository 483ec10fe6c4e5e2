"""Exact answers about convolutional networks against HiGHS's mixed-integer programs, and against every piece."""

import pytest
import torch
from torch import Tensor

import relucert
from relucert import Network
from relucert.network import Relu, Reshape
from tests.branch_and_bound.test_exact import BOX, asked, check_interval, nearest_of_all_pieces, single
from tests.milp import nearest
from tests.nets import centres, chain, convolution_of, linear_of, tiny_image


def small(seed: int = 0) -> Network:
    """Two convolutions and a hidden layer: 34 ReLUs."""
    generator = torch.Generator().manual_seed(seed)
    return chain(
        (1, 4, 4),
        convolution_of(generator, (2, 1, 3, 3), (4, 4), stride=(2, 2), padding=(1, 1, 1, 1)),
        Relu(),
        convolution_of(generator, (4, 2, 2, 2), (2, 2), padding=(1, 1, 0, 0)),
        Relu(),
        Reshape((4, 2, 2), (16,)),
        linear_of(16, 10, generator, torch.float32),
        Relu(),
        linear_of(10, 4, generator, torch.float32),
    )


def compare(network: Network, image: Tensor, norm: str) -> bool:
    """Whether the interval is closed; in any case it contains the program's answer."""
    answer = single(network, image, norm=norm, target="runner-up", box=BOX)
    assert answer.target is not None
    assert answer.upper is not None
    assert answer.lower is not None
    assert answer.label is not None
    other = nearest(network, image, answer.label, answer.target, float(norm), 1.3 * answer.upper, BOX)
    assert other is not None
    assert answer.lower <= other[0] * (1 + 1e-5)
    assert other[0] <= answer.upper * (1 + 1e-5)
    if answer.closed:
        check_interval(network, image, answer)
        assert other[0] == pytest.approx(answer.upper, rel=1.1e-3)
    return answer.closed


@pytest.mark.parametrize(("norm", "count"), [pytest.param("inf", 10, marks=pytest.mark.slow), ("inf", 3), ("1", 3)])
def test_agrees_with_a_mixed_integer_program(norm: str, count: int) -> None:
    network = tiny_image(seed=5)
    for image in asked(network, count):
        assert compare(network, image, norm)


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "count"), [("inf", 10), ("1", 3)])
def test_agrees_with_a_mixed_integer_program_of_more_layers(norm: str, count: int) -> None:
    network = small()
    closed = [compare(network, image, norm) for image in asked(network, count)]
    assert sum(closed) >= count // 2


def test_agrees_with_every_piece_for_the_euclidean_norm() -> None:
    generator = torch.Generator().manual_seed(2)
    network = chain(
        (1, 2, 3),
        convolution_of(generator, (2, 1, 2, 2), (2, 3), padding=(0, 0, 0, 1)),
        Relu(),
        Reshape((2, 1, 3), (6,)),
        linear_of(6, 3, generator, torch.float32),
    )
    for image in asked(network, 2):
        answer = single(network, image, norm="2", target="runner-up", box=BOX)
        assert answer.target is not None
        assert answer.label is not None
        least = nearest_of_all_pieces(network, image, answer.label, answer.target, BOX)
        if answer.unreachable:
            assert least == float("inf")
            continue
        check_interval(network, image, answer)
        assert least == pytest.approx(answer.upper, rel=1.1e-3)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_certificates_and_attacks_enclose_it_with_box_and_scale(norm: str) -> None:
    network = tiny_image(seed=5)
    question = {"norm": norm, "target": "runner-up", "box": BOX, "scale": torch.linspace(0.5, 1.5, 6).reshape(1, 3, 2)}
    images = centres(network, 2).clamp(*BOX)
    for certificate, answer, attack in zip(
        relucert.certify(network, images, **question),  # type: ignore[arg-type]
        relucert.exact(network, images, **question),  # type: ignore[arg-type]
        relucert.attack(network, images, **question),  # type: ignore[arg-type]
        strict=True,
    ):
        assert answer.closed
        assert answer.upper is not None
        assert certificate.radius is not None
        assert certificate.radius <= answer.upper
        assert attack.distance is not None
        assert answer.lower is not None
        assert answer.lower <= attack.distance
