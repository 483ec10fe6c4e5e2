"""The rectified linear unit."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from relucert.network.forms import Shape
from relucert.network.operation import Operation, register


@register
@dataclass(frozen=True, eq=False)
class Relu(Operation):
    """`max(x, 0)`, coordinate by coordinate."""

    name: ClassVar[str] = "relu"

    def shape(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def apply(self, *inputs: Tensor) -> Tensor:
        return inputs[0].clamp(min=0)
