"""Affine operations of a network as maps of vectors, whatever the shapes of the values are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.network.graph import Network
from relucert.network.operation import Affine


@dataclass(eq=False)
class FlatAffine:
    """An affine operation that takes vectors and returns one, after any batch axes: (..., size) each.

    Attributes:
        operation: The operation.
        shapes: The shapes of the values that it takes.
    """

    operation: Affine
    shapes: Sequence[Shape]

    @classmethod
    def of(cls, network: Network, value: int) -> FlatAffine:
        """The operation that computes a value."""
        return cls(network.affine(value), [network.shapes[source] for source in network.node(value).inputs])

    def apply(self, *values: Tensor) -> Tensor:
        return self._flat(self.operation.apply, values)

    def linear(self, *values: Tensor) -> Tensor:
        """The map without its constant."""
        return self._flat(self.operation.linear, values)

    def absolute(self, *values: Tensor) -> Tensor:
        """The linear map with the absolute value of every coefficient."""
        return self._flat(self.operation.absolute.linear, values)

    def magnitude(self, *values: Tensor) -> Tensor:
        """`absolute` of values that are not negative, or an upper bound of it."""
        return self._flat(self.operation.magnitude, values)

    @cached_property
    def constant(self) -> Tensor | None:
        """The constant, (size,); None for zero."""
        constant = self.operation.constant
        return None if constant is None else constant.expand(self.operation.shape(*self.shapes)).flatten()

    def plus_constant(self, total: Tensor, factor: float) -> Tensor:
        """A bound plus so many times the absolute constant."""
        return total if self.constant is None else total + factor * self.constant.abs()

    def _flat(self, function: Callable[..., Tensor], values: Sequence[Tensor]) -> Tensor:
        shaped = [
            value if len(shape) == 1 else value.reshape(*value.shape[:-1], *shape)
            for value, shape in zip(values, self.shapes, strict=True)
        ]
        return function(*shaped).flatten(values[0].ndim - 1)
