"""Rounding-error bounds: what makes a computed bound a proven one.

The standard model: an operation on floating-point numbers errs by a factor within 1 +- unit, a sum of n products
by at most gamma_n times the sum of their absolute values, gamma_n = n unit / (1 - n unit), in any order of
summation and with or without fused multiply-add. Underflow adds at most TINY. Every method here that takes
`terms` wants the number of such factors that meet in one number.

With `unit` zero the same code charges no rounding: fast, and no proof.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.errors import RoundingError

TINY = 2.0**-1000  # above a million underflows
CHORD_UNIT, SLOPE_UNIT = 2.0**-30, 2.0**-20  # the grids that upper and lower slopes of ReLUs in proofs lie on
SHARE_UNIT = 2.0**-8  # of where slopes lie between two derivatives: few, as each of them takes an offset


@dataclass(frozen=True)
class Arithmetic:
    """A precision to compute in, and the unit roundoff that its results account for (zero: none).

    recorded: whether the slopes of lines are rounded, so that a check of a proof in fixed point can repeat them.
    """

    dtype: torch.dtype
    unit: float
    recorded: bool = False

    @property
    def rigorous(self) -> bool:
        return self.unit > 0

    def gamma(self, terms: int) -> float:
        """An upper bound of gamma_terms; the spare terms cover the rounding of what it is multiplied with."""
        share = (terms + 4) * self.unit
        if share >= 0.25:
            raise ArithmeticError(f"a sum of {terms} terms is too long for a rounding-error bound")
        return share / (1 - 2 * share)

    def above(self, value: Tensor, terms: int) -> Tensor:
        """An upper bound of a non-negative quantity that was computed from non-negative ones in `terms` roundings."""
        return value * (1 + 2 * self.gamma(terms)) + TINY if self.rigorous else value

    def up(self, value: Tensor, terms: int) -> Tensor:
        """An upper bound of a product that took `terms` roundings, of any sign."""
        return value + 2 * self.gamma(terms) * value.abs() + TINY if self.rigorous else value

    def down(self, value: Tensor, terms: int) -> Tensor:
        """A lower bound of a product that took `terms` roundings, of any sign."""
        return value - 2 * self.gamma(terms) * value.abs() - TINY if self.rigorous else value

    def ceil(self, value: Tensor) -> Tensor:
        """An upper bound of the result of one correctly rounded operation."""
        return torch.nextafter(value, value.new_tensor(torch.inf)) if self.rigorous else value

    def floor(self, value: Tensor) -> Tensor:
        """A lower bound of the result of one correctly rounded operation."""
        return torch.nextafter(value, value.new_tensor(-torch.inf)) if self.rigorous else value

    def chords(self, slopes: Tensor) -> Tensor:
        """Slopes of upper lines: any are sound, so their rounding needs no account."""
        return self._rounded(slopes, CHORD_UNIT)

    def slopes(self, slopes: Tensor) -> Tensor:
        """Slopes within [0, 1] that are chosen for lower lines; any are sound."""
        return self._rounded(slopes.clamp(0, 1), SLOPE_UNIT)

    def any_slopes(self, slopes: Tensor) -> Tensor:
        """Slopes of any size of lines around a smooth activation; any are sound."""
        return short(slopes) if self.recorded else slopes

    def shares(self, shares: Tensor) -> Tensor:
        """Where slopes lie between two derivatives, 0 and 1; any are sound."""
        return self._rounded(shares.clamp(0, 1), SHARE_UNIT)

    def _rounded(self, slopes: Tensor, unit: float) -> Tensor:
        return torch.floor(slopes / unit + 0.5) * unit if self.recorded else slopes


def short(numbers: Tensor) -> Tensor:
    """Numbers in float64, rounded to 24 significant bits, which proof files store in half the bytes."""
    mantissa, exponent = torch.frexp(numbers)
    return torch.ldexp(torch.round(mantissa * 2.0**24) * 2.0**-24, exponent)


def check_subnormals() -> None:
    """Refuses to prove anything while the processor takes subnormal numbers for zero."""
    if not bool(torch.tensor([5e-324], dtype=torch.float64) * 1.0 > 0):
        raise RoundingError(
            "nothing can be proven while subnormal numbers are flushed to zero; call torch.set_flush_denormal(False)"
        )


RIGOROUS = Arithmetic(torch.float64, 2.0**-53)
RECORDED = Arithmetic(torch.float64, 2.0**-53, recorded=True)  # for what a proof file is written of
FLOAT = Arithmetic(torch.float32, 0.0)
DOUBLE = Arithmetic(torch.float64, 0.0)
