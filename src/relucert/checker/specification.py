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

from relucert.checker.document import Inequality
from relucert.checker.entries import Rejected, require

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
NAME = re.compile(r"([XY])_(\d{1,9})")
HARMLESS = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
LAST = ("check-sat", "exit")  # commands that nothing may be asserted after
MOST_CASES = 10_000
LONGEST = 4000  # characters of a number
MOST_BITS = 2**13  # of a product's numerator or denominator
Form = dict[str, Fraction]  # by name; the constant stands under ""
Terms = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]  # whole numbers on inputs and on outputs
Atom = tuple[Form, bool]  # a form that is not positive, and whether it has to be negative


@dataclass(frozen=True)
class CheckedCase:
    """Inputs between two ends at which all inequalities are met. Strict ones are met in fewer places, so that a proof
    about `<=` is one about `<`."""

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    inequalities: frozenset[Inequality]


def read_cases(text: str, inputs: int, outputs: int) -> set[CheckedCase]:
    """The cases of which one has to be met at a violation; those that can't be met are left out."""
    sizes = {"X": inputs, "Y": outputs}
    conjunctions: list[list[Atom]] = [[]]
    ended = None
    for command in _brackets(text):
        require(ended is None or command[0] in HARMLESS, f"its property goes on after ({ended})")
        if command[0] == "assert" and len(command) == 2:
            conjunctions = _both(conjunctions, list(_alternatives(command[1], sizes)))
        elif command[0] != "declare-const" and command[0] != "declare-fun" and command[0] not in HARMLESS:
            raise Rejected(f"its property has the unknown command {str(command[0])[:40]!r}")
        ended = command[0] if command[0] in LAST else ended
    cases = (_case(conjunction, inputs) for conjunction in conjunctions)
    return {case for case in cases if case is not None}


def _brackets(text: str) -> list[Any]:
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";[^\n]*", "", text)):
        if token == "(":
            stack.append([])
        elif token == ")":
            closed = stack.pop()
            require(bool(stack) and bool(closed), "the brackets of its property do not match")
            stack[-1].append(closed)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or not all(isinstance(expression, list) for expression in stack[0]):
        raise Rejected("the brackets of its property do not match")
    return stack[0]


def _both(conjunctions: list[list[Atom]], alternatives: list[list[Atom]]) -> list[list[Atom]]:
    require(len(conjunctions) * len(alternatives) <= MOST_CASES, f"its property has more than {MOST_CASES} cases")
    return [first + second for first in conjunctions for second in alternatives]


def _alternatives(formula: Any, sizes: dict[str, int]) -> Iterator[list[Atom]]:
    """A formula as alternatives, each some atoms that are met at once."""
    operator, *operands = formula if isinstance(formula, list) else [formula]
    if operator == "or" and operands:
        for operand in operands:
            yield from _alternatives(operand, sizes)
    elif operator == "and" and operands:
        joined: list[list[Atom]] = [[]]
        for operand in operands:
            joined = _both(joined, list(_alternatives(operand, sizes)))
        yield from joined
    elif operator in ("<=", "<", ">=", ">", "=", "==") and len(operands) == 2:
        left, right = (_form(operand, sizes) for operand in operands)
        strict = operator in ("<", ">")
        below, above = (_sum([(1, left), (-1, right)]), strict), (_sum([(1, right), (-1, left)]), strict)
        yield [below, above] if operator[0] == "=" else [below] if operator[0] == "<" else [above]
    else:
        raise Rejected(f"its property has the unknown formula {str(formula)[:60]}")


def _form(term: Any, sizes: dict[str, int]) -> Form:
    if isinstance(term, str):
        name = NAME.fullmatch(term)
        if name is not None and int(name[2]) < sizes[name[1]]:
            return {f"{name[1]}_{int(name[2])}": Fraction(1)}
        if len(term) <= LONGEST and NUMBER.fullmatch(term):
            return {"": Fraction(term)}
        raise Rejected(f"its property has the unknown term {term[:40]!r}")
    operator, *operands = term
    forms = [_form(operand, sizes) for operand in operands]
    if operator == "+" and forms:
        return _sum([(1, form) for form in forms])
    if operator == "-" and forms:
        signs = [-1] if len(forms) == 1 else [1, *[-1] * (len(forms) - 1)]
        return _sum(list(zip(signs, forms, strict=True)))
    if operator == "*" and forms:
        product: Form = {"": Fraction(1)}
        for form in forms:
            factor, multiplied = (form, product) if set(form) <= {""} else (product, form)
            require(set(factor) <= {""}, "its property is not linear")
            product = {name: number * factor.get("", Fraction(0)) for name, number in multiplied.items()}
            if any(max(map(int.bit_length, number.as_integer_ratio())) > MOST_BITS for number in product.values()):
                raise Rejected(f"its property has a product of more than {MOST_BITS} bits")
        return product
    raise Rejected(f"its property has the unknown operator {str(operator)[:40]!r}")


def _sum(terms: list[tuple[int, Form]]) -> Form:
    total: Form = {}
    for sign, form in terms:
        for name, number in form.items():
            total[name] = total.get(name, Fraction(0)) + sign * number
    return total


def _case(conjunction: list[Atom], inputs: int) -> CheckedCase | None:
    """The case of some atoms; None where it can't be met."""
    inequalities = [(_inequality(form), strict) for form, strict in conjunction]
    least: dict[Terms, tuple[Fraction, bool]] = {}  # of every sum the lowest bound, and whether it may be reached
    for inequality, strict in inequalities:
        terms, bound = (inequality.inputs, inequality.outputs), (inequality.bound, not strict)
        least[terms] = min(bound, least.get(terms, bound))
    if any(_exclude(terms, least) for terms in least):
        return None
    low, high = (
        tuple(sign * least[terms][0] for index in range(inputs) if (terms := (((index, sign),), ())) in least)
        for sign in (-1, 1)
    )
    require(len(low) == len(high) == inputs, "its property leaves an input without a bound")
    general = (inequality for inequality, _ in inequalities if inequality.outputs or len(inequality.inputs) > 1)
    return CheckedCase(low, high, frozenset(general))


def _exclude(terms: Terms, least: dict[Terms, tuple[Fraction, bool]]) -> bool:
    """Whether a sum has an upper and a lower bound that leave no number; of no terms, it is 0 and its own negative."""
    inputs, outputs = (tuple((variable, -number) for variable, number in numbers) for numbers in terms)
    (upper, reached), opposite = least[terms], least.get((inputs, outputs))
    if opposite is None:
        return False
    room = upper + opposite[0]
    return room < 0 or (room == 0 and not (reached and opposite[1]))


def _inequality(form: Form) -> Inequality:
    """The inequality that a form is not positive, in whole numbers without a common divisor."""
    numbers = {name: number for name, number in form.items() if name and number}
    multiple = lcm(*(number.denominator for number in numbers.values()))
    divisor = gcd(*(int(number * multiple) for number in numbers.values()))
    scale = Fraction(multiple, divisor or 1)
    inputs, outputs = (
        tuple(sorted((int(name[2:]), int(number * scale)) for name, number in numbers.items() if name[0] == letter))
        for letter in "XY"
    )
    return Inequality(inputs, outputs, -scale * form.get("", Fraction(0)))
