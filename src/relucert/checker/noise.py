"""The rounding noise that an evaluation in floating point adds, for the check of proofs.

A computed value is the real value of the computed inputs v plus noise of at most `gamma(n) (|W| |v| + |b|)`, with n
roundings of one number in any order of summation and `gamma(n) = n u / (1 - n u)`, plus what underflow may add. That of
an activation is a number of units in the last place, which a proof assumes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from flint import arb, fmpq
from torch import Tensor

from relucert.checker.activations import SmoothFunction
from relucert.checker.entries import Rejected, require
from relucert.checker.fixed_layers import FixedLayer
from relucert.checker.fixed_point import Fixed, of_fractions
from relucert.checker.selections import check_exact
from relucert.network import Network, Node

FOLDED = 8  # roundings of a factor or an offset that may be combined with its neighbours beforehand
ROOT = 5  # more of them for a batch normalisation: a sum, a root, a quotient and a product, and one to spare


@dataclass(frozen=True)
class Precision:
    """A floating-point format.

    Attributes:
        unit: Half the distance from 1 to the next number.
        underflow: What one operation may lose below the normal range, and what an operand there may be off.
        largest: No finite number is larger.
        smallest: The least positive number that has all bits.
    """

    dtype: torch.dtype
    unit: Fraction
    underflow: Fraction
    largest: Fraction
    smallest: Fraction

    def represents(self, numbers: Tensor) -> bool:
        return bool((numbers.double() == numbers.to(self.dtype).double()).all())

    def divides_by(self, divisors: Tensor) -> bool:
        """Whether divisors and their inverses are far from both ends of the range."""
        least = float(2 * self.smallest)
        sizes = divisors.double().abs()
        return bool(((sizes >= least) & (sizes <= 1 / least)).all())


def _precision(dtype: torch.dtype, bits: int, exponent: int, underflow: int) -> Precision:
    """bits: of the mantissa; exponent: of the smallest normal number; underflow: a power of two."""
    base = Fraction(2)
    largest = base ** (2 - exponent) * (1 - base**-bits)
    return Precision(dtype, base**-bits, base**underflow, largest, base**exponent)


PRECISIONS: dict[str, Precision | None] = {
    "real": None,
    "float32": _precision(torch.float32, 24, -126, -126),  # subnormal numbers may be flushed to zero
    "float16": _precision(torch.float16, 11, -14, -24),  # subnormal numbers are kept
    "bfloat16": _precision(torch.bfloat16, 8, -126, -126),
}


@dataclass(frozen=True)
class ActivationError:
    """How far evaluations of an activation f may be off: so many units in the last place of |f| or of f's scale."""

    ulps: int
    precision: Precision

    def noise(self, function: SmoothFunction, low: arb, high: arb, size: arb) -> arb:
        """How far an evaluation of f may be off between two numbers, where |f| is at most `size`."""
        if function.scale is None:
            raise Rejected(f"nothing is known about evaluations of {function.name}")
        size = arb.max(size, function.scale(low, high))
        least, largest = function.accurate(_exact(4 * self.precision.smallest))
        accurate = (least is None or low >= least) and (largest is None or high <= largest)
        in_range = function.overflow_factor * size <= _exact(self.precision.largest)
        require(accurate and in_range, f"an evaluation of {function.name} may overflow, or is not accurate")
        return 2 * self.ulps * _exact(self.precision.unit) * size + 4 * _exact(self.precision.underflow)


def activation_error(inference: str, ulps: int) -> ActivationError:
    """How far evaluations of activations in a precision may be off, by their units in the last place."""
    precision = PRECISIONS[inference]
    require(ulps >= 1, "evaluations of activations are off by at least a unit in the last place")
    if precision is None:
        raise Rejected("nothing is evaluated in real arithmetic that might be off")
    return ActivationError(ulps, precision)


def _exact(number: Fraction) -> arb:
    return arb(fmpq(number.numerator, number.denominator))


def check_evaluation(network: Network, name: str, precision: Precision) -> None:
    """Refuses a network whose numbers the precision does not have, or that changes the precision on its way."""
    if network.real_only:
        raise Rejected(f"nothing follows about {name}: {network.real_only[0]}")
    check_exact(network)
    for value, node in network.steps():
        subject = f"the network's node {value} ({node.operation.name})"
        fits = _can_be_evaluated(node, precision)
        require(fits, f"{subject} has numbers that {name} has not, or a negative variance")


def _can_be_evaluated(node: Node, precision: Precision) -> bool:
    tensors, settings = node.operation.tensors(), node.operation.settings()
    if node.operation.name == "scale":  # a factor may be rounded: that is one of the roundings
        factor = tensors["factor"]
        return precision.divides_by(factor if settings["divide"] else factor[factor != 0])
    if node.operation.name == "shift":
        return Fraction(float(tensors["offset"].double().abs().max())) < precision.largest
    if node.operation.name == "batch scale":
        if bool((tensors["variance"] < 0).any()):  # its sum with epsilon may lose all of its digits
            return False
        spread = tensors["variance"].double() + settings["epsilon"]
        factors = tensors["gain"].double() / spread.sqrt()
        if not all(precision.divides_by(divisors) for divisors in (spread, spread.sqrt(), factors[factors != 0])):
            return False
    return all(precision.represents(tensor) for tensor in tensors.values())


def noise(
    node: Node, layer: FixedLayer, sizes_of: Callable[[int], list[Fraction]], precision: Precision
) -> Fixed | None:
    """Upper bounds of the noise of an affine operation's value, (size,); None where it does not round.

    sizes_of: Gives upper bounds of the absolute values of the computed coordinates of an input.
    """
    if not _roundings(node, None, precision):
        return None
    sizes = [sizes_of(source) for source in node.inputs]
    count = _roundings(node, sizes, precision)
    share = count * precision.unit
    require(share < Fraction(1, 2), f"{count} roundings of one number may lose all of its digits")
    addend = precision.underflow / precision.unit  # more than an operand that is flushed to zero loses
    total = layer.magnitude([of_fractions([size + addend for size in numbers], up=True) for numbers in sizes])
    constants = layer.constant_sizes
    largest = max(max(numbers) for numbers in sizes)
    underflow = precision.underflow * (count + 4) * (4 + largest)
    scale, gamma = Fraction(2) ** -total.bits, share / (1 - share)
    lost = []
    for coordinate, number in enumerate(total.units.tolist()):
        size = number * scale + (constants[coordinate] if constants is not None else 0)
        require(2 * size <= precision.largest, "a sum may overflow")
        lost.append(gamma * size + underflow)
    return of_fractions(lost, up=True)


def _roundings(node: Node, sizes: Sequence[Sequence[Fraction]] | None, precision: Precision) -> int:
    """How many roundings meet in one number, whatever the order of summation; where the operation belongs to a longer
    sum, which its node says, those of that sum."""
    if node.exact and all(precision.represents(tensor) for tensor in node.operation.tensors().values()):
        return 0
    if node.roundings is None:
        return _single_roundings(node, sizes)
    single = _single_roundings(node, None)
    if node.roundings < single:
        raise Rejected(f"the network's {node.operation.name} rounds {single} times, and says {node.roundings}")
    return node.roundings


def _single_roundings(node: Node, sizes: Sequence[Sequence[Fraction]] | None) -> int:
    """The roundings of the operation by itself; terms that are zero add none."""
    tensors, name = node.operation.tensors(), node.operation.name
    if name == "linear":
        return 1 + (tensors["weight"].shape[1] if sizes is None else sum(size > 0 for size in sizes[0]))
    if name == "convolution":
        kernels = tensors["weight"].flatten(1)
        single = bool(((kernels != 0).sum(1) <= 1).all() and ((kernels == 0) | (kernels.abs() == 1)).all())
        return 0 if single and not bool(tensors["bias"].any()) else int((kernels != 0).sum(1).max()) + 1
    if name == "scale":
        factors = tensors["factor"].abs()
        return 0 if bool(((factors == 1) | (factors == 0)).all()) else FOLDED
    if name == "batch scale":
        return FOLDED + ROOT
    if name == "shift":
        return FOLDED if bool(tensors["offset"].any()) else 0
    return 1 if name == "add" else 0
