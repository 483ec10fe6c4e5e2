"""The affine operations that proofs can be checked for, by name, each as ball arithmetic of its stored numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from flint import arb, arb_mat
from torch import Tensor

from relucert.network import Network, Node

Row = list[arb]
Shape = tuple[int, ...]
Terms = list[tuple[int, arb]]  # the coordinates that a form depends on, and its coefficients
ZERO, ONE = arb(0), arb(1)


@dataclass(frozen=True)
class Layer:
    """An affine operation.

    transpose: makes forms on each input of forms on the value.
    constant: what the value is where every input is zero; None for zero everywhere.
    """

    transpose: Callable[[list[Row]], list[Row]]
    constant: Row | None = None


@dataclass(frozen=True)
class Stored:
    """What a network stores of one operation, with its shapes: tensors in float64, and all other fields."""

    tensors: dict[str, Tensor]
    settings: dict[str, Any]
    before: Shape
    after: Shape

    def numbers(self, name: str) -> Row:
        """A tensor that is broadcast to the value's shape, flat."""
        return _balls(torch.broadcast_to(self.tensors[name], self.after))


def layer_of(network: Network, value: int, node: Node) -> Layer:
    """The operation that computes a value, which has to be one of `LAYERS`."""
    tensors = {name: tensor.double() for name, tensor in node.operation.tensors().items()}
    stored = Stored(tensors, node.operation.settings(), network.shapes[node.inputs[0]], network.shapes[value])
    return LAYERS[node.operation.name](stored)


def _linear(stored: Stored) -> Layer:
    weight = arb_mat([_balls(row) for row in stored.tensors["weight"]])
    width = weight.ncols()

    def transpose(forms: list[Row]) -> list[Row]:
        products = (arb_mat(forms) * weight).entries()
        return [products[place * width : (place + 1) * width] for place in range(len(forms))]

    return Layer(transpose, _balls(stored.tensors["bias"]))


def _convolution(stored: Stored) -> Layer:
    weight, bias, settings = stored.tensors["weight"], stored.tensors["bias"], stored.settings
    (_, height, width), (outputs, tall, wide) = stored.before, stored.after
    _, channels, *kernel = weight.shape
    (down, across), (row_step, column_step) = settings["stride"], settings["dilation"]
    top, left = settings["padding"][:2]
    coefficients = _balls(weight)
    forms: list[Terms] = []
    for output, y, x in itertools.product(range(outputs), range(tall), range(wide)):
        begin = output // (outputs // settings["groups"]) * channels  # the group's first input channel
        terms: Terms = []
        for tap, (channel, i, j) in enumerate(itertools.product(range(channels), *map(range, kernel))):
            row, column = y * down + i * row_step - top, x * across + j * column_step - left
            if 0 <= row < height and 0 <= column < width:
                place = ((begin + channel) * height + row) * width + column
                terms.append((place, coefficients[output * channels * kernel[0] * kernel[1] + tap]))
        forms.append(terms)
    return Layer(sparse(forms, _size(stored.before)), _balls(bias[:, None, None].expand(stored.after)))


def _index_map(stored: Stored) -> Layer:
    size = _size(stored.before)
    picked = [[(place, ONE)] if place < size else [] for place in stored.settings["indices"]]
    return Layer(sparse(picked, size))


def _scale(stored: Stored) -> Layer:
    factors = stored.numbers("factor")
    return _diagonal([ONE / factor for factor in factors] if stored.settings["divide"] else factors)


def _batch_scale(stored: Stored) -> Layer:
    epsilon = arb(stored.settings["epsilon"])
    both = zip(stored.numbers("gain"), stored.numbers("variance"), strict=True)
    return _diagonal([gain / (variance + epsilon).sqrt() for gain, variance in both])


def _shift(stored: Stored) -> Layer:
    return Layer(_as_they_are, stored.numbers("offset"))


def _unchanged(stored: Stored) -> Layer:
    return Layer(_as_they_are)


LAYERS: dict[str, Callable[[Stored], Layer]] = {
    "linear": _linear,
    "convolution": _convolution,
    "index map": _index_map,
    "scale": _scale,
    "batch scale": _batch_scale,
    "shift": _shift,
    "reshape": _unchanged,
    "add": _unchanged,
}


def sparse(outputs: list[Terms], size: int) -> Callable[[list[Row]], list[Row]]:
    """The transpose of the map whose output coordinates are forms of few terms on an input of this size."""

    def transpose(forms: list[Row]) -> list[Row]:
        pulled = []
        for form in forms:
            row = [ZERO] * size
            for coefficient, terms in zip(form, outputs, strict=True):
                if not coefficient.is_zero():
                    for place, factor in terms:
                        row[place] += coefficient * factor
            pulled.append(row)
        return pulled

    return transpose


def _diagonal(factors: Row) -> Layer:
    return Layer(lambda forms: [[one * two for one, two in zip(form, factors, strict=True)] for form in forms])


def _as_they_are(forms: list[Row]) -> list[Row]:
    return forms


def _balls(numbers: Tensor) -> Row:
    return [arb(number) for number in numbers.flatten().tolist()]


def _size(shape: Shape) -> int:
    return torch.Size(shape).numel()
