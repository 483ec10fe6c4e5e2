"""The affine operations in fixed point, by name: how each makes forms on its inputs of forms on its value.

Forms are rows of `Fixed` numbers, one per form, flat. Everything is computed from what the network stores.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from relucert.checker.activations import is_activation
from relucert.checker.fixed_point import BITS, TERMS, Fixed, matrix_product, multiply, of_floats, of_fractions, sums
from relucert.errors import UnsupportedError
from relucert.network import Network, Node

Shape = tuple[int, ...]
ROOT_BITS = 160  # of a reciprocal square root, at least


@dataclass(frozen=True, eq=False)
class FixedLayer(ABC):
    """An affine operation.

    Attributes:
        constant: What the value is where every input is zero, flat; None for zero everywhere.
    """

    constant: Fixed | None

    @abstractmethod
    def transpose(self, forms: Fixed) -> Fixed:
        """Forms on the value, (forms, size), as forms on each of its inputs."""

    def neurons(self, indices: Tensor) -> Fixed | None:
        """Some coordinates of the value as forms on its input, where they are stored that way."""
        return None

    @abstractmethod
    def linear(self, inputs: Sequence[Fixed]) -> Fixed:
        """The value but for its constant, (batch, size), from inputs, (batch, size) each."""

    @property
    @abstractmethod
    def absolute(self) -> FixedLayer:
        """The operation with the absolute values of its coefficients, or at most their errors less."""

    def magnitude(self, sizes: Sequence[Fixed]) -> Fixed:
        """What the linear map with absolute coefficients makes, at most, of inputs >= 0, (size,) for each input."""
        return upper_bounds(self.absolute.linear([size.reshaped(1, -1) for size in sizes])).reshaped(-1)

    @cached_property
    def constant_sizes(self) -> list[Fraction] | None:
        """The absolute values of the constant, or more; None for zeros."""
        if self.constant is None:
            return None
        unit = Fraction(2) ** -self.constant.bits
        return [unit * (number + self.constant.error) for number in self.constant.units.abs().tolist()]

    @cached_property
    def constant_size(self) -> Fraction:
        """The sum of the absolute values of the constant, or more."""
        return sum(self.constant_sizes or [], Fraction(0))

    def at_zero(self, forms: Fixed) -> tuple[list[int], int, Fraction] | None:
        """What the constant adds to the forms: integers over 2**bits, bits, and how far each of them may be off."""
        if self.constant is None:
            return None
        products = sums(forms, self.constant)
        charge = forms.error * self.constant_size / Fraction(2) ** forms.bits
        if self.constant.error:
            largest_error = forms.largest * self.constant.error * len(self.constant.units)
            charge += Fraction(largest_error) / Fraction(2) ** (forms.bits + self.constant.bits)
        return products, forms.bits + self.constant.bits, charge


@dataclass(frozen=True, eq=False)
class FixedLinear(FixedLayer):
    weight: Fixed

    def transpose(self, forms: Fixed) -> Fixed:
        needed = (forms.units != 0).any(0).nonzero().flatten()
        if len(needed) > 0.8 * forms.units.shape[1] or forms.error:
            return matrix_product(forms, self.weight)
        return matrix_product(replace(forms, units=forms.units[:, needed]), _selected(self.weight, needed))

    def linear(self, inputs: Sequence[Fixed]) -> Fixed:
        return matrix_product(inputs[0], replace(self.weight, units=self.weight.units.T))

    @property
    def absolute(self) -> FixedLayer:
        return replace(self, weight=self.weight.absolute)

    def neurons(self, indices: Tensor) -> Fixed:
        return replace(self.weight, units=self.weight.units[indices])


@dataclass(frozen=True, eq=False)
class _Convolution(FixedLayer):
    """Its transpose: every coefficient times the kernels of its channel, summed where they overlap.

    Attributes:
        kernels: (groups, taps of all input channels of a group, output channels of a group).
        size: Height and width of a kernel.
    """

    kernels: Fixed
    before: Shape
    after: Shape
    settings: dict[str, Any]
    size: tuple[int, int]

    def transpose(self, forms: Fixed) -> Fixed:
        """Pulls forms back within the smallest window outside of which all coefficients are zero."""
        count, images = len(forms.units), forms.units.reshape(-1, *self.after)
        (top, bottom), (left, right) = (_ends((images != 0).any((0, 1, 3 - axis))) for axis in (0, 1))
        window = replace(forms, units=images[:, :, top:bottom, left:right])
        pulled = self._pull(window, bottom - top, right - left)
        tall, wide = pulled.units.shape[2:]
        strides, paddings = self.settings["stride"], self.settings["padding"]
        channels, height, width = self.before
        up, across = top * strides[0] - paddings[0], left * strides[1] - paddings[1]  # where the window begins
        rows, columns = (max(0, up), min(height, up + tall)), (max(0, across), min(width, across + wide))
        whole = forms.units.new_zeros(count, channels, height, width)
        if rows[0] < rows[1] and columns[0] < columns[1]:
            whole[:, :, rows[0] : rows[1], columns[0] : columns[1]] = pulled.units[
                :, :, rows[0] - up : rows[1] - up, columns[0] - across : columns[1] - across
            ]
        return replace(pulled, units=whole.reshape(count, -1))

    @property
    def absolute(self) -> FixedLayer:
        return replace(self, kernels=self.kernels.absolute)

    def linear(self, inputs: Sequence[Fixed]) -> Fixed:
        groups, (top, left, bottom, right) = self.settings["groups"], self.settings["padding"]
        kernels = replace(self.kernels, units=self.kernels.units.transpose(1, 2))
        terms = kernels.units.shape[2]
        if terms > TERMS:
            raise UnsupportedError(f"a convolution of {terms} terms is too large to be checked")

        def product(taps: Tensor, digits: Tensor) -> Tensor:
            padded = functional.pad(digits, (left, right, top, bottom))
            strides, dilation = self.settings["stride"], self.settings["dilation"]
            columns = functional.unfold(padded, self.size, dilation=dilation, stride=strides)
            totals: Tensor = taps @ columns.unflatten(1, (groups, -1))
            return totals

        count = len(inputs[0].units)
        return multiply(kernels, inputs[0].reshaped(-1, *self.before), product, terms).reshaped(count, -1)

    def _pull(self, window: Fixed, height: int, width: int) -> Fixed:
        """Forms on a window of the value, (forms, channels, height, width), on the window of the input that it sees."""
        groups, per_group = self.settings["groups"], self.after[0] // self.settings["groups"]
        images = window.reshaped(-1, groups, per_group, height * width)
        size = tuple(
            stride * (length - 1) + dilation * (kernel - 1) + 1
            for stride, length, dilation, kernel in zip(
                self.settings["stride"], (height, width), self.settings["dilation"], self.size, strict=True
            )
        )
        taps = self.size[0] * self.size[1]
        step = max(1, TERMS // taps)  # output channels whose sums are exact

        def spread(kernels: Tensor, digits: Tensor) -> Tensor:
            columns = (kernels @ digits).flatten(1, 2)  # (forms, groups * taps, positions)
            strides, dilation = self.settings["stride"], self.settings["dilation"]
            return functional.fold(columns, size, self.size, dilation=dilation, stride=strides)

        if step >= per_group:
            return multiply(self.kernels, images, spread, per_group * taps)
        total = None
        for begin in range(0, per_group, step):
            channels = slice(begin, begin + step)
            kernels = replace(self.kernels, units=self.kernels.units[:, :, channels])
            product = multiply(kernels, replace(images, units=images.units[:, :, channels]), spread, TERMS)
            total = product if total is None else total.plus(product)
        assert total is not None
        return total


@dataclass(frozen=True, eq=False)
class _Picked(FixedLayer):
    """Every coordinate is one of the input's, or zero.

    Attributes:
        indices: Which coordinate of the input each one is, (size,); one past the last: zero.
        before: How many coordinates the input has.
        multiplicity: How often one of them is picked, at most.
    """

    indices: Tensor
    before: int
    multiplicity: int

    def transpose(self, forms: Fixed) -> Fixed:
        room = BITS - forms.largest.bit_length() - (self.multiplicity - 1).bit_length() - 1
        forms = forms.coarser(-room)
        total = forms.units.new_zeros(len(forms.units), self.before + 1).index_add(1, self.indices, forms.units)
        return Fixed(total[:, :-1], forms.bits, forms.error * self.multiplicity)

    def linear(self, inputs: Sequence[Fixed]) -> Fixed:
        padded = functional.pad(inputs[0].units, (0, 1))
        return replace(inputs[0], units=padded[:, self.indices])

    @property
    def absolute(self) -> FixedLayer:
        return self


@dataclass(frozen=True, eq=False)
class _Diagonal(FixedLayer):
    """Every coordinate times a number, (size,)."""

    factors: Fixed

    def transpose(self, forms: Fixed) -> Fixed:
        return multiply(forms, self.factors, torch.mul, 1)

    def linear(self, inputs: Sequence[Fixed]) -> Fixed:
        return multiply(inputs[0], self.factors, torch.mul, 1)

    @property
    def absolute(self) -> FixedLayer:
        return replace(self, factors=self.factors.absolute)


@dataclass(frozen=True, eq=False)
class _Same(FixedLayer):
    """Coordinates as they are."""

    def transpose(self, forms: Fixed) -> Fixed:
        return forms

    def linear(self, inputs: Sequence[Fixed]) -> Fixed:
        return inputs[0] if len(inputs) == 1 else inputs[0].plus(inputs[1])

    @property
    def absolute(self) -> FixedLayer:
        return self


@dataclass(frozen=True)
class _Stored:
    """The stored data of one operation of a network, with its shapes."""

    tensors: dict[str, Tensor]
    settings: dict[str, Any]
    before: Shape
    after: Shape

    def numbers(self, name: str) -> Tensor:
        """A tensor that is broadcast to the value's shape, flat."""
        return torch.broadcast_to(self.tensors[name], self.after).flatten()


def fixed_layers(network: Network) -> dict[int, FixedLayer]:
    """The affine operations of a network by the values they compute; refuses what is neither one of `LAYERS` nor an
    activation that is known."""
    affine = [(value, node) for value, node in network.steps() if not is_activation(node)]
    if unknown := sorted({node.operation.name for _, node in affine} - set(LAYERS)):
        raise UnsupportedError(f"proofs can't be checked for the operations {', '.join(unknown)}")
    return {value: _layer(network, value, node) for value, node in affine}


def _layer(network: Network, value: int, node: Node) -> FixedLayer:
    tensors = {name: tensor.double() for name, tensor in node.operation.tensors().items()}
    before = network.shapes[node.inputs[0]]
    return LAYERS[node.operation.name](_Stored(tensors, node.operation.settings(), before, network.shapes[value]))


def _linear(stored: _Stored) -> FixedLayer:
    return FixedLinear(of_floats(stored.tensors["bias"]), of_floats(stored.tensors["weight"]))


def _convolution(stored: _Stored) -> FixedLayer:
    weight, groups = stored.tensors["weight"], stored.settings["groups"]
    kernels = weight.flatten(1).unflatten(0, (groups, -1)).transpose(1, 2)
    bias = of_floats(stored.tensors["bias"][:, None, None].expand(stored.after).flatten())
    size = (weight.shape[2], weight.shape[3])
    return _Convolution(bias, of_floats(kernels), stored.before, stored.after, stored.settings, size)


def _index_map(stored: _Stored) -> FixedLayer:
    size, indices = math.prod(stored.before), torch.tensor(stored.settings["indices"])
    picked = indices[indices < size]
    return _Picked(None, indices, size, int(picked.bincount().max()) if len(picked) else 1)


def _scale(stored: _Stored) -> FixedLayer:
    factors = stored.numbers("factor")
    if not stored.settings["divide"]:
        return _Diagonal(None, of_floats(factors))
    return _Diagonal(None, replace(of_fractions([1 / Fraction(factor) for factor in factors.tolist()]), error=1))


def _batch_scale(stored: _Stored) -> FixedLayer:
    epsilon = Fraction(stored.settings["epsilon"])
    gains = [Fraction(number) for number in stored.numbers("gain").tolist()]
    roots = {
        number: _reciprocal_root(Fraction(number) + epsilon) for number in set(stored.numbers("variance").tolist())
    }
    factors = [gain * roots[number] for gain, number in zip(gains, stored.numbers("variance").tolist(), strict=True)]
    return _Diagonal(None, replace(of_fractions(factors), error=2))


def _shift(stored: _Stored) -> FixedLayer:
    return _Same(of_floats(stored.numbers("offset")))


def _unchanged(stored: _Stored) -> FixedLayer:
    return _Same(None)


LAYERS: dict[str, Callable[[_Stored], FixedLayer]] = {
    "linear": _linear,
    "convolution": _convolution,
    "index map": _index_map,
    "scale": _scale,
    "batch scale": _batch_scale,
    "shift": _shift,
    "reshape": _unchanged,
    "add": _unchanged,
}


def _reciprocal_root(number: Fraction) -> Fraction:
    """`1 / sqrt(number)`, at most 2**-ROOT_BITS of it too small."""
    bits = ROOT_BITS + max(0, number.numerator.bit_length() - number.denominator.bit_length())
    return Fraction(math.isqrt((number.denominator << (2 * bits)) // number.numerator), 1 << bits)


def upper_bounds(numbers: Fixed) -> Fixed:
    """Upper bounds of numbers: the units plus the error."""
    return Fixed(numbers.units + numbers.error, numbers.bits)


def _ends(used: Tensor) -> tuple[int, int]:
    """The first used position and the one after the last; an interval of one position where none is used."""
    positions = used.nonzero().flatten().tolist()
    return (positions[0], positions[-1] + 1) if positions else (0, 1)


def _selected(weight: Fixed, rows: Tensor) -> Fixed:
    """Some rows of a matrix whose digits are known."""
    selected = replace(weight, units=weight.units[rows])
    selected.__dict__["digits"] = [digit[rows] for digit in weight.digits]
    return selected
