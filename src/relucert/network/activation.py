"""The contract of nonlinear operations: an activation acts coordinate by coordinate, and says all that methods need.

The theorem behind every linear relaxation: for any slope s and any z in [lower, upper],

    s z + least(s) <= f(z) <= s z + largest(s),

where `least` and `largest` bound `f(z) - s z` on the interval. So relaxers (Fast-Lin / DeepZ, CROWN / DeepPoly,
interval bound propagation) only choose slopes, and how a slope was rounded does not matter.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.network.operation import Operation

if TYPE_CHECKING:
    from relucert.arithmetic.rigor import Arithmetic


class Activation(Operation):
    """A function f of one variable, applied to every coordinate of the only input.

    Bounds of a pre-activation are two tensors of one shape. Where one of them is NaN, what follows from them is NaN or
    infinite, never a finite bound. With a rigorous arithmetic every bound is rounded outwards.
    """

    rectifier: ClassVar[bool] = False
    """Whether f is ReLU: methods that split, optimise or solve over the signs of neurons need that."""

    def shape(self, *inputs: Shape) -> Shape:
        return inputs[0]

    @abstractmethod
    def image(self, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> tuple[Tensor, Tensor]:
        """The least and the largest f(z) on [lower, upper]."""

    @abstractmethod
    def least(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor | None:
        """The least `f(z) - slope z` on [lower, upper]; None: 0 everywhere."""

    @abstractmethod
    def largest(self, slope: Tensor, lower: Tensor, upper: Tensor, arithmetic: Arithmetic) -> Tensor:
        """The largest `f(z) - slope z` on [lower, upper]."""

    @abstractmethod
    def chord(self, lower: Tensor, upper: Tensor) -> Tensor:
        """The slope of two parallel lines around f on [lower, upper], not far apart; where f is affine its own."""

    @abstractmethod
    def slopes(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes of a line below and of one above f on [lower, upper] with a small area between them, as CROWN
        chooses them; where f is affine its own."""

    @abstractmethod
    def derivatives(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest derivative between lower and upper."""

    @abstractmethod
    def derivative(self, points: Tensor) -> Tensor:
        """The derivative at points, up to rounding; at a kink that of either side."""

    @abstractmethod
    def is_affine(self, lower: Tensor, upper: Tensor) -> Tensor:
        """Whether f is affine on [lower, upper], so that the neuron is stable; False where both bounds are NaN."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """The largest absolute value of a derivative anywhere."""

    @property
    @abstractmethod
    def roundings(self) -> int:
        """How many units of roundoff `apply` may be off relatively, in any precision; 0: it is exact."""
