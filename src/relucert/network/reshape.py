"""Flatten, reshape and every other change of shape that keeps the order of the coordinates."""

from math import prod

from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.errors import NetworkError
from relucert.network.operation import Elementwise
from relucert.network.registry import register


@register
class Reshape(Elementwise):
    """The same numbers in the same order, from the shape `before` to the shape `after` (both without the batch)."""

    name = "reshape"
    before: Shape
    after: Shape
    terms = 0
    roundings = 0

    def shape(self, *inputs: Shape) -> Shape:
        if inputs[0] != self.before or prod(self.before) != prod(self.after):
            raise NetworkError(f"reshape: {inputs[0]} can't become {self.after} (made for {self.before})")
        return self.after

    def linear(self, *inputs: Tensor) -> Tensor:
        batch = inputs[0].shape[: inputs[0].ndim - len(self.before)]
        return inputs[0].reshape(batch + self.after)

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        batch = coefficients.shape[: coefficients.ndim - len(self.after)]
        return (coefficients.reshape(batch + self.before),)
