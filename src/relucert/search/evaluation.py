"""Evaluations of a method at the radii of a search, and predictions of what they would give between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, FLOAT, Arithmetic
from relucert.bounding.interval import Bounds, Interval, TracedBounds, select
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.methods.interval import IntervalMethod
from relucert.methods.linear import LinearMethod
from relucert.methods.lipschitz import LipschitzMethod
from relucert.methods.method import ExpensiveMethod, Method
from relucert.methods.table import suited_network
from relucert.network import Network
from relucert.query.problem import Problem
from relucert.search.experience import Experience
from relucert.search.prediction import TINIEST, Brackets, Correction, RelativeWidths
from relucert.search.shells import PredictionModel, ShellBounds

FLOAT_NOISE = 2e-6  # relative radius that float32's rounding may move


class Evaluation(NamedTuple):
    """Result of evaluating a method for a batch of questions at one radius each.

    Attributes:
        margins: Lower bounds of the margins, (batch, rows), in float64.
        hidden: The bounds of the hidden neurons.
        corrections: The least margin minus the surrogate's least margin, (batch,), in float64.
        constants: Where the method has shells, the Lipschitz constants in each shell's region: (batch, shells, rows).
    """

    margins: Tensor
    hidden: Bounds
    corrections: Tensor
    constants: Tensor | None = None

    @classmethod
    def join(cls, batches: Sequence[Evaluation], order: Tensor, dtype: torch.dtype) -> Evaluation:
        """Joins evaluations of several batches, reordered by `order`; the bounds of hidden neurons are in `dtype`."""

        def joined(tensors: Iterable[Tensor]) -> Tensor:
            return torch.cat(list(tensors))[order]

        hidden = {
            value: Interval.join([batch.hidden[value].cast(dtype) for batch in batches], 0).select(order)
            for value in batches[0].hidden
            if all(value in batch.hidden for batch in batches)  # roots of products are bounded for no proof file
        }
        traced = [batch.hidden.tight for batch in batches if isinstance(batch.hidden, TracedBounds)]
        if len(traced) == len(batches):
            hidden = TracedBounds(hidden, {value: joined(tight[value] for tight in traced) for value in traced[0]})
        constants = [batch.constants for batch in batches if batch.constants is not None]
        return cls(
            joined(batch.margins for batch in batches),
            hidden,
            joined(batch.corrections for batch in batches),
            joined(constants) if constants else None,
        )

    def select(self, members: Tensor) -> Evaluation:
        return Evaluation(
            self.margins[members],
            select(self.hidden, members),
            self.corrections[members],
            None if self.constants is None else self.constants[members],
        )


class Evaluator:
    """Evaluates one method for one network at any radius, and predicts its margins from earlier evaluations.

    Attributes:
        network: As the method bounds it, in the precision of the proving arithmetic.
        tolerance: The relative tolerance to search to: the one asked for, or the least that the method resolves.
        proof: The arithmetic in which a radius counts as proven.
        quick: The arithmetic of predictions.
        first_look: The arithmetic of evaluations that are not meant to prove. Where an evaluation costs far more than
            its proof, it is the proving one: what such an evaluation reaches counts at once.
        noise: The relative radius that the rounding of `quick` may move.
        initial_method: The weakest of the chain of weaker methods, whose margins are cheap.
        surrogate: The method whose margins, plus a correction, predict those of the method.
        relaxer: The lines by which hidden bounds are predicted.
        recomputes: Whether the hidden bounds are so cheap that they are computed anew, not predicted.
        smooth: Whether margins fall smoothly with the radius, and are predicted as such.
        shelled: The method, if it splits a region into shells and bounds neurons in each.
        bounds_stable_neurons: Whether the method bounds stable neurons as tightly as the others.
    """

    def __init__(self, network: Network, method: Method, proof: Arithmetic, tolerance: float) -> None:
        network = suited_network(method, network, proof)
        resolves = tolerance >= 10 * FLOAT_NOISE and not isinstance(method, IntervalMethod)  # whose radii may be tiny
        resolves = resolves and not network.steep  # float32 loses a normalisation's epsilon in the width of its squares
        self.quick = FLOAT if resolves and network.cast(torch.float32).finite else DOUBLE
        self.noise = FLOAT_NOISE if self.quick is FLOAT else 1e-12
        self.proof = proof if proof.rigorous else self.quick
        self.method = method
        self.initial_method = method
        while self.initial_method.weaker is not None:
            self.initial_method = self.initial_method.weaker
        if isinstance(method, ExpensiveMethod):
            self.tolerance, self.first_look = max(tolerance, method.resolution), self.proof
            self.surrogate = method.surrogate
        else:
            self.tolerance, self.first_look = tolerance, self.quick
            self.surrogate = self.initial_method
        self.relaxer = self.surrogate.relaxer if isinstance(self.surrogate, LinearMethod) else FAST_LIN
        self.smooth = isinstance(method, LinearMethod) and self.surrogate is method
        lipschitz = method if isinstance(method, LipschitzMethod) else None
        self.recomputes = isinstance(method, IntervalMethod) or (lipschitz is not None and not lipschitz.local)
        self.shelled = lipschitz if lipschitz is not None and lipschitz.local and lipschitz.shells > 1 else None
        self.bounds_stable_neurons = method.bounds_stable_neurons(network)
        self._networks = {dtype: network.cast(dtype) for dtype in {self.proof.dtype, self.quick.dtype}}
        self.network = self._networks[self.proof.dtype]

    def instance(self, problem: Problem, radii: Tensor, arithmetic: Arithmetic) -> tuple[Network, Region, Property]:
        """Network, regions of these radii, (batch,), and properties, in the arithmetic's precision."""
        dtype = arithmetic.dtype
        return self._networks[dtype], problem.at(radii).region.cast(dtype), problem.prop.cast(dtype)

    def evaluate(self, problem: Problem, radii: Tensor, arithmetic: Arithmetic) -> Evaluation:
        """Evaluates the method at one radius per question, (batch,)."""
        network, region, prop = self.instance(problem, radii, arithmetic)
        hidden = self.method.hidden(network, region, arithmetic)
        if self.shelled is not None:
            margins, constants = self.shelled.least_margins(network, region, prop, hidden, arithmetic)
            return Evaluation(margins.double(), hidden, torch.zeros_like(radii), constants.double())
        margins = self.method.margins(network, region, prop, hidden, arithmetic)
        if self.surrogate is self.method:
            return Evaluation(margins.double(), hidden, torch.zeros_like(radii))
        guess = self.surrogate.margins(network, region, prop, hidden, arithmetic)
        return Evaluation(margins.double(), hidden, (margins.amin(1) - guess.amin(1)).double())

    def initial_widths(self, problem: Problem, radii: Tensor, experience: Experience) -> RelativeWidths:
        """Relative widths that other searches taught, said of these radii, (batch,); of values that no activation
        precedes those of the problem's own regions, where they may differ."""
        growth = {value: torch.full_like(radii, exponent) for value, exponent in experience.growth.items()}
        widths = RelativeWidths(radii.log(), {}, growth)
        if self.recomputes:
            return widths
        path = self._path(problem, radii[:, None])
        for value in path.bounded:
            taught = experience.widths.get(value)
            boxed = problem.region.box is not None and not path.network.activation_depths[value]
            if taught is None or boxed:
                share = self._share_of_first_layer(path, value)
                if boxed:  # walls cut balls that are no boxes, the more the larger they are
                    half = self._share_of_first_layer(self._path(problem, radii[:, None] / 2), value)
                    ratio = share / half.clamp(min=TINIEST)
                    growth[value] = (ratio.clamp(min=TINIEST).log().mean((1, 2)).double() / math.log(2)).clamp(-1, 1)
            else:
                share = taught.to(self.quick.dtype).expand(len(radii), 2, path.network.sizes[value])
            widths.widths[value] = share
        return widths

    def _share_of_first_layer(self, path: ReferencePath, value: int) -> Tensor:
        """How far a value that no activation precedes lies from its reference, as a share of its interval: (batch, 2,
        size)."""
        lower, upper = enclose(path, value)
        reference = path.reference(value)
        _, outer = Brackets(path).of(value)
        return torch.stack([reference - lower, upper - reference], 1) / outer.clamp(min=TINIEST)

    def told(
        self, problem: Problem, radii: Tensor, evaluation: Evaluation, model: PredictionModel,
        nearby: Tensor | None = None,
    ) -> PredictionModel:  # fmt: skip
        """The prediction model after an evaluation at radii, (batch,); nearby: where roots are near these, (batch,)."""
        if isinstance(model, ShellBounds):
            assert evaluation.constants is not None
            better = (evaluation.margins.amin(1) <= 0) | (radii > model.radii) | (not model.measured)
            better = better if nearby is None else better | nearby
            return model.evaluated(radii, better, evaluation.hidden, evaluation.constants)
        if self.recomputes:
            return replace(model, logs=radii.log(), measured=True)
        path = self._path(problem, radii[:, None])
        return model.evaluated(path, radii, evaluation.hidden, self._tight(evaluation.hidden))

    def _path(self, problem: Problem, radii: Tensor) -> ReferencePath:
        """The path of a region for each question and candidate radius, (batch, candidates)."""
        network, region, _ = self._candidates(problem, radii)
        return ReferencePath(network, region, {}, self.relaxer, self.quick)

    def _tight(self, hidden: Bounds) -> dict[int, Tensor]:
        """Which lower and upper hidden bounds of an evaluation are tight, by value (batch, 2, size); of a value that is
        missing, all are. The others only tell that a neuron is stable."""
        if isinstance(hidden, TracedBounds):
            return hidden.tight
        if self.bounds_stable_neurons:
            return {}
        deep = [value for value in hidden if self.network.activation_depths[value]]
        unstable = {value: ~self.network.stable(value, *hidden[value]) for value in deep}
        return {value: torch.stack([where, where], 1) for value, where in unstable.items()}

    def predict(self, problem: Problem, radii: Tensor, model: PredictionModel, correction: Correction) -> Tensor:
        """Predicted margins at candidate radii, (batch, candidates, rows), from predicted hidden bounds."""
        network, region, prop = self._candidates(problem, radii)
        if isinstance(model, ShellBounds):
            assert self.shelled is not None
            margins, _ = self.shelled.least_margins(network, region, prop, model.bounds(radii), self.quick)
        elif self.recomputes:
            hidden = self.method.hidden(network, region, self.quick)
            margins = self.method.margins(network, region, prop, hidden, self.quick)
        else:
            path = ReferencePath(network, region, {}, self.relaxer, self.quick)
            hidden = model.bounds(path, radii)
            if isinstance(self.surrogate, LinearMethod):
                margins = self.surrogate.margins_on(path, prop)
            else:
                margins = self.surrogate.margins(network, region, prop, hidden, self.quick)
        return margins.double().view(*radii.shape, -1) + correction.at(radii)[..., None]

    def _candidates(self, problem: Problem, radii: Tensor) -> tuple[Network, Region, Property]:
        """The instance of every question at candidate radii, (batch, candidates), one after the other."""
        count, candidates = radii.shape
        repeated = problem.select(torch.arange(count).repeat_interleave(candidates)) if candidates > 1 else problem
        return self.instance(repeated, radii.flatten(), self.quick)

    def of_rows(self, problem: Problem, heights: Tensor, steepness: Tensor, model: ShellBounds) -> ShellBounds:
        """The bounds in the shells' regions, with the constants of the problem's rows there."""
        assert self.shelled is not None
        network, region, prop = self.instance(problem, model.radii, self.quick)
        hidden = model.bounds(model.radii[:, None])
        _, constants = self.shelled.least_margins(network, region, prop, hidden, self.quick)
        return model.of_rows(heights, steepness, constants.double())

    def margins_to_first_order(self, problem: Problem, radii: Tensor, centre: dict[int, Tensor]) -> Tensor:
        """The margins at radii, (batch,), if every neuron stayed as it is at the centre: (batch, rows)."""
        network, region, prop = self.instance(problem, radii, self.quick)
        hidden = {value: Interval(tensor, tensor) for value, tensor in centre.items()}
        return self.initial_method.margins(network, region, prop, hidden, self.quick).double()
