"""Branch and bound by input splitting, for few inputs: a box in which a row is not proven is cut in two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.region import SET_BACK, Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.backward import bound_forms
from relucert.bounding.boxes import BoxBounds, box_bounds, boxes_at_once
from relucert.bounding.pairs import pair_bounds
from relucert.branch_and_bound.cut_record import CutTree
from relucert.branch_and_bound.pool import join
from relucert.branch_and_bound.slope_ascent import BoxRowPairs, SlopeAscent
from relucert.branch_and_bound.subtrees import Ended, Visitor, try_points
from relucert.network.twins import paired_activations

FEW = 16  # boxes that are cut more than once at a time
CUTS = 2
LEAST_WIDTH = 2.0**-40  # of a box, as a share of the whole region's
WIDTH_WEIGHT = 0.3  # of an input's share of the width, beside its share of the gap
ROUNDINGS = 260  # of a distance, beside one for each input
LEAST_DISTANCE = 2.0**-500
TOO_SMALL = "a box that is too small to be cut could not be proven"


class Boxes(NamedTuple):
    """Subdomains of the region that are boxes.

    Attributes:
        low, high: The ends of the boxes, (count, size).
        open: Which rows of the property are not yet proven there, (count, rows).
        names: The numbers by which the record of the search knows them, (count,).
    """

    low: Tensor
    high: Tensor
    open: Tensor
    names: Tensor

    @property
    def size(self) -> int:
        """The number of boxes."""
        return len(self.low)

    def pick(self, indices: Tensor | slice) -> Boxes:
        return Boxes(*(table[indices] for table in self))

    def cut(self, inputs: Tensor, record: CutTree | None) -> Boxes:
        """Bisects each box at one input, (count,): all lower halves, then all upper ones."""
        boxes = torch.arange(self.size)
        middle = self.low[boxes, inputs] + (self.high[boxes, inputs] - self.low[boxes, inputs]) / 2
        low, high = self.low.clone(), self.high.clone()
        high[boxes, inputs] = middle
        low[boxes, inputs] = middle
        halves = join([self._replace(high=high), self._replace(low=low)])
        return halves if record is None else halves._replace(names=record.cut(self.names, inputs, middle))


@dataclass(eq=False)
class BoxVisitor(Visitor[Boxes]):
    """Bounds boxes, and cuts those in which a row is not proven.

    Attributes:
        record: Keeps what a proof needs, where a proof is to be written.
    """

    record: CutTree | None = None

    def __post_init__(self) -> None:
        self.network, self.prop = self.problem.exact, self.problem.prop
        self.box = surrounding(self.problem.region)
        self.paired = paired_activations(self.network) if self.record is None else ()  # which proof files do not hold
        self.widths = torch.where(self.box.moving, self.box.high - self.box.low, 0)

    @cached_property
    def batch_size(self) -> int:
        return boxes_at_once(self.network, int(self.box.moving.sum()))

    def root(self) -> Boxes:
        """The whole region."""
        rows = torch.ones(1, self.prop.rows.shape[1], dtype=torch.bool)
        return Boxes(self.box.low[None], self.box.high[None], rows, torch.zeros(1, dtype=torch.long))

    def recorded(self) -> CutTree | None:
        return self.record

    def merge_record(self, boxes: Boxes, recorded: CutTree | None) -> Boxes:
        if self.record is None or recorded is None:
            return boxes
        return boxes._replace(names=self.record.merge_record(recorded, boxes.names))

    def visit(self, boxes: Boxes) -> Boxes:
        """Bounds boxes; returns those that are still open, cut in two."""
        self.nodes += boxes.size
        halves = self._within(self._visit(boxes))
        if bool(((halves.high - halves.low <= LEAST_WIDTH * self.widths) | (self.widths == 0)).all(1).any()):
            raise Ended(TOO_SMALL)
        return halves

    def _visit(self, boxes: Boxes) -> Boxes:
        region = Region.boxes(boxes.low, boxes.high)
        hidden, lower = self._bounded(region)
        closed = boxes.open & (lower > 0)
        pairs = closed.nonzero()
        if self.record is not None and len(pairs):
            kept = self.record.close(region.select(pairs[:, 0]), boxes.names[pairs[:, 0]], pairs[:, 1], None)
            closed[tuple(pairs[~kept].T)] = False
        boxes = boxes._replace(open=boxes.open & ~closed)
        left = boxes.open.any(1).nonzero().flatten()
        if not len(left):
            return boxes.pick(left)
        open_pairs = BoxRowPairs.of(boxes.open, region, hidden.path.bounds)
        ascent = SlopeAscent(self.network, self.prop, open_pairs)
        ascent.run()
        proven = ascent.proven()
        if self.record is not None and len(proven):
            slopes = {value: table[proven] for value, table in ascent.slopes.items()}
            names = boxes.names[open_pairs.boxes[proven]]
            kept = self.record.close(open_pairs.region.select(proven), names, open_pairs.rows[proven], slopes)
            proven = proven[kept]
        boxes.open[open_pairs.boxes[proven], open_pairs.rows[proven]] = False
        left = boxes.open.any(1).nonzero().flatten()
        if not len(left):
            return boxes.pick(left)
        worst = _worst(ascent.highest, open_pairs, boxes.size)[left]
        scores, boxes = self._scores(region, hidden, ascent, worst, left), boxes.pick(left)
        self._offer(boxes, ascent.minimisers[worst])
        for _ in range(CUTS if len(left) <= FEW else 1):
            inputs = scores.argmax(1, keepdim=True)
            boxes = boxes.cut(inputs.flatten(), self.record)
            scores = scores.scatter(1, inputs, scores.gather(1, inputs) / 2).repeat(2, 1)
        return boxes

    def _bounded(self, region: Region) -> tuple[BoxBounds, Tensor]:
        """Bounds of all neurons over boxes, and lower bounds of the property's rows: (count, rows)."""
        offsets = self.prop.offsets.expand(len(region.radius), -1)
        pairs = pair_bounds(self.network, region, self.paired, RIGOROUS) if self.paired else None
        hidden = box_bounds(self.network, region, RIGOROUS) if pairs is None else pairs.boxes
        lower = bound_forms(hidden.path, self.network.output, self.prop.rows, offsets=offsets).lower
        if pairs is None:
            return hidden, lower
        by_pairs = pairs.lower(self.prop.rows, offsets)
        if not bool((by_pairs > lower).any()):  # the halves of layers are no two networks, but look like some
            self.paired = ()
        return hidden, torch.fmax(lower, by_pairs)

    def _within(self, boxes: Boxes) -> Boxes:
        """The boxes that may have points of the region: all of them where the region is a box itself."""
        region = self.problem.region
        if region.norm.body == "box" or not boxes.size:
            return boxes
        far = self._distances(torch.clamp(region.centre, boxes.low, boxes.high))
        limit = RIGOROUS.above(region.radius, boxes.low.shape[1] + ROUNDINGS) + LEAST_DISTANCE
        return boxes.pick((~(far > limit)).nonzero().flatten())

    def _distances(self, points: Tensor) -> Tensor:
        """How far points (count, size) are from the centre, in radii's units, as computed: (count,)."""
        region = self.problem.region
        offsets = points - region.centre
        if region.scale is not None:  # what does not move is at its centre in every box
            offsets = offsets / torch.where(region.scale > 0, region.scale, torch.inf)
        return region.norm.distance(offsets, torch.zeros_like(offsets))

    def _inside(self, points: Tensor) -> Tensor:
        """Points (count, size) of boxes, moved towards the centre until they are in the region."""
        region = self.problem.region
        if region.norm.body == "box":
            return points
        share = (SET_BACK * region.radius / self._distances(points).clamp(min=LEAST_DISTANCE)).clamp(max=1)
        return region.centre + share[:, None] * (points - region.centre)

    def _offer(self, boxes: Boxes, minimisers: Tensor) -> None:
        """Tries the boxes' centres, and the points where bounds are lowest, as counterexamples."""
        points = torch.cat([minimisers, (boxes.low + boxes.high) / 2])
        try_points(self.problem, self._inside(points), self.violates)

    def _scores(self, region: Region, hidden: BoxBounds, ascent: SlopeAscent, worst: Tensor, left: Tensor) -> Tensor:
        """How much of the bound's gap is due to every input, in the boxes that are left, (count, size)."""
        gaps = ascent.input_coefficients[worst] * region.spans(RIGOROUS).largest[left]
        for source, weights in ascent.gap_weights(worst).items():
            shares = hidden.shares(source)[left]
            gaps.index_add_(1, hidden.moving, (shares @ weights[..., None]).squeeze(-1))
        widths = region.spans(RIGOROUS).largest[left] / torch.where(self.widths > 0, self.widths, 1)
        scores = normalised(gaps) + WIDTH_WEIGHT * normalised(widths)
        return torch.where((widths > 0) & (self.widths > 0), scores, -1)


def surrounding(region: Region) -> Box:
    """The ends of the smallest box around one region, rounded outwards but not beyond the valid inputs."""
    below, above = region.spans(RIGOROUS)
    low, high = RIGOROUS.floor(region.reference - below)[0], RIGOROUS.ceil(region.reference + above)[0]
    if region.box is None:
        return Box(low, high)
    return Box(torch.maximum(low, region.box.low), torch.minimum(high, region.box.high))


def normalised(amounts: Tensor) -> Tensor:
    amounts = amounts.nan_to_num(0)
    return amounts / amounts.sum(1, keepdim=True).clamp(min=torch.finfo(amounts.dtype).tiny)


def _worst(lower: Tensor, pairs: BoxRowPairs, count: int) -> Tensor:
    """For every box the pair with the least bound, (count,)."""
    order = lower.argsort(descending=True)
    worst = torch.zeros(count, dtype=torch.long)
    worst[pairs.boxes[order]] = order
    return worst
