"""Linear forms on one value of a network: what they can do, and rows of all their coefficients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import Self

from relucert.common.slicing import slices

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LinearForms(ABC):
    """Coefficients (batch or 1, forms, ...) of linear forms on a value of the shape `shape`, without the batch.

    Maps are vectors of the value's size, one per batch member: (batch or 1, size).
    """

    coefficients: Tensor
    shape: Shape

    @property
    def count(self) -> int:
        return self.coefficients.shape[1]

    @property
    def terms(self) -> int:
        """How many coefficients a form stores."""
        return self.coefficients[0, 0].numel()

    @cached_property
    def negative(self) -> Self:
        """The forms whose positive coefficients are 0."""
        return self.mapped(lambda numbers: numbers.clamp(max=0))

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The forms with a function, which maps 0 to 0, applied to every coefficient."""
        return replace(self, coefficients=function(self.coefficients))

    def replaced(self, coefficients: Tensor) -> Self:
        """Forms with other coefficients, those outside of an image being 0."""
        return replace(self, coefficients=coefficients)

    def scaled(self, factors: Tensor) -> Self:
        """Every form times a number, (count,)."""
        return self.mapped(lambda numbers: numbers * factors.reshape(-1, *[1] * (numbers.ndim - 2)))

    def pick(self, chosen: Tensor) -> Self:
        """Some of the forms, (count,)."""
        return replace(self, coefficients=self.coefficients.index_select(1, chosen))

    @abstractmethod
    def rows(self) -> Tensor:
        """All coefficients: (batch or 1, forms, size)."""

    @abstractmethod
    def stored(self) -> Tensor:
        """The coefficients that may differ from zero, in any order: (batch or 1, forms, terms)."""

    @abstractmethod
    def dot(self, vector: Tensor) -> Tensor:
        """The forms' values at a map: (batch, forms)."""

    @abstractmethod
    def absolute_dot(self, vector: Tensor) -> Tensor:
        """The values at a map, none of it negative, of the forms with absolute coefficients: (batch, forms)."""

    def times(self, factors: Tensor) -> Self:
        """Every coefficient times a map."""
        return self.replaced(self.coefficients * self.local(factors))

    def times_by_sign(self, all_factors: Tensor, negative_factors: Tensor) -> Self:
        """Every coefficient times a map, and negative ones times another, which is added."""
        scaled = self.coefficients * self.local(all_factors)
        return self.replaced(torch.addcmul(scaled, self.negative.coefficients, self.local(negative_factors)))

    def dot_by_sign(self, vector: Tensor, negative_vector: Tensor) -> Tensor:
        """The forms' values at a map, plus those of their negative coefficients at another: (batch, forms)."""
        return self.dot(vector) + self.negative.dot(negative_vector)

    @abstractmethod
    def aligned(self, factors: Tensor) -> tuple[LinearForms, Tensor]:
        """The same forms, and factors of each form's own laid out as their coefficients are: given like these, or as
        (batch, forms, size)."""

    @abstractmethod
    def local(self, vector: Tensor) -> Tensor:
        """A map where the coefficients are: it broadcasts to them."""

    def spread(self, vector: Tensor) -> Tensor:
        """A map where the coefficients are, as they lie in memory: it broadcasts to them."""
        return self.local(vector)

    @abstractmethod
    def over(self, divisors: Tensor) -> LinearForms:
        """Every coefficient divided by a map."""

    @abstractmethod
    def plus(self, other: LinearForms) -> LinearForms:
        """The sums of forms and forms on the same value."""


@dataclass(frozen=True, eq=False)
class Rows(LinearForms):
    """All coefficients of every form, flat: (batch or 1, forms, size)."""

    def rows(self) -> Tensor:
        return self.coefficients

    def stored(self) -> Tensor:
        return self.coefficients

    def dot(self, vector: Tensor) -> Tensor:
        return _products(self.coefficients, vector)

    def absolute_dot(self, vector: Tensor) -> Tensor:
        return torch.cat([_products(part.abs(), vector) for part in slices(self.coefficients, 1)], 1)

    def aligned(self, factors: Tensor) -> tuple[Rows, Tensor]:
        return self, factors

    def local(self, vector: Tensor) -> Tensor:
        return vector[:, None]

    def over(self, divisors: Tensor) -> Rows:
        return replace(self, coefficients=self.coefficients / divisors[:, None])

    def plus(self, other: LinearForms) -> Rows:
        return replace(self, coefficients=self.coefficients + other.rows())


def _products(forms: Tensor, vectors: Tensor) -> Tensor:
    """The products of forms (batch or 1, forms, size) and vectors (batch or 1, size): (batch, forms)."""
    if len(forms) == 1:
        return vectors @ forms[0].T
    return (forms @ vectors[..., None]).squeeze(-1)
