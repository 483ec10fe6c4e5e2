"""Batched dual ascent on lower bounds, as in alpha- and beta-CROWN, in float32.

The variables are the slopes (alpha) of unstable neurons and the multipliers (beta) of split ones. A bound is one
back-substitution through the stages. Its gradient is one forward pass of the relaxed network from the point of the
region where the pulled-back form is least: with the coefficient g of a neuron's activation, the slope of its lower line
gains g+ z, the multiplier of its sign -z or z.

It does not use the shared driver (bounding/ascent): its gradient takes no autograd, its steps are in place, and nodes
that are proven leave it.
"""

from __future__ import annotations

import math
import time
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import FLOAT
from relucert.bounding.adam import MEANS
from relucert.branch_and_bound.products import TINY, PreparedStage
from relucert.branch_and_bound.stages import Maps, Stages
from relucert.common.deadline import check_time
from relucert.network import Rows

SLOPE_RATE, MULTIPLIER_RATE, DECAY = 0.15, 1.0, 0.95  # tuned on oval21 and mnist-5x256
INTERCEPT_WEIGHT = 0.2  # in the choice of the neuron to split
ROUNDING = 2.0**-22  # of the sizes of a row's terms: about what float32 loses
# Share of the nodes that the last quarter of the steps has to prove for an ascent to go on past its half: tuned on the
# same. A step that proves less costs more than splitting what it would prove. Fewer nodes than 1 / USEFUL do not tell.
USEFUL = 0.02
STAYING = 0.7  # the share of nodes below which those that are done leave an ascent


class Nodes(NamedTuple):
    """Nodes of the search trees: rows to be bounded over subdomains, which the signs of split neurons define.

    Attributes:
        rows: Which row each is about, (count,).
        signs: 1, -1 or, where it is not split, 0, of every neuron unstable at the root: (count, unstable), int8.
        duals: The slopes of neurons that are not split, the multipliers of split ones: (count, unstable).
    """

    rows: Tensor
    signs: Tensor
    duals: Tensor

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.rows)

    @property
    def bytes(self) -> int:
        """The memory that they take."""
        return sum(table.nbytes for table in self)

    def pick(self, indices: Tensor | slice) -> Nodes:
        return Nodes(self.rows[indices], self.signs[indices], self.duals[indices])

    def split(self, neurons: Tensor) -> Nodes:
        """Splits each node by the sign of one neuron, (count,): all nodes with the sign 1, then all with -1.

        The multipliers of the new signs are 0.
        """
        duals = self.duals.scatter(1, neurons[:, None], 0.0)
        halves = [
            Nodes(self.rows, self.signs.scatter(1, neurons[:, None], sign), duals) for sign in (1, -1)
        ]  # fmt: skip
        return join(halves)


def join(batches: list[Nodes]) -> Nodes:
    return Nodes(*(torch.cat(columns) for columns in zip(*batches, strict=True)))


@dataclass(frozen=True, eq=False)
class AscentResult:
    """Result of a dual ascent.

    Attributes:
        lower: The highest bounds, as computed, (count,).
        nodes: The nodes with the slopes and multipliers of these bounds.
        scores: The branching score of each neuron, how much it matters to the bound: (count, unstable); 0 where it is
            split.
        points: Where the relaxed rows are least, (count, inputs).
    """

    lower: Tensor
    nodes: Nodes
    scores: Tensor
    points: Tensor

    def pick(self, indices: Tensor | slice) -> AscentResult:
        return AscentResult(self.lower[indices], self.nodes.pick(indices), self.scores[indices], self.points[indices])

    def replaced(self, indices: Tensor, others: AscentResult) -> AscentResult:
        """The result with that of other ascents for some of the nodes, (count,)."""
        duals = self.nodes.duals.index_copy(0, indices, others.nodes.duals)
        return AscentResult(
            self.lower.index_copy(0, indices, others.lower),
            self.nodes._replace(duals=duals),
            self.scores.index_copy(0, indices, others.scores),
            self.points.index_copy(0, indices, others.points),
        )


class DualAscent:
    """Bounds rows, functions of some of the stages, over the subdomains of nodes."""

    def __init__(self, stages: Stages, rows: Maps) -> None:
        self.stages = list(stages.stages)
        self.rows, self.unstable_count = rows, sum(stage.unstable_count for stage in self.stages)
        self.corners = _Corners(stages.region.cast(torch.float32))
        self.lower, self.upper = (
            torch.cat([getattr(stage, name) for stage in self.stages] or [torch.zeros(0)])
            for name in ("lower", "upper")
        )
        width = self.upper - self.lower
        self.chord = torch.where(width > 0, self.upper / width, 0)
        self.rise = -self.chord * self.lower
        for stage in self.stages[len(stages.prepared) :]:
            stages.prepared.append(PreparedStage(stage, self._scaled(stage.maps.entrance)))
        self.prepared = stages.prepared[: len(self.stages)]
        self.matrices = [prepared.matrix for prepared in self.prepared]
        self.row_matrix = self._scaled(rows.entrance)
        self.rounding = ROUNDING * self._sizes()
        self.influence = torch.cat([prepared.influence for prepared in self.prepared] or [torch.zeros(0)])

    def _scaled(self, entrance: Tensor | None) -> Tensor | None:
        return None if entrance is None else entrance * self.corners.scale

    def _sizes(self) -> Tensor:
        """About how large the terms of each row are together, (rows,)."""
        sizes = self.rows.bias.abs()
        if self.row_matrix is not None:
            sizes = sizes + self.row_matrix.abs().sum(1)
        for number, weight in self.rows.weights.items():
            stage = self.stages[number]
            sizes = sizes + weight[:, : stage.unstable_count].abs() @ stage.upper
        return sizes

    def roots(self) -> Nodes:
        """The root node of every row, which is the whole region, with CROWN's slopes."""
        count = len(self.rows.bias)
        slopes = (self.upper > -self.lower).float()
        signs = torch.zeros(count, self.unstable_count, dtype=torch.int8)
        return Nodes(torch.arange(count), signs, slopes.repeat(count, 1))

    def run(
        self, nodes: Nodes, steps: int, ends: float, rate: float = SLOPE_RATE, enough: float = torch.inf
    ) -> AscentResult:
        """Ascends for at most `steps` steps; ends early once time is over.

        Nodes whose bounds are above `enough` leave the ascent on the way, with scores of zero and the reference as
        their points; once half of the steps are made, it ends where hardly any of many nodes do.
        """
        count = len(nodes.rows)
        lower, duals, scores = torch.empty(count), torch.empty_like(nodes.duals), torch.zeros_like(nodes.duals)
        points = self.corners.reference.repeat(count, 1)
        ascending, state = torch.arange(count), _AscentState(self, nodes, rate)

        def leave() -> None:
            lower[ascending] = state.highest
            duals.index_copy_(0, ascending, state.best.T.contiguous())

        remaining: list[int] = []
        for step in range(steps + 1):
            state.pull()
            state.keep_best()
            staying = (~(state.highest > enough)).nonzero().flatten()
            remaining.append(len(staying))
            halted = enough < torch.inf and 2 * step >= steps and _is_idle(remaining, steps // 4)
            if step == steps or halted or not len(staying) or time.monotonic() > ends:
                break
            if len(staying) < STAYING * len(ascending):
                leave()
                ascending, state = ascending[staying], state.pick(staying)
            state.ascend(step)
        leave()
        if len(staying):
            last = state.pick(staying) if len(staying) < len(ascending) else state
            last.return_to_best()
            scores.index_copy_(0, ascending[staying], last.scores().T.contiguous())
            points.index_copy_(0, ascending[staying], self.corners.point(last.corner.T.contiguous()))
        return AscentResult(lower, nodes._replace(duals=duals), scores, points)


def _is_idle(remaining: list[int], steps: int) -> bool:
    """Whether the last steps proved too few of many nodes, by how many remained after each step so far."""
    if not steps or remaining[-1] * USEFUL < 1:
        return False
    return remaining[-1 - steps] - remaining[-1] < USEFUL * remaining[-1 - steps]


class _AscentState:
    """The state of the ascent of one batch of nodes: tables (unstable, count), nodes next to each other in memory.

    With the coefficient c of a neuron's activation the line that stands for it is `tilt z + height`: that of the sign
    where it is split, the chord where c is negative, else the lower line with the node's own slope. Masks are numbers,
    1 and 0, in products: these are much faster than `where`.

    Attributes:
        duals: The slopes and multipliers.
        best: Those of the highest bounds so far.
        forms: The coefficients c at the last back-substitution.
        values: The pre-activations of the relaxed network where the form on the input is least.
        bound: Of the last back-substitution, (count,).
        corner: Where the pulled-back forms are least, (inputs, count), in units of the scale.
        highest: The highest bounds so far, (count,).
    """

    def __init__(self, dual_ascent: DualAscent, nodes: Nodes, rate: float) -> None:
        self.dual_ascent, self.rate, rows = dual_ascent, rate, dual_ascent.rows
        self.row_forms = {number: weight[nodes.rows].T.contiguous() for number, weight in rows.weights.items()}
        self.entrance: Tensor | None = None
        if dual_ascent.row_matrix is not None:
            self.entrance = dual_ascent.row_matrix[nodes.rows].T.contiguous()
        self.bias, self.rounding = rows.bias[nodes.rows], dual_ascent.rounding[nodes.rows]
        self.signs = nodes.signs.T.contiguous().float()
        self.duals, self.best = (nodes.duals.T.clone(memory_format=torch.contiguous_format) for _ in range(2))
        self.plus, self.unsplit = self.signs.clamp(min=0), 1 - self.signs.abs()
        self.chord = torch.addcmul(self.plus, self.unsplit, dual_ascent.chord[:, None])
        self.rise = self.unsplit * dual_ascent.rise[:, None]
        self.most = torch.finfo(torch.float32).max * self.signs.abs() + 1
        self.mean, self.square = torch.zeros_like(self.duals), torch.zeros_like(self.duals)
        self.forms, self.values = torch.zeros_like(self.duals), torch.zeros_like(self.duals)
        self.tilt, self.height = torch.zeros_like(self.duals), torch.zeros_like(self.duals)
        self.unit: Tensor | None = None
        self.bound, self.highest = self.bias, torch.full_like(self.bias, -torch.inf)
        self.corner = torch.zeros(len(dual_ascent.corners.scale), len(nodes.rows))

    def pick(self, indices: Tensor) -> _AscentState:
        """The ascent of some of the nodes alone."""
        picked = copy(self)
        picked.row_forms = {number: form.index_select(1, indices) for number, form in self.row_forms.items()}
        for name, numbers in vars(self).items():
            if isinstance(numbers, Tensor):
                setattr(picked, name, numbers.index_select(-1, indices))
        return picked

    def keep_best(self) -> None:
        """Keeps the slopes and multipliers of bounds that are higher than all before."""
        better = self.bound > self.highest
        self.highest = torch.where(better, self.bound, self.highest)
        torch.where(better, self.duals, self.best, out=self.best)

    def return_to_best(self) -> None:
        """Evaluates bounds and relaxed network with the slopes and multipliers of the highest bounds."""
        self.duals = self.best
        self.pull()
        self.relax()

    def pull(self) -> None:
        """Back-substitution: computes the bound, and the corner of the region where the pulled-back form is least."""
        forms = {number: form.clone() for number, form in self.row_forms.items()}
        bound, at_input = self.bias.clone(), None if self.entrance is None else self.entrance.clone()
        torch.addcmul(self.plus, self.duals, self.unsplit, out=self.tilt)
        multipliers = self.duals * self.signs
        for number, stage in reversed(list(enumerate(self.dual_ascent.stages))):
            check_time()
            prepared, part = self.dual_ascent.prepared[number], stage.columns
            form = forms.pop(number, None)
            if form is None:
                form = torch.zeros(len(stage.neurons), len(bound))
            pulled = form[: stage.unstable_count]
            negative = torch.lt(self.forms[part].copy_(pulled), 0, out=self.height[part])
            pulled.mul_(self.tilt[part].lerp_(self.chord[part], negative)).sub_(multipliers[part])
            bound.addmv_(form.T, prepared.bias)
            for earlier, product in prepared.weights.items():
                forms[earlier] = product.add_pulled(forms.get(earlier), form)
            if prepared.entrance is not None:
                at_input = prepared.entrance.add_pulled(at_input, form)
        bound += (self.height.mul_(self.rise) * self.forms).sum(0)
        fall, self.corner = self.dual_ascent.corners.least(
            torch.zeros_like(self.corner) if at_input is None else at_input
        )
        self.bound = bound - fall - self.rounding  # so that what rounding makes of 0 is not positive

    def relax(self) -> None:
        """Evaluates the relaxed network where the form is least."""
        activations: list[Tensor] = []
        for prepared, stage in zip(self.dual_ascent.prepared, self.dual_ascent.stages, strict=True):
            check_time()
            values, part = prepared.values(self.corner, activations), stage.columns
            relaxed = values[: stage.unstable_count]
            self.values[part] = relaxed
            relaxed.mul_(self.tilt[part]).add_(self.height[part])
            activations.append(values)

    def gradient(self) -> Tensor:
        """The gradient of the bound in the slopes and multipliers."""
        return self.forms.clamp(min=0).mul_(self.unsplit).sub_(self.signs).mul_(self.values)

    def ascend(self, step: int) -> None:
        """One step of Adam from where slopes and multipliers were pulled, along the gradient of the bound."""
        self.relax()
        if self.unit is None:
            self.unit = self.unsplit * self.rate
            for stage in self.dual_ascent.stages:  # multipliers count in units of their stage's coefficients
                size = self.forms[stage.columns].abs().mean(0).nan_to_num(0) * MULTIPLIER_RATE
                self.unit[stage.columns].addcmul_(self.signs[stage.columns].abs(), size)
        gradient = self.gradient()
        self.mean.lerp_(gradient, 1 - MEANS[0])
        self.square.mul_(MEANS[1]).addcmul_(gradient, gradient, value=1 - MEANS[1])
        length = math.sqrt(1 - MEANS[1] ** (step + 1)) / (1 - MEANS[0] ** (step + 1)) * DECAY**step
        self.duals.addcmul_(
            torch.mul(self.mean, self.unit, out=gradient), (self.square + TINY**2).rsqrt_(), value=length
        )
        torch.minimum(self.duals.clamp_(min=0), self.most, out=self.duals)

    def scores(self) -> Tensor:
        """Branching scores: by how much each relaxed activation is wrong at the minimiser of the bound, times its
        coefficient, and a share of the most that its upper line may lose (the intercept score of BaBSR)."""
        relaxed = torch.addcmul(self.height, self.values, self.tilt)
        excess = torch.minimum(relaxed, relaxed - self.values).clamp_(min=0)
        score = self.forms.clamp(max=0).neg_() * (excess + INTERCEPT_WEIGHT * self.rise)
        missed = self.forms.clamp(min=0) * (self.values.clamp(min=0) - relaxed).clamp_(min=0)
        return (score + missed + TINY) * self.unsplit * self.dual_ascent.influence[:, None]


class _Corners:
    """Concretises linear forms on the input's deviation over one region, in float32.

    Forms, and the points where they are least, are in units of the scale.
    """

    def __init__(self, region: Region) -> None:
        self.region, self.reference = region, region.reference[0]
        self.is_box = region.norm.body == "box"
        self.scale = region.spans(FLOAT).largest[0] if self.is_box else torch.ones_like(self.reference)

    def least(self, forms: Tensor) -> tuple[Tensor, Tensor]:
        """How far forms (inputs, count), which are overwritten, fall, (count,), and where, (inputs, count)."""
        if self.is_box:
            corner = forms.sign().neg_()
            return forms.abs_().sum(0), corner
        with torch.inference_mode(False), torch.enable_grad():
            leaf = forms.T.clone().requires_grad_()
            region = self.region.clone()
            fall = region.deviation(Rows(leaf[None], self.reference.shape), FLOAT, two_sided=False).below[0]
            (gradient,) = torch.autograd.grad(fall.sum(), leaf)
        return fall.detach(), -gradient.T

    def lowered(self, corner: Tensor, forms: Tensor, share: float) -> Tensor:
        """Points (inputs, count), moved in the region by a share of its width to where forms are lower."""
        least = self.least(forms)[1]
        if self.is_box:
            return torch.add(corner, least, alpha=2 * share).clamp_(-1, 1)
        return torch.lerp(corner, least, share)

    def point(self, corner: Tensor) -> Tensor:
        return self.reference + corner * self.scale

    def units(self, points: Tensor) -> Tensor:
        """Deviations of points (count, inputs) from the reference, in units of the scale."""
        return torch.where(self.scale > 0, (points - self.reference) / self.scale, 0)
