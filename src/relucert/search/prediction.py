"""Predictions for the radius search: hidden bounds at radii that were not evaluated.

A neuron's bounds lie between two enclosures that cost a few products, given the bounds of the layers before: the inner
one has only the width of the lines of the nearest activations, the outer one is the interval that the nearest
activations' own intervals give (interval bound propagation). Where between them, as a share from 0 to 1, hardly depends
on the radius, nor on the image. So an evaluation is remembered as the relative widths of its bounds, and at another
radius they give all bounds again, layer after layer.

Nothing here is a bound. A prediction chooses where to look next, and a wrong one costs time, not truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from typing_extensions import Self

from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reference import ReferencePath
from relucert.network import INPUT, Affine

TINIEST = 1e-30  # the least distance of two enclosures between which a relative width is counted
STEEPEST = 2.0  # the largest exponent of a relative width in the radius that a prediction believes
# Of what two evaluated radii tell about exponents, half is believed if they are this far apart, in logarithms. Between
# nearer ones, neurons that turn unstable weigh more than the growth of widths. Tuned on cifar-resnet.
HALF_BELIEVED = 0.03
APART = 0.02  # how far apart, in logarithms, two evaluations are that tell how a correction grows
MOST_GROWTH = 2.0  # the largest exponent of a correction: one that outgrew the fall of margins would leave no root


@dataclass(frozen=True, eq=False)
class PerQuestion:
    """Tensors with one row per question, by themselves or by value, and what is the same for all questions."""

    def select(self, members: Tensor) -> Self:
        return join([self], members)


PerQuestionType = TypeVar("PerQuestionType", bound=PerQuestion)


def join(batches: Sequence[PerQuestionType], order: Tensor) -> PerQuestionType:
    """Joins batches, reordered by `order`."""

    def joined(parts: list[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {value: joined([part[value] for part in parts]) for value in parts[0]}
        return torch.cat(parts)[order] if isinstance(parts[0], Tensor) else parts[0]

    names = vars(batches[0])
    return replace(batches[0], **{name: joined([getattr(batch, name) for batch in batches]) for name in names})


@dataclass(frozen=True, eq=False)
class Correction(PerQuestion):
    """A method's least margin less that of its surrogate, where it was evaluated last: (batch,) each.

    It is predicted as a power of the radius: the square, unless two evaluations tell another one. At nearly the same
    radius they do not, as an ascent that goes on where the last one ended finds more, whatever the radius.
    """

    radii: Tensor
    amounts: Tensor
    growth: Tensor

    @classmethod
    def none(cls, count: int) -> Correction:
        ones = torch.ones(count, dtype=torch.float64)
        return cls(ones, 0 * ones, 2 * ones)

    def evaluated(self, radii: Tensor, amounts: Tensor) -> Correction:
        """The correction that an evaluation at radii tells, (batch,) each."""
        step, ratio = (radii / self.radii).log(), amounts / self.amounts
        told = (step.abs() > APART) & (ratio > 0) & ratio.isfinite()
        growth = (ratio.log() / step).clamp(0, MOST_GROWTH)
        return Correction(radii, amounts, torch.where(told, growth, self.growth))

    def at(self, radii: Tensor) -> Tensor:
        """The correction at candidates, (batch, candidates)."""
        return self.amounts[:, None] * (radii / self.radii[:, None]) ** self.growth[:, None]


class _Spread(NamedTuple):
    """Intervals about references, those of the inner enclosures before those of the outer ones.

    inner, outer: How far their middles lie above the reference, (batch, size); None: not at all.
    widths: Half of both widths, (2 * batch, size).
    """

    inner: Tensor | None
    outer: Tensor | None
    widths: Tensor


class Brackets:
    """The inner and the outer enclosure of pre-activations, by the path's bounds of those before them."""

    def __init__(self, path: ReferencePath) -> None:
        self.path, self.network = path, path.network
        self._spreads: dict[int, _Spread] = {}
        self._region, self._radii = path.region.as_multiples()

    def of(self, value: int) -> tuple[Tensor, Tensor]:
        """How far the inner and the outer enclosure of a value reach below and above its reference, (batch, 2, size)
        each."""
        spread = self._spread(value)
        inner, outer = (
            torch.stack([width, width] if middle is None else [width - middle, width + middle], 1)
            for width, middle in zip(spread.widths.chunk(2), spread[:2], strict=True)
        )
        return inner, outer

    def _spread(self, value: int) -> _Spread:
        if value not in self._spreads:
            self._spreads[value] = self._computed(value)
        return self._spreads[value]

    def _computed(self, value: int) -> _Spread:
        path = self.path
        if not self.network.activation_depths[value]:
            reach = self._radii * self._reach(value)
            return _Spread(None, None, torch.cat([torch.zeros_like(reach), reach]))
        node = self.network.node(value)
        if isinstance(node.operation, Affine):
            before = [self._spread(source) for source in node.inputs]
            inner, outer = (self._moved(value, [spread[side] for spread in before], node.operation) for side in (0, 1))
            widths = self._moved(value, [spread.widths for spread in before], node.operation.absolute)
            assert widths is not None
            return _Spread(inner, outer, widths)
        lines = path.lines(value)
        half = lines.half_width if lines.parallel else path.height(value) / 2
        middle, reach = path.interval_about_reference(value)
        return _Spread(None if lines.parallel else half, middle, torch.cat([half, reach]))

    def _reach(self, value: int) -> Tensor:
        """How far a value that no activation precedes may lie from its reference, over `_radii`: (batch or 1, size)."""
        if value == INPUT:
            return self._region.spans(self.path.arithmetic).largest
        node = self.network.node(value)
        assert isinstance(node.operation, Affine)
        before = [self._reach(source).unflatten(-1, self.network.shapes[source]) for source in node.inputs]
        return node.operation.absolute.linear(*before).flatten(1)

    def _moved(self, value: int, operands: list[Tensor | None], operation: Affine) -> Tensor | None:
        """The image of operands of a value, (batch, size) or None for 0 each; None where all are."""
        some = next((operand for operand in operands if operand is not None), None)
        if some is None:
            return None
        shapes = [self.network.shapes[source] for source in self.network.node(value).inputs]
        wide = [
            (some.new_zeros(len(some), math.prod(shape)) if operand is None else operand).unflatten(-1, shape)
            for operand, shape in zip(operands, shapes, strict=True)
        ]
        return operation.linear(*wide).flatten(1)


@dataclass(frozen=True, eq=False)
class RelativeWidths(PerQuestion):
    """The positions of hidden bounds between their brackets, at one radius of each question.

    Attributes:
        logs: The logarithms of the radii, (batch,).
        widths: By value, of the bounds below and above the reference: (batch, 2, size).
        growth: By value, the exponent with which these grow with the radius: (batch,).
        measured: Whether they come of an evaluation of the same questions.
    """

    logs: Tensor
    widths: dict[int, Tensor]
    growth: dict[int, Tensor]
    measured: bool = False

    def bounds(self, path: ReferencePath, radii: Tensor) -> Bounds:
        """The hidden bounds at candidate radii, (batch, candidates), of the path's regions, one for each question and
        candidate. The path takes them."""
        brackets = Brackets(path)
        for value in path.bounded:
            share = self._widths_at(value, radii)
            path.bounds[value] = _between(path.reference(value), *brackets.of(value), share)
        return path.bounds

    def evaluated(
        self, path: ReferencePath, radii: Tensor, hidden: Bounds, tight: Mapping[int, Tensor]
    ) -> RelativeWidths:
        """The relative widths that an evaluation tells.

        Args:
            path: Its regions, without bounds.
            radii: The evaluated radii, (batch,).
            hidden: The bounds, (batch, size); of values that are missing, what is known stays.
            tight: By value, which lower and upper bounds are as tight as the method gives them, (batch, 2, size); of
                values that are missing, all are.
        """
        brackets, widths, growth = Brackets(path), {}, {}
        step = radii.log() - self.logs
        apart = (step != 0) & self.measured
        believed = step.abs() / (step.abs() + HALF_BELIEVED)
        for value in path.bounded:
            inner, outer = brackets.of(value)
            expected, reference = self._widths_at(value, radii[:, None]), path.reference(value)
            share, growth[value] = expected, self.growth[value]
            if value in hidden:
                lower, upper = hidden[value]
                moved = torch.stack([reference - lower, upper - reference], 1)
                wide = outer - inner > TINIEST
                share = torch.where(wide, (moved - inner) / torch.where(wide, outer - inner, 1), expected)
                comparable = wide & (share > 0) & (expected > 0)
                if value in tight:
                    comparable &= tight[value]
                ratio = torch.where(comparable, share / torch.where(comparable, expected, 1), 1).log()
                mean = (ratio * comparable).sum((1, 2)) / comparable.sum((1, 2)).clamp(min=1)
                if value in tight:  # a loose bound is farther away than a tight one would be
                    guess = expected * mean[:, None, None].exp()
                    share = torch.where(comparable, share, torch.minimum(guess, share))
                change = torch.where(apart, believed * mean.double() / torch.where(apart, step, 1), 0)
                growth[value] = (growth[value] + change).clamp(-STEEPEST, STEEPEST)
            path.bounds[value] = _between(reference, inner, outer, share)
            widths[value] = share
        return replace(self, logs=radii.log(), widths=widths, growth=growth, measured=True)

    def _widths_at(self, value: int, radii: Tensor) -> Tensor:
        """The relative widths at candidate radii, (batch, candidates): (batch * candidates, 2, size)."""
        steps = radii.log() - self.logs[:, None]
        factors = (self.growth[value][:, None] * steps).exp().to(self.widths[value].dtype)
        return (factors[..., None, None] * self.widths[value][:, None]).flatten(0, 1)


def _between(reference: Tensor, inner: Tensor, outer: Tensor, share: Tensor) -> Interval:
    """Bounds that lie between two enclosures of deviations from a reference."""
    moved = torch.lerp(inner, outer, share)
    return Interval(reference - moved[:, 0], reference + moved[:, 1])
