"""Back-substitution through activations whose lower lines each form chooses, with the gradient in closed form.

A positive coefficient takes the neuron's lower line, a negative one its upper line. The derivative of a bound by the
slope of a lower line is the coefficient that takes it times the pre-activation in the relaxed network at which the
bound is attained, of which autograd brings the deviation from the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.forms import LinearForms

Rounded = Callable[[Tensor], Tensor] | None


class DualLines(NamedTuple):
    """The lines around the neurons of an activation, where forms choose the slopes of lower lines themselves.

    All tensors are laid out like the coefficients of the forms, or broadcast to them. The lines of a stable neuron are
    one and the same: there, all but `above` is 0.

    Attributes:
        above: The slopes of upper lines, which pass through the references.
        free: 1 where a form chooses the slope of the lower line.
        drop: `-above` there.
        before: The references of the pre-activations there.
        fall: The heights of lower lines at pre-activations of 0 there, less the references of the activation's values.
    """

    above: Tensor
    free: Tensor
    drop: Tensor
    before: Tensor
    fall: Tensor

    @classmethod
    def of(cls, form: LinearForms, unstable: Tensor | None, above: Tensor, before: Tensor, fall: Tensor) -> DualLines:
        """The lines where the coefficients of forms are, from maps, (batch, size) each; unstable: None for all."""
        free = torch.ones_like(above) if unstable is None else unstable.to(above.dtype)
        where_free = (
            vector if unstable is None else torch.where(unstable, vector, 0) for vector in (-above, before, fall)
        )
        return cls(*(form.spread(vector) for vector in (above, free, *where_free)))

    def split(self, signs: Tensor) -> DualLines:
        """The lines where forms rely on signs of pre-activations, 1, -1 or 0 for none, laid out like the coefficients:
        a neuron of known sign is stable."""
        unknown = signs == 0
        others = (torch.where(unknown, table, 0) for table in self[1:])
        return DualLines(torch.where(unknown, self.above, (signs > 0).to(self.above.dtype)), *others)


def pull_through(numbers: Tensor, slopes: Tensor, lines: DualLines, rounded: Rounded) -> tuple[Tensor, Tensor]:
    """Coefficients on the pre-activations, and what the forms gain at the reference, (batch, forms).

    Args:
        numbers: The coefficients of forms on the values of the activation, (batch or 1, forms, ...).
        slopes: Of lower lines, laid out like the coefficients.
        rounded: What makes sound slopes of these, which the gradient takes for the identity; None: they are sound.
    """
    pulled, gain = _PullThrough.apply(numbers, slopes, lines, rounded)  # type: ignore[no-untyped-call]
    return pulled, gain


class _PullThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, numbers: Tensor, slopes: Tensor, lines: DualLines, rounded: Rounded) -> tuple[Tensor, Tensor]:
        slopes = slopes if rounded is None else rounded(slopes)
        positive = numbers.clamp(min=0)
        change = torch.addcmul(lines.drop, slopes, lines.free)
        heights = torch.addcmul(lines.fall, slopes, lines.before)
        ctx.save_for_backward(numbers, positive, change, heights)
        ctx.lines = lines
        pulled = torch.addcmul(numbers * lines.above, positive, change)
        return pulled, (positive * heights).sum(tuple(range(2, heights.ndim)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        numbers, positive, change, heights = ctx.saved_tensors
        by_coefficient, by_gain = gradients
        by_gain = by_gain.reshape(*by_gain.shape, *[1] * (by_coefficient.ndim - 2))
        of_numbers = of_slopes = None
        if ctx.needs_input_grad[0]:
            of_positive = (by_coefficient * change).addcmul_(heights, by_gain)
            passed = torch.ops.aten.threshold_backward(of_positive, numbers.expand_as(of_positive), 0)
            of_numbers = torch.addcmul(passed, by_coefficient, ctx.lines.above).sum_to_size(numbers.shape)
        if ctx.needs_input_grad[1]:
            of_slopes = (by_coefficient * ctx.lines.free).addcmul_(ctx.lines.before, by_gain).mul_(positive)
        return of_numbers, of_slopes, None, None
