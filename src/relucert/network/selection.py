"""Layers that only select numbers, such as a maximum, evaluated as they are meant, without a sum that rounds.

An import writes `max(p, q)` as `q + relu(p - q)` and marks the nodes as exact. Evaluated term by term the difference
may lose a small `p` next to a large `q`, so exact sums are kept as two terms until it is known what is selected: where
`s` is `-b`, `s + relu(a + b)` is `a` or `s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.network.add import Add
from relucert.network.convolution import Convolution
from relucert.network.index_map import IndexMap
from relucert.network.operation import Affine, Operation
from relucert.network.relu import Relu
from relucert.network.reshape import Reshape
from relucert.network.scale import Scale
from relucert.network.shift import Shift


@dataclass(frozen=True, eq=False)
class TwoTerms:
    """`first + second`, which is not computed yet, or its ReLU, or that negated."""

    first: Tensor
    second: Tensor
    rectified: bool = False
    negated: bool = False

    def number(self) -> Tensor:
        """The sum, computed."""
        total = self.first + self.second
        if self.rectified:
            total = total.clamp(min=0)
        return -total if self.negated else total

    def map(self, linear: Affine) -> TwoTerms:
        """The same after a linear operation on both terms; where they are rectified, it has no negative factors."""
        return replace(self, first=linear.linear(self.first), second=linear.linear(self.second))

    def selected(self, addend: Tensor) -> tuple[Tensor, Tensor]:
        """Where adding another number to the ReLU is how a selection is written, and what is selected there."""
        sign = -1 if self.negated else 1
        first, second = sign * self.first, sign * self.second
        selected_term = torch.where(addend == -second, first, second)
        return (addend == -first) | (addend == -second), torch.where(self.first <= -self.second, addend, selected_term)


Computed = Tensor | TwoTerms


def computed(value: Computed) -> Tensor:
    return value.number() if isinstance(value, TwoTerms) else value


def apply(operation: Operation, exact: bool, operands: Sequence[Computed]) -> Computed:
    """The value of a node at what its operands are; exact: as the node is marked."""
    (first, *further) = operands
    if isinstance(operation, Relu) and isinstance(first, TwoTerms) and not first.rectified:
        return replace(first, rectified=True)
    if exact and isinstance(operation, Add):
        return _sum(first, further[0])
    if exact and isinstance(operation, Shift):
        return _shifted(operation, first)
    if exact and isinstance(operation, Convolution) and bool((operation.weight < 0).any()):
        return _difference(operation, computed(first))
    if exact and isinstance(operation, Scale | Reshape | IndexMap) and isinstance(first, TwoTerms):
        return _moved(operation, first)
    return operation.apply(*map(computed, operands))


def _moved(operation: Scale | Reshape | IndexMap, terms: TwoTerms) -> Computed:
    factor = operation.factor if isinstance(operation, Scale) else torch.ones(())
    if not terms.rectified or bool((factor >= 0).all()):
        return terms.map(operation)
    if bool((factor <= 0).all()):
        return replace(terms.map(operation.absolute), negated=not terms.negated)
    return operation.apply(terms.number())


def _shifted(operation: Shift, value: Computed) -> Computed:
    operand = value.first if isinstance(value, TwoTerms) else value
    offset = operation.offset if operation.offset.ndim else operation.offset.to(operand.dtype)  # a plain number
    return _sum(value, offset.expand_as(operand))


def _difference(operation: Convolution, image: Tensor) -> TwoTerms:
    """The input channels that kernels pick with weight 1, the biases, and the channels picked with weight -1."""
    kernels, nothing = operation.weight, torch.zeros_like(operation.bias)
    first, second = (
        replace(operation, weight=part, bias=nothing) for part in (kernels.clamp(min=0), kernels.clamp(max=0))
    )
    return TwoTerms(first.linear(image) + operation.constant, second.linear(image))


def _sum(first: Computed, second: Computed) -> TwoTerms:
    numbers = computed(first), computed(second)
    total = TwoTerms(*numbers)
    for terms, addend in ((first, numbers[1]), (second, numbers[0])):
        if isinstance(terms, TwoTerms) and terms.rectified:
            where, selected = terms.selected(addend)
            total = TwoTerms(torch.where(where, selected, total.first), torch.where(where, 0, total.second))
    return total
