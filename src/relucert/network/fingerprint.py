"""A digest that identifies a network."""

import hashlib
import json

import torch

from relucert.network.graph import Network


def fingerprint(network: Network) -> str:
    """The SHA-256 of everything stored: operations, their inputs, their settings, and the bytes of every tensor."""
    digest = hashlib.sha256(json.dumps(network.input_shape).encode())
    for node in network.nodes:
        operation = node.operation
        digest.update(json.dumps([operation.name, node.inputs, operation.settings()], sort_keys=True).encode())
        for name, tensor in sorted(operation.tensors().items()):
            digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
            digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())  # NumPy has no bfloat16
    return digest.hexdigest()
