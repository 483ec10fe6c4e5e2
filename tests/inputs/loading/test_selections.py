"""What is marked as exact: only what selects numbers is believed, by the loader and by the check of proofs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import nn

import relucert
from relucert.checker.document import Rejected
from relucert.checker.selections import check_exact
from relucert.errors import NetworkError
from relucert.inputs.loading.runtime import RoundedEvaluation
from relucert.inputs.loading.selections import check_selections
from relucert.network import Add, Affine, IndexMap, Linear, Network, Node, Relu, Scale, Shift, find_inference
from relucert.verification.rational import outputs_at
from tests.inputs.loading.image_models import Function
from tests.nets import NETWORKS
from tests.network.test_selection import LAYERS, points
from tests.test_inference import pooled


@pytest.fixture(scope="module")
def layers() -> dict[str, Network]:
    return {name: relucert.load(Function(layer), input_shape=(12,)) for name, layer in LAYERS.items()}


def believed(network: Network) -> tuple[bool, bool]:
    """By the loader, and by the check of proofs."""
    answers = []
    for check, error in ((check_selections, NetworkError), (check_exact, Rejected)):
        try:
            check(network)
            answers.append(True)
        except error:
            answers.append(False)
    return answers[0], answers[1]


def test_imports_are_believed(layers: dict[str, Network], tmp_path: Path) -> None:
    hard = nn.Sequential(nn.Linear(3, 4), nn.Hardtanh(-0.25, 0.5), nn.RReLU(), nn.Hardsigmoid(), nn.PReLU(4))
    for name, network in {**layers, "many": relucert.load(hard.eval()), "pooled": pooled()}.items():
        assert any(node.exact for node in network.nodes)
        assert believed(network) == (True, True), name
        relucert.save(network, tmp_path / "kept.safetensors")
        kept = relucert.load(tmp_path / "kept.safetensors")
        assert [node.exact for node in kept.nodes] == [node.exact for node in network.nodes]


def changed(network: Network) -> Iterator[tuple[str, Network]]:
    """Networks that claim more than they select."""
    nodes = network.nodes
    for place, node in enumerate(nodes):
        operation = node.operation

        def with_node(other: Node, place: int = place) -> Network:
            return replace(network, nodes=(*nodes[:place], other, *nodes[place + 1 :]))

        if isinstance(operation, Affine) and operation.roundings and not node.exact:
            yield f"{place} exact, too", with_node(replace(node, exact=True))
        if not node.exact:
            continue
        if isinstance(operation, Affine) and operation.roundings:
            yield f"{place} exact no more", with_node(replace(node, exact=False))
        if isinstance(operation, Shift):
            larger = torch.nextafter(operation.offset, torch.tensor(torch.inf, dtype=operation.offset.dtype))
            yield f"{place} by another number", with_node(replace(node, operation=Shift(larger)))
        if isinstance(operation, Scale) and not bool((operation.factor == 0).any()):
            yield f"{place} by a half", with_node(replace(node, operation=Scale(operation.factor / 2, divide=False)))
            yield (
                f"{place} with the other sign",
                with_node(replace(node, operation=Scale(-operation.factor, divide=False))),
            )
        if isinstance(operation, Add):
            yield f"{place} twice the first", with_node(replace(node, inputs=(node.inputs[0],) * 2))
            yield f"{place} twice the second", with_node(replace(node, inputs=(node.inputs[1],) * 2))


def selects(network: Network) -> bool:
    """Whether float32 gives the numbers of real arithmetic at inputs of many sizes."""
    chosen = points()[:10]
    found = RoundedEvaluation(network.evaluated_in(find_inference("float32")))(chosen)
    exact = [outputs_at(network, [Fraction(number) for number in point.tolist()]) for point in chosen]
    return exact == [[Fraction(number) for number in row.tolist()] for row in found]


def test_what_is_believed_selects(layers: dict[str, Network]) -> None:
    """Every part of a selection is changed, and every mark added or left out."""
    refused = 0
    for name, network in layers.items():
        assert selects(network)
        for change, other in changed(network):
            answers = believed(other)
            assert not any(answers) or selects(other), (name, change)
            refused += answers == (False, False)
    assert refused > 100


def test_sums_are_no_selections() -> None:
    first, last = (Linear(torch.ones(2, 2), torch.zeros(2)) for _ in range(2))
    plus, minus = Shift(torch.tensor([1.0, 2.0])), Shift(torch.tensor([-1.0, -2.0]))
    relu = Node(Relu(), (2,))
    steps = {
        "a shift": (Node(plus, (1,), exact=True), relu),
        "back and forth": (Node(plus, (1,), exact=True), Node(minus, (2,), exact=True), Node(Relu(), (3,))),
        "a ReLU of a difference": (Node(minus, (1,), exact=True), relu),
        "another constant": (Node(minus, (1,), exact=True), relu, Node(Shift(torch.ones(2)), (3,), exact=True)),
        "a sum": (Node(Add(), (0, 1), exact=True), relu),
        "a product": (Node(Scale(torch.full((2,), 3.0), divide=False), (1,), exact=True), relu),
        "a layer": (Node(first, (1,), exact=True), relu),
    }
    for name, chain in steps.items():
        nodes = (Node(first, (0,)), *chain)
        network = Network((2,), (*nodes, Node(last, (len(nodes),))))
        cancels = name == "back and forth"  # which leaves the number that it began with
        assert believed(network) == (False, cancels), name
    right = (Node(first, (0,)), Node(minus, (1,), exact=True), relu, Node(plus, (3,), exact=True), Node(last, (4,)))
    assert believed(Network((2,), right)) == (True, True)


def test_only_doubles_of_a_relu_are_selected() -> None:
    """`2(p - q)` is no difference of numbers, nor `2p` a number, which may be infinite where `p` is not."""
    first, second = (Node(IndexMap((place,), (2,), (1,)), (0,)) for place in range(2))
    twice, nothing = Scale(torch.tensor(2.0), divide=False), Scale(torch.tensor(0.0), divide=False)
    minus = Node(Scale(torch.tensor(-1.0), divide=False), (2,))
    difference = (first, second, minus, Node(Add(), (1, 3), exact=True))  # value 4
    chains = {
        "q + relu(2(p - q))": (
            *difference,
            Node(twice, (4,), exact=True),
            Node(Relu(), (5,)),
            Node(Add(), (2, 6), exact=True),
        ),
        "2p + 0": (first, Node(twice, (1,), exact=True), Node(nothing, (1,)), Node(Add(), (2, 3), exact=True)),
    }
    for name, nodes in chains.items():
        assert believed(Network((2,), nodes)) == (False, False), name
    maximum = (*difference, Node(Relu(), (4,)), Node(Add(), (2, 5), exact=True))
    assert believed(Network((2,), maximum)) == (True, True)


def test_a_hostile_file_is_refused(tmp_path: Path) -> None:
    network = NETWORKS["three layers"]()
    nodes = tuple(replace(node, exact=True) for node in network.nodes)
    relucert.save(replace(network, nodes=nodes), tmp_path / "hostile.safetensors")
    with pytest.raises(NetworkError, match="select numbers") as caught:
        relucert.load(tmp_path / "hostile.safetensors")
    assert "\n" not in str(caught.value)
