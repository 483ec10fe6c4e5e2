"""The maps of a linearised network as rows, one per neuron of a layer, with a bound of their rounding errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relucert.checker.activations import is_activation
from relucert.checker.fixed_point import Fixed, multiply
from relucert.checker.linearised_network import INPUT, THE_INPUT, CheckedNetwork
from relucert.network import Network

COEFFICIENTS = 2**21  # that are back-substituted at once, which bounds memory


@dataclass(frozen=True, eq=False)
class RoundedRows:
    """Forms, (forms, size), that are off by at most `max_error` in every coefficient."""

    forms: Fixed
    max_error: Fraction

    @classmethod
    def rounded(cls, forms: Fixed, max_error: Fraction) -> RoundedRows:
        """Forms whose own error adds to the largest one."""
        return cls(replace(forms, error=0), max_error + forms.error / Fraction(2) ** forms.bits)

    def at(self, columns: Tensor) -> RoundedRows:
        """The coefficients at some columns, (count,)."""
        return RoundedRows(self.forms.at(columns), self.max_error)

    def plus(self, addend: RoundedRows) -> RoundedRows:
        return RoundedRows.rounded(self.forms.plus(addend.forms), self.max_error + addend.max_error)


@dataclass(eq=False)
class RowMaker:
    """Back-substitutes unit forms on the neurons of a layer."""

    linearised: CheckedNetwork

    def __post_init__(self) -> None:
        self._gains: dict[int, Fraction] = {}

    def maps(self, value: int, neurons: Tensor, *, through: bool) -> Iterator[dict[int, RoundedRows]]:
        """The maps to neurons of a value, by source, chunk by chunk.

        through: Whether they pass ReLUs, by their slopes: maps from the input, -1, and from the errors of all layers
            before. Otherwise they are from every source of the value (see `CheckedNetwork.sources`).
        """
        step = max(1, COEFFICIENTS // max(self.linearised.network.sizes))
        return (self._pull(value, chunk, through) for chunk in neurons.split(step) if len(chunk))

    def _pull(self, value: int, neurons: Tensor, through: bool) -> dict[int, RoundedRows]:
        network, maps = self.linearised.network, dict[int, RoundedRows]()
        units = torch.nn.functional.one_hot(neurons, network.sizes[value])
        pending = {value: RoundedRows(Fixed(units, 0), Fraction(0))}
        for current in range(value, INPUT - 1, -1):
            if through and current in maps:
                _join(pending, current, self._sloped(current, maps[current]))
            if current not in pending or current == INPUT:
                continue
            rows, node = pending.pop(current), network.node(current)
            if is_activation(node):
                _join(maps, node.inputs[0], rows)
                continue
            transposed = self.linearised.relaxation.layers[current].transpose(rows.forms)
            pulled = RoundedRows.rounded(transposed, rows.max_error * self._gain(current))
            for source in node.inputs:
                _join(pending, source, pulled)
        if INPUT in pending:
            maps[THE_INPUT] = pending[INPUT]
        return maps

    def _sloped(self, value: int, rows: RoundedRows) -> RoundedRows:
        """Forms on ReLUs as forms on their source, but for the errors."""
        slopes = self.linearised.slopes[value]
        steepest = Fraction(int(slopes.units.abs().max()) if slopes.units.numel() else 0) / Fraction(2) ** slopes.bits
        return RoundedRows.rounded(
            multiply(rows.forms, slopes, torch.mul, 1), rows.max_error * max(Fraction(1), steepest)
        )

    def _gain(self, value: int) -> Fraction:
        """The most by which transposing an operation can multiply a coefficient's error: its largest column sum."""
        if value not in self._gains:
            ones = Fixed(torch.ones(1, self.linearised.network.sizes[value], dtype=torch.int64), 0)
            total = self.linearised.relaxation.layers[value].absolute.transpose(ones)
            self._gains[value] = total.largest / Fraction(2) ** total.bits
        return self._gains[value]


def spatial(network: Network, value: int) -> NDArray[np.intp]:
    """The neurons of a value, those of an image by row, column and channel."""
    shape = network.shapes[value]
    neurons = np.arange(prod(shape))
    return neurons.reshape(shape).transpose(1, 2, 0).ravel() if len(shape) == 3 else neurons


def _join(rows: dict[int, RoundedRows], value: int, added: RoundedRows) -> None:
    rows[value] = rows[value].plus(added) if value in rows else added
