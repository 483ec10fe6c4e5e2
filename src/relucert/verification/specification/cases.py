"""The cases that a formula comes to: bounds of inputs, and further forms that are met with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from relucert.common.deadline import check_time
from relucert.errors import InputError
from relucert.verification.specification.formula import (
    All,
    AnyOf,
    AtMost,
    Bounds,
    Clause,
    End,
    Formula,
    LinearTerms,
    Variable,
)

MOST_CASES = 100_000


@dataclass(frozen=True)
class Case:
    """One way to meet a formula: inputs within bounds, by their index, and further forms.

    Cases share their bounds where they can: these are replaced, never changed.
    """

    low: dict[int, End] = field(default_factory=dict)
    high: dict[int, End] = field(default_factory=dict)
    forms: tuple[AtMost, ...] = ()

    @property
    def is_everywhere(self) -> bool:
        """Whether it has no conditions."""
        return not (self.low or self.high or self.forms)

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


def cases(formula: Formula) -> list[Case | Clause]:
    """The cases of a formula: it is met where one of them is. Those whose bounds contradict each other are left out.

    A clause that is a case by itself stays a clause: its numbers are read where somebody asks for them.
    """
    return _extended([Case()], formula)


def plain_case(case: Case | Clause) -> Case:
    """The case itself, the numbers of a clause read; its bounds do not contradict each other."""
    if isinstance(case, Case):
        return case
    bounds = case.bounds
    return Case(bounds.low, bounds.high, tuple(bounds.forms))


def _extended(found: Sequence[Case], formula: Formula) -> list[Case | Clause]:
    """The cases in which one of those found so far and the formula are met."""
    if isinstance(formula, AnyOf):
        several = list[Case | Clause]()
        for operand in formula.operands:
            check_time()
            several += _extended(found, operand)
            if len(several) > MOST_CASES:
                raise InputError(f"the property has more than {MOST_CASES:,} cases: split it into several")
        return several
    operands = formula.operands if isinstance(formula, All) else (formula,)
    if len(operands) == len(found) == 1 and isinstance(operands[0], Clause):
        clause = operands[0]
        if clause.shape.bounds_once and found[0].is_everywhere:  # then it is a case as it is written
            return [clause] if clause.leaves_room() else []
    atoms = [
        operand.bounds if isinstance(operand, Clause) else operand
        for operand in operands
        if isinstance(operand, (AtMost, Bounds, Clause))
    ]  # first, since they rule out the most
    joined = [case.with_all(atoms) for case in found]
    remaining: list[Case | Clause] = [case for case in joined if case is not None]
    for operand in operands:
        if not isinstance(operand, (AtMost, Bounds, Clause)):
            remaining = _extended([plain_case(case) for case in remaining], operand)
    return remaining
