"""The mixed-integer program of `tests/milp.py` against brute force: a linear program for every activation pattern."""

import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

import relucert
from relucert.arithmetic.norm import Norm
from relucert.methods.table import METHODS
from relucert.network import Affine, Linear, Network, Relu, Reshape, Scale, Shift
from tests.milp import nearest
from tests.nets import centres, chain, mlp, skipping

ENDS = (1.0, math.inf)
RADIUS = 4.0


def normalised() -> Network:
    first, last = (node.operation for node in mlp(4, 3, 3, seed=6).nodes[::2])
    return chain(
        (2, 2), Shift(torch.tensor([[0.1], [-0.3]])), Scale(torch.tensor([[0.7], [-1.5]]), divide=True),
        Reshape((2, 2), (4,)), first, Relu(), Relu(), last,
    )  # fmt: skip


TINY: dict[str, Callable[[], Network]] = {
    "linear": lambda: mlp(3, 3),
    "two layers": lambda: mlp(3, 6, 3, seed=1),
    "three layers": lambda: mlp(3, 4, 3, 3, seed=4),
    "four layers": lambda: mlp(2, 3, 2, 2, 2, seed=1),
    "skipping": lambda: skipping(3, 2, seed=5),
    "normalised": normalised,
}


def patterns(network: Network) -> Iterator[dict[int, Tensor]]:
    """For every value before a ReLU, which of its neurons are active: all the ways there are."""
    sizes = [network.sizes[value] for value in network.preactivations]
    for bits in product((0.0, 1.0), repeat=sum(sizes)):
        parts = torch.tensor(bits, dtype=torch.float64).split(sizes)
        yield dict(zip(network.preactivations, parts, strict=True))


def piece(network: Network, active: dict[int, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The linear map that a pattern makes of the network, and where it holds.

    Scores are `slopes @ x + offsets`, where `signs @ x + constants >= 0`.
    """
    size = network.sizes[0]
    forms = [torch.eye(size, dtype=torch.float64).reshape(size, *network.input_shape)]
    constants = [torch.zeros(network.input_shape, dtype=torch.float64)]
    where, least = [torch.zeros(0, size, dtype=torch.float64)], [torch.zeros(0, dtype=torch.float64)]
    for node in network.nodes:
        first = node.inputs[0]
        if isinstance(node.operation, Affine):
            forms.append(node.operation.linear(*(forms[source] for source in node.inputs)))
            constants.append(node.operation.apply(*(constants[source] for source in node.inputs)))
        else:
            sign = 2 * active[first] - 1
            where.append(sign[:, None] * forms[first].flatten(1).T)
            least.append(sign * constants[first].flatten())
            forms.append(forms[first] * active[first].view(network.shapes[first]))
            constants.append(constants[first] * active[first].view(network.shapes[first]))
    return forms[-1].T, constants[-1], torch.cat(where), torch.cat(least)


def brute_force(
    network: Network, centre: Tensor, pair: tuple[int, int], norm: float, box: tuple[float, float] | None
) -> float:
    """The least distance over all patterns; infinite where the rival never catches up."""
    size, (label, rival) = network.sizes[0], pair
    unit, zero = np.eye(size), np.zeros((size, 1))
    deviation = np.block([[unit, -unit, zero], [-unit, -unit, zero]])
    total = np.ones((1, size)) if norm == 1 else unit
    length = np.block([np.zeros_like(total), total, -np.ones((len(total), 1))])
    sides = [(None, None) if box is None else box] * size + [(0, None)] * (size + 1)
    best = math.inf
    for active in patterns(network):
        slopes, offsets, signs, constants = piece(network, active)
        rows = torch.cat([slopes[[label]] - slopes[[rival]], -signs]).numpy()
        limits = torch.cat([offsets[[rival]] - offsets[[label]], constants]).numpy()
        ended = linprog(
            np.eye(2 * size + 1)[-1],
            np.block([[rows, np.zeros((len(rows), size + 1))], [deviation], [length]]),
            np.concatenate([limits, centre.numpy(), -centre.numpy(), np.zeros(len(total))]),
            bounds=sides,
        )
        assert ended.status in (0, 2), ended.message
        best = min(best, ended.fun if ended.status == 0 else math.inf)
    return best


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("box", [None, (-0.8, 1.0)], ids=["free", "box"])
@pytest.mark.parametrize("norm", ENDS)
@pytest.mark.sampled
def test_the_program_finds_the_least_of_all_patterns(name: str, norm: float, box: tuple[float, float] | None) -> None:
    network = TINY[name]().cast(torch.float64)
    for centre in centres(network, 1, seed=4).clamp(-0.8, 1.0):
        label = int(network(centre[None]).argmax())
        rival = (label + 1) % network.classes
        expected = brute_force(network, centre, (label, rival), norm, box)
        nearest_point = nearest(network, centre, label, rival, norm, RADIUS, box)
        if nearest_point is None:
            assert box is not None
            assert expected > RADIUS
            continue
        distance, point = nearest_point
        assert distance == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert float(Norm(norm).distance(point, centre)) == pytest.approx(distance, abs=1e-6)
        scores = network(point[None])[0]
        assert float(scores[label] - scores[rival]) == pytest.approx(0, abs=1e-5)
        assert box is None or bool(((point >= box[0] - 1e-9) & (point <= box[1] + 1e-9)).all())


@pytest.mark.parametrize("norm", ENDS)
def test_the_radius_that_is_searched_changes_nothing_but_the_reach(norm: float) -> None:
    network = mlp(4, 6, 4, 3, seed=3, dtype=torch.float64)
    (centre,) = centres(network, 1)
    label = int(network(centre[None]).argmax())
    rival = (label + 1) % 3
    nearest_point = nearest(network, centre, label, rival, norm, RADIUS)
    assert nearest_point is not None
    wider, closer = (nearest(network, centre, label, rival, norm, share * nearest_point[0]) for share in (1.2, 0.99))
    assert wider is not None
    assert wider[0] == pytest.approx(nearest_point[0], abs=1e-6)
    assert closer is None


@pytest.mark.parametrize("norm", ENDS)
def test_no_certificate_exceeds_the_program(norm: float) -> None:
    network = mlp(4, 6, 4, 3, seed=8, dtype=torch.float64)
    for centre in centres(network, 2):
        label = int(network(centre[None]).argmax())
        rivals = {0, 1, 2} - {label}
        nearest_points = {rival: nearest(network, centre, label, rival, norm, RADIUS) for rival in rivals}
        for method in METHODS:
            answers = relucert.certify(
                network, centre[None].numpy(), norm=norm, target="all", method=method, tolerance=0.01
            )
            assert {answer.target for answer in answers} == rivals
            for answer in answers:
                nearest_point = nearest_points[answer.target]  # type: ignore[index]
                assert answer.radius is not None
                assert nearest_point is None or answer.radius <= nearest_point[0] + 1e-6


def test_by_hand() -> None:
    """The rival's score is max(x, 0) + max(y, 0), the label's is 3: along an axis, or along the diagonal."""
    ones = torch.ones(1, 2, dtype=torch.float64)
    last = Linear(torch.cat([0 * ones, ones]), torch.tensor([3.0, 0.0], dtype=torch.float64))
    first = Linear(torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
    network, centre = chain((2,), first, Relu(), last), torch.tensor([0.0, -1.0], dtype=torch.float64)
    for norm, box, distance in ((1.0, None, 3.0), (math.inf, None, 2.0), (1.0, (-1.0, 2.0), 4.0)):
        nearest_point = nearest(network, centre, 0, 1, norm, 10.0, box)
        assert nearest_point is not None
        assert nearest_point[0] == pytest.approx(distance)
    assert nearest(network, centre, 0, 1, 1.0, 10.0, (-1.0, 1.0)) is None
    with pytest.raises(ValueError, match="p = 2"):
        nearest(network, centre, 0, 1, 2.0, 10.0)
