"""Formulas over inputs and outputs, as files write them, and the cases that they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from relucert.common.deadline import check_time
from relucert.errors import InputError

MOST_CASES = 100_000
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


Formula = AtMost | Bounds | All | AnyOf


@dataclass(frozen=True)
class Case:
    """One way to meet a formula: inputs within bounds, by their index, and further forms.

    Cases share their bounds where they can: these are replaced, never changed.
    """

    low: dict[int, End] = field(default_factory=dict)
    high: dict[int, End] = field(default_factory=dict)
    forms: tuple[AtMost, ...] = ()

    def with_all(self, atoms: Sequence[AtMost | Bounds]) -> Case | None:
        """The case in which these are met as well; None where the bounds of an input leave it no number."""
        if len(atoms) == 1 and isinstance(atoms[0], Bounds):
            added = atoms[0]
        else:
            added = Bounds()
            for atom in atoms:
                added.join(atom)
        low, high = _tightened(self.low, added.low, upper=False), _tightened(self.high, added.high, upper=True)
        for index in added.low | added.high:
            least, most = low.get(index), high.get(index)
            if least is None or most is None or (least is most and not least.strict):  # as of inputs that are fixed
                continue
            if not least.leaves_room(most):
                return None
        return Case(low, high, (*self.forms, *added.forms))

    def with_implied_bounds(self) -> Case | None:
        """The case with bounds of inputs that had none, as its forms on inputs imply them; None as for `with_all`.

        So an input of one network that equals that of another has its bounds. Ends are found by interval arithmetic:
        a form bounds one of its inputs where all others are bounded.
        """
        on_inputs = [atom.form for atom in self.forms if not any(one.output for one in atom.form.coefficients)]
        low, high = dict(self.low), dict(self.high)
        known = -1
        while len(low) + len(high) > known:
            known = len(low) + len(high)
            for form in on_inputs:
                for variable, coefficient in form.coefficients.items():
                    bounds = high if coefficient > 0 else low
                    rest = None if variable.number in bounds else _least(form, variable, low, high)
                    if rest is not None:
                        bounds[variable.number] = End(-rest / coefficient)
        added = Bounds(
            {index: bound for index, bound in low.items() if index not in self.low},
            {index: bound for index, bound in high.items() if index not in self.high},
        )
        return self.with_all([added]) if added.low or added.high else self


def _least(form: LinearTerms, left_out: Variable, low: dict[int, End], high: dict[int, End]) -> Fraction | None:
    """The least value of a form of inputs without one of its terms; None where an input is unbounded on that side."""
    total = form.constant
    for variable, coefficient in form.coefficients.items():
        if variable != left_out:
            bound = (low if coefficient > 0 else high).get(variable.number)
            if bound is None:
                return None
            total += coefficient * bound.at
    return total


def _tightened(bounds: dict[int, End], others: dict[int, End], upper: bool) -> dict[int, End]:
    """The tighter of two bounds of each input; these dictionaries themselves where one of them has them all."""
    if not bounds:
        return others or bounds
    tighter = {index: bound for index, bound in others.items() if bound.is_tighter(bounds.get(index), upper)}
    return bounds | tighter if tighter else bounds


def _quotient(number: Fraction, divisor: Fraction) -> Fraction:
    """The quotient; by 1 and -1 without Fraction's arithmetic, as coefficients mostly are."""
    return number if divisor == 1 else -number if divisor == -1 else number / divisor


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def cases(formula: Formula) -> list[Case]:
    """The cases of a formula: it is met where one of them is. Those whose bounds contradict each other are left out."""
    return _extended([Case()], formula)


def _extended(found: list[Case], formula: Formula) -> list[Case]:
    """The cases in which one of those found so far and the formula are met."""
    if isinstance(formula, (AtMost, Bounds)):
        extended = [case.with_all([formula]) for case in found]
        return [case for case in extended if case is not None]
    if isinstance(formula, AnyOf):
        several: list[Case] = []
        for operand in formula.operands:
            check_time()
            several += _extended(found, operand)
            if len(several) > MOST_CASES:
                raise InputError(f"the property has more than {MOST_CASES:,} cases: split it into several")
        return several
    atoms = [
        operand for operand in formula.operands if isinstance(operand, (AtMost, Bounds))
    ]  # first, since they rule out the most
    joined = [case.with_all(atoms) for case in found]
    remaining = [case for case in joined if case is not None]
    for operand in formula.operands:
        if not isinstance(operand, (AtMost, Bounds)):
            remaining = _extended(remaining, operand)
    return remaining
