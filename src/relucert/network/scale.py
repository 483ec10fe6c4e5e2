"""Multiplication or division by constants, as in input normalisation."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.forms import LinearForms, Shape
from relucert.arithmetic.symbol_windows import SymbolWindows
from relucert.errors import NetworkError
from relucert.network.inference import Inference
from relucert.network.operation import Elementwise, Units
from relucert.network.registry import register

FOLDED_ROUNDINGS = 8  # of a factor or an offset: also where a runtime combines it with its neighbours beforehand


class Scaling(Elementwise):
    """`x * factor`, or `x / factor` where `divide`: a stored divisor is never replaced by its rounded inverse."""

    factor: Tensor
    divide: bool

    def linear(self, *inputs: Tensor) -> Tensor:
        return inputs[0] / self.factor if self.divide else inputs[0] * self.factor

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (self.linear(coefficients),)

    def pull(self, forms: LinearForms, shapes: Sequence[Shape]) -> tuple[LinearForms, ...]:
        factors = self.factor.expand(forms.shape).reshape(1, -1)
        return (forms.over(factors) if self.divide else forms.times(factors),)

    def images(self, symbols: SymbolWindows, shape: Shape) -> SymbolWindows:
        factors = self.factor.expand(shape).reshape(1, -1)
        return symbols.over(factors) if self.divide else symbols.times(factors)

    def spread(self, units: Units, shape: Shape, dtype: torch.dtype) -> Units:
        factor = self.factor.expand(shape).flatten()
        if units.indices is not None:
            factor = factor[units.indices]
        scale = factor.new_ones(1) if units.scale is None else units.scale
        return Units(units.indices, Scale(factor, self.divide).linear(scale).reshape(-1, len(factor)))


@register
class Scale(Scaling):
    """`x * factor`, or `x / factor` where `divide`."""

    name = "scale"
    factor: Tensor
    divide: bool
    terms = 1

    def shape(self, *inputs: Shape) -> Shape:
        if self.divide and bool((self.factor == 0).any()):
            raise NetworkError("scale: division by zero")
        return broadcast_shape(self.name, self.factor, inputs[0])

    @property
    def roundings(self) -> int:
        factors = self.factor.abs()
        return 0 if bool(((factors == 1) | (factors == 0)).all()) else FOLDED_ROUNDINGS

    def can_be_evaluated(self, inference: Inference) -> bool:
        """A factor may be rounded, as a number in a program is: that is one of the roundings."""
        return inference.divides_by(self.factor if self.divide else self.factor[self.factor != 0])


def broadcast_shape(name: str, constant: Tensor, shape: Shape) -> Shape:
    """`shape`, if the constant broadcasts to it without changing it."""
    try:
        joint = np.broadcast_shapes(tuple(constant.shape), shape)  # torch's own imports a computer algebra system
    except ValueError:
        joint = ()
    if joint != shape:
        raise NetworkError(f"{name}: a constant of shape {tuple(constant.shape)} does not fit a value of {shape}")
    return shape
