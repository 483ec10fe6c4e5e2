"""The stored numbers of a chain of linear layers as exact integers over powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from flint import fmpq, fmpz, fmpz_mat
from torch import Tensor

from relucert.checker.document import Rejected
from relucert.network import Network

LONGEST = 400  # bits of the fractions of stored numbers


@dataclass(frozen=True)
class Scaled:
    """Integers over 2**bits, by rows."""

    rows: list[list[fmpz]]
    bits: int

    @cached_property
    def matrix(self) -> fmpz_mat:
        return fmpz_mat(self.rows)


@dataclass(frozen=True)
class Chain:
    """The layers in their order: weights, and biases as fractions."""

    weights: list[Scaled]
    biases: list[list[fmpq]]

    @classmethod
    def of(cls, network: Network) -> Chain:
        if not is_chain(network):
            raise Rejected("the network is no chain of linear layers and ReLUs")
        layers = [node.operation.tensors() for node in network.nodes if node.operation.name == "linear"]
        columns = [scaled(layer["bias"].double()[:, None]) for layer in layers]
        biases = [[fmpq(row[0], 1 << column.bits) for row in column.rows] for column in columns]
        return cls([scaled(layer["weight"].double()) for layer in layers], biases)


def is_chain(network: Network) -> bool:
    """Whether it is a chain of linear layers with ReLUs between them, whose numbers are not too long."""
    names = [node.operation.name for node in network.nodes if node.operation.name != "reshape"]
    chain = all(node.inputs == (value - 1,) for value, node in network.steps())
    alternating = names[::2] == ["linear"] * len(names[::2]) and names[1::2] == ["relu"] * len(names[1::2])
    if not chain or not alternating or not len(names) % 2:
        return False
    tensors = (tensor for node in network.nodes for tensor in node.operation.tensors().values())
    return all(_bits(tensor.double()) <= LONGEST for tensor in tensors)


def _bits(numbers: Tensor) -> int:
    """How many bits behind the point these float64 numbers take."""
    flat = numbers[numbers != 0].flatten()
    if not len(flat):
        return 0
    mantissas, exponents = torch.frexp(flat)
    whole = (mantissas * 2.0**53).to(torch.int64)
    spare = torch.zeros_like(whole)
    for step in (32, 16, 8, 4, 2, 1):
        even = (whole >> spare) & ((1 << step) - 1) == 0
        spare = torch.where(even & (spare + step < 53), spare + step, spare)
    return max(0, int((53 - exponents - spare).max()))


def scaled(numbers: Tensor) -> Scaled:
    """A matrix of float64 numbers, exactly."""
    bits = _bits(numbers)
    if bits > 900:
        raise Rejected("a number is too small for exact integers")
    return Scaled([[fmpz(int(number)) for number in row] for row in (numbers * 2.0**bits).tolist()], bits)
