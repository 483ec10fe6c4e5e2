"""Formulas over inputs and outputs, as files write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from relucert.common.numbers import parse_decimal
from relucert.errors import InputError

ONE, MINUS = Fraction(1), Fraction(-1)
MOST_BITS = 2**13  # of a number's numerator or denominator: products of many would take all time


class Variable(NamedTuple):
    """An input or an output of the network, counted flat from 0."""

    output: bool
    number: int

    def __str__(self) -> str:
        return f"{'Y' if self.output else 'X'}_{self.number}"


@dataclass(frozen=True)
class LinearTerms:
    """A linear form: the sum of coefficients times variables, plus a constant."""

    coefficients: dict[Variable, Fraction]
    constant: Fraction = Fraction(0)

    def plus(self, other: LinearTerms) -> LinearTerms:
        if not other.coefficients or not self.coefficients:  # as of most comparisons, which are with a number
            return LinearTerms(self.coefficients or other.coefficients, self.constant + other.constant)
        total = dict(self.coefficients)
        for variable, coefficient in other.coefficients.items():
            total[variable] = total.get(variable, Fraction(0)) + coefficient
        kept = {variable: coefficient for variable, coefficient in total.items() if coefficient}
        return LinearTerms(kept, self.constant + other.constant)

    def times(self, factor: Fraction) -> LinearTerms:
        scaled = {variable: factor * coefficient for variable, coefficient in self.coefficients.items() if factor}
        constant = factor * self.constant
        if any(_bits(number) > MOST_BITS for number in (*scaled.values(), constant)):
            raise InputError(f"a product has a number of more than {MOST_BITS} bits: write it in fewer digits")
        return LinearTerms(scaled, constant)

    def minus(self, other: LinearTerms) -> LinearTerms:
        negated = {variable: -coefficient for variable, coefficient in other.coefficients.items()}
        return self.plus(LinearTerms(negated, -other.constant))


@dataclass(frozen=True)
class AtMost:
    """That a linear form is not positive; where it is strict, that the form is negative."""

    form: LinearTerms
    strict: bool = False


@dataclass(frozen=True)
class All:
    """A conjunction."""

    operands: Sequence[Formula]


@dataclass(frozen=True)
class AnyOf:
    """A disjunction."""

    operands: Sequence[Formula]


class End(NamedTuple):
    """A bound of an input, which stays off it where the bound is strict."""

    at: Fraction
    strict: bool = False

    def is_tighter(self, other: End | None, upper: bool) -> bool:
        """Whether fewer numbers meet it than meet another bound, both upper or both lower ones; None: no bound."""
        if other is None:
            return True
        if self.at == other.at:
            return self.strict > other.strict
        return (self.at < other.at) == upper

    def leaves_room(self, high: End) -> bool:
        """Whether there are numbers from this bound to an upper one."""
        return self.at < high.at or (self.at == high.at and not (self.strict or high.strict))


class Ends(dict[str, End]):
    """Bounds by the decimals as they are written, each made once; a KeyError where something is no decimal."""

    def __init__(self, strict: bool) -> None:
        super().__init__()
        self.strict = strict

    def __missing__(self, text: str) -> End:
        number = parse_decimal(text)
        if number is None:
            raise KeyError(text)
        self[text] = end = End(number, self.strict)
        return end


class Comparisons(NamedTuple):
    """Comparisons of single variables with numbers that are given elsewhere.

    Attributes:
        relations: Of each comparison.
        names: Of its variable.
        variables: All there are, by name.
        ends: The bounds that are not strict, and those that are.
    """

    relations: Sequence[str]
    names: Sequence[str]
    variables: Mapping[str, Variable]
    ends: tuple[Ends, Ends]

    def bounds(self, numbers: Sequence[str]) -> Bounds:
        """The conjunction of them with these numbers; a KeyError where something is no decimal or no variable."""
        bounds, (touching, strict) = Bounds(), self.ends
        for relation, name, number in zip(self.relations, self.names, numbers, strict=True):
            variable = self.variables[name]
            end = (strict if len(relation) == 1 else touching)[number]
            if variable.output:
                upper = relation[0] == "<"
                form = LinearTerms({variable: ONE}, -end.at) if upper else LinearTerms({variable: MINUS}, end.at)
                bounds.forms.append(AtMost(form, end.strict))
            else:
                bounds.add(variable.number, end, relation[0] == "<")
        return bounds


@dataclass(frozen=True)
class Bounds:
    """A conjunction of comparisons of single variables with numbers: bounds of inputs by their index, and forms."""

    low: dict[int, End] = field(default_factory=dict)
    high: dict[int, End] = field(default_factory=dict)
    forms: list[AtMost] = field(default_factory=list)

    def add(self, index: int, bound: End, upper: bool) -> None:
        """Adds a bound of an input, while the conjunction is made: the tightest counts."""
        bounds = self.high if upper else self.low
        if index not in bounds or bound.is_tighter(bounds[index], upper):
            bounds[index] = bound

    def join(self, atom: AtMost | Bounds) -> None:
        """Adds a further conjunct, while the conjunction is made."""
        if isinstance(atom, Bounds):
            for bounds, upper in ((atom.low, False), (atom.high, True)):
                for index, bound in bounds.items():
                    self.add(index, bound, upper)
            self.forms.extend(atom.forms)
            return
        coefficients, constant = atom.form.coefficients, atom.form.constant
        if not coefficients:
            if constant > 0 or (constant == 0 and atom.strict):
                self.forms.append(atom)
            return
        (variable, coefficient), *others = coefficients.items()
        if others or variable.output:
            self.forms.append(atom)
        else:
            self.add(variable.number, End(_quotient(-constant, coefficient), atom.strict), coefficient > 0)


Slot = tuple[int, Ends]
"""Where the number of a comparison stands among those of a clause, and the bounds that it may name."""


@dataclass(frozen=True, eq=False)
class Shape:
    """What clauses share that differ only in numbers.

    Attributes:
        comparisons: Without their numbers.
        low: By inputs, where the number of the first lower bound stands.
        high: The same of upper bounds.
        outputs: The comparisons of outputs, and whether the number is an upper bound.
    """

    comparisons: Comparisons
    low: dict[int, Slot] = field(default_factory=dict)
    high: dict[int, Slot] = field(default_factory=dict)
    outputs: list[tuple[Variable, bool, Slot]] = field(default_factory=list)

    @classmethod
    def of(cls, comparisons: Comparisons) -> Shape:
        """The shape of clauses of these comparisons; a KeyError where a name is no variable's."""
        shape, (touching, strict) = cls(comparisons), comparisons.ends
        for place, (relation, name) in enumerate(zip(comparisons.relations, comparisons.names, strict=True)):
            variable, upper = comparisons.variables[name], relation[0] == "<"
            slot = place, strict if len(relation) == 1 else touching
            if variable.output:
                shape.outputs.append((variable, upper, slot))
            else:
                (shape.high if upper else shape.low).setdefault(variable.number, slot)
        return shape

    @cached_property
    def bounds_once(self) -> bool:
        """Whether no input has two lower or two upper bounds."""
        return len(self.low) + len(self.high) + len(self.outputs) == len(self.comparisons.names)

    @cached_property
    def pairs(self) -> list[tuple[Slot, Slot]]:
        """The lower and the upper bound of every input that has both."""
        return [(slot, self.high[index]) for index, slot in self.low.items() if index in self.high]


class Clause(NamedTuple):
    """A conjunction of comparisons of single variables with numbers, as a file writes them by the thousand."""

    shape: Shape
    numbers: Sequence[str]

    @property
    def bounds(self) -> Bounds:
        """The same, its numbers read."""
        return self.shape.comparisons.bounds(self.numbers)

    def leaves_room(self) -> bool:
        """Whether the first bounds of every input leave it a number, which float64 tells of most."""
        numbers = self.numbers
        for (low_place, low_ends), (high_place, high_ends) in self.shape.pairs:
            low, high = numbers[low_place], numbers[high_place]
            if low == high:
                if low_ends.strict or high_ends.strict:
                    return False
            elif not (float(low) < float(high) or low_ends[low].leaves_room(high_ends[high])):
                return False
        return True


Formula = AtMost | Bounds | Clause | All | AnyOf


def _quotient(number: Fraction, divisor: Fraction) -> Fraction:
    """The quotient; by 1 and -1 without Fraction's arithmetic, as coefficients mostly are."""
    return number if divisor == 1 else -number if divisor == -1 else number / divisor


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())
