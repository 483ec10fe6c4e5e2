"""The stored numbers of a chain of linear layers and convolutions as exact integers over powers of two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from flint import fmpq, fmpz, fmpz_mat
from torch import Tensor
from torch.nn import functional

from relucert.checker.document import Rejected
from relucert.network import Network

WEIGHTED = ("linear", "convolution")  # operations with weights
MOVES = ("reshape", "index map")  # operations that only move numbers
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
            raise Rejected("the network is no chain of linear layers or convolutions and ReLUs")
        weights, biases = [], []
        for segment in _segments(network):
            weight, bias = _dense(network, segment)
            column = scaled(bias[:, None])
            weights.append(scaled(weight))
            biases.append([fmpq(row[0], 1 << column.bits) for row in column.rows])
        return cls(weights, biases)


def is_chain(network: Network) -> bool:
    """Whether it is a chain with one linear layer or convolution, and besides it only what moves numbers, before each
    ReLU and at the end; and whether its numbers are not too long."""
    if not all(node.inputs == (value - 1,) for value, node in network.steps()):
        return False
    for segment in _segments(network):
        names = [network.node(value).operation.name for value in segment]
        if not set(names) <= {*WEIGHTED, *MOVES} or sum(name in WEIGHTED for name in names) != 1:
            return False
        if any(_repeats(network.node(value).operation.settings()) for value in segment):
            return False
    tensors = (tensor for node in network.nodes for tensor in node.operation.tensors().values())
    return all(_bits(tensor.double()) <= LONGEST for tensor in tensors)


def _segments(network: Network) -> list[list[int]]:
    """The values of the affine operations before each ReLU, and after the last one."""
    segments: list[list[int]] = [[]]
    for value, node in network.steps():
        if node.operation.name == "relu":
            segments.append([])
        else:
            segments[-1].append(value)
    return segments


def _repeats(settings: dict[str, Any]) -> bool:
    """Whether an index map takes a coordinate twice: sums of weights would then have to be rounded."""
    indices = torch.tensor(settings.get("indices", ()), dtype=torch.long)
    picked = indices[indices < math.prod(settings.get("before", ()))]
    return len(picked.unique()) < len(picked)


def _dense(network: Network, segment: list[int]) -> tuple[Tensor, Tensor]:
    """The operations of a segment as one matrix and a bias, exactly: they are applied to the unit vectors, so that
    every product has a factor 0 or 1, and every sum at most one term that is not 0."""
    size = network.sizes[segment[0] - 1]
    units = torch.eye(size, dtype=torch.float64)
    bias = torch.zeros(1, dtype=torch.float64)
    for value in segment:
        operation = network.node(value).operation
        tensors = {name: tensor.double() for name, tensor in operation.tensors().items()}
        settings, before, after = operation.settings(), network.shapes[value - 1], network.shapes[value]
        if operation.name == "linear":
            units, bias = units @ tensors["weight"].T, tensors["bias"]
        elif operation.name == "convolution":
            units = _convolved(units.unflatten(1, before), tensors["weight"], settings)
            bias = tensors["bias"][:, None, None].expand(after).flatten()
        elif operation.name == "index map":
            indices = torch.tensor(settings["indices"])
            units = functional.pad(units, (0, 1))[:, indices]
            bias = functional.pad(bias.expand(network.sizes[value - 1]), (0, 1))[indices]
    return units.T.contiguous(), bias


def _convolved(images: Tensor, weight: Tensor, settings: dict[str, Any]) -> Tensor:
    top, left, bottom, right = settings["padding"]
    padded = functional.pad(images, (left, right, top, bottom))
    options = {name: settings[name] for name in ("stride", "dilation", "groups")}
    return functional.conv2d(padded, weight, **options).flatten(1)


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
