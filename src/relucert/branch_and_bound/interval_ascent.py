"""Batched dual ascent for nodes that split the intervals of neurons: any activation, in float32.

A node tightens the intervals [l, u] of some pre-activations (GenBaB: "Neural Network Verification with
Branch-and-Bound for General Nonlinearities", Shi et al. 2024; of a ReLU split at 0 this is beta-CROWN). Its variables
are the slopes of every neuron's line (alpha) and the multipliers of `z <= u` and `z >= l` (beta). The gradient in a
neuron's multiplier tells where the minimiser of the relaxed network lies within its interval.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT, RIGOROUS
from relucert.bounding.adam import Adam
from relucert.bounding.ascent import SMOOTH_RATE
from relucert.bounding.backward import PulledBack, bound_forms
from relucert.bounding.interval import Bounds, propagate
from relucert.bounding.reference import ReferencePath
from relucert.branch_and_bound.interval_nodes import IntervalNodes, NodeBounds
from relucert.branch_and_bound.pool import join
from relucert.network import Network, Rows

SLOPE_RATE, MULTIPLIER_RATE, DECAY = 0.3, 0.3, 0.95  # of a ReLU's slopes; those of smooth ones take shorter steps
WORST_WEIGHT = 0.2  # of the largest gap within an interval, beside the gap at the minimiser
LAST, LEAST_GAIN = 6, 0.03  # an ascent ends where so many steps gain less than that share of all that was gained
INNER = 0.25  # of an interval's width, that a split stays away from its ends
TINY = 1e-12


class Branching(NamedTuple):
    """The branching decision of nodes.

    Attributes:
        scores: How much each neuron matters to a bound, (count, neurons); 0 where nothing is gained by a split.
        points: Where to split its interval, (count, neurons), strictly inside of it where the score is not 0.
        minimisers: Points of the region where the relaxed rows are least, (count, inputs).
        coefficients: Those of the rows on the activations' values, (count, neurons after their activations).
    """

    scores: Tensor
    points: Tensor
    minimisers: Tensor
    coefficients: Tensor

    def pick(self, indices: Tensor) -> Branching:
        return Branching(*(table[indices] for table in self))


class IntervalAscent:
    """Bounds rows on the outputs over the subdomains of nodes; it only proposes slopes and multipliers."""

    def __init__(self, network: Network, region: Region, rows: Tensor, offsets: Tensor) -> None:
        """network, region: In float64; what nodes have of them is proven."""
        self.exact, self.region = network, region
        arithmetic = FLOAT if network.cast(torch.float32).finite else DOUBLE
        self.bounds = NodeBounds(network, region, rows, offsets, arithmetic)
        self.layout, self.network = self.bounds.layout, self.bounds.network

    def roots(self, hidden: Bounds) -> IntervalNodes:
        """The whole region, for every row, with CROWN's lines; hidden: proven bounds, a batch of one."""
        count = len(self.bounds.rows)
        found = [
            hidden[value] if value in hidden else propagate(self.exact, self.region, hidden, value, RIGOROUS)
            for value in self.layout.sources
        ]
        lower, upper = (torch.cat([side[0] for side in ends]).repeat(count, 1) for ends in zip(*found, strict=True))
        multipliers = torch.zeros(count, self.layout.neurons)
        size = sum(self.network.sizes[value] for value in self.layout.values)
        unknown = torch.full((count, size), torch.nan)
        return IntervalNodes(torch.arange(count), lower, upper, unknown, multipliers, torch.full((count,), -1))

    def run(
        self, nodes: IntervalNodes, steps: int, ends: float, enough: float = torch.inf
    ) -> tuple[Tensor, IntervalNodes]:
        """Ascends for at most `steps` steps; ends early once time is over or every bound is above `enough`.

        Returns the highest bounds, as computed, (count,), and the nodes with their slopes and multipliers.
        """
        path = self.bounds.path(nodes)
        highest, shares = self._begun(path, nodes)
        best = [shares, nodes.multipliers]
        variables = [table.clone().requires_grad_() for table in best]
        adam, unit, rates, means = Adam(variables), None, self._slope_rates(), list[float]()
        for step in range(steps + 1):
            last = step == steps or time.monotonic() > ends
            with torch.set_grad_enabled(not last):
                pulled = self.bounds.bound(path, nodes.rows, *variables)
                total = pulled.lower.sum()
            lower = pulled.lower.detach()[:, 0].float()
            better = lower > highest
            highest = torch.where(better, lower, highest)
            pairs = zip(variables, best, strict=True)
            best = [torch.where(better[:, None], variable.detach(), known) for variable, known in pairs]
            means.append(float(highest.nan_to_num(0, 0, 0).mean()))
            if last or bool((highest > enough).all()) or _stalls(means):
                break
            unit = self._units(pulled, self.bounds.slopes(path, best[0])) if unit is None else unit
            gradients = [table.nan_to_num(0) for table in torch.autograd.grad(total, variables)]
            with torch.no_grad():
                gradients[1] = one_sided(nodes, variables[1], gradients[1])
                ways, length = adam.directions(gradients), DECAY**step
                variables[0].add_(ways[0] * rates, alpha=length).clamp_(0, 1)
                before = variables[1].clone()
                variables[1].add_(ways[1] * unit, alpha=MULTIPLIER_RATE * length)
                variables[1][(before * variables[1] < 0) | ((before == 0) & (gradients[1] == 0))] = 0
        return highest, nodes._replace(slopes=self.bounds.slopes(path, best[0]), multipliers=best[1])

    def _slope_rates(self) -> Tensor:
        """The length of a first step in every slope, (neurons after their activations)."""
        rates = []
        for value, columns in self.layout.values.items():
            rate = SLOPE_RATE * (1 if self.network.activations[value].rectifier else SMOOTH_RATE)
            rates.append(torch.full((columns.stop - columns.start,), rate))
        return torch.cat(rates)

    def _units(self, pulled: PulledBack, slopes: Tensor) -> Tensor:
        """The size of the coefficients on the pre-activations of every layer, in which multipliers count: (count,
        neurons)."""
        with torch.no_grad():
            sizes = torch.zeros(len(slopes), self.layout.neurons)
            for value, form in self._forms(pulled, len(slopes)).items():
                coefficients = form * slopes[:, self.layout.values[value]]
                sizes[:, self.layout.sources[self.network.source(value)]] += coefficients.abs().mean(1, keepdim=True)
            return sizes

    def branching(self, nodes: IntervalNodes) -> Branching:
        """Scores by how much the line of each neuron is wrong at the minimiser of the bound, times its coefficient,
        and by a share of the most that it may be wrong; splits are at the minimiser, but not near an end."""
        path, count = self.bounds.path(nodes), len(nodes.rows)
        multipliers = nodes.multipliers.clone().requires_grad_()
        with torch.enable_grad():
            pulled = self.bounds.bound(path, nodes.rows, self.bounds.shares(path, nodes.slopes), multipliers)
            (gradient,) = torch.autograd.grad(pulled.lower.sum(), multipliers)
        with torch.no_grad():
            ends = torch.where(nodes.multipliers > 0, nodes.upper, nodes.lower)
            reached = (ends + gradient).nan_to_num(0)
            reached = torch.minimum(torch.maximum(reached, nodes.lower), nodes.upper)
            forms = self._forms(pulled, count)
            scores, points = self._scores(path, forms, nodes, reached), self._points(nodes, reached)
            inside = (nodes.lower < points) & (points < nodes.upper)
            sizes = self.network.sizes
            tables = [
                forms[value] if value in forms else torch.zeros(count, sizes[value]) for value in self.layout.values
            ]
            minimisers, coefficients = self._minimisers(path, pulled), torch.cat(tables, 1).float()
            return Branching(torch.where(inside, scores, 0), points, minimisers, coefficients)

    def _scores(self, path: ReferencePath, forms: dict[int, Tensor], nodes: IntervalNodes, reached: Tensor) -> Tensor:
        scores = torch.zeros(reached.shape)
        for value, form in forms.items():
            source, activation = self.network.source(value), self.network.activations[value]
            columns, interval = self.layout.sources[source], path.bounds[source]
            points, arithmetic = reached[:, columns].to(form.dtype), self.bounds.arithmetic
            slopes = nodes.slopes[:, self.layout.values[value]].to(form.dtype)
            if activation.rectifier:
                slopes = torch.where(form > 0, slopes, activation.chord(*interval))
            low = activation.least(slopes, *interval, arithmetic)
            high = activation.largest(slopes, *interval, arithmetic)
            low = torch.zeros_like(high) if low is None else low
            above = activation.apply(points) - slopes * points
            missed = torch.where(form > 0, above - low, high - above).clamp(min=0)
            gap = form.abs() * (missed + WORST_WEIGHT * (high - low))
            gap = torch.where(activation.is_affine(*interval), 0, gap)
            scores[:, columns] += gap.float().nan_to_num(0, 0, 0)
        return scores

    def _points(self, nodes: IntervalNodes, reached: Tensor) -> Tensor:
        """Where to split: at the minimiser, but not near an end; rectifiers at 0, where that is inside."""
        inner = INNER * (nodes.upper - nodes.lower)
        points = torch.minimum(torch.maximum(reached, nodes.lower + inner), nodes.upper - inner)
        for value in self.layout.values:
            if self.network.activations[value].rectifier:
                columns = self.layout.sources[self.network.source(value)]
                kink = (nodes.lower[:, columns] < 0) & (nodes.upper[:, columns] > 0)
                points[:, columns] = torch.where(kink, 0, points[:, columns])
        return points

    def _minimisers(self, path: ReferencePath, pulled: PulledBack) -> Tensor:
        """The minimisers of the forms on the input, (count, inputs), in float64."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf = pulled.on_input(self.network).detach().expand(len(pulled.lower), -1, -1).clone().requires_grad_()
            form = Rows(leaf, self.network.input_shape)
            fall = path.region.deviation(form, self.bounds.arithmetic, two_sided=False).below
            (gradient,) = torch.autograd.grad(fall.sum(), leaf)
        return (path.region.reference - gradient[:, 0]).double()

    def split(self, nodes: IntervalNodes, branching: Branching) -> IntervalNodes:
        """Splits each node at its best neuron: all lower parts, then all upper ones, with the slopes of before."""
        chosen = branching.scores.argmax(1, keepdim=True)
        points = branching.points.gather(1, chosen)
        ends = nodes.lower.scatter(1, chosen, points), nodes.upper.scatter(1, chosen, points)
        nodes = nodes._replace(last=chosen[:, 0])
        return join([nodes._replace(upper=ends[1]), nodes._replace(lower=ends[0])])

    def carried(self, nodes: IntervalNodes, coefficients: Tensor) -> IntervalNodes:
        """Parts of nodes, with bounds that are none the lower for slopes that their shorter intervals don't have.

        With a slope s beyond the largest derivative t, a lower line is `f(u) + s (z - u)`: that is the line of slope t
        at u, and s - t times the constraint `z - u`; likewise for upper lines, and below the least derivative. So
        what a slope loses goes into the multiplier, and forms before the neuron stay as they are.
        """
        least, largest = self.bounds.derivatives(self.bounds.path(nodes))
        slopes = torch.minimum(torch.maximum(nodes.slopes, least), largest).float()
        moved = (coefficients * (nodes.slopes - slopes)).nan_to_num(0, 0, 0)
        multipliers = nodes.multipliers.clone()
        for value, columns in self.layout.values.items():
            if not self.network.activations[value].rectifier:
                multipliers[:, self.layout.sources[self.network.source(value)]] += moved[:, columns]
        return nodes._replace(slopes=slopes, multipliers=multipliers)

    def _begun(self, path: ReferencePath, nodes: IntervalNodes) -> tuple[Tensor, Tensor]:
        """The bounds to begin with, (count,), and the shares of their slopes: the nodes' own, or with CROWN's for the
        neuron that was split last, whichever is better; CROWN's where a node has none."""
        pulled = bound_forms(path, self.network.output, self.bounds.rows[nodes.rows][:, None])
        forms, tables = self._forms(pulled, len(nodes.rows)), []
        for value in self.layout.values:
            lines, columns = path.lines(value), self.layout.sources[self.network.source(value)]
            slopes = lines.slope_below
            if value in forms and not self.network.activations[value].rectifier:
                slopes = torch.where(forms[value] > 0, slopes, lines.slope_above)
            fresh = nodes.slopes[:, self.layout.values[value]].isnan()
            fresh |= torch.arange(columns.start, columns.stop) == nodes.last[:, None]
            tables.append(torch.where(fresh, slopes, nodes.slopes[:, self.layout.values[value]]))
        starts = [self.bounds.shares(path, slopes) for slopes in (nodes.slopes, torch.cat(tables, 1))]
        tried = [self.bounds.bound(path, nodes.rows, shares, nodes.multipliers) for shares in starts]
        lower = [pulled.lower[:, 0].float() for pulled in tried]
        better = (lower[1] > lower[0]) | nodes.slopes.isnan().any(1)
        shares = torch.where(better[:, None], starts[1], starts[0])
        return torch.where(better, lower[1], lower[0]), shares

    def _forms(self, pulled: PulledBack, count: int) -> dict[int, Tensor]:
        """The coefficients on the activations' values, (count, size) each."""
        return {value: form.rows().detach()[:, 0].expand(count, -1) for value, form in pulled.forms.items()}


def _stalls(means: list[float]) -> bool:
    """Whether the last steps gained hardly anything, given the mean bounds after each step."""
    return len(means) > 2 * LAST and means[-1] - means[-1 - LAST] <= LEAST_GAIN * (means[-1] - means[0])


def one_sided(nodes: IntervalNodes, multipliers: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in multipliers of `z <= u` (positive) and `z >= l` (negative), with a way up where they are 0.

    There the bound has a kink: as the multiplier grows it rises by z - u, and as it falls by l - z, where z is the
    relaxed network's. While z is between l and u, both go down.
    """
    reached = (torch.where(multipliers > 0, nodes.upper, nodes.lower) + gradient).nan_to_num(0)
    beyond = (reached - nodes.upper).clamp(min=0) + (reached - nodes.lower).clamp(max=0)
    return torch.where(multipliers == 0, beyond.to(gradient.dtype), gradient)
