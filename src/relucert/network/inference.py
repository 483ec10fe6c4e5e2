"""How a network is evaluated: in real arithmetic, or in floating point that rounds every operation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.common import names


@dataclass(frozen=True)
class Inference:
    """A precision that a network is evaluated in; a unit of zero is real arithmetic, where nothing rounds.

    Attributes:
        name: As users give it.
        dtype: The precision; None for real arithmetic.
        unit: The unit roundoff: half the distance from 1 to the next number.
        underflow: What one operation may lose below the normal range, and what an operand there may be off.
        largest: No finite number is larger.
    """

    name: str
    dtype: torch.dtype | None
    unit: float
    underflow: float
    largest: float

    @property
    def rounds(self) -> bool:
        return self.unit > 0

    @property
    def least_operand(self) -> float:
        """A number from which on operands are far from where they underflow."""
        return 0.0 if self.dtype is None else 4 * torch.finfo(self.dtype).smallest_normal

    def gamma(self, roundings: int) -> float:
        """`n u / (1 - n u)` for that many roundings: what a sum of products loses, relatively to its absolute terms."""
        share = roundings * self.unit
        if share >= 0.5:
            raise ArithmeticError(
                f"{roundings} roundings of one number in {self.name} may lose all of its digits: "
                f"nothing follows about the network in {self.name}"
            )
        return share / (1 - share) * (1 + 2.0**-50)

    def represents(self, numbers: Tensor) -> bool:
        """Whether every number is one of this precision."""
        return self.dtype is None or bool((numbers.double() == numbers.to(self.dtype).double()).all())

    def divides_by(self, divisors: Tensor) -> bool:
        """Whether divisors and their inverses are far from where this precision underflows or overflows."""
        if self.dtype is None:
            return True
        least = 2 * torch.finfo(self.dtype).smallest_normal
        sizes = divisors.double().abs()
        return bool(((sizes >= least) & (sizes <= 1 / least)).all())


REAL = Inference("real", None, 0.0, 0.0, torch.inf)
INFERENCES = {
    "real": REAL,
    # Subnormal numbers may be kept or flushed to zero.
    "float32": Inference("float32", torch.float32, 2.0**-24, 2.0**-126, torch.finfo(torch.float32).max),
    # Subnormal numbers are kept, as they are 2**-14 and below: flushing them would be felt.
    "float16": Inference("float16", torch.float16, 2.0**-11, 2.0**-24, torch.finfo(torch.float16).max),
    "bfloat16": Inference("bfloat16", torch.bfloat16, 2.0**-8, 2.0**-126, torch.finfo(torch.bfloat16).max),
}


def find_inference(name: str) -> Inference:
    """The one of that name; raises InputError for an unknown one."""
    return INFERENCES[names.INFERENCES.find(name)]
