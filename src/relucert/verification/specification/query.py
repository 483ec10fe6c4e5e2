"""`relucert.Query`: a region of inputs, and what would be a violation there, in exact numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relucert.common.checks import shown
from relucert.common.numbers import NumberLike, as_decimal, exactly, number_above
from relucert.common.words import counted
from relucert.errors import InputError
from relucert.verification.specification.cases import Case
from relucert.verification.specification.formula import AtMost, End, LinearTerms, Variable
from relucert.verification.specification.reading import read
from relucert.verification.specification.violations import Specification, Violation

EMPTY = "no input meets the bounds: the region is empty"
CONTRADICTORY = "no outputs meet the conditions of a violation: they contradict each other"


@dataclass(frozen=True, repr=False)
class Query(Specification):
    """The property that none of some violations ever happens; `relucert.verify` asks whether it holds.

    `Query.read` reads one from a VNN-LIB file, `Query.within` makes one of arrays, and `one | other` is the property
    that the violations of neither happen.

    Attributes:
        inputs: How many numbers the network takes.
        outputs: How many it gives.
        violations: Any of them would be one; none: the property holds, since no input meets the bounds. Those of long
            files are made once one of them is asked for.
        text: The file's own text in VNN-LIB 1.0, where it comes from one.
        remarks: What there is to know about it, such as the types that a file declares.
        declared: The tensors that a file of VNN-LIB 2.0 declares; inputs and outputs are their numbers in turn.
    """

    def __repr__(self) -> str:
        sizes = {"input": self.inputs, "output": self.outputs, "violation": len(self.violations)}
        return f"Query({', '.join(counted(count, noun) for noun, count in sizes.items())})"

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Query:
        """The query of a .vnnlib or .vnnlib.gz file, of VNN-LIB 1.0 or 2.0.

        Args:
            path: Of the file.
        """
        return cls.of(read(path).specification())

    @classmethod
    def of(cls, specification: Specification) -> Query:
        """The query of what a file says."""
        return cls(**{each.name: getattr(specification, each.name) for each in fields(Specification)})

    @classmethod
    def within(cls, low: Any, high: Any, violations: Sequence[Sequence[Any]], *, strict: bool = False) -> Query:
        """The property that, within a box of inputs, none of some violations happens.

        Every number counts exactly as it is stored.

        Args:
            low: The lowest value of every input, an array of the input's shape, or flat.
            high: The highest.
            violations: Each is `(rows, bounds)`: at the outputs y all of `rows @ y <= bounds` are met, rows
                (constraints, outputs) and bounds (constraints,); or `(rows, bounds, input_rows)`: all of
                `rows @ y + input_rows @ x <= bounds`.
            strict: Whether the sums must be below the bounds, and not at them, for a violation.
        """
        if not isinstance(strict, bool):
            raise InputError(f"strict is True or False, for all constraints of a query, not {shown(strict)}")
        lowest, highest = (_numbers(end, f"the {name} end of the box") for end, name in ((low, "low"), (high, "high")))
        if len(lowest) != len(highest) or not lowest:
            raise InputError(f"a box has two ends of as many numbers, not {len(lowest)} and {len(highest)}")
        below, above = ({index: End(number) for index, number in enumerate(ends)} for ends in (lowest, highest))
        if not isinstance(violations, (list, tuple)):
            raise InputError(f"a query needs a list of violations, not {shown(violations)}")
        forms = [_forms(violation, len(lowest)) for violation in violations]
        widths = {width for width, _ in forms}
        if len(widths) != 1:
            raise InputError(f"a query needs violations, all on as many outputs, not on {sorted(widths) or 'none'}")
        possible = all(one <= other for one, other in zip(lowest, highest, strict=True))
        cases = [
            Case(below, above).with_all([AtMost(form, strict) for form in conjunction]) for _, conjunction in forms
        ]
        met = [case for case in cases if possible and case is not None]
        return cls.of(Specification.of_cases(met, len(lowest), widths.pop()))

    @classmethod
    def outputs_within(
        cls, low: Any, high: Any, *, box: Any = None, around: Any = None, radius: NumberLike | None = None
    ) -> Query:
        """The property that every output stays within bounds: in a box of inputs, or around one input.

        Args:
            low: The lowest value that every output may have, an array, or a number for a single output.
            high: The highest.
            box: The lowest and the highest value of every input, two arrays of its shape; around an input, two numbers
                will do, which cut the region.
            around: An input.
            radius: How far from it every number may be (p = infinity).
        """
        lowest, highest = (_numbers(end, f"the {name} end of outputs") for end, name in ((low, "low"), (high, "high")))
        if len(lowest) != len(highest) or not lowest:
            raise InputError(f"outputs have as many low as high ends, not {len(lowest)} and {len(highest)}")
        ends = _around(around, radius, box) if around is not None or radius is not None else box
        if not isinstance(ends, (tuple, list)) or len(ends) != 2:
            raise InputError("a query is about a region: give box=(low, high) of the inputs, or around= and radius=")
        violations = []
        for index, (least, most) in enumerate(zip(lowest, highest, strict=True)):
            unit = [[int(index == column) for column in range(len(lowest))]]
            violations += [(unit, [least]), ([[-number for number in unit[0]]], [-most])]
        return cls.within(ends[0], ends[1], violations, strict=True)

    def __or__(self, other: object) -> Query:
        if not isinstance(other, Query):
            return NotImplemented
        if (self.inputs, self.outputs) != (other.inputs, other.outputs):
            raise InputError(f"{self!r} and {other!r} are about different networks")
        remarks = tuple(dict.fromkeys(self.remarks + other.remarks))
        return replace(self, violations=(*self.violations, *other.violations), text=None, remarks=remarks)

    @cached_property
    def possible(self) -> tuple[Violation, ...]:
        """The violations that do not contradict themselves."""
        return tuple(violation for violation in self.violations if not violation.contradictory)

    def vnnlib(self) -> str:
        """The query as VNN-LIB 1.0: the file's own text, or one that says the same."""
        return text_of(self) if self.text is None else self.text


def _around(around: Any, radius: NumberLike | None, box: Any) -> tuple[list[Fraction], list[Fraction]]:
    """The box within a distance of an input, cut by another one."""
    if around is None or radius is None:
        raise InputError("a region around an input needs both: around= and radius=")
    reach = Fraction(number_above(radius, "the radius"))
    if reach < 0:
        raise InputError(f"a radius is not negative, as {shown(radius)} is")
    centre = _numbers(around, "the input")
    low, high = [number - reach for number in centre], [number + reach for number in centre]
    if box is None:
        return low, high
    if not isinstance(box, (tuple, list)) or len(box) != 2:
        raise InputError(f"a box is the lowest and the highest valid value, not {shown(box)}")
    cuts = [_numbers(end, "an end of the box") for end in box]
    if any(len(cut) not in (1, len(centre)) for cut in cuts):
        counts = " and ".join(str(len(cut)) for cut in cuts)
        raise InputError(f"a box has ends of one number or of {len(centre)}, not of {counts}")
    lowest, highest = (cut * len(centre) if len(cut) == 1 else cut for cut in cuts)
    if not all(least <= number <= most for least, number, most in zip(lowest, centre, highest, strict=True)):
        raise InputError("the input lies outside the box of valid inputs: give both in the same range")
    return list(map(max, low, lowest)), list(map(min, high, highest))


def _array(given: Any, what: str) -> NDArray[np.object_]:
    try:
        numbers = given.detach().cpu().numpy() if hasattr(given, "detach") else given
        return np.array(numbers, dtype=object)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        raise InputError(f"{what} is an array of numbers, not {shown(given)}") from None


def _numbers(given: Any, what: str) -> list[Fraction]:
    return [exactly(number, f"{what}, in every place,") for number in _array(given, what).flatten()]


def _forms(violation: Sequence[Any], inputs: int) -> tuple[int, list[LinearTerms]]:
    """How many outputs a violation is about, and forms that are not positive where it happens."""
    if not isinstance(violation, (tuple, list)) or len(violation) not in (2, 3):
        raise InputError(f"a violation is (rows, bounds) or (rows, bounds, input_rows), not {shown(violation)}")
    bounds = _numbers(violation[1], "a violation's bounds")
    rows = _rows(violation[0], len(bounds), "rows")
    input_rows = _rows(violation[2], len(bounds), "input rows") if len(violation) == 3 else [[] for _ in bounds]
    widths = {len(row) for row in input_rows} - {0}
    if widths - {inputs}:
        raise InputError(
            f"the input rows of a violation have {sorted(widths)} columns, the box has {counted(inputs, 'input')}"
        )
    forms = []
    for row, input_row, bound in zip(rows, input_rows, bounds, strict=True):
        terms = chain(((Variable(True, index), number) for index, number in enumerate(row)),
                      ((Variable(False, index), number) for index, number in enumerate(input_row)))  # fmt: skip
        forms.append(LinearTerms({variable: number for variable, number in terms if number}, -bound))
    return len(rows[0]), forms


def _rows(given: Any, count: int, what: str) -> list[list[Fraction]]:
    rows = _array(given, f"a violation's {what}")
    shape = rows.shape
    if len(shape) != 2 or shape[0] != count or not count or not shape[1]:
        raise InputError(f"a violation's {what} have the shape (constraints, columns) with {count} bounds, not {shape}")
    return [_numbers(row, f"a violation's {what}") for row in rows]


NOTHING = "(* 0 Y_0)"  # which mentions an output, as a property must


def text_of(query: Specification) -> str:
    """A text whose query has the same violations."""
    names = [Variable(False, index) for index in range(query.inputs)]
    names += [Variable(True, index) for index in range(query.outputs)]
    lines = [f"(declare-const {name} Real)" for name in names]
    if not query.violations:
        return "\n".join([*lines, "(assert (<= X_0 -1))", "(assert (>= X_0 1))", f"(assert (<= {NOTHING} 0))", ""])
    violations = "\n".join(f"  (and {' '.join(_atoms(violation))})" for violation in query.violations)
    return "\n".join([*lines, f"(assert (or\n{violations}\n))", ""])


def _atoms(violation: Violation) -> Iterable[str]:
    for index, (low, high) in enumerate(zip(violation.low, violation.high, strict=True)):
        yield _scaled(">" if index in violation.open_low else ">=", f"X_{index}", low)
        yield _scaled("<" if index in violation.open_high else "<=", f"X_{index}", high)
    for constraint in violation.constraints:
        terms = [f"(* {number} X_{index})" for index, number in constraint.inputs]
        terms += [f"(* {number} Y_{index})" for index, number in constraint.outputs]
        left = f"(+ {' '.join(terms)})" if len(terms) > 1 else (terms or [NOTHING])[0]
        yield _scaled("<" if constraint.strict else "<=", left, constraint.bound)


def _scaled(relation: str, left: str, bound: Fraction) -> str:
    """A comparison with a number, in decimals where they end."""
    if Fraction(as_decimal(bound)) == bound:
        return f"({relation} {left} {as_decimal(bound)})"
    return f"({relation} (* {bound.denominator} {left}) {bound.numerator})"
