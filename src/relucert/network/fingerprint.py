"""A digest that identifies a network."""

import hashlib
import json
from typing import Any

import torch

from relucert.network.graph import Network, Node


def rounding_marks(node: Node) -> dict[str, Any]:
    """The entries of a stored node that say how often it rounds; empty for most nodes."""
    marks: dict[str, Any] = {"exact": True} if node.exact else {}
    return marks if node.roundings is None else {**marks, "roundings": node.roundings}


def fingerprint(network: Network, rounds: bool = False) -> str:
    """The SHA-256 of everything stored: operations, their inputs, their settings, and the bytes of every tensor.

    rounds: whether it is about evaluations in floating point; then it also covers what the nodes say about roundings.
    """
    digest = hashlib.sha256(json.dumps(network.input_shape).encode())
    for node in network.nodes:
        operation = node.operation
        entry: list[Any] = [operation.name, node.inputs, operation.settings()]
        if rounds and (marks := rounding_marks(node)):
            entry.append(marks)
        digest.update(json.dumps(entry, sort_keys=True).encode())
        for name, tensor in sorted(operation.tensors().items()):
            digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())  # NumPy has no bfloat16
    return digest.hexdigest()
