"""Two networks side by side: the same function, whose paired ReLUs are known by their block diagonal matrices."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from relucert.network import Add, IndexMap, Layer, Linear, Network, Node, Relu, Reshape, Shift
from relucert.network.inference import find_inference
from relucert.network.twins import paired_activations, side_by_side
from relucert.verification.rational import outputs_at
from tests.nets import NETWORKS, mlp, twins


def _with_inputs_of_their_own(seed: int) -> Network:
    """Two chains that pick, shift and reshape numbers of one input, and a sum of a part of both."""
    generator = torch.Generator().manual_seed(seed)
    nodes: list[Node] = []

    def append(operation: Layer, *inputs: int) -> int:
        nodes.append(Node(operation, inputs))
        return len(nodes)

    ends = []
    for first in (0, 3):
        value = append(IndexMap.of(torch.arange(first, first + 3).reshape(1, 3), (6,)), 0)
        value = append(Shift(torch.randn(1, 1, generator=generator)), value)
        value = append(Reshape((1, 3), (3,)), value)
        value = append(Linear(torch.randn(4, 3, generator=generator), torch.randn(4, generator=generator)), value)
        ends.append(append(Relu(), value))
    append(Add(), *ends)
    return Network((6,), tuple(nodes))


@pytest.mark.parametrize("network", [twins(0.1), twins(0.1, shared=True), _with_inputs_of_their_own(3)])
def test_networks_side_by_side_are_the_same_function(network: Network) -> None:
    stacked = side_by_side(network)
    assert sum(isinstance(node.operation, Relu) for node in stacked.nodes) * 2 == len(network.activations)
    generator = torch.Generator().manual_seed(1)
    for point in torch.randn(5, network.sizes[0], generator=generator, dtype=torch.float64):
        exact = tuple(map(Fraction, point.tolist()))
        assert outputs_at(stacked, exact) == outputs_at(network, exact)


def test_paired_relus_are_those_before_block_diagonal_matrices() -> None:
    stacked = side_by_side(twins(0.1))
    assert paired_activations(stacked) == tuple(stacked.activations)
    assert not paired_activations(mlp(4, 6, 6, 2))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_without_a_twin_stays_as_it_is(name: str) -> None:
    network = NETWORKS[name]()
    assert side_by_side(network) is network


def test_evaluations_that_round_are_about_the_network_as_it_is() -> None:
    network = twins(0.1).evaluated_in(find_inference("float32"))
    assert side_by_side(network) is network
