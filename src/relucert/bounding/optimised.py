"""Bounds with optimised slopes (alpha-CROWN): the bound of each unstable neuron and margin has its own lower lines.

The ascent runs in float32 and only proposes; what is returned is one back-substitution with the slopes it found, in the
arithmetic asked for, or Fast-Lin's or CROWN's bound where that is better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT, RIGOROUS, Arithmetic
from relucert.bounding.ascent import BestBounds, Effort, Slopes, ascend
from relucert.bounding.backward import DualVariables, Pull, PulledBack, bound_forms
from relucert.bounding.dual_lines import DualLines
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import Bounds, Interval, TracedBounds, copied, meet, propagate
from relucert.bounding.layerwise import neuron_forms
from relucert.bounding.memory import Recall, SlopeMemory
from relucert.bounding.narrow import known_sources
from relucert.bounding.record import Recorder, Tables, better_lines, dense, lines_of
from relucert.bounding.reference import ReducedPath, ReferencePath
from relucert.bounding.relaxers import CROWN, FAST_LIN
from relucert.common.progress import Report, silent
from relucert.network import Activation, LinearForms, Network, Rows

HIDDEN = Effort(7, least=0, room=0.3)  # for the neurons of each layer: mostly 3 steps, for p = 1 all of them
MARGINS = Effort(16, least=0.01, again=4)  # for the rows of a property
ROW_BYTES = 2**21  # that the slopes of one chunk of neurons take in one layer

Duals = Callable[[DualVariables], PulledBack]


def optimised_bounds(
    network: Network, region: Region, arithmetic: Arithmetic = RIGOROUS, *, known: Bounds | None = None,
    memory: SlopeMemory | None = None, effort: Effort = HIDDEN, ends: float = math.inf,
    recorder: Recorder | None = None, report: Report = silent, squares: bool = True,
) -> Bounds:  # fmt: skip
    """Bounds of every pre-activation, each the best of Fast-Lin's, CROWN's and those with optimised slopes.

    Args:
        network: In the arithmetic's dtype, like the region.
        known: Proven bounds to improve; None: Fast-Lin's and CROWN's.
        memory: Slopes from other radii to start from; those found are put there.
        ends: By the monotonic clock, when the ascent stops; what was found by then is used.
        recorder: Takes the slopes, for a proof.
        report: Called with every step of the ascents.
        squares: Whether the many neurons that products are written in ascend, too, and not their factors alone.
    """
    with torch.inference_mode(False), torch.no_grad():
        region = region.clone()
        begun = _both_bounds(network, region, arithmetic, recorder) if known is None else TracedBounds(known, {})
        ascent, proof = _ascent_and_proof(network, region, arithmetic)
        layers = _Layers(ascent, proof, memory or SlopeMemory(), effort, ends, recorder, report, squares)
        return TracedBounds(layers.run(begun), begun.tight)


def _both_bounds(network: Network, region: Region, arithmetic: Arithmetic, recorder: Recorder | None) -> TracedBounds:
    """The intersection of Fast-Lin's and CROWN's bounds."""
    parallel = hidden_bounds(network, region, FAST_LIN, arithmetic)
    adaptive = hidden_bounds(network, region, CROWN, arithmetic)
    tight = {}
    if isinstance(parallel, TracedBounds) and isinstance(adaptive, TracedBounds):
        tight = {value: where | adaptive.tight[value] for value, where in parallel.tight.items()}
    if recorder is not None:
        recorder.begin(network, region, {"fast-lin": parallel, "crown": adaptive})
    return TracedBounds(meet(parallel, adaptive), tight)


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
        if _relaxed(network, hidden):
            ascent, proof = _ascent_and_proof(network, region, arithmetic)
            for value, interval in hidden.items():
                ascent.add(value, interval.cast(ascent.path.arithmetic.dtype))
                proof.add(value, interval)

            def bounded(reduced: ReducedPath) -> Duals:
                cast, added = (table.to(reduced.path.arithmetic.dtype) for table in (rows, offsets))
                return lambda duals: bound_forms(reduced.path, network.output, cast, duals=duals, offsets=added)

            what = [of_member.float().numpy().tobytes() for of_member in rows]
            recall = memory.recall(region, what, torch.arange(count), count, ascent)
            ascended = _optimise(bounded(ascent), recall, effort, ends, _part(report, "margins"))
            candidates.append(_proven(bounded(proof), proof, ascended, recorder))
        best = torch.full_like(offsets, -torch.inf)
        for lower, _ in candidates:
            best = torch.fmax(best, lower)
        if recorder is not None:
            slopes = better_lines([lower for lower, _ in candidates], [tables for _, tables in candidates])
            recorder.finish(region, Property(rows, offsets), slopes, hidden, best)
        return best


@dataclass(frozen=True, eq=False)
class _Layers:
    """The hidden layers of a network over a region, one after the other, each from the best bounds of those before.

    Attributes:
        ascent: What slopes are sought on.
        proof: The network in the arithmetic of the bounds.
    """

    ascent: ReducedPath
    proof: ReducedPath
    memory: SlopeMemory
    effort: Effort
    ends: float
    recorder: Recorder | None
    report: Report
    squares: bool

    def run(self, known: Bounds) -> Bounds:
        network, bounds = self.proof.whole, self.proof.all_bounds
        for value, interval in sorted(known.items()):
            of_few = value in network.narrow_sources or value in network.factor_roots
            if of_few and self.recorder is None:  # proof files say that neurons are pulled back
                path, sources = self.proof.path, known_sources(self.proof, value)
                implied = propagate(path.network, path.region, path.bounds, value, path.arithmetic, ends=sources)
                interval = interval.meet(implied)
            ascends = value not in network.narrow_sources and (self.squares or not of_few)
            if ascends and network.activation_depths[value] and _relaxed(network, bounds):
                interval = self._optimised(value, interval)
            self.ascent.add(value, interval.cast(self.ascent.path.arithmetic.dtype))
            self.proof.add(value, interval)
        return bounds

    def _optimised(self, value: int, interval: Interval) -> Interval:
        """Improves the bounds of a value's unstable neurons."""
        lower, upper = (bound.clone() for bound in interval)
        unstable = ~self.proof.whole.stable(value, lower, upper)
        neurons = unstable.any(0).nonzero().flatten()
        counted = self.ascent.path.network.pull_counts.get(value)  # which has pre-activations alone
        numbers = (counted.numbers if counted else max(self.ascent.path.network.sizes)) * len(lower)
        for some in neurons.split(max(1, ROW_BYTES // (8 * numbers))) if len(neurons) else ():
            if time.monotonic() > self.ends:
                break
            below, negated = self._row_bounds(value, some).chunk(2, 1)
            better, wanted = Interval(lower[:, some], upper[:, some]), unstable[:, some]
            lower[:, some] = torch.where(wanted, torch.fmax(below, better.lower), better.lower)
            upper[:, some] = torch.where(wanted, torch.fmin(-negated, better.upper), better.upper)
        return Interval(lower, upper)

    def _row_bounds(self, value: int, neurons: Tensor) -> Tensor:
        """Lower bounds of neurons, (count,), and then of their negatives: (batch, 2 * count)."""
        network, region = self.proof.whole, self.proof.path.region
        signs = torch.tensor([1.0, -1.0]).repeat_interleave(len(neurons))
        both = neurons.repeat(2)

        def bounded(reduced: ReducedPath) -> Duals:
            start = neuron_forms(reduced.path, value, both, signs.to(reduced.path.arithmetic.dtype))
            return lambda duals: Pull(reduced.path, duals).run(start)

        size = network.sizes[value]
        positions, what = torch.cat([neurons, size + neurons]), [value] * len(region.radius)
        recall = self.memory.recall(region, what, positions, 2 * size, self.ascent)
        report = _part(self.report, f"layer {sum(before <= value for before in network.preactivations)}")
        best = _optimise(bounded(self.ascent), recall, self.effort, self.ends, report)
        lower, slopes = _proven(bounded(self.proof), self.proof, best, self.recorder)
        if self.recorder is not None:
            self.recorder.add(value, both, signs, slopes, self.proof.all_bounds)
        return lower


def _relaxed(network: Network, bounds: Bounds) -> bool:
    """Whether some neuron of the pre-activations is unstable."""
    return not all(bool(network.stable(value, *interval).all()) for value, interval in bounds.items())


def _shares(form: LinearForms, slopes: Tensor, activation: Activation, interval: Interval) -> Tensor:
    """Slopes, laid out like the coefficients of forms, as shares between the least and the largest derivative."""
    least, largest = activation.derivatives(*interval)
    width = form.local(largest - least)
    return ((slopes - form.local(least)) / torch.where(width > 0, width, 1)).nan_to_num(0.5).clamp(0, 1)


def _table(form: LinearForms, slopes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Slopes of a map, (batch, size), for each of several forms, as their coefficients lie in memory."""
    layout = torch.contiguous_format if isinstance(form, Rows) else torch.preserve_format
    return form.spread(slopes).expand(shape).clone(memory_format=layout)


def _ascent_and_proof(network: Network, region: Region, arithmetic: Arithmetic) -> tuple[ReducedPath, ReducedPath]:
    """What the ascent runs on, in float32 where the network's numbers allow it, and what its bounds are proven on."""
    single = network.cast(torch.float32)
    rough = FLOAT if single.finite else DOUBLE
    cast = single if rough is FLOAT else network.cast(torch.float64)
    ascent = ReducedPath(cast, region.cast(rough.dtype), CROWN, rough, upper=True)
    return ascent, ReducedPath(network, region, CROWN, arithmetic, upper=True)


def _part(report: Report, part: str) -> Report:
    """A report of the steps on one part of the bounds."""
    return lambda state: report(replace(state, part=part))


def _optimise(bound: Duals, recall: Recall, effort: Effort, ends: float, report: Report) -> BestBounds:
    """The slopes that an ascent finds from CROWN's, Fast-Lin's, or those remembered, whichever are better; they are
    remembered."""
    first, path = bound(DualVariables()), recall.reduced.path
    crown, fast_lin = {}, {}
    for value, form in first.forms.items():
        shape = first.lower.shape[0], *form.coefficients.shape[1:]
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
    best = BestBounds(first.lower, crown)
    if bool(first.lower.isfinite().any()):  # where numbers overflow there is no way up
        effort = replace(effort, steps=effort.again if recall.near else effort.steps)
        kept: dict[int, DualLines] = {}
        smooth = [value for value in crown if not path.network.activations[value].rectifier]

        def lower(slopes: Slopes) -> Tensor:
            return bound(DualVariables(slopes, lines=kept)).lower

        best = ascend(lower, best, [fast_lin if last is None else last], effort, ends, report, smooth)
    recall.put(best.slopes)
    return best


def _proven(
    bound: Duals, proof: ReducedPath, best: BestBounds, recorder: Recorder | None
) -> tuple[Tensor, Tables]:  # fmt: skip
    """The bounds with the slopes found, in the arithmetic asked for, (batch, forms), and the slopes to be recorded."""
    arithmetic = proof.path.arithmetic
    if best.lower.dtype == arithmetic.dtype and not arithmetic.rigorous:
        return best.lower, {}
    pulled = bound(DualVariables({value: table.to(arithmetic.dtype) for value, table in best.slopes.items()}))
    return pulled.lower, {} if recorder is None else dense(proof, pulled.forms, best.slopes)
