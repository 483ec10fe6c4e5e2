"""Recurrent layers over a fixed number of steps, unrolled: affine maps, sigmoid, tanh and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import products
from relucert.inputs.loading.lowering.moves import move
from relucert.inputs.loading.operands import Operand, scalar
from relucert.network import Sigmoid, Tanh

States = Sequence[int | None]
"""What a cell remembers of the steps before, its output first; None for zeros."""


@dataclass(frozen=True)
class CellWeights:
    """What one layer stores; its rows are those of the gates, in order.

    Attributes:
        inputs: (gates * size, inputs).
        hidden: (gates * size, size).
        input_bias: (gates * size,), or None.
        hidden_bias: Likewise.
    """

    inputs: Tensor
    hidden: Tensor
    input_bias: Tensor | None = None
    hidden_bias: Tensor | None = None

    @property
    def size(self) -> int:
        """How many numbers the layer remembers, and gives at every step."""
        return self.hidden.shape[1]

    def recalled(self, assembly: Assembly, state: int | None) -> Operand | None:
        """The affine map of the output before; None for zero."""
        if state is None:
            return self.hidden_bias
        return products.affine(assembly, state, self.hidden, self.hidden_bias)


Cell = Callable[[Assembly, int, States, CellWeights], States]
"""What is remembered after a step, from the affine map of its inputs, (gates * size,), and what was before."""


def unrolled(
    assembly: Assembly, value: Operand, cell: Cell, layers: Sequence[CellWeights], states: Sequence[Sequence[Tensor]]
) -> int:
    """The outputs of the last layer at all steps, (steps, size), from a value (steps, inputs).

    states: for each layer, what it remembers at first, (batch, size) each.
    """
    if len(assembly.shape(value)) != 2:
        raise UnsupportedError(f"on a value of shape {assembly.full_shape(value)}, not (batch, steps, inputs)")
    for weights, state in zip(layers, states, strict=True):
        value = _layer(assembly, value, cell, weights, [_initial(assembly, value, numbers) for numbers in state])
    assert not isinstance(value, Tensor)
    return value


def elman(activation: Callable[[Assembly, int], int]) -> Cell:
    """The cell `h = f(W x + b + V h + c)`."""

    def cell(assembly: Assembly, inputs: int, states: States, weights: CellWeights) -> States:
        return [activation(assembly, _sum(assembly, inputs, weights.recalled(assembly, states[0])))]

    return cell


def long_short_term(assembly: Assembly, inputs: int, states: States, weights: CellWeights) -> States:
    """The cell of an LSTM, whose gates are input, forget, cell and output:
    `c = sigmoid(f) c + sigmoid(i) tanh(g)`, `h = sigmoid(o) tanh(c)`."""
    hidden, before = states
    gates = _sum(assembly, inputs, weights.recalled(assembly, hidden))
    admits, keeps, candidate, shows = (_gate(assembly, gates, number, weights.size) for number in range(4))
    admitted = assembly.multiply(_sigmoid(assembly, admits), _tanh(assembly, candidate))
    kept = None if before is None else assembly.multiply(_sigmoid(assembly, keeps), before)
    memory = _sum(assembly, admitted, kept)
    return [assembly.multiply(_sigmoid(assembly, shows), _tanh(assembly, memory)), memory]


def gated(assembly: Assembly, inputs: int, states: States, weights: CellWeights) -> States:
    """The cell of a GRU, whose gates are reset, update and new: `n = tanh(x_n + sigmoid(r) h_n)` and
    `h = n + sigmoid(z) (h - n)`, one product instead of the two of `(1 - sigmoid(z)) n + sigmoid(z) h`."""
    (hidden,), size = states, weights.size
    recalled = weights.recalled(assembly, hidden)
    parts = [_recalled_gate(assembly, recalled, number, size) for number in range(3)]
    resets, updates = (
        _sigmoid(assembly, _sum(assembly, _gate(assembly, inputs, number, size), parts[number])) for number in range(2)
    )
    recalled_new = None if parts[2] is None else assembly.multiply(resets, parts[2])
    new = _tanh(assembly, _sum(assembly, _gate(assembly, inputs, 2, size), recalled_new))
    if hidden is None:
        return [assembly.multiply(assembly.add(assembly.scaled(updates, -1.0), scalar(1.0)), new)]
    return [assembly.add(new, assembly.multiply(updates, assembly.add(hidden, new, -1.0)))]


def _layer(assembly: Assembly, value: Operand, cell: Cell, weights: CellWeights, states: States) -> int:
    """The outputs of one layer at all steps."""
    inputs = products.affine(assembly, value, weights.inputs, weights.input_bias)
    steps, width = assembly.shape(inputs)
    outputs: list[int] = []
    for step in range(steps):
        states = cell(assembly, _gate(assembly, inputs, step, width), states, weights)
        assert states[0] is not None
        outputs.append(states[0])
    first = 0 if assembly.batch is None else 1
    return move(assembly, lambda tensors: torch.stack(tensors, first), outputs)


def _initial(assembly: Assembly, value: Operand, numbers: Tensor) -> int | None:
    """What a layer remembers at first, which is the same for every image; None for zeros."""
    if not bool((numbers == numbers[:1]).all()):
        raise UnsupportedError("an initial state that differs from image to image of the batch")
    if not bool(numbers.any()):
        return None
    return assembly.add(assembly.index_map(value, torch.full(numbers.shape[1:], -1)), numbers[0])


def _recalled_gate(assembly: Assembly, gates: Operand | None, number: int, size: int) -> Operand | None:
    """One part of what a cell recalls."""
    if isinstance(gates, Tensor):
        return gates[number * size : (number + 1) * size]
    return None if gates is None else _gate(assembly, gates, number, size)


def _gate(assembly: Assembly, gates: int, number: int, size: int) -> int:
    """One part of a value whose parts have this size."""
    return assembly.index_map(gates, torch.arange(number * size, (number + 1) * size))


def _sum(assembly: Assembly, value: int, other: Operand | None) -> int:
    return value if other is None else assembly.add(value, other)


def _sigmoid(assembly: Assembly, value: Operand) -> int:
    return assembly.activation(Sigmoid(), value)


def _tanh(assembly: Assembly, value: Operand) -> int:
    return assembly.activation(Tanh(), value)
