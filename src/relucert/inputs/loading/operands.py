"""The operands of foreign operators: computed values, by their indices, and constants."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.network import Shape

Operand = int | Tensor
"""An input of a foreign operator: the index of a value, or a constant."""

PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""The types of numbers that a constant may have."""


def computed_value(operand: Operand) -> int:
    """The index of a computed value; a constant is refused."""
    if isinstance(operand, Tensor):
        raise UnsupportedError("a constant where a computed value is expected")
    return operand


def matrix(constant: Tensor) -> Tensor:
    """The constant, if it has the two axes of a layer's weight; otherwise refused."""
    if constant.ndim != 2:
        raise UnsupportedError(f"a product with a constant of shape {tuple(constant.shape)}")
    return constant


def scalar(number: float) -> Tensor:
    """A plain number as a float64 tensor without axes: exact, and it does not change the precision of other tensors."""
    return torch.tensor(number, dtype=torch.float64)


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape to which two shapes broadcast; refused where they do not."""
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        raise UnsupportedError(f"the shapes {first} and {second} together") from None
