"""Split neurons: the folded network is the same function of real numbers with fewer ReLUs, or there is none."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor

import relucert
from relucert.network import Convolution, Linear, Network, Node, Relu, Reshape
from relucert.network.inference import find_inference
from relucert.network.split_neurons import fold_split_neurons
from relucert.verification.rational import outputs_at
from tests.nets import chain, linear_of

FACTORS = {
    "opposite": (-1.0,),
    "the same": (1.0,),
    "twice": (2.0,),
    "minus half": (-0.5,),
    "four of one direction": (-1.0, 4.0, -0.25),
}


def _small(*shape: int, seed: int) -> Tensor:
    """Whole numbers, which sums do not round."""
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).float()


def _split(factors: tuple[float, ...], cancel: bool, count: int = 3) -> Network:
    """A network with neurons of which copies, times factors, are appended to the first layer."""
    weight, bias, after = _small(count, 4, seed=1), _small(count, seed=2), _small(5, count, seed=3)
    rows = torch.cat([weight, *(factor * weight for factor in factors)])
    offsets = torch.cat([bias, *(factor * bias for factor in factors)])
    copies = [-after if cancel else _small(5, count, seed=4 + place) for place in range(len(factors))]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(5))
    columns = torch.cat([after, *copies], 1)[:, order]
    last = Linear(_small(2, 5, seed=9), _small(2, seed=10))
    return chain((4,), Linear(rows[order], offsets[order]), Relu(), Linear(columns, _small(5, seed=8)), Relu(), last)


def _relus(network: Network) -> int:
    return sum(network.sizes[value] for value, node in network.steps() if isinstance(node.operation, Relu))


@pytest.mark.parametrize("cancel", [True, False])
@pytest.mark.parametrize("name", FACTORS)
def test_folded_networks_are_the_same_function(name: str, cancel: bool) -> None:
    network = _split(FACTORS[name], cancel)
    folded = fold_split_neurons(network)
    assert _relus(folded) <= 5 + 3
    assert _relus(folded) == 5 or not (cancel and name == "opposite")
    points = torch.randn(200, 4, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    exact = (tuple(map(Fraction, point.tolist())) for point in points[:5])
    for point in exact:
        assert outputs_at(network, point) == outputs_at(folded, point)
    torch.testing.assert_close(folded.cast(torch.float64)(points), network.cast(torch.float64)(points))


def test_filters_of_a_convolution_are_folded() -> None:
    weight, bias = _small(2, 1, 3, 3, seed=1), _small(2, seed=2)
    first = Convolution(torch.cat([weight, -weight]), torch.cat([bias, -bias]), (5, 5), (1, 1), (1,) * 4, (1, 1), 1)
    after = _small(3, 2, 3, 3, seed=3)
    second = Convolution(torch.cat([after, -after], 1), _small(3, seed=4), (5, 5), (2, 2), (0,) * 4, (1, 1), 1)
    network = chain((1, 5, 5), first, Relu(), second, Reshape((3, 2, 2), (12,)), Linear(_small(2, 12, seed=5), bias))
    folded = fold_split_neurons(network)
    assert _relus(folded) == 0
    points = torch.randn(50, 1, 5, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    torch.testing.assert_close(folded.cast(torch.float64)(points), network.cast(torch.float64)(points))


def test_what_would_round_or_is_used_elsewhere_stays() -> None:
    network = _split((-1.0,), cancel=True)
    layer = network.node(3).operation
    assert isinstance(layer, Linear)
    weight = layer.weight.clone()
    weight[:, 0] = 1e-9  # which no sum with a whole number represents in float32
    rounding = replace(
        network, nodes=(*network.nodes[:2], Node(replace(layer, weight=weight), (2,)), *network.nodes[3:])
    )
    assert fold_split_neurons(rounding) is rounding
    generator = torch.Generator().manual_seed(1)
    plain = chain((4,), linear_of(4, 6, generator, torch.float32), Relu(), linear_of(6, 2, generator, torch.float32))
    assert fold_split_neurons(plain) is plain
    evaluated = network.evaluated_in(find_inference("float32"))
    assert fold_split_neurons(evaluated) is evaluated  # which would round otherwise


def test_verdicts_about_split_networks_need_no_search() -> None:
    """`relu(z) - relu(-z)` is z: bounds that lose nothing on it decide at once."""
    network = chain((2,), Linear(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), torch.zeros(2)), Relu(),
                    Linear(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.tensor([0.0, 1.0])))  # fmt: skip
    query = relucert.Query.within([-1, -1], [1, 1], [([[1, 0]], [Fraction(-201, 100)]), ([[-1, 0]], [-3])])
    verdict = relucert.verify(network, query, time_limit=10)
    assert (verdict.status, verdict.nodes) == ("holds", 0)
    assert verdict.method != "branch and bound"
