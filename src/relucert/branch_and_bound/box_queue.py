"""Input splitting of many boxes in one queue: parts of all boxes that are still open are bounded in the same batches.

Each box has a question of its own: whether some row of its property is positive at every point. Boxes that let the same
inputs move share the part of the network that moves (`bounding/moving_part.py`). A part of a box is closed where one
row is proven positive, else it is cut in two. A box that takes too many parts is left to a prover of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.box import Box
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.backward import PulledBack, bound_forms
from relucert.bounding.boxes import MOST_CUT_INPUTS, PULLED_FROM, boxes_of_lines, line_bounds
from relucert.bounding.fixed_factors import with_factors
from relucert.bounding.interval import Interval
from relucert.bounding.moving_part import MovingPart, moving_part
from relucert.branch_and_bound.box_tree import STAGE
from relucert.branch_and_bound.boxes import LEAST_WIDTH, WIDTH_WEIGHT, normalised
from relucert.branch_and_bound.pool import Pool, join
from relucert.common.deadline import check_time
from relucert.common.progress import Progress, Report, silent
from relucert.network import Network

FEW_PARTS = 64  # of a box, from which on unstable neurons are pulled back
MOST_PARTS = 2**14  # of a box


class BoxParts(NamedTuple):
    """Parts of boxes.

    Attributes:
        boxes: The number of the box that each is a part of, (count,).
        low, high: The ends of its moving inputs, (count, moving).
    """

    boxes: Tensor
    low: Tensor
    high: Tensor

    @property
    def size(self) -> int:
        """The number of parts."""
        return len(self.boxes)

    @property
    def centres(self) -> Tensor:
        return self.low + (self.high - self.low) / 2

    def pick(self, indices: Tensor | slice) -> BoxParts:
        return BoxParts(*(table[indices] for table in self))

    def cut(self, inputs: Tensor) -> BoxParts:
        """Bisects each at one moving input, (count,)."""
        chosen = torch.nn.functional.one_hot(inputs, self.low.shape[1]).bool()
        lower = self._replace(high=torch.where(chosen, self.centres, self.high))
        return join([lower, self._replace(low=torch.where(chosen, self.centres, self.low))])


@dataclass(eq=False)
class BoxQueue:
    """Proves of many boxes that some row of each one's property is positive at every point of the box.

    Attributes:
        network: In float64, as a function of real numbers.
        boxes: Their ends, (count, inputs) each.
        prop: One batch member per box.
        violates: Checks a point (inputs,) of a box, by its number, where no row is positive; True ends the search.
        report: Called now and then with how far the search is.
        suited: The numbers of the boxes that were put into the queue.
        proven: The numbers of those that are proven.
        violated: Whether a violation ended the search.
        nodes: How many parts were bounded.
    """

    network: Network
    boxes: Box
    prop: Property
    violates: Callable[[int, Tensor], bool]
    report: Report = silent

    def __post_init__(self) -> None:
        self.suited: set[int] = set()
        self.proven: list[int] = []
        self.violated = False
        self.nodes = 0

    def run(self) -> None:
        """Searches until every box that suits is proven or left; raises TimeUp when time is over."""
        if self.network.inference.rounds:
            return
        kinds, which = torch.unique(self.boxes.moving, dim=0, return_inverse=True)
        for kind, moving in enumerate(kinds):
            members = (which == kind).nonzero().flatten()
            if not self.violated and 0 < int(moving.sum()) <= MOST_CUT_INPUTS:
                self._search(members, moving)

    def _search(self, members: Tensor, moving: Tensor) -> None:
        """Searches boxes, by their numbers, that let the same inputs move."""
        boxes = Box(self.boxes.low[members], self.boxes.high[members])
        whole = moving_part(self.network, boxes, moving)
        for part, some in () if whole is None else with_factors(whole, boxes):
            numbers = members[some]
            self.suited.update(numbers.tolist())
            search = _Search(self, part, numbers)
            while search.waiting.size:
                check_time()
                self.report(Progress(stage=STAGE, nodes=self.nodes, open=search.waiting.size))
                search.step()
                if self.violated:
                    return


class _Search:
    """The queue of boxes that let the same inputs move, by their numbers, (boxes,)."""

    def __init__(self, queue: BoxQueue, part: MovingPart, members: Tensor) -> None:
        self.queue, self.part, self.members = queue, part, members
        self.prop, self.count = queue.prop.select(members), len(part.inputs)
        low, high = (ends[members][:, part.inputs] for ends in (queue.boxes.low, queue.boxes.high))
        self.widths = high - low
        self.waiting = Pool(BoxParts(torch.arange(len(members)), low, high))
        self.open_parts = torch.ones(len(members), dtype=torch.long)
        self.spent = torch.zeros_like(self.open_parts)  # parts that were bounded
        self.left = torch.zeros(len(members), dtype=torch.bool)  # boxes that are not pursued any further
        self.batch_size = boxes_of_lines(part.network, self.count)
        depths = [part.network.activation_depths[value] for value in part.network.preactivations]
        self.pulls = part.network.rectifiers_only and max(depths, default=0) >= PULLED_FROM

    def step(self) -> None:
        """Bounds the newest parts; those that stay open are cut and put back."""
        parts = self.waiting.take(self.batch_size)
        parts = parts.pick(~self.left[parts.boxes])
        if not parts.size:
            return
        self.queue.nodes += parts.size
        self.spent.index_add_(0, parts.boxes, torch.ones_like(parts.boxes))
        pulled, scores = self._bounded(parts, False)
        closed = (pulled.lower > 0).any(1)
        hard = (~closed & (self.spent[parts.boxes] > FEW_PARTS)).nonzero().flatten()
        if len(hard) and self.pulls:
            closed[hard] = (self._bounded(parts.pick(hard), True)[0].lower > 0).any(1)
        self.open_parts.index_add_(0, parts.boxes, torch.where(closed, -1, 1))
        done = parts.boxes.unique()
        done = done[(self.open_parts[done] == 0) & ~self.left[done]]
        self.queue.proven += self.members[done].tolist()
        remaining = (~closed).nonzero().flatten()
        if not len(remaining):
            return
        form = pulled.on_input(self.part.network).expand(parts.size, -1, -1)
        best = pulled.lower.argmax(1)
        falling = form[torch.arange(parts.size), best, : self.count] > 0
        self._examine(parts.pick(remaining), torch.where(falling, parts.low, parts.high)[remaining])
        self._put_back(parts.pick(remaining), scores[remaining])

    def _bounded(self, parts: BoxParts, pulled: bool) -> tuple[PulledBack, Tensor]:
        """Lower bounds of the rows, and how much each moving input has to do with them: (count, moving)."""
        network, fixed = self.part.network, self.part.fixed.select(parts.boxes)
        region = Region.boxes(torch.cat([parts.low, fixed.lower], 1), torch.cat([parts.high, fixed.upper], 1))
        hidden = line_bounds(network, region, RIGOROUS, moving=torch.arange(self.count), pulled=pulled)
        prop = self.prop.select(parts.boxes)
        rows = bound_forms(hidden.path, network.output, prop.rows, offsets=prop.offsets)
        weights = prop.rows[torch.arange(parts.size), rows.lower.argmax(1)].abs()
        shares = (hidden.shares(network.output) @ weights[..., None]).squeeze(-1)
        widths = (parts.high - parts.low) / self.widths[parts.boxes]
        return rows, normalised(shares) + WIDTH_WEIGHT * normalised(widths)

    def _examine(self, parts: BoxParts, lowest: Tensor) -> None:
        """Hands on the point at which the best row is least, as computed, if none is positive there.

        The points are the centres of parts and those where bounds are lowest, (count, moving).
        """
        boxes, points = parts.boxes.repeat(2), torch.cat([parts.centres, lowest])
        fixed: Interval = self.part.fixed.select(boxes)
        outputs = self.part.network(torch.cat([points, (fixed.lower + fixed.upper) / 2], 1))
        margins = self.prop.select(boxes).values(outputs).amax(1).nan_to_num(torch.inf)
        least = int(margins.argmin())
        if float(margins[least]) > 0:
            return
        number = int(self.members[boxes[least]])
        point = self.queue.boxes.low[number] + (self.queue.boxes.high[number] - self.queue.boxes.low[number]) / 2
        point[self.part.inputs] = points[least]
        self.queue.violated = self.queue.violates(number, point)
        self.left[boxes[least]] = True

    def _put_back(self, parts: BoxParts, scores: Tensor) -> None:
        """Cuts parts, but those of boxes that took too many, or that can't be cut any further."""
        small = (parts.high - parts.low <= LEAST_WIDTH * self.widths[parts.boxes]).all(1)
        self.left[parts.boxes[small | (self.spent[parts.boxes] >= MOST_PARTS)]] = True
        pursued = (~self.left[parts.boxes]).nonzero().flatten()
        if len(pursued):
            self.waiting.add(parts.pick(pursued).cut(scores[pursued].argmax(1)))
