"""What a property's text asks, for the check of proofs: VNN-LIB 1.0, read in code of its own.

An assertion that this reader does not know makes a proof fail its check; it never makes one pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

from relucert.checker.document import Inequality, Rejected

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
NAME = re.compile(r"([XY])_(\d{1,9})")
HARMLESS = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
MOST_CASES = 10_000
Form = dict[str, Fraction]  # by name; the constant stands under ""


@dataclass(frozen=True)
class Case:
    """Inputs between two ends at which all inequalities are met."""

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    inequalities: frozenset[Inequality]


def read_cases(text: str, inputs: int, outputs: int) -> set[Case]:
    """The cases of which one has to be met at a violation; those that can't be met are left out."""
    sizes = {"X": inputs, "Y": outputs}
    conjunctions: list[list[Form]] = [[]]
    for part in _brackets(text):
        if part[0] == "assert" and len(part) == 2:
            conjunctions = _both(conjunctions, list(_alternatives(part[1], sizes)))
        elif part[0] != "declare-const" and part[0] != "declare-fun" and part[0] not in HARMLESS:
            raise Rejected(f"its property has the unknown command {str(part[0])[:40]!r}")
    cases = (_case(conjunction, inputs) for conjunction in conjunctions)
    return {case for case in cases if case is not None}


def _brackets(text: str) -> list[Any]:
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text)):
        if token == "(":
            stack.append([])
        elif token == ")":
            closed = stack.pop()
            if not stack or not closed:
                raise Rejected("the brackets of its property do not match")
            stack[-1].append(closed)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or not all(isinstance(part, list) for part in stack[0]):
        raise Rejected("the brackets of its property do not match")
    return stack[0]


def _both(one: list[list[Form]], other: list[list[Form]]) -> list[list[Form]]:
    if len(one) * len(other) > MOST_CASES:
        raise Rejected(f"its property has more than {MOST_CASES} cases")
    return [first + second for first in one for second in other]


def _alternatives(formula: Any, sizes: dict[str, int]) -> Iterator[list[Form]]:
    """A formula as alternatives, each some forms that are not positive at once."""
    operator, *parts = formula if isinstance(formula, list) else [formula]
    if operator == "or" and parts:
        for part in parts:
            yield from _alternatives(part, sizes)
    elif operator == "and" and parts:
        joined: list[list[Form]] = [[]]
        for part in parts:
            joined = _both(joined, list(_alternatives(part, sizes)))
        yield from joined
    elif operator in ("<=", "<", ">=", ">", "=", "==") and len(parts) == 2:
        left, right = (_form(part, sizes) for part in parts)
        below, above = _sum([(1, left), (-1, right)]), _sum([(1, right), (-1, left)])
        yield [below, above] if operator[0] == "=" else [below] if operator[0] == "<" else [above]
    else:
        raise Rejected(f"its property has the unknown formula {str(formula)[:60]}")


def _form(term: Any, sizes: dict[str, int]) -> Form:
    if isinstance(term, str):
        name = NAME.fullmatch(term)
        if name is not None and int(name[2]) < sizes[name[1]]:
            return {f"{name[1]}_{int(name[2])}": Fraction(1)}
        if NUMBER.fullmatch(term):
            return {"": Fraction(term)}
        raise Rejected(f"its property has the unknown term {term[:40]!r}")
    operator, *parts = term
    forms = [_form(part, sizes) for part in parts]
    if operator == "+" and forms:
        return _sum([(1, form) for form in forms])
    if operator == "-" and forms:
        signs = [-1] if len(forms) == 1 else [1, *[-1] * (len(forms) - 1)]
        return _sum(list(zip(signs, forms, strict=True)))
    if operator == "*" and forms:
        product: Form = {"": Fraction(1)}
        for form in forms:
            factor, other = (form, product) if set(form) <= {""} else (product, form)
            if not set(factor) <= {""}:
                raise Rejected("its property is not linear")
            product = {name: number * factor.get("", Fraction(0)) for name, number in other.items()}
        return product
    raise Rejected(f"its property has the unknown operator {str(operator)[:40]!r}")


def _sum(parts: list[tuple[int, Form]]) -> Form:
    total: Form = {}
    for sign, form in parts:
        for name, number in form.items():
            total[name] = total.get(name, Fraction(0)) + sign * number
    return total


def _case(conjunction: list[Form], inputs: int) -> Case | None:
    """The case of some forms that are not positive; None where it can't be met."""
    low: dict[int, Fraction] = {}
    high: dict[int, Fraction] = {}
    inequalities = set()
    for form in conjunction:
        numbers = {name: number for name, number in form.items() if name and number}
        bound = -form.get("", Fraction(0))
        if not numbers:
            if bound < 0:
                return None
        elif len(numbers) == 1 and next(iter(numbers)).startswith("X"):
            ((name, number),) = numbers.items()
            place, end = int(name[2:]), bound / number
            if number > 0:
                high[place] = min(end, high.get(place, end))
            else:
                low[place] = max(end, low.get(place, end))
        else:
            inequalities.add(_inequality(numbers, bound))
    if not len(low) == len(high) == inputs:
        raise Rejected("its property leaves an input without a bound")
    ends = tuple(low[place] for place in range(inputs)), tuple(high[place] for place in range(inputs))
    return Case(*ends, frozenset(inequalities)) if all(map(Fraction.__le__, *ends)) else None


def _inequality(numbers: dict[str, Fraction], bound: Fraction) -> Inequality:
    multiple = lcm(*(number.denominator for number in numbers.values()))
    divisor = gcd(*(int(number * multiple) for number in numbers.values()))
    scale = Fraction(multiple, divisor)
    inputs, outputs = (
        tuple(sorted((int(name[2:]), int(number * scale)) for name, number in numbers.items() if name[0] == letter))
        for letter in "XY"
    )
    return Inequality(inputs, outputs, bound * scale)
