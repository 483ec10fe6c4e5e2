"""The digest of a network: for every precision, and different wherever anything stored is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
import torch

from relucert.network import Network, Node
from relucert.network.fingerprint import fingerprint
from tests.nets import NETWORKS, mlp

PRECISIONS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_precision_has_one_of_its_own(name: str) -> None:
    network = NETWORKS[name]()
    digests = {fingerprint(network.cast(dtype)) for dtype in PRECISIONS}
    assert len(digests) == len(PRECISIONS)
    assert all(len(digest) == 64 for digest in digests)


def test_it_is_the_hash_of_what_is_stored() -> None:
    """Written out once more, by NumPy's bytes: a digest in a file stays valid."""
    network = mlp(3, 4, 2)
    digest = hashlib.sha256(json.dumps([3]).encode())
    for node in network.nodes:
        digest.update(json.dumps([node.operation.name, node.inputs, {}]).encode())
        for name, tensor in sorted(node.operation.tensors().items()):
            digest.update(json.dumps([name, "torch.float32", list(tensor.shape)]).encode())
            digest.update(tensor.numpy().tobytes())
    assert fingerprint(network) == digest.hexdigest()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_one_bit_matters(dtype: torch.dtype) -> None:
    network = mlp(3, 4, 2).cast(dtype)
    operation = network.nodes[0].operation
    weight = operation.tensors()["weight"].clone()
    bits = weight.view(torch.uint8)
    bits[0, 0] ^= 1
    changed = type(operation).restore({**operation.tensors(), "weight": weight}, operation.settings())
    nodes = (Node(changed, network.nodes[0].inputs), *network.nodes[1:])
    assert fingerprint(replace(network, nodes=nodes)) != fingerprint(network)
    assert fingerprint(Network(network.input_shape, network.nodes, "another name")) == fingerprint(network)


def test_marks_count_where_evaluations_round() -> None:
    """What nodes say about their roundings is hashed for claims about floating point, and for no others."""
    network = mlp(3, 4, 2)
    first, *rest = network.nodes
    marked = [
        Network((3,), (replace(first, **mark), *rest)) for mark in ({"exact": True}, {"roundings": 5}, {"roundings": 6})
    ]
    assert {fingerprint(other) for other in marked} == {fingerprint(network)} == {fingerprint(network, rounds=True)}
    assert len({fingerprint(other, rounds=True) for other in (network, *marked)}) == 4
    entry = json.dumps(["linear", [0], {}, {"roundings": 5}], sort_keys=True)
    digest = hashlib.sha256(json.dumps([3]).encode() + entry.encode())
    for number, node in enumerate(network.nodes):
        if number:
            digest.update(json.dumps([node.operation.name, node.inputs, {}]).encode())
        for name, tensor in sorted(node.operation.tensors().items()):
            digest.update(json.dumps([name, "torch.float32", list(tensor.shape)]).encode())
            digest.update(tensor.numpy().tobytes())
    assert fingerprint(marked[1], rounds=True) == digest.hexdigest()
