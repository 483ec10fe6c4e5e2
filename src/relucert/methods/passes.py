"""Linear passes over a network: how deviations go forward through its affine operations, and forms back.

Every pass is over the whole graph and asks its caller at each layer of ReLUs what becomes of a deviation or of a form.
So convolutions, pooling, normalisation, concatenation and residual sums need nothing of their own here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

from torch import Tensor

from relucert.common.deadline import check_time
from relucert.network import INPUT, Network

THE_INPUT = -1  # as a source of layers; a layer of ReLUs is a source by its pre-activation, which may be the input

Activate = Callable[[int, Tensor], Tensor]
"""From a pre-activation and its deviations, (batch, size), to those of its ReLU."""

Choose = Callable[[int, Tensor], Tensor]
"""From a pre-activation and forms on its ReLU, (batch, size), to forms on itself."""


class Passes:
    """The passes of one network, in the precision of its weights.

    quick: whether a library's convolutions will do, whose rounding nothing bounds.
    """

    def __init__(self, network: Network, quick: bool) -> None:
        self.network, self.quick = network, quick
        self.layers = network.preactivations

    def forward(
        self, inputs: Tensor, activate: Activate, added: Mapping[int, Tensor] | None = None
    ) -> dict[int, Tensor]:
        """Deviations of every pre-activation, (batch, size) each, from those of the input.

        added: By affine value, what is added to its deviations, (batch or 1, size).
        """
        relus: dict[int, Tensor] = {}
        values: dict[int, Tensor] = {}
        deviations: dict[int, Tensor] = {}
        for value, dropped in self._schedule:
            check_time()
            if value == INPUT:
                values[value] = inputs
            elif value in self.network.activations:
                values[value] = relus[self.network.source(value)]
            else:
                values[value] = self.affine(value, [values[source] for source in self.network.node(value).inputs])
                if added is not None:
                    values[value] = values[value] + added[value]
            if value in self.layers:
                deviations[value] = values[value]
                relus[value] = activate(value, values[value])
            for source in dropped:
                del values[source]
        return deviations

    def backward(self, forms: Tensor | None, choose: Choose, like: Tensor) -> Tensor:
        """Forms on the input, (batch, size), from forms on the output, (batch, classes); None: 0.

        like: Any tensor of the batch size and precision, (batch, ...).
        """
        pending = {} if forms is None else {self.network.output: forms}
        on_relus: dict[int, Tensor] = {}
        for value in range(self.network.output, INPUT - 1, -1):
            check_time()
            if value in self.layers:
                reached = on_relus.pop(value, None)
                if reached is None:
                    reached = like.new_zeros(len(like), self.network.sizes[value])
                _add(pending, value, choose(value, reached))
            if value not in pending or value == INPUT:
                continue
            form = pending.pop(value)
            if value in self.network.activations:
                _add(on_relus, self.network.source(value), form)
                continue
            for source, form_before in zip(self.network.node(value).inputs, self.transpose(value, form), strict=True):
                _add(pending, source, form_before)
        return pending[INPUT] if INPUT in pending else like.new_zeros(len(like), self.network.sizes[INPUT])

    def sources(self, value: int) -> tuple[int, ...]:
        """The input, and the layers whose ReLUs reach a layer, or the output, by affine operations alone, in order."""
        ends = {self._end(earlier) for earlier in self._segments[value]}
        return tuple(sorted(end for end in ends if end is not None))

    def local(self, value: int, moved: Mapping[int, Tensor]) -> Tensor:
        """Deviations of a value, (batch, size), from those of some of its `sources`; the others are 0."""
        values: dict[int, Tensor] = {}
        for current in sorted(self._segments[value]):
            end = self._end(current)
            if end is not None:
                if end in moved:
                    values[current] = moved[end]
                continue
            operands = [values.get(source) for source in self.network.node(current).inputs]
            if any(operand is not None for operand in operands):
                some = next(operand for operand in operands if operand is not None)
                shapes = [self.network.sizes[source] for source in self.network.node(current).inputs]
                values[current] = self.affine(current, [
                    some.new_zeros(len(some), size) if operand is None else operand
                    for operand, size in zip(operands, shapes, strict=True)
                ])  # fmt: skip
        return values[value]

    def local_transposed(self, value: int, form: Tensor) -> dict[int, Tensor]:
        """Forms on the `sources` of a value, from forms on it, (batch, size)."""
        pending, forms = {value: form}, dict[int, Tensor]()
        for current in sorted(self._segments[value], reverse=True):
            if current not in pending:
                continue
            reached, end = pending.pop(current), self._end(current)
            if end is not None:
                _add(forms, end, reached)
                continue
            for source, form_before in zip(
                self.network.node(current).inputs, self.transpose(current, reached), strict=True
            ):
                _add(pending, source, form_before)
        return forms

    def affine(self, value: int, operands: Iterable[Tensor]) -> Tensor:
        """The linear part of an affine operation: (batch, size)."""
        operation, sources = self.network.affine(value), self.network.node(value).inputs
        shaped = [
            operand.unflatten(1, self.network.shapes[source]) for operand, source in zip(operands, sources, strict=True)
        ]
        return (operation.quick if self.quick else operation.linear)(*shaped).flatten(1)

    def transpose(self, value: int, form: Tensor) -> list[Tensor]:
        """A form on an affine operation's value as forms on its operands: (batch, size) each."""
        operation = self.network.affine(value)
        shaped = form.unflatten(1, self.network.shapes[value])
        forms = (operation.quick_transpose if self.quick else operation.transpose)(shaped)
        return [form_before.flatten(1) for form_before in forms]

    def _end(self, value: int) -> int | None:
        """Of the input or a ReLU, the source that it is; None of an affine value."""
        if value == INPUT:
            return THE_INPUT
        return self.network.source(value) if value in self.network.activations else None

    @cached_property
    def _segments(self) -> dict[int, set[int]]:
        return {value: segment(self.network, value) for value in (*self.layers, self.network.output)}

    @cached_property
    def _schedule(self) -> list[tuple[int, list[int]]]:
        return self.network.schedule(self.layers)


def segment(network: Network, value: int) -> set[int]:
    """A value and all before it, back to ReLUs and the input, these included."""
    return network.ancestors((value,), network.activations)


def _add(forms: dict[int, Tensor], value: int, form: Tensor) -> None:
    forms[value] = forms[value] + form if value in forms else form
