"""Bounds with optimised slopes (alpha-CROWN): the bound of each unstable neuron and margin has its own lower lines.

The ascent runs in float32 and only proposes; what is returned is one back-substitution with the slopes it found, in the
arithmetic asked for, or Fast-Lin's or CROWN's bound where that is better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT, RIGOROUS, Arithmetic
from relucert.bounding.ascent import BestBounds, Effort, Slopes, ascend
from relucert.bounding.backward import DualVariables, Pull, PulledBack, bound_forms
from relucert.bounding.dual_lines import DualLines
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds, Interval, TracedBounds, copied
from relucert.bounding.layerwise import neuron_forms
from relucert.bounding.memory import Recall, SlopeMemory
from relucert.bounding.record import Recorder, Tables, better_lines, dense, lines_of
from relucert.bounding.reduced_path import ReducedPath
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN, FAST_LIN
from relucert.common.progress import Report, silent
from relucert.network import Activation, LinearForms, Network, Rows

HIDDEN = Effort(3, least=0)  # for the neurons of each layer; further steps gain less than 0.1 % of a radius
MARGINS = Effort(16, least=0.01, again=4)  # for the rows of a property
ROW_BYTES = 2**21  # that the slopes of one chunk of neurons take in one layer

Duals = Callable[[DualVariables], PulledBack]


def optimised_bounds(
    network: Network, region: Region, arithmetic: Arithmetic = RIGOROUS, *, known: Bounds | None = None,
    memory: SlopeMemory | None = None, effort: Effort = HIDDEN, ends: float = math.inf,
    recorder: Recorder | None = None, report: Report = silent,
) -> Bounds:  # fmt: skip
    """Bounds of every pre-activation, each the best of Fast-Lin's, CROWN's and those with optimised slopes.

    Args:
        network: In the arithmetic's dtype, like the region.
        known: Proven bounds to improve; None: Fast-Lin's and CROWN's.
        memory: Slopes from other radii to start from; those found are put there.
        ends: By the monotonic clock, when the ascent stops; what was found by then is used.
        recorder: Takes the slopes, for a proof.
        report: Called with every step of the ascents.
    """
    with torch.inference_mode(False), torch.no_grad():
        region = region.clone()
        begun = _both_bounds(network, region, arithmetic, recorder) if known is None else TracedBounds(known, {})
        memory = memory or SlopeMemory()
        bounds = _Layers(network, region, arithmetic, memory, effort, ends, recorder, report).run(begun)
        return TracedBounds(bounds, begun.tight)


def _both_bounds(network: Network, region: Region, arithmetic: Arithmetic, recorder: Recorder | None) -> TracedBounds:
    """The intersection of Fast-Lin's and CROWN's bounds."""
    parallel = hidden_bounds(network, region, FAST_LIN, arithmetic)
    adaptive = hidden_bounds(network, region, CROWN, arithmetic)
    tight = {}
    if isinstance(parallel, TracedBounds) and isinstance(adaptive, TracedBounds):
        tight = {value: where | adaptive.tight[value] for value, where in parallel.tight.items()}
    if recorder is not None:
        recorder.begin(network, region, {"fast-lin": parallel, "crown": adaptive})
    return TracedBounds({value: interval.meet(adaptive[value]) for value, interval in parallel.items()}, tight)


def optimised_margins(
    network: Network, region: Region, rows: Tensor, offsets: Tensor, hidden: Bounds, arithmetic: Arithmetic = RIGOROUS,
    *, memory: SlopeMemory | None = None, effort: Effort = MARGINS, ends: float = math.inf,
    recorder: Recorder | None = None, report: Report = silent,
) -> Tensor:  # fmt: skip
    """Lower bounds of rows on the outputs, (batch, rows): the best of Fast-Lin's, CROWN's and with optimised slopes.

    Args:
        rows: (batch, rows, classes); offsets, (batch, rows), are added to them.
        hidden: The bounds of every pre-activation.
        memory, effort, ends, recorder, report: As for `optimised_bounds`.
    """
    memory = memory or SlopeMemory()
    with torch.inference_mode(False), torch.no_grad():
        region, rows, offsets = region.clone(), rows.clone(), offsets.clone()
        hidden = copied(hidden)
        count = rows.shape[1]
        candidates: list[tuple[Tensor, Tables]] = []
        # A proof file has one slope for each form and neuron of a smooth activation, as the ascent has it.
        ruled = recorder is None or network.rectifiers_only
        for relaxer in (FAST_LIN, CROWN) if ruled else ():
            path = ReferencePath(network, region, hidden, relaxer, arithmetic, upper=recorder is not None)
            lines = {} if recorder is None else lines_of(path, count)
            pulled = bound_forms(path, network.output, rows, duals=DualVariables(lines), offsets=offsets)
            candidates.append((pulled.lower, lines))
        if not any(_relaxed(network, value, interval) for value, interval in hidden.items()):
            return _best(candidates, region, Property(rows, offsets), hidden, recorder)
        ascent = _ascent_problem(network, region)
        proof = ReducedPath(network, region, CROWN, arithmetic, upper=True)
        for value, interval in hidden.items():
            ascent.add(value, interval.cast(ascent.path.arithmetic.dtype))
            proof.add(value, interval)

        def bounded(reduced: ReducedPath) -> Duals:
            cast, added = (table.to(reduced.path.arithmetic.dtype) for table in (rows, offsets))
            return lambda duals: bound_forms(reduced.path, network.output, cast, duals=duals, offsets=added)

        what = [of_member.float().numpy().tobytes() for of_member in rows]
        recall = memory.recall(region, what, torch.arange(count), count, ascent)
        best = _optimise(bounded(ascent), recall, effort, ends, _part(report, "margins"))
        recall.put(best.slopes)
        lower, forms = _proven(bounded(proof), best, arithmetic)
        candidates.append((lower, {} if recorder is None else dense(proof, forms, best.slopes)))
        return _best(candidates, region, Property(rows, offsets), hidden, recorder)


def _best(
    candidates: list[tuple[Tensor, Tables]], region: Region, prop: Property, hidden: Bounds, recorder: Recorder | None
) -> Tensor:
    """The highest of several lower bounds of the same rows, (batch, rows); their slopes are recorded."""
    best = torch.full_like(candidates[0][0], -torch.inf)
    for lower, _ in candidates:
        best = torch.fmax(best, lower)
    if recorder is not None:
        lines = better_lines([lower for lower, _ in candidates], [tables for _, tables in candidates])
        recorder.finish(region, prop, lines, hidden, best)
    return best


class _Layers:
    """The hidden layers of a network over a region, one after the other, each from the best bounds of those before."""

    def __init__(
        self, network: Network, region: Region, arithmetic: Arithmetic, memory: SlopeMemory, effort: Effort,
        ends: float, recorder: Recorder | None, report: Report,
    ) -> None:  # fmt: skip
        self.recorder, self.bounds, self.report = recorder, Bounds(), report
        self.network, self.region, self.arithmetic = network, region, arithmetic
        self.memory, self.effort, self.ends = memory, effort, ends
        self.ascent = _ascent_problem(network, region)
        self.proof = ReducedPath(network, region, CROWN, arithmetic, upper=True)

    def run(self, known: Bounds) -> Bounds:
        bounds = self.bounds
        for value in self.network.preactivations:
            deep = self.network.activation_depths[value] and value not in self.network.narrow_sources
            relaxed = bool(deep) and any(
                _relaxed(self.network, before, interval) for before, interval in bounds.items()
            )
            bounds[value] = self._optimised(value, known[value]) if relaxed else known[value]
            self.ascent.add(value, bounds[value].cast(self.ascent.path.arithmetic.dtype))
            self.proof.add(value, bounds[value])
        return bounds

    def _optimised(self, value: int, interval: Interval) -> Interval:
        """Improves the bounds of a value's unstable neurons."""
        ends = [bound.clone() for bound in interval]
        unstable = ~self.network.stable(value, *ends)
        neurons = unstable.any(0).nonzero().flatten()
        numbers = self.ascent.path.network.pull_counts[value].numbers * len(self.region.radius)
        for some in neurons.split(max(1, ROW_BYTES // (8 * numbers))) if len(neurons) else ():
            if time.monotonic() > self.ends:
                break
            lower = self._row_bounds(value, some)
            for end, sign, better in zip(ends, (1, -1), lower.chunk(2, 1), strict=True):
                before = end[:, some]
                end[:, some] = torch.where(unstable[:, some], sign * torch.fmax(better, sign * before), before)
        return Interval(*ends)

    def _row_bounds(self, value: int, neurons: Tensor) -> Tensor:
        """Lower bounds of neurons, (count,), and then of their negatives: (batch, 2 * count)."""
        signs = torch.tensor([1.0, -1.0]).repeat_interleave(len(neurons))
        both = neurons.repeat(2)

        def bounded(reduced: ReducedPath) -> Duals:
            path = reduced.path
            start, forms, constant, slack = neuron_forms(path, value, both, signs.to(path.arithmetic.dtype))
            return lambda duals: Pull(path, duals, constant, slack).run(forms, start)

        size = self.network.sizes[value]
        what = [value] * len(self.region.radius)
        recall = self.memory.recall(self.region, what, torch.cat([neurons, size + neurons]), 2 * size, self.ascent)
        layer = self.network.preactivations.index(value) + 1
        report = _part(self.report, f"layer {layer}")
        best = _optimise(bounded(self.ascent), recall, self.effort, self.ends, report)
        recall.put(best.slopes)
        lower, forms = _proven(bounded(self.proof), best, self.arithmetic)
        if self.recorder is not None:
            self.recorder.add(value, both, signs, dense(self.proof, forms, best.slopes), self.bounds)
        return lower


def _relaxed(network: Network, value: int, interval: Interval) -> bool:
    """Whether some neuron of a pre-activation is unstable."""
    return not bool(network.stable(value, *interval).all())


def _shares(form: LinearForms, slopes: Tensor, activation: Activation, interval: Interval) -> Tensor:
    """Slopes, laid out like the coefficients of forms, as shares between the least and the largest derivative."""
    least, largest = activation.derivatives(*interval)
    width = form.local(largest - least)
    return ((slopes - form.local(least)) / torch.where(width > 0, width, 1)).nan_to_num(0.5).clamp(0, 1)


def _table(form: LinearForms, slopes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Slopes of a map, (batch, size), for each of several forms, as their coefficients lie in memory."""
    layout = torch.contiguous_format if isinstance(form, Rows) else torch.preserve_format
    return form.spread(slopes).expand(shape).clone(memory_format=layout)


def _ascent_problem(network: Network, region: Region) -> ReducedPath:
    """The network and region that the ascent runs on: in float32 where the network's numbers allow it."""
    single = network.cast(torch.float32)
    arithmetic = FLOAT if single.finite else DOUBLE
    cast = single if arithmetic is FLOAT else network.cast(torch.float64)
    return ReducedPath(cast, region.cast(arithmetic.dtype), CROWN, arithmetic, upper=True)


def _part(report: Report, part: str) -> Report:
    """A report of the steps on one part of the bounds."""
    return lambda state: report(replace(state, part=part))


def _optimise(bound: Duals, recall: Recall, effort: Effort, ends: float, report: Report) -> BestBounds:
    """The slopes that an ascent finds from CROWN's, Fast-Lin's, or those remembered, whichever are better."""
    first = bound(DualVariables())
    crown, fast_lin = {}, {}
    for value, form in first.forms.items():
        shape = first.lower.shape[0], *form.coefficients.shape[1:]
        path = recall.reduced.path
        lines, activation = path.lines(value), path.network.activations[value]
        if activation.rectifier:
            crown[value], fast_lin[value] = (
                _table(form, slopes, shape) for slopes in (lines.slope_below, lines.slope_above)
            )
            continue
        interval = path.bounds[path.network.source(value)]
        slopes = torch.where(form.coefficients > 0, form.local(lines.slope_below), form.local(lines.slope_above))
        crown[value] = _shares(form, slopes, activation, interval).expand(shape).clone()
        fast_lin[value] = _shares(form, form.local(activation.chord(*interval)), activation, interval).expand(shape)
    last = recall.slopes(crown)
    steps, starts = (effort.again if recall.near else effort.steps), [fast_lin if last is None else last]
    start = BestBounds(first.lower, crown)
    if not bool(first.lower.isfinite().any()):  # where numbers overflow there is no way up
        return start
    effort = replace(effort, steps=steps)
    kept: dict[int, DualLines] = {}
    activations = recall.reduced.path.network.activations
    smooth = [value for value in crown if not activations[value].rectifier]

    def lower(slopes: Slopes) -> Tensor:
        return bound(DualVariables(slopes, lines=kept)).lower

    return ascend(lower, start, starts, effort, ends, report, smooth)


def _proven(bound: Duals, best: BestBounds, arithmetic: Arithmetic) -> tuple[Tensor, dict[int, LinearForms]]:
    """The bounds with the slopes found, in the arithmetic asked for, (batch, forms), and the forms on ReLUs."""
    if best.lower.dtype == arithmetic.dtype and not arithmetic.rigorous:
        return best.lower, {}
    slopes = {value: table.to(arithmetic.dtype) for value, table in best.slopes.items()}
    pulled = bound(DualVariables(slopes))
    return pulled.lower, pulled.forms
