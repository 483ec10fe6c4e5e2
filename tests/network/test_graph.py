"""The network as a graph."""

import pytest
import torch

from relucert.errors import NetworkError
from relucert.network import Add, Affine, Linear, Network, Node, Relu, Reshape, transposed
from tests.nets import NETWORKS, chain, mlp, residual


def test_values_and_shapes_of_a_residual_network() -> None:
    network = residual()
    assert network.sizes == (6, 8, 8, 8, 8, 8, 8, 8, 8, 5)
    assert network.preactivations == (1, 3, 6)
    assert network.activation_depths == (0, 0, 1, 1, 2, 2, 2, 3, 3, 3)
    assert network.describe() == "6-8-8-8-5"
    values = network.values(torch.ones(2, 6))
    torch.testing.assert_close(values[5], values[2] + values[4])
    torch.testing.assert_close(network(torch.ones(2, 6)), values[-1])


def test_ancestors_leave_out_what_is_not_needed() -> None:
    network = residual()
    assert network.ancestors((3,)) == {0, 1, 2, 3}
    assert network.ancestors((network.output,)) == set(range(10))


def test_what_is_known_needs_no_ancestors() -> None:
    network = residual()
    assert network.ancestors((6,), {2, 4}) == {2, 4, 5, 6}
    assert network.nearest_preactivations(network.output) == (6,)  # and value 1, no ReLU between
    assert network.nearest_preactivations(6) == (1, 3)
    assert network.nearest_preactivations(1) == ()


@pytest.mark.parametrize("name", NETWORKS)
def test_values_pass_in_order_and_are_dropped_once_they_are_not_needed(name: str) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    images = torch.randn(3, network.sizes[0], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    needed = network.ancestors((network.output,))
    wanted = [value for place, value in enumerate(network.values(images)) if place in needed]
    for one, other in zip(network.passing(images), wanted, strict=True):
        assert torch.equal(one, other)
    held, schedule = set[int](), network.schedule((network.output,))
    assert [value for value, _ in schedule] == sorted(needed)
    for place, (value, dropped) in enumerate(schedule):
        held.add(value)
        assert value == 0 or held >= set(network.node(value).inputs)
        held -= set(dropped)
        later = {source for after, _ in schedule[place + 1 :] for source in network.node(after).inputs}
        assert held == {source for source in later if source <= value}


@pytest.mark.parametrize("name", NETWORKS)
def test_casting_to_more_precision_keeps_every_number(name: str) -> None:
    network = NETWORKS[name]()
    twin = network.cast(torch.float64)
    for node, other in zip(network.nodes, twin.nodes, strict=True):
        for key, tensor in node.operation.tensors().items():
            assert torch.equal(other.operation.tensors()[key].to(tensor.dtype), tensor)
    assert network.parameters == twin.parameters


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Network((), ()), "no numbers"),
        (lambda: Network((0,), ()), "no numbers"),
        (lambda: Network((3,), ()), "no operation"),
        (lambda: chain((2, 3), Relu()), "vector of class scores"),
        (lambda: Network((3,), (Node(Relu(), (1,)),)), "takes the values"),
        (lambda: Network((3,), (Node(Relu(), (-1,)),)), "takes the values"),
        (lambda: Network((3,), (Node(Relu(), (0, 0)),)), "takes the values"),
        (lambda: Network((3,), (Node(Add(), (0,)),)), "takes the values"),
        (lambda: chain((3,), Linear(torch.full((2, 3), torch.nan), torch.zeros(2))), "weight has NaN"),
        (lambda: chain((3,), Linear(torch.zeros(2, 3), torch.full((2,), torch.inf))), "bias has NaN or infinite"),
        (lambda: chain((3,), Linear(torch.zeros(2, 3, dtype=torch.int32), torch.zeros(2))), "floating point"),
        (lambda: chain((4,), Reshape((4,), (2, 2)), Linear(torch.zeros(2, 4), torch.zeros(2))), "flat input"),
    ],
)
def test_inconsistent_networks_are_refused(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NetworkError, match=message):
        build()


@pytest.mark.parametrize("name", NETWORKS)
def test_no_forms_at_all_are_pulled_back_too(name: str) -> None:
    """A leaf of branch and bound may have no neuron to require anything of."""
    network = NETWORKS[name]().cast(torch.float32)
    for value, node in network.steps():
        if isinstance(node.operation, Affine):
            parts = transposed(network, value, torch.zeros(2, 0, network.sizes[value]))
            assert [part.shape for part in parts] == [(2, 0, network.sizes[source]) for source in node.inputs]


def test_a_network_can_not_be_changed() -> None:
    network = mlp(3, 2)
    with pytest.raises(AttributeError):
        network.nodes = ()  # type: ignore[misc]
