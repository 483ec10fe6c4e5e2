"""Input splitting where outputs are sums of squares or products: zonotopes that keep the squares bound the boxes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.fused import Fused
from relucert.bounding.interval import Interval
from relucert.bounding.quadratic_zonotopes import QuadraticBounds, RowBounds
from relucert.branch_and_bound.boxes import WIDTH_WEIGHT, Boxes, BoxVisitor, normalised


@dataclass(eq=False)
class QuadraticVisitor(BoxVisitor):
    """Bounds boxes by quadratic functions; what a violation implies about the inputs makes boxes smaller before a cut.

    Attributes:
        fused: The network and the property.
    """

    fused: Fused | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.fused is not None
        self.bounds, self.groups = QuadraticBounds(self.fused), self.fused.groups

    def _visit(self, boxes: Boxes) -> Boxes:
        bounds = self.bounds(boxes.low, boxes.high)
        boxes = boxes._replace(open=boxes.open & ~((bounds.lower > 0)[:, None] & self.groups).any(2))
        left = boxes.open.any(1).nonzero().flatten()
        if not len(left):
            return boxes.pick(left)
        boxes, bounds = boxes.pick(left), RowBounds(*(table[left] for table in bounds))
        everything, rows = torch.arange(len(left)), self._rows_to_close(boxes, bounds)
        minimisers = torch.where(bounds.slopes[everything, rows] > 0, boxes.low, boxes.high)
        self._offer(boxes, minimisers)
        widths = boxes.high - boxes.low
        shares = widths / torch.where(self.widths > 0, self.widths, 1)
        scores = normalised(bounds.spreads[everything, rows]) + WIDTH_WEIGHT * normalised(shares)
        boxes = self._clipped(boxes, bounds)
        kept = (~(boxes.low > boxes.high).any(1)).nonzero().flatten()  # in the others nothing is violated
        boxes, scores, widths = boxes.pick(kept), scores[kept], widths[kept]
        scores = scores * (boxes.high - boxes.low) / torch.where(widths > 0, widths, 1)
        return boxes.cut(torch.where((widths > 0) & (self.widths > 0), scores, -1).argmax(1), self.record)

    def _rows_to_close(self, boxes: Boxes, bounds: RowBounds) -> Tensor:
        """In each box the most promising alternative of the least promising row, (boxes,)."""
        promise = bounds.lower / bounds.spreads.sum(2).clamp(min=torch.finfo(torch.float64).tiny)
        of_rows = torch.where(self.groups, promise.nan_to_num(-torch.inf)[:, None], -torch.inf)
        weakest = of_rows.amax(2).masked_fill(~boxes.open, torch.inf).argmin(1)
        return of_rows[torch.arange(len(weakest)), weakest].argmax(1)

    def _clipped(self, boxes: Boxes, bounds: RowBounds) -> Boxes:
        """The parts of boxes where all alternatives of open rows may be violated: `slopes x + floor <= 0` for each.

        Each x is at most as far from the end where its slope is least as it would be with all others at theirs. Where
        that leaves nothing of a box, an upper end lies below the lower one. An end that is no number clips nothing.
        """
        shared, sizes = (self.groups | ~boxes.open[..., None]).all(1), bounds.slopes.abs()
        room = RIGOROUS.ceil(RIGOROUS.above(sizes.sum(2), sizes.shape[2]) - bounds.floor).clamp(min=0)
        reach = RIGOROUS.above(room[..., None] / sizes, 1)
        reach = torch.where(shared[..., None] & (sizes > 0), reach, torch.inf).nan_to_num(torch.inf, torch.inf)
        rising = torch.where(bounds.slopes > 0, reach, torch.inf).amin(1)
        falling = torch.where(bounds.slopes < 0, reach, torch.inf).amin(1)
        half = Interval(boxes.low, boxes.high).half_width
        high = torch.fmin(boxes.high, RIGOROUS.ceil(boxes.low + RIGOROUS.above(half * rising, 1)))
        low = torch.fmax(boxes.low, RIGOROUS.floor(boxes.high - RIGOROUS.above(half * falling, 1)))
        return boxes._replace(low=low, high=high)
