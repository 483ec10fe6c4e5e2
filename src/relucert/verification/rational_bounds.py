"""Properties that are touched: lower bounds in rational arithmetic, which alone tell a zero from a number below it.

A strict violation, or one at an end that inputs stay off, is impossible where a constraint's excess is at least zero.
Every value is an affine form on the inputs and on the ReLUs before it that are unstable. From the last of these to
the first each gives way to a line below or above it, as in CROWN (Zhang et al. 2018), until a form on the inputs is
left: its least value in a box is exact. There is no rounding, and no search. Inputs that a violation sets equal are
one, and so are ReLUs of the same form: what two equal networks differ by then cancels.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from relucert.network import INPUT, Network, Relu
from relucert.verification.rational import RULES, Rationals
from relucert.verification.specification.violations import Violation

MOST_NEURONS = 128
MOST_WORK = 2_000_000  # multiplications of whole numbers, about
LONGEST = 128  # bits of the denominators of bounds and slopes; longer ones are rounded outwards
UNIT = Fraction(1, 2**64)
STEEP = (Fraction(1), Fraction(1, 2), Fraction(0))  # slopes above which the source is a ReLU's lower line, and not zero

Form = dict[int, Fraction]  # coefficients by input and, behind these, by ReLU; the constant stands under -1
CONSTANT = -1


class Least(NamedTuple):
    """A lower bound of a form, and whether it may be reached: not at an end that an input stays off."""

    bound: Fraction
    reached: bool

    def excludes(self, strict: bool) -> bool:
        """Whether no excess that is bounded so meets its constraint."""
        return self.bound > 0 or (self.bound == 0 and (strict or not self.reached))


@dataclass(frozen=True)
class UnstableRelu:
    """An unstable ReLU: the form that it rectifies, and the line above it, slope and height at zero."""

    source: Form
    slope: Fraction
    height: Fraction


def impossible(network: Network, violation: Violation, ends: float) -> bool:
    """Whether a violation is proven to be impossible, by one of its constraints; False where there is too much to do.

    ends: when time is over, on the monotonic clock.
    """
    touched = violation.open_low or violation.open_high or any(one.strict for one in violation.constraints)
    if not touched or network.inference.rounds or _is_large(network):
        return False
    forms = _Forms(network, violation, ends)
    outputs = forms.outputs()
    if outputs is None:
        return False
    for constraint in violation.constraints:
        excess: Form = {CONSTANT: -constraint.bound}
        for index, number in constraint.inputs:
            _add(excess, forms.inputs[index], Fraction(number))
        for index, number in constraint.outputs:
            _add(excess, outputs[index], Fraction(number))
        if any(forms.least(excess, steep).excludes(constraint.strict) for steep in STEEP):
            return True
    return False


def _is_large(network: Network) -> bool:
    neurons = sum(network.sizes[value] for value in network.preactivations)
    work = sum(getattr(node.operation, "work", 0) for node in network.nodes) * (network.sizes[INPUT] + neurons + 1)
    unknown = any(type(node.operation) not in RULES for node in network.nodes)
    return neurons > MOST_NEURONS or work > MOST_WORK or unknown


@dataclass(eq=False)
class _Forms:
    """The values of a network over a box, as forms."""

    network: Network
    box: Violation
    ends: float
    unstable: list[UnstableRelu] = field(default_factory=list)
    indices: dict[frozenset[tuple[int, Fraction]], int] = field(default_factory=dict)  # of `unstable`, by their sources

    def __post_init__(self) -> None:
        self.inputs = _inputs(self.box, self.network.sizes[INPUT])

    def outputs(self) -> list[Form] | None:
        """The forms of the outputs; None where time ended."""
        values = [self.inputs]
        for value, node in self.network.steps():
            sources = [values[source] for source in node.inputs]
            if isinstance(node.operation, Relu):
                values.append([self._rectified(form) for form in sources[0]])
            else:
                values.append(self._affine(value, sources))
            if time.monotonic() > self.ends:
                return None
        return values[-1]

    def _affine(self, value: int, sources: Sequence[Sequence[Form]]) -> list[Form]:
        """Column by column: what a term of the sources adds to each number, and what is there without any."""
        node = self.network.node(value)

        def applied(term: int | None) -> list[Fraction]:
            columns = [
                Rationals.of(
                    [Fraction(0) if term is None else form.get(term, Fraction(0)) for form in forms],
                    self.network.shapes[source],
                )
                for source, forms in zip(node.inputs, sources, strict=True)
            ]
            return RULES[type(node.operation)](node.operation, columns).fractions()

        constants = applied(None)
        forms: list[Form] = [{CONSTANT: number} if number else {} for number in constants]
        for term in sorted({term for source in sources for form in source for term in form}):
            for form, number, constant in zip(forms, applied(term), constants, strict=True):
                _add(form, {term: number - constant})
        return forms

    def _rectified(self, form: Form) -> Form:
        """The form of a ReLU: its source's where it is active, none where it is inactive, else an unstable one's."""
        key, negative = frozenset(form.items()), {term: -number for term, number in form.items()}
        if key in self.indices:
            return {self.indices[key]: Fraction(1)}
        low = max(_below(self.least(form, steep).bound) for steep in STEEP)
        high = -max(_below(self.least(negative, steep).bound) for steep in STEEP)
        if low >= 0:
            return form
        if high <= 0:
            return {}
        slope = high / (high - low)
        slope = slope if slope.denominator.bit_length() <= LONGEST else round(slope / UNIT) * UNIT
        self.unstable.append(UnstableRelu(form, slope, max(-slope * low, (1 - slope) * high)))
        self.indices[key] = self.network.sizes[INPUT] + len(self.unstable) - 1
        return {self.indices[key]: Fraction(1)}

    def least(self, form: Form, steep: Fraction) -> Least:
        """A lower bound in the box; steep: one of `STEEP`."""
        inputs = self.network.sizes[INPUT]
        left = dict(form)
        for index in range(len(self.unstable) - 1, -1, -1):
            number = left.pop(inputs + index, Fraction(0))
            relu = self.unstable[index]
            if number < 0:
                _add(left, relu.source, number * relu.slope)
                _add(left, {CONSTANT: relu.height}, number)
            elif number > 0 and relu.slope > steep:
                _add(left, relu.source, number)
        bound, reached = left.pop(CONSTANT, Fraction(0)), True
        for index, number in left.items():
            bound += number * (self.box.low[index] if number > 0 else self.box.high[index])
            reached &= index not in (self.box.open_low if number > 0 else self.box.open_high)
        return Least(bound, reached)


def _inputs(violation: Violation, count: int) -> list[Form]:
    """The inputs as forms, those that equal an earlier one, up to a constant, as forms on it."""
    forms: list[Form] = [{index: Fraction(1)} for index in range(count)]
    for (later, earlier), difference in sorted(violation.fixed_differences.items()):
        forms[later] = {**forms[earlier]}
        _add(forms[later], {CONSTANT: difference})
    return forms


def _add(form: Form, other: Form, factor: Fraction = Fraction(1)) -> None:
    """Adds a multiple of another form in place; terms that cancel are left out."""
    for term, number in other.items():
        total = form.get(term, Fraction(0)) + factor * number
        if total:
            form[term] = total
        else:
            form.pop(term, None)


def _below(number: Fraction) -> Fraction:
    """A number, or a shorter one below it."""
    return number if number.denominator.bit_length() <= LONGEST else number // UNIT * UNIT
