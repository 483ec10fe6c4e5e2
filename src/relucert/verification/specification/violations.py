"""What a property file says, in exact numbers: violations, each a box of inputs and constraints."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, product
from typing import NamedTuple, overload

from relucert.common.deadline import check_time
from relucert.errors import InputError
from relucert.verification.specification.cases import Case, plain_case
from relucert.verification.specification.formula import AtMost, Clause, End, Shape, Variable

Terms = tuple[tuple[int, int], ...]
_Numbers = tuple[Fraction, ...]
LARGEST = Fraction(sys.float_info.max)


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
        strict: Whether the sum must be below the bound, and not at it.
    """

    inputs: Terms
    outputs: Terms
    bound: Fraction
    strict: bool = False

    def __hash__(self) -> int:
        bound = self.bound  # whose own hash takes a modular inverse
        return hash((self.inputs, self.outputs, bound.numerator, bound.denominator, self.strict))

    @classmethod
    def of(cls, atom: AtMost) -> Constraint:
        """That a form is not positive, or negative, scaled to whole coefficients."""
        if len(atom.form.coefficients) == 1:  # as of most: a comparison of one output with a number
            ((variable, number),) = atom.form.coefficients.items()
            if number.denominator == 1 and number.numerator in (1, -1):
                term, bound = ((variable.number, number.numerator),), -atom.form.constant
                return cls((), term, bound, atom.strict) if variable.output else cls(term, (), bound, atom.strict)
        terms = sorted(atom.form.coefficients.items())
        shared = math.lcm(*(number.denominator for _, number in terms))
        whole = [number.numerator * (shared // number.denominator) for _, number in terms]
        divisor = math.gcd(*whole) or 1
        inputs, outputs = (
            tuple(
                (variable.number, number // divisor)
                for (variable, _), number in zip(terms, whole, strict=True)
                if variable.output == output
            )
            for output in (False, True)
        )
        bound = -atom.form.constant if shared == divisor else Fraction(-shared, divisor) * atom.form.constant
        return cls(inputs, outputs, bound, atom.strict)

    @property
    def scale(self) -> Fraction:
        """A power of two that brings the largest coefficient to at least 1 and below 2."""
        longest = max((abs(number).bit_length() for _, number in self.inputs + self.outputs), default=1)
        return Fraction(1, 2 ** (longest - 1))

    def excess(self, inputs: Sequence[Fraction], outputs: Sequence[Fraction]) -> Fraction:
        """By how much the sum is above the bound at an input and its outputs."""
        terms = chain(
            (number * inputs[index] for index, number in self.inputs),
            (number * outputs[index] for index, number in self.outputs),
        )
        return sum(terms, -self.bound)

    def is_met_by(self, excess: Fraction) -> bool:
        """Whether it is met where the sum is so much above the bound."""
        return excess < 0 if self.strict else excess <= 0


MET_EVERYWHERE = Constraint((), (), Fraction(0))


@dataclass(frozen=True)
class Violation:
    """Inputs within a box at which all constraints are met.

    Attributes:
        low: The lowest value of every input.
        high: The highest.
        constraints: On inputs and outputs, all of them met at once.
        open_low: The inputs that must be above their lowest value.
        open_high: The inputs that must be below their highest.
    """

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    constraints: tuple[Constraint, ...]
    open_low: frozenset[int] = frozenset()
    open_high: frozenset[int] = frozenset()

    @property
    def contradictory(self) -> bool:
        """Whether no inputs and outputs at all meet the constraints, seen from pairs of which one bounds a sum from
        above and the other from below; a constant is bounded by itself."""
        ends: dict[tuple[Terms, Terms], End] = {}
        for constraint in self.constraints:
            key, end = (constraint.inputs, constraint.outputs), End(constraint.bound, constraint.strict)
            ends[key] = end if end.is_tighter(ends.get(key), upper=True) else ends[key]
        for (inputs, outputs), high in ends.items():
            other = ends.get((_negated(inputs), _negated(outputs)))
            if other is not None and not End(-other.at, other.strict).leaves_room(high):
                return True
        return False

    @property
    def fixed_differences(self) -> dict[tuple[int, int], Fraction]:
        """By pairs of inputs, the later first, how much larger it is than the other, where two constraints fix that."""
        bounded = {
            (constraint.inputs, constraint.bound)
            for constraint in self.constraints
            if len(constraint.inputs) == 2 and not constraint.outputs
        }
        return {
            (second, first): -bound / number  # number * (first - second) is at most and at least the bound
            for ((first, number), (second, other)), bound in bounded
            if number + other == 0 and (((first, other), (second, number)), -bound) in bounded
        }

    def has_inputs(self, point: Sequence[Fraction]) -> bool:
        """Whether an input lies in the box, and off its open ends."""
        return (
            all(low <= number <= high for low, number, high in zip(self.low, point, self.high, strict=True))
            and not any(point[index] == self.low[index] for index in self.open_low)
            and not any(point[index] == self.high[index] for index in self.open_high)
        )


def _maker(shape: Shape) -> Callable[[Sequence[str]], Violation]:
    """What makes violations of the numbers of clauses of a shape that bounds every input once from both sides."""
    low_slots, high_slots = ([slot for _, slot in sorted(slots.items())] for slots in (shape.low, shape.high))
    open_low, open_high = (
        frozenset([index for index, (_, ends) in slots.items() if ends.strict]) for slots in (shape.low, shape.high)
    )
    rows = [(((variable.number, 1 if upper else -1),), upper, slot) for variable, upper, slot in shape.outputs]

    def violation(numbers: Sequence[str]) -> Violation:
        low = tuple([ends[numbers[place]].at for place, ends in low_slots])
        high = tuple([ends[numbers[place]].at for place, ends in high_slots])
        constraints = []
        for terms, upper, (place, ends) in rows:
            bound = ends[numbers[place]].at
            constraints.append(Constraint((), terms, bound if upper else -bound, ends.strict))
        distinct = constraints if len(constraints) < 2 else dict.fromkeys(constraints)
        return Violation(low, high, tuple(distinct), open_low, open_high)

    return violation


class Violations(Sequence[Violation]):
    """A tuple of violations, of which those that are clauses of a file are made once somebody asks for one.

    They equal a tuple of the same violations.
    """

    def __init__(self, listed: Sequence[Violation | Clause]) -> None:
        self._listed = listed

    @cached_property
    def _made(self) -> tuple[Violation, ...]:
        made, makers = list[Violation](), dict[Shape, Callable[[Sequence[str]], Violation]]()
        for one in self._listed:
            if isinstance(one, Clause):
                check_time()
                shape, numbers = one
                maker = makers.get(shape)
                if maker is None:
                    maker = makers[shape] = _maker(shape)
                made.append(maker(numbers))
            else:
                made.append(one)
        self._listed = made
        return tuple(made)

    def __len__(self) -> int:
        return len(self._listed)

    @overload
    def __getitem__(self, index: int) -> Violation: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Violation, ...]: ...
    def __getitem__(self, index: int | slice) -> Violation | tuple[Violation, ...]:
        return self._made[index]

    def __iter__(self) -> Iterator[Violation]:
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        return self._made == other._made if isinstance(other, Violations) else self._made == other

    def __hash__(self) -> int:
        return hash(self._made)

    def __repr__(self) -> str:
        return repr(self._made)


@dataclass(frozen=True)
class Specification:
    """What a property file says; its fields are those of a `relucert.Query`."""

    inputs: int
    outputs: int
    violations: Sequence[Violation]
    text: str | None = None
    remarks: tuple[str, ...] = ()
    declared: tuple[Declared, ...] = ()

    @classmethod
    def of_cases(
        cls, cases: Sequence[Case | Clause], inputs: int, outputs: int, text: str | None = None,
        remarks: tuple[str, ...] = (), declared: tuple[Declared, ...] = (),
    ) -> Specification:  # fmt: skip
        """The specification whose violations are these cases; every input needs both bounds in all of them."""
        listed, seen = list[Violation | Clause](), set[tuple[tuple[int, int], tuple[Constraint, ...]]]()
        boxes: dict[tuple[int, int], tuple[_Numbers, _Numbers, frozenset[int], frozenset[int]]] = {}
        names, checked = _input_names(inputs, declared), dict[int, End]()
        for given in cases:
            check_time()
            if isinstance(given, Clause) and len(given.shape.low) == len(given.shape.high) == inputs:
                listed.append(given)
                continue
            case = plain_case(given)
            shared = id(case.low), id(case.high)
            if shared not in boxes:
                ends = _ends(case.low, "lower", names, checked), _ends(case.high, "upper", names, checked)
                boxes[shared] = (*ends, _strict_ones(case.low), _strict_ones(case.high))
            constraints = tuple(map(Constraint.of, case.forms))
            if len(constraints) > 1:
                constraints = tuple(dict.fromkeys(constraints))
            for one in constraints:
                if not (_is_float(one.bound) or _is_float(one.scale * one.bound)):
                    raise InputError("a constraint has a bound beyond the numbers of float64, about 1.8e308")
            if (shared, constraints) not in seen:
                seen.add((shared, constraints))
                low, high, open_low, open_high = boxes[shared]
                listed.append(Violation(low, high, constraints, open_low, open_high))
        return cls(inputs, outputs, Violations(listed), text, remarks, declared)


def _input_names(count: int, declared: Sequence[Declared]) -> list[str]:
    """What the file calls every input."""
    if not declared:
        return [str(Variable(False, index)) for index in range(count)]
    return [
        f"{tensor.name}[{','.join(map(str, indices))}]" if indices else tensor.name
        for tensor in declared
        if not tensor.output
        for indices in product(*map(range, tensor.shape))
    ]


def _is_float(number: Fraction) -> bool:
    """Whether a number is within those of float64."""
    if number.numerator.bit_length() - number.denominator.bit_length() < sys.float_info.max_exp - 1:
        return True
    return -LARGEST <= number <= LARGEST


def _strict_ones(bounds: dict[int, End]) -> frozenset[int]:
    return frozenset([index for index, end in bounds.items() if end.strict])


def _negated(terms: Terms) -> Terms:
    return tuple((index, -number) for index, number in terms)


def _ends(
    bounds: dict[int, End], which: str, names: Sequence[str], checked: dict[int, End]
) -> tuple[Fraction, ...]:  # fmt: skip
    """The numbers of the bounds of all inputs; checked: those known to be within float64, by identity."""
    missing = [name for index, name in enumerate(names) if index not in bounds] if len(bounds) < len(names) else []
    if missing:
        listed = ", ".join(missing[:3]) + (", ..." if missing[3:] else "")
        raise InputError(f"the region is unbounded: {listed} has no {which} bound; assert one for every input")
    for index, bound in bounds.items():
        if id(bound) in checked:
            continue
        if not _is_float(bound.at):
            raise InputError(f"the {which} bound of {names[index]} is beyond the numbers of float64")
        checked[id(bound)] = bound
    return tuple([bounds[index].at for index in range(len(names))])
