"""Writes queries as VNN-LIB 1.0."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from relucert.common.numbers import as_decimal
from relucert.verification.specification.formula import Variable
from relucert.verification.specification.violations import Specification, Violation

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
