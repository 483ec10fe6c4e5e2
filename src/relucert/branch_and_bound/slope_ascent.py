"""Optimised slopes for rows over boxes, as in alpha-CROWN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS
from relucert.bounding.ascent import BestBounds, Effort, Slopes, ascend
from relucert.bounding.backward import DualVariables, PulledBack, bound_forms
from relucert.bounding.interval import Bounds, Interval, copied, select
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.network import Network, Relu

EFFORT = Effort(6, rate=0.25, decay=0.8, least=0, signed=True)  # of the slopes' ascent


@dataclass(frozen=True, eq=False)
class BoxRowPairs:
    """Pairs of a box and a row that is open in it, (pairs,) each; every pair is a batch member of region and bounds."""

    boxes: Tensor
    rows: Tensor
    region: Region
    bounds: Bounds

    @classmethod
    def of(cls, open_rows: Tensor, region: Region, bounds: Bounds) -> BoxRowPairs:
        boxes, rows = open_rows.nonzero().unbind(1)
        return cls(boxes, rows, region.select(boxes), select(bounds, boxes))


class SlopeAscent:
    """Optimises lower slopes of ReLUs for pairs, as alpha-CROWN does, by signed-gradient steps; the best are kept.

    Other activations keep the lines of CROWN.

    Attributes:
        highest: The best bounds so far, as computed, (pairs,).
        slopes: Their slopes, by the value of a ReLU, (pairs, 1, size).
        coefficients: The forms on the values of ReLUs with the first slopes, (pairs, 1, size).
        input_coefficients: The absolute coefficients of the forms on the input, (pairs, inputs).
        minimisers: Points where such forms are least, (pairs, inputs).
    """

    def __init__(self, network: Network, prop: Property, pairs: BoxRowPairs) -> None:
        self.network, self.pairs = network, pairs
        self.coefficients: dict[int, Tensor] = {}
        self.rows, self.offsets = prop.rows[0, pairs.rows][:, None], prop.offsets[0, pairs.rows][:, None]
        needed = network.ancestors((network.output,))
        sources = {value: network.source(value) for value in network.activations if value in needed}
        self.relus = {value: source for value, source in sources.items() if network.activations[value].rectifier}
        self.others = {value: source for value, source in sources.items() if value not in self.relus}

    def run(self) -> None:
        pairs, output = self.pairs, self.network.output
        with torch.inference_mode(False), torch.enable_grad():
            bounds, rows, offsets = copied(pairs.bounds), self.rows.clone(), self.offsets.clone()
            path = ReferencePath(self.network, pairs.region.clone(), bounds, CROWN, DOUBLE, upper=True)
            slopes = {
                value: CROWN(Relu(), bounds[source], DOUBLE).slope_below[:, None]
                for value, source in self.relus.items()
            }

            def bound(tried: Slopes) -> Tensor:
                pulled = bound_forms(path, output, rows, duals=DualVariables(tried), offsets=offsets)
                if not self.coefficients:
                    self._note(pulled)
                return pulled.lower

            best = ascend(bound, BestBounds.unknown(slopes, (len(pairs.rows), 1)), (), EFFORT)
        self.highest, self.slopes = best.lower.squeeze(1), best.slopes

    def _note(self, pulled: PulledBack) -> None:
        """Keeps the forms of the first bound, which is `form @ centre - |form| @ half` and a constant."""
        region, form = self.pairs.region, pulled.on_input(self.network)[:, 0].detach()
        self.coefficients = {value: form.rows().detach() for value, form in pulled.forms.items()}
        self.input_coefficients = form.abs()
        assert region.scale is not None
        self.minimisers = region.centre - region.scale * form.sign()

    def proven(self) -> Tensor:
        """The numbers of the pairs that are proven with the best slopes, rounding included: (count,)."""
        promising = (self.highest > 0).nonzero().flatten()
        if not len(promising):
            return promising
        region, bounds = self.pairs.region.select(promising), select(self.pairs.bounds, promising)
        duals = DualVariables({value: table[promising] for value, table in self.slopes.items()})
        path = ReferencePath(self.network, region, bounds, CROWN, RIGOROUS, upper=True)
        rows, offsets = self.rows[promising], self.offsets[promising]
        lower = bound_forms(path, self.network.output, rows, duals=duals, offsets=offsets).lower.squeeze(1)
        return promising[lower > 0]

    def gap_weights(self, indices: Tensor) -> dict[int, Tensor]:
        """The share of the relaxation of each neuron in the gaps of some pairs: (count, size) by pre-activation."""
        weights: dict[int, Tensor] = {}
        for value, source in self.relus.items():
            if value not in self.coefficients:
                continue
            lower, upper = (bound[indices] for bound in self.pairs.bounds[source])
            unstable = Interval(lower, upper).unstable
            forms = self.coefficients[value][:, 0].expand(len(self.highest), -1)[indices]
            slopes = CROWN(Relu(), Interval(lower, upper), DOUBLE).slope_below
            below = torch.maximum((1 - slopes) * upper, -slopes * lower)
            above = -lower * upper / torch.where(unstable, upper - lower, 1)
            gap = forms.clamp(min=0) * below - forms.clamp(max=0) * above
            weights[source] = weights.get(source, 0) + torch.where(unstable, gap, 0)
        for value, source in self.others.items():
            if value in self.coefficients:
                interval = self.pairs.bounds[source].select(indices)
                lines, middle = CROWN(self.network.activations[value], interval, DOUBLE), sum(interval) / 2
                apart = lines.high + (lines.slope_above - lines.slope_below) * middle
                apart = apart if lines.low is None else apart - lines.low
                forms = self.coefficients[value][:, 0].expand(len(self.highest), -1)[indices]
                weights[source] = weights.get(source, 0) + forms.abs() * apart
        return weights
