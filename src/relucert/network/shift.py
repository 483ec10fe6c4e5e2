"""Addition of constants, as in input normalisation or a bias on its own."""

from collections.abc import Sequence

from torch import Tensor

from relucert.arithmetic.forms import LinearForms, Shape
from relucert.network.inference import Inference
from relucert.network.operation import Elementwise
from relucert.network.registry import register
from relucert.network.scale import FOLDED_ROUNDINGS, broadcast_shape


@register
class Shift(Elementwise):
    """`x + offset`."""

    name = "shift"
    offset: Tensor
    terms = 0

    def shape(self, *inputs: Shape) -> Shape:
        return broadcast_shape(self.name, self.offset, inputs[0])

    def linear(self, *inputs: Tensor) -> Tensor:
        return inputs[0]

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        return (coefficients,)

    def pull(self, forms: LinearForms, shapes: Sequence[Shape]) -> tuple[LinearForms, ...]:
        return (forms,)

    @property
    def constant(self) -> Tensor:
        return self.offset

    @property
    def roundings(self) -> int:
        return FOLDED_ROUNDINGS if bool(self.offset.any()) else 0

    def can_be_evaluated(self, inference: Inference) -> bool:
        """An offset may be rounded, as a number in a program is: that is one of the roundings."""
        return float(self.offset.double().abs().max()) < inference.largest
