"""`relucert.Query`: a region of inputs, and what would be a violation there, in exact numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relucert.checks import shown
from relucert.errors import InputError
from relucert.specification.formula import AtMost, Case, Linear, Variable
from relucert.specification.numbers import as_decimal, exactly, float_above, float_below

Terms = tuple[tuple[int, int], ...]
NOTHING = "(* 0 Y_0)"  # which mentions an output, as a property must
EMPTY = "no input meets the bounds: the region is empty"


class Declared(NamedTuple):
    """A tensor that a file declares: an input or an output of one of its networks.

    equal_to: the network that its own is declared to be equal to, if any.
    """

    name: str
    output: bool
    shape: tuple[int, ...]
    type: str
    network: str
    equal_to: str | None


@dataclass(frozen=True)
class Constraint:
    """That `inputs @ x + outputs @ y <= bound`.

    Attributes:
        inputs: Index and coefficient of every input in it; the coefficients are whole numbers without a common divisor.
        outputs: The same of the outputs.
        bound: An exact number.
    """

    inputs: Terms
    outputs: Terms
    bound: Fraction

    @classmethod
    def of(cls, form: Linear) -> Constraint:
        """That a form is not positive, scaled to whole coefficients."""
        coefficients = form.coefficients.values()
        scale = Fraction(math.lcm(*(number.denominator for number in coefficients)))
        if form.coefficients:
            scale /= math.gcd(*(int(scale * number) for number in coefficients))
        inputs, outputs = (
            tuple(
                (variable.place, int(scale * number))
                for variable, number in sorted(form.coefficients.items())
                if variable.output == output
            )
            for output in (False, True)
        )
        return cls(inputs, outputs, -scale * form.constant)

    @property
    def scale(self) -> Fraction:
        """A power of two that brings the largest coefficient to at least 1 and below 2."""
        longest = max((abs(number).bit_length() for _, number in self.inputs + self.outputs), default=1)
        return Fraction(1, 2 ** (longest - 1))

    def excess(self, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> Fraction:
        """By how much the constraint is missed at an input and its outputs; not positive: it is met."""
        parts = chain(
            (number * inputs[index] for index, number in self.inputs),
            (number * outputs[index] for index, number in self.outputs),
        )
        return sum(parts, -self.bound)


@dataclass(frozen=True)
class Violation:
    """Inputs within a box at which all constraints are met.

    Attributes:
        low: The lowest value of every input.
        high: The highest.
        constraints: On inputs and outputs, all of them met at once.
    """

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, repr=False)
class Query:
    """The property that none of some violations ever happens; `relucert.verify` asks whether it holds.

    `Query.read` reads one from a VNN-LIB file, `Query.within` makes one of arrays, and `one | other` is the property
    that the violations of neither happen.

    Attributes:
        inputs: How many numbers the network takes.
        outputs: How many it gives.
        violations: Any of them would be one; none: the property holds, since no input meets the bounds.
        text: The file's own text in VNN-LIB 1.0, where it comes from one.
        remarks: What there is to know about it, such as the types that a file declares.
        declared: The tensors that a file of VNN-LIB 2.0 declares; inputs and outputs are their numbers in turn.
    """

    inputs: int
    outputs: int
    violations: tuple[Violation, ...]
    text: str | None = None
    remarks: tuple[str, ...] = ()
    declared: tuple[Declared, ...] = ()

    def __repr__(self) -> str:
        return f"Query({self.inputs} inputs, {self.outputs} outputs, {len(self.violations)} violations)"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Query:
        """The query of a .vnnlib or .vnnlib.gz file, of VNN-LIB 1.0 or 2.0.

        Args:
            path: Of the file.
        """
        from relucert.specification.reading import read

        return read(path)

    @classmethod
    def within(cls, low: Any, high: Any, violations: Sequence[Sequence[Any]]) -> Query:
        """The property that, within a box of inputs, none of some violations happens.

        Every number counts exactly as it is stored.

        Args:
            low: The lowest value of every input, an array of the input's shape, or flat.
            high: The highest.
            violations: Each is `(rows, bounds)`: at the outputs y all of `rows @ y <= bounds` are met, rows
                (constraints, outputs) and bounds (constraints,); or `(rows, bounds, input_rows)`: all of
                `rows @ y + input_rows @ x <= bounds`.
        """
        lowest, highest = (_numbers(end, f"the {name} end of the box") for end, name in ((low, "low"), (high, "high")))
        if len(lowest) != len(highest) or not lowest:
            raise InputError(f"a box has two ends of as many numbers, not {len(lowest)} and {len(highest)}")
        bounds = dict(enumerate(lowest)), dict(enumerate(highest))
        if not isinstance(violations, (list, tuple)):
            raise InputError(f"a query needs a list of violations, not {shown(violations)}")
        forms = [_forms(violation, len(lowest)) for violation in violations]
        widths = {width for width, _ in forms}
        if len(widths) != 1:
            raise InputError(f"a query needs violations, all on as many outputs, not on {sorted(widths) or 'none'}")
        possible = all(one <= other for one, other in zip(lowest, highest, strict=True))
        cases = [Case(*bounds).with_all([AtMost(form) for form in conjunction]) for _, conjunction in forms]
        return from_cases([case for case in cases if possible and case is not None], len(lowest), widths.pop())

    def __or__(self, other: object) -> Query:
        if not isinstance(other, Query):
            return NotImplemented
        if (self.inputs, self.outputs) != (other.inputs, other.outputs):
            raise InputError(f"{self!r} and {other!r} are about different networks")
        remarks = tuple(dict.fromkeys(self.remarks + other.remarks))
        return replace(self, violations=self.violations + other.violations, text=None, remarks=remarks)

    def vnnlib(self) -> str:
        """The query as VNN-LIB 1.0: the file's own text, or one that says the same."""
        return _text(self) if self.text is None else self.text


def from_cases(
    cases: Sequence[Case], inputs: int, outputs: int, text: str | None = None, remarks: tuple[str, ...] = (),
    declared: tuple[Declared, ...] = (),
) -> Query:  # fmt: skip
    """The query whose violations are these cases; every input needs both bounds in all of them."""
    violations: dict[tuple[tuple[int, int], tuple[Constraint, ...]], Violation] = {}
    boxes: dict[tuple[int, int], tuple[tuple[Fraction, ...], tuple[Fraction, ...]]] = {}
    for case in cases:
        shared = id(case.low), id(case.high)
        if shared not in boxes:
            names = _input_names(inputs, declared)
            boxes[shared] = _ends(case.low, "lower", names), _ends(case.high, "upper", names)
        low, high = boxes[shared]
        constraints = tuple(dict.fromkeys(Constraint.of(form) for form in case.forms))
        violations.setdefault((shared, constraints), Violation(low, high, constraints))
    return Query(inputs, outputs, tuple(violations.values()), text, remarks, declared)


def _input_names(count: int, declared: Sequence[Declared]) -> list[str]:
    """What the file calls every input."""
    if not declared:
        return [str(Variable(False, index)) for index in range(count)]
    return [
        f"{tensor.name}[{','.join(map(str, place))}]" if place else tensor.name
        for tensor in declared
        if not tensor.output
        for place in product(*map(range, tensor.shape))
    ]


def _ends(bounds: dict[int, Fraction], side: str, names: Sequence[str]) -> tuple[Fraction, ...]:
    missing = [name for index, name in enumerate(names) if index not in bounds]
    if missing:
        listed = ", ".join(missing[:3]) + (", ..." if missing[3:] else "")
        raise InputError(f"the region is unbounded: {listed} has no {side} bound; assert one for every input")
    for index, name in enumerate(names):
        if not math.isfinite(float_below(bounds[index])) or not math.isfinite(float_above(bounds[index])):
            raise InputError(f"the {side} bound of {name} is beyond the numbers of float64")
    return tuple(bounds[index] for index in range(len(names)))


def _array(given: Any, what: str) -> NDArray[np.object_]:
    try:
        numbers = given.detach().cpu().numpy() if hasattr(given, "detach") else given
        return np.array(numbers, dtype=object)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        raise InputError(f"{what} is an array of numbers, not {shown(given)}") from None


def _numbers(given: Any, what: str) -> list[Fraction]:
    return [exactly(number, f"{what}, in every place,") for number in _array(given, what).flatten()]


def _forms(violation: Sequence[Any], inputs: int) -> tuple[int, list[Linear]]:
    """How many outputs a violation is about, and forms that are not positive where it happens."""
    if not isinstance(violation, (tuple, list)) or len(violation) not in (2, 3):
        raise InputError(f"a violation is (rows, bounds) or (rows, bounds, input_rows), not {shown(violation)}")
    bounds = _numbers(violation[1], "a violation's bounds")
    rows = _rows(violation[0], len(bounds), "rows")
    input_rows = _rows(violation[2], len(bounds), "input rows") if len(violation) == 3 else [[] for _ in bounds]
    widths = {len(row) for row in input_rows} - {0}
    if widths - {inputs}:
        raise InputError(f"the input rows of a violation have {sorted(widths)} columns, the box has {inputs} inputs")
    forms = []
    for row, input_row, bound in zip(rows, input_rows, bounds, strict=True):
        terms = chain(((Variable(True, place), number) for place, number in enumerate(row)),
                      ((Variable(False, place), number) for place, number in enumerate(input_row)))  # fmt: skip
        forms.append(Linear({variable: number for variable, number in terms if number}, -bound))
    return len(rows[0]), forms


def _rows(given: Any, count: int, what: str) -> list[list[Fraction]]:
    shape = _array(given, f"a violation's {what}").shape
    if len(shape) != 2 or shape[0] != count or not count or not shape[1]:
        raise InputError(f"a violation's {what} have the shape (constraints, columns) with {count} bounds, not {shape}")
    numbers = _numbers(given, f"a violation's {what}")
    return [numbers[place : place + shape[1]] for place in range(0, len(numbers), shape[1])]


def _text(query: Query) -> str:
    names = [Variable(False, index) for index in range(query.inputs)]
    names += [Variable(True, index) for index in range(query.outputs)]
    lines = [f"(declare-const {name} Real)" for name in names]
    if not query.violations:
        return "\n".join([*lines, f"(assert (<= {NOTHING} -1))", ""])
    parts = "\n".join(f"  (and {' '.join(_atoms(violation))})" for violation in query.violations)
    return "\n".join([*lines, f"(assert (or\n{parts}\n))", ""])


def _atoms(violation: Violation) -> Iterable[str]:
    for index, (low, high) in enumerate(zip(violation.low, violation.high, strict=True)):
        yield _scaled(">=", f"X_{index}", low)
        yield _scaled("<=", f"X_{index}", high)
    for constraint in violation.constraints:
        terms = [f"(* {number} X_{index})" for index, number in constraint.inputs]
        terms += [f"(* {number} Y_{index})" for index, number in constraint.outputs]
        yield _scaled("<=", f"(+ {' '.join(terms)})" if len(terms) > 1 else (terms or [NOTHING])[0], constraint.bound)


def _scaled(relation: str, left: str, bound: Fraction) -> str:
    """A comparison with a number, in decimals where they end."""
    if Fraction(as_decimal(bound)) == bound:
        return f"({relation} {left} {as_decimal(bound)})"
    return f"({relation} (* {bound.denominator} {left}) {bound.numerator})"
