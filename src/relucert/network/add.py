"""The sum of two branches."""

from collections.abc import Sequence

from torch import Tensor

from relucert.arithmetic.forms import LinearForms, Shape
from relucert.errors import NetworkError
from relucert.network.operation import Affine
from relucert.network.registry import register


@register
class Add(Affine):
    """`x + y` of two values of one shape: a residual connection."""

    name = "add"
    arity = 2
    terms = 2
    roundings = 1

    def shape(self, *inputs: Shape) -> Shape:
        if inputs[0] != inputs[1]:
            raise NetworkError(f"add: the branches have the shapes {inputs[0]} and {inputs[1]}")
        return inputs[0]

    def linear(self, *inputs: Tensor) -> Tensor:
        return inputs[0] + inputs[1]

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients, coefficients)

    def pull(self, forms: LinearForms, shapes: Sequence[Shape]) -> tuple[LinearForms, ...]:
        return (forms, forms)
