"""VNN-LIB 2.0, which the package `vnnlib` parses: typed tensors with indices, of one or more networks."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

from relucert.common.numbers import parse_decimal
from relucert.errors import InputError, LoadError, MissingPackageError
from relucert.verification.specification.cases import cases, plain_case
from relucert.verification.specification.formula import All, AnyOf, AtMost, Formula, LinearTerms, Variable
from relucert.verification.specification.syntax import groups
from relucert.verification.specification.violations import Declared, Specification

MOST_VARIABLES = 2**24  # inputs, and outputs, that a file may declare
INFIX = re.compile(r"\(\s*([^\s();<>=]+)\s*(<=|>=|==|<|>)\s*([^\s();<>=]+)\s*\)")
TYPES = {"Real": "real", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


class TensorSlice(NamedTuple):
    """Where a tensor's numbers begin among all inputs or all outputs, and its shape."""

    output: bool
    first: int
    shape: tuple[int, ...]

    def variable(self, indices: list[int]) -> Variable:
        """The number at these indices, of which there may be none if the tensor has one number only."""
        position = 0
        for index, size in zip(indices or [0] * len(self.shape), self.shape, strict=True):
            position = position * size + index
        return Variable(self.output, self.first + position)


def parse(text: str) -> Specification:
    """What a text of VNN-LIB 2.0 says; raises LoadError or InputError where it asks nothing."""
    try:
        package = import_module("vnnlib")
    except ImportError:
        raise MissingPackageError(
            "VNN-LIB 2.0 needs the package vnnlib, which is not installed: pip install 'relucert[vnnlib]'"
        ) from None
    groups(text)  # brackets that do not match, or nest too deep for a parser
    text, infix = _prefixed(text)
    try:
        parsed = package.parse_query_string(text)
    except package.VNNLibException as error:
        raise LoadError(_reason(str(error))) from None
    except (IndexError, ValueError, OverflowError) as error:  # of a number that its own reader can't hold
        raise LoadError(f"the package vnnlib can't read a number of it: {error}") from None
    return _Translation(package, parsed, infix).specification()


def _prefixed(text: str) -> tuple[str, str | None]:
    """The text with each comparison's operator before its terms, and the first one where it stood between them.

    The competition has such files (monotonic_acasxu of 2026); no expression of the standard begins with a term.
    """
    lines = [line.split(";", 1) for line in text.splitlines()]  # what follows is a comment
    first = next((found for line in lines if (found := INFIX.search(line[0]))), None)
    if first is None:
        return text, None
    return "\n".join(INFIX.sub(r"(\2 \1 \3)", line[0]) for line in lines), first.group()


class _Translation:
    """A parsed file as formulas over flat variables."""

    def __init__(self, package: Any, parsed: Any, infix: str | None) -> None:
        """infix: the first comparison whose operator stood between its terms, if one did."""
        self.package, self.parsed, self.infix = package, parsed, infix
        for network in parsed.networks:
            if network.hidden:
                names = ", ".join(hidden.name for hidden in network.hidden)
                raise InputError(
                    f"the property declares hidden values ({names}); only inputs and outputs can be asked about"
                )
        self.declared = [
            Declared(tensor.name, output, tuple(tensor.shape), _type(tensor), network.name, network.equal_to or None)
            for network in parsed.networks
            for output, tensors in ((False, network.inputs), (True, network.outputs))
            for tensor in tensors
        ]
        self.slices: dict[tuple[str, str], TensorSlice] = {}
        self.sizes = {False: 0, True: 0}
        for tensor in self.declared:
            tensor_slice = TensorSlice(tensor.output, self.sizes[tensor.output], tensor.shape)
            self.slices[tensor.network, tensor.name] = tensor_slice
            self.sizes[tensor.output] += prod(tensor.shape)
            if self.sizes[tensor.output] > MOST_VARIABLES:
                raise LoadError(f"{tensor.name} has the shape {tensor.shape}: more than {MOST_VARIABLES:,} variables")
        self.mentions_outputs = False

    def specification(self) -> Specification:
        formulas = [self._formula(assertion.expr) for assertion in self.parsed.assertions]
        if not self.mentions_outputs:
            raise InputError("no assertion is about an output: every input of the region would be a violation")
        implied = [plain_case(case).with_implied_bounds() for case in cases(All(formulas))]
        bounded = [case for case in implied if case is not None]
        return Specification.of_cases(
            bounded, self.sizes[False], self.sizes[True], remarks=self._remarks(),
            declared=tuple(self.declared),
        )  # fmt: skip

    def _remarks(self) -> tuple[str, ...]:
        remarks, types = [], sorted({tensor.type for tensor in self.declared} - {"real"})
        if self.infix is not None:
            prefixed = INFIX.sub(r"(\2 \1 \3)", self.infix)
            remarks.append(f"{self.infix} is no VNN-LIB, where operators come first; it is read as {prefixed}")
        if types:
            remarks.append(f"the property declares {' and '.join(types)}; the verdict is about what `inference` names")
        return tuple(remarks)

    def _formula(self, expression: Any) -> Formula:
        package = self.package
        if isinstance(expression, (package.And, package.Or)):
            operands = [self._formula(argument) for argument in expression.args]
            return All(operands) if isinstance(expression, package.And) else AnyOf(operands)
        if not isinstance(expression, package.Comparison) or isinstance(expression, package.NotEqual):
            raise LoadError(f"{_short(expression)} is not supported; formulas are made of and, or, <=, <, >=, > and ==")
        difference = self._linear(expression.lhs).minus(self._linear(expression.rhs))
        strict = isinstance(expression, (package.LessThan, package.GreaterThan))
        at_most, at_least = (AtMost(difference.times(Fraction(sign)), strict) for sign in (1, -1))
        if isinstance(expression, package.Equal):
            return All([at_most, at_least])
        return at_most if isinstance(expression, (package.LessThan, package.LessEqual)) else at_least

    def _linear(self, expression: Any) -> LinearTerms:
        package = self.package
        if isinstance(expression, package.Var):
            tensor_slice = self.slices[expression.network_name, expression.name]
            self.mentions_outputs |= tensor_slice.output
            return LinearTerms({tensor_slice.variable(list(expression.indices)): Fraction(1)})
        if isinstance(expression, package.Literal):
            number = parse_decimal(expression.lexeme)
            if number is None:
                raise LoadError(f"{expression.lexeme[:40]!r} is no number")
            return LinearTerms({}, number)
        if isinstance(expression, package.Negate):
            return self._linear(expression.expr).times(Fraction(-1))
        if isinstance(expression, package.Minus):
            total = self._linear(expression.head)
            for argument in expression.rest:
                total = total.minus(self._linear(argument))
            return total
        if not isinstance(expression, (package.Plus, package.Multiply)):
            raise LoadError(f"{_short(expression)} is not supported; terms are made of +, - and * by constants")
        total, *others = [self._linear(argument) for argument in expression.args]
        for other in others:
            if isinstance(expression, package.Plus):
                total = total.plus(other)
            elif total.coefficients and other.coefficients:
                raise LoadError(f"{_short(expression)} is not linear; only constants may multiply")
            else:
                total = other.times(total.constant) if other.coefficients else total.times(other.constant)
        return total


def _type(tensor: Any) -> str:
    name = tensor.dtype.name
    if name not in TYPES:
        raise InputError(f"{tensor.name} is of type {name}; known are {', '.join(TYPES.values())}")
    return TYPES[name]


def _short(expression: Any) -> str:
    return " ".join(str(expression).split())[:60]


def _reason(message: str) -> str:
    """What the parser found fault with, in one line."""
    try:
        faults = json.loads(message)["errors"]
        first = faults[0]
        return f"line {first['line']}: {first['message']}, {first['offendingSymbol']!r}. {first['hint']}"
    except (ValueError, KeyError, IndexError, TypeError):
        return " ".join(message.split())[:200]
