"""VNN-LIB 1.0: declarations of X_0, X_1, ... and Y_0, Y_1, ..., and assertions that are all met at a violation."""

from __future__ import annotations

import re
from fractions import Fraction

from relucert.common.numbers import parse_decimal
from relucert.errors import InputError, LoadError
from relucert.verification.specification.formula import All, AnyOf, AtMost, Formula, Linear, Variable, cases
from relucert.verification.specification.query import Query, from_cases
from relucert.verification.specification.syntax import Expression, Group, Word, groups

NAME = re.compile(r"([XY])_(0|[1-9]\d{0,8})")
IGNORED = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
LAST = ("check-sat", "exit")  # commands that nothing may be asserted after
RELATIONS = ("<=", "<", ">=", ">", "=", "==")
CONNECTIVES = ("and", "or")
OPERATORS = ("+", "-", "*")
ONE = Fraction(1)


def parse(text: str) -> Query:
    """The query that a text of VNN-LIB 1.0 asks; raises LoadError or InputError where it asks none."""
    parser = _Parser()
    for group in groups(text):
        parser.take(group)
    inputs, outputs = (parser.count(letter) for letter in "XY")
    if not parser.mentions_outputs:
        raise InputError(
            "no assertion is about an output (Y_0, ...): every input of the region would be a violation; assert what "
            "the outputs are at one"
        )
    return from_cases(cases(All(parser.assertions)), inputs, outputs, text)


class _Parser:
    """The declared names and the assertions so far."""

    def __init__(self) -> None:
        self.declared: dict[str, set[int]] = {"X": set(), "Y": set()}
        self.assertions: list[Formula] = []
        self.mentions_outputs = False
        self.ended: str | None = None  # the command that ended the assertions

    def count(self, letter: str) -> int:
        """How many inputs or outputs there are; raises LoadError where they are not counted from 0 without gaps."""
        indices = self.declared[letter]
        missing = next((index for index in range(len(indices)) if index not in indices), None)
        if not indices or missing is not None:
            wanted = f"{letter}_{missing or 0}"
            raise LoadError(f"{wanted} is not declared: write (declare-const {wanted} Real)")
        return len(indices)

    def take(self, group: Group) -> None:
        command, rest = _head(group)
        if self.ended is not None and command not in IGNORED:
            raise LoadError(
                f"line {group.line}: ({command[:40]} ...) stands after ({self.ended}), where it would not count; move "
                f"it before"
            )
        self.ended = command if command in LAST else self.ended
        if command in ("declare-const", "declare-fun"):
            self._declare(command, rest, group.line)
        elif command == "assert":
            if len(rest) != 1:
                raise LoadError(f"line {group.line}: an assertion has one formula, not {len(rest)}")
            self.assertions.append(self._formula(rest[0]))
        elif command not in IGNORED:
            raise LoadError(f"line {group.line}: unknown command {command[:40]!r}; known are declare-const and assert")

    def _declare(self, command: str, rest: list[Expression], line: int) -> None:
        if command == "declare-fun" and len(rest) == 3 and isinstance(rest[1], Group) and not rest[1].items:
            rest = [rest[0], rest[2]]
        words = [item.text for item in rest if isinstance(item, Word)]
        name = NAME.fullmatch(words[0]) if len(words) == len(rest) == 2 else None
        if name is None or words[1] != "Real":
            raise LoadError(f"line {line}: a declaration is (declare-const X_0 Real), with X or Y and a number")
        letter, index = name[1], int(name[2])
        if index in self.declared[letter]:
            raise LoadError(f"line {line}: {words[0]} is declared twice")
        self.declared[letter].add(index)

    def _formula(self, expression: Expression) -> Formula:
        if isinstance(expression, Word):
            raise LoadError(f"line {expression.line}: {expression.text[:40]!r} is no formula")
        operator, rest = _head(expression)
        if operator in CONNECTIVES:
            if not rest:
                raise LoadError(f"line {expression.line}: ({operator}) has no parts")
            operands = [self._formula(item) for item in rest]
            return All(operands) if operator == "and" else AnyOf(operands)
        if operator not in RELATIONS:
            understood = ", ".join((*CONNECTIVES, *RELATIONS))
            raise LoadError(
                f"line {expression.line}: unknown operator {operator[:40]!r}; formulas are made of {understood}"
            )
        if len(rest) != 2:
            raise LoadError(f"line {expression.line}: {operator} compares two terms, not {len(rest)}")
        strict = operator in ("<", ">")
        left, right = self._linear(rest[0]), self._linear(rest[1])
        if operator.startswith("="):
            return All([AtMost(left.minus(right)), AtMost(right.minus(left))])
        return AtMost(left.minus(right) if operator.startswith("<") else right.minus(left), strict)

    def _linear(self, expression: Expression) -> Linear:
        if isinstance(expression, Word):
            return self._word(expression)
        operator, rest = _head(expression)
        if operator not in OPERATORS:
            understood = ", ".join(OPERATORS)
            raise LoadError(
                f"line {expression.line}: unknown operator {operator[:40]!r}; terms are made of {understood}"
            )
        if not rest:
            raise LoadError(f"line {expression.line}: ({operator}) has no terms")
        terms = [self._linear(item) for item in rest]
        first, others = terms[0], terms[1:]
        if operator == "-" and not others:
            return first.times(Fraction(-1))
        for other in others:
            if operator == "*":
                first = _product(first, other, expression.line)
            else:
                first = first.plus(other) if operator == "+" else first.minus(other)
        return first

    def _word(self, word: Word) -> Linear:
        number = parse_decimal(word.text)
        if number is not None:
            return Linear({}, number)
        name = NAME.fullmatch(word.text)
        if name is None:
            raise LoadError(
                f"line {word.line}: {word.text[:40]!r} is neither a number nor a variable X_0, ..., Y_0, ..."
            )
        letter, index = name[1], int(name[2])
        if index not in self.declared[letter]:
            raise LoadError(f"line {word.line}: {word.text} is used before it is declared")
        self.mentions_outputs |= letter == "Y"
        return Linear({Variable(letter == "Y", index): ONE})


def _product(one: Linear, other: Linear, line: int) -> Linear:
    if one.coefficients and other.coefficients:
        raise LoadError(f"line {line}: a product of two variables is not linear; only constants may multiply")
    return one.times(other.constant) if not other.coefficients else other.times(one.constant)


def _head(group: Group) -> tuple[str, list[Expression]]:
    """The word that a group begins with, and the rest."""
    if not group.items or not isinstance(group.items[0], Word):
        raise LoadError(f"line {group.line}: brackets begin with a command or an operator")
    return group.items[0].text, group.items[1:]
