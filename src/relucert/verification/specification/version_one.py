"""VNN-LIB 1.0: declarations of X_0, X_1, ... and Y_0, Y_1, ..., and assertions that are all met at a violation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from sys import intern

from relucert.common.deadline import check_time
from relucert.common.numbers import parse_decimal
from relucert.errors import InputError, LoadError
from relucert.verification.specification.cases import cases
from relucert.verification.specification.formula import (
    MINUS,
    ONE,
    All,
    AnyOf,
    AtMost,
    Bounds,
    Clause,
    Comparisons,
    Ends,
    Formula,
    LinearTerms,
    Shape,
    Variable,
)
from relucert.verification.specification.syntax import Expression, Group, Run, Word, groups
from relucert.verification.specification.violations import Specification

NAME = re.compile(r"([XY])_(0|[1-9]\d{0,8})")
IGNORED = ("set-logic", "set-info", "set-option", "check-sat", "get-model", "exit")
LAST = ("check-sat", "exit")  # commands that nothing may be asserted after
RELATIONS = ("<=", "<", ">=", ">", "=", "==")
CONNECTIVES = ("and", "or")
OPERATORS = ("+", "-", "*")


def parse(text: str) -> Specification:
    """What a text of VNN-LIB 1.0 says; raises LoadError or InputError where it asks nothing."""
    parser = _Parser()
    for group in groups(text):
        check_time()
        parser.take(group)
    inputs, outputs = (parser.count(letter) for letter in "XY")
    if not parser.mentions_outputs:
        raise InputError(
            "no assertion is about an output (Y_0, ...): every input of the region would be a violation; assert what "
            "the outputs are at one"
        )
    return Specification.of_cases(cases(All(parser.assertions)), inputs, outputs, text)


class _Parser:
    """The declared names and the assertions so far."""

    def __init__(self) -> None:
        self.assertions: list[Formula] = []
        self.mentions_outputs = False
        self.ended: str | None = None  # the command that ended the assertions
        self.variables: dict[str, Variable] = {}  # those declared, by name
        self.ends = Ends(strict=False), Ends(strict=True)
        self.shapes: dict[tuple[str, ...], Shape] = {}  # of clauses, by their words without numbers

    def count(self, letter: str) -> int:
        """How many inputs or outputs there are; raises LoadError where they are not counted from 0 without gaps."""
        indices = {variable.number for variable in self.variables.values() if variable.output == (letter == "Y")}
        missing = next((index for index in range(len(indices)) if index not in indices), None)
        if not indices or missing is not None:
            wanted = f"{letter}_{missing or 0}"
            raise LoadError(f"{wanted} is not declared: write (declare-const {wanted} Real)")
        return len(indices)

    def take(self, group: Group | Run) -> None:
        if isinstance(group, Run):
            if self.ended is not None or not self._take_run(group):
                for single in group.groups():
                    self.take(single)
            return
        command, items = _head(group)
        if self.ended is not None and command not in IGNORED:
            raise LoadError(
                f"line {group.line}: ({command[:40]} ...) stands after ({self.ended}), where it would not count; move "
                f"it before"
            )
        self.ended = command if command in LAST else self.ended
        if command in ("declare-const", "declare-fun"):
            self._declare(command, _one_by_one(items), group.line)
        elif command == "assert":
            self.assertions.append(self._assertion(items, group.line))
        elif command not in IGNORED:
            raise LoadError(f"line {group.line}: unknown command {command[:40]!r}; known are declare-const and assert")

    def _declare(self, command: str, rest: list[Word | Group], line: int) -> None:
        if command == "declare-fun" and len(rest) == 3 and isinstance(rest[1], Group) and not rest[1].items:
            rest = [rest[0], rest[2]]
        words = [item.text for item in rest if isinstance(item, Word)]
        name = NAME.fullmatch(words[0]) if len(words) == len(rest) == 2 else None
        if name is None or words[1] != "Real":
            raise LoadError(f"line {line}: a declaration is (declare-const X_0 Real), with X or Y and a number")
        if words[0] in self.variables:
            raise LoadError(f"line {line}: {words[0]} is declared twice")
        self.variables[words[0]] = Variable(name[1] == "Y", int(name[2]))

    def _take_run(self, run: Run) -> bool:
        """Takes regular commands at once; False where they have to be taken one by one, for something is wrong."""
        if run.kind == "assertion":
            bounds = self._bounds(run.plain.replace("assert", ""))
            self.assertions += bounds
            return bool(bounds)
        words = run.plain.split()[1::3]
        names = [name for name in map(NAME.fullmatch, words) if name is not None]
        declared = {name[0]: Variable(name[1] == "Y", int(name[2])) for name in names}
        if len(declared) < len(words) or not declared.keys().isdisjoint(self.variables):
            return False
        self.variables |= declared
        return True

    def _bounds(self, text: str) -> list[Bounds]:
        """What regular comparisons, without brackets, come to; nothing where they have to be read one by one, for what
        is wrong."""
        words = text.split()
        try:
            bounds = self._comparisons(words[0::3], words[1::3]).bounds(words[2::3])
        except KeyError:
            return []
        self.mentions_outputs |= bool(bounds.forms)
        return [bounds]

    def _comparisons(self, relations: Sequence[str], names: Sequence[str]) -> Comparisons:
        return Comparisons(relations, names, self.variables, self.ends)

    def _clauses(self, texts: Sequence[str]) -> list[Clause]:
        """The clauses of a run, without brackets; none where they have to be read one by one, for what is wrong."""
        clauses, shapes = list[Clause](), self.shapes
        for text in texts:
            words = text.split()
            numbers = tuple(map(intern, words[2::3]))  # long files repeat few numbers
            del words[2::3]
            key = tuple(words)
            shape = shapes.get(key)
            if shape is None:
                try:
                    shape = shapes[key] = Shape.of(self._comparisons(words[0::2], words[1::2]))
                except KeyError:
                    return []
                self.mentions_outputs |= bool(shape.outputs)
            clauses.append(Clause(shape, numbers))
        return clauses

    def _assertion(self, items: list[Expression], line: int) -> Formula:
        if len(items) == 1 and isinstance(items[0], Run) and items[0].kind == "clause":
            clauses = self._clauses(items[0].clauses)
            if len(clauses) == 1:
                return All(clauses)
        rest = _one_by_one(items)
        if len(rest) != 1:
            raise LoadError(f"line {line}: an assertion has one formula, not {len(rest)}")
        return self._formula(rest[0])

    def _formula(self, expression: Word | Group) -> Formula:
        if isinstance(expression, Word):
            raise LoadError(f"line {expression.line}: {expression.text[:40]!r} is no formula")
        operator, items = _head(expression)
        if operator in CONNECTIVES and not items:
            raise LoadError(f"line {expression.line}: ({operator}) has no parts")
        if operator in CONNECTIVES:
            operands = [operand for item in items for operand in self._operands(operator, item)]
            return All(operands) if operator == "and" else AnyOf(operands)
        rest = _one_by_one(items)
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

    def _operands(self, operator: str, item: Expression) -> Sequence[Formula]:
        """The formulas that an operand of a connective is, several where it is a run of clauses."""
        operands: Sequence[Formula] = []
        if isinstance(item, Run) and item.kind == "clause":
            clauses = self._clauses(item.clauses)
            operands = clauses if operator == "or" else [All([clause]) for clause in clauses]
        elif isinstance(item, Run) and operator == "and":
            operands = self._bounds(item.plain)
        return operands or [self._formula(single) for single in _one_by_one([item])]

    def _linear(self, expression: Word | Group) -> LinearTerms:
        if isinstance(expression, Word):
            return self._word(expression)
        operator, items = _head(expression)
        rest = _one_by_one(items)
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
            return first.times(MINUS)
        for other in others:
            if operator == "*":
                first = _product(first, other, expression.line)
            else:
                first = first.plus(other) if operator == "+" else first.minus(other)
        return first

    def _word(self, word: Word) -> LinearTerms:
        number = parse_decimal(word.text)
        if number is not None:
            return LinearTerms({}, number)
        name = NAME.fullmatch(word.text)
        if name is None:
            raise LoadError(
                f"line {word.line}: {word.text[:40]!r} is neither a number nor a variable X_0, ..., Y_0, ..."
            )
        variable = self.variables.get(word.text)
        if variable is None:
            raise LoadError(f"line {word.line}: {word.text} is used before it is declared")
        self.mentions_outputs |= variable.output
        return LinearTerms({variable: ONE})


def _product(one: LinearTerms, other: LinearTerms, line: int) -> LinearTerms:
    if one.coefficients and other.coefficients:
        raise LoadError(f"line {line}: a product of two variables is not linear; only constants may multiply")
    return one.times(other.constant) if not other.coefficients else other.times(one.constant)


def _head(group: Group) -> tuple[str, list[Expression]]:
    """The word that a group begins with, and the rest."""
    if not group.items or not isinstance(group.items[0], Word):
        raise LoadError(f"line {group.line}: brackets begin with a command or an operator")
    return group.items[0].text, group.items[1:]


def _one_by_one(items: Iterable[Expression]) -> list[Word | Group]:
    """The items, runs bracket by bracket."""
    return [single for item in items for single in (item.groups() if isinstance(item, Run) else [item])]
