"""The linear maps of a scene as rows, one for each neuron of a layer, with a bound of what rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relucert.checker.certificate_scene import INPUT, THE_INPUT, CertificateScene
from relucert.checker.fixed_point import Fixed, multiply
from relucert.network import Network

COEFFICIENTS = 2**21  # that are pulled back at once


@dataclass(frozen=True, eq=False)
class Rows:
    """Forms, (forms, size), that are off by at most `doubt` in every coefficient."""

    forms: Fixed
    doubt: Fraction

    @classmethod
    def rounded(cls, forms: Fixed, doubt: Fraction) -> Rows:
        """Forms with an error of their own besides."""
        return cls(replace(forms, error=0), doubt + forms.error / Fraction(2) ** forms.bits)

    def at(self, columns: Tensor) -> Rows:
        """Some of the coefficients, (count,)."""
        return Rows(self.forms.at(columns), self.doubt)

    def plus(self, other: Rows) -> Rows:
        return Rows.rounded(self.forms.plus(other.forms), self.doubt + other.doubt)


@dataclass(eq=False)
class RowMaker:
    """Pulls unit forms on the neurons of a layer back."""

    scene: CertificateScene

    def __post_init__(self) -> None:
        self._gains: dict[int, Fraction] = {}

    def local(self, value: int, neurons: Tensor) -> Iterator[dict[int, Rows]]:
        """The maps from every source of a value (see `CertificateScene.sources`) to its neurons, chunk by chunk."""
        return (self._pull(value, chunk, False) for chunk in self._chunks(neurons))

    def through(self, value: int, neurons: Tensor) -> Iterator[dict[int, Rows]]:
        """The maps from the input, -1, and from the errors of all layers before to the neurons, chunk by chunk."""
        return (self._pull(value, chunk, True) for chunk in self._chunks(neurons))

    def _chunks(self, neurons: Tensor) -> tuple[Tensor, ...]:
        step = max(1, COEFFICIENTS // max(self.scene.network.sizes))
        return neurons.split(step) if len(neurons) else ()

    def _pull(self, value: int, neurons: Tensor, through: bool) -> dict[int, Rows]:
        network, found = self.scene.network, dict[int, Rows]()
        units = torch.nn.functional.one_hot(neurons, network.sizes[value])
        pending = {value: Rows(Fixed(units, 0), Fraction(0))}
        for current in range(value, INPUT - 1, -1):
            if through and current in found:
                _join(pending, current, self._sloped(current, found[current]))
            if current not in pending or current == INPUT:
                continue
            rows, node = pending.pop(current), network.node(current)
            if node.operation.name == "relu":
                _join(found, node.inputs[0], rows)
                continue
            pulled = Rows.rounded(self.scene.layers[current].transpose(rows.forms), rows.doubt * self._gain(current))
            for source in node.inputs:
                _join(pending, source, pulled)
        if INPUT in pending:
            found[THE_INPUT] = pending[INPUT]
        return found

    def _sloped(self, value: int, rows: Rows) -> Rows:
        """Forms on ReLUs as forms on their source, but for the errors."""
        return Rows.rounded(multiply(rows.forms, self.scene.slopes[value], torch.mul, 1), rows.doubt)

    def _gain(self, value: int) -> Fraction:
        """How much larger a coefficient's error can be behind an operation: the largest sum of a column."""
        if value not in self._gains:
            ones = Fixed(torch.ones(1, self.scene.network.sizes[value], dtype=torch.int64), 0)
            total = self.scene.layers[value].absolute.transpose(ones)
            self._gains[value] = total.largest / Fraction(2) ** total.bits
        return self._gains[value]


def spatial(network: Network, value: int) -> NDArray[np.intp]:
    """The neurons of a value, those of an image by row, column and channel."""
    shape = network.shapes[value]
    neurons = np.arange(prod(shape))
    return neurons.reshape(shape).transpose(1, 2, 0).ravel() if len(shape) == 3 else neurons


def _join(rows: dict[int, Rows], value: int, added: Rows) -> None:
    rows[value] = rows[value].plus(added) if value in rows else added
