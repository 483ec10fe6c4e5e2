"""Records for proof files: the slopes and multipliers of every bound that a proof rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.property import Property, QuestionKey, question_key
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RECORDED, Arithmetic
from relucert.bounding.interval import Bounds
from relucert.bounding.reference import ReducedPath, ReferencePath
from relucert.bounding.relaxers import RELAXERS, Relaxer
from relucert.network import Activation, LinearForms, Network, Relu

MULTIPLIER_BITS = 24  # of the largest one of a leaf, which float32 has

Tables = dict[int, Tensor]
"""By the value of a ReLU, slopes of lower lines: (batch, forms, size)."""


class RuleName(NamedTuple):
    """A rule for the bounds of all neurons, by its name.

    Attributes:
        scope: As in a `checker.trees.Rule`.
        slopes: By the value of a smooth activation, the slopes of its lines, (size,): one tensor where both lines of
            each neuron are parallel, else one for those below and one for those above.
    """

    name: str
    scope: str
    slopes: Mapping[int, tuple[Tensor, ...]] = MappingProxyType({})

    @classmethod
    def of(
        cls, name: str, bounds_stable_neurons: bool, slopes: Mapping[int, tuple[Tensor, ...]] | None = None
    ) -> RuleName:
        """bounds_stable_neurons: whether lines also bound neurons whose sign intervals tell."""
        return cls(name, "all" if bounds_stable_neurons else "signs", slopes or {})


def smooth_slopes(network: Network, relaxer: Relaxer, bounds: Bounds, member: int = 0) -> dict[int, tuple[Tensor, ...]]:
    """The slopes of a `RuleName` that a relaxer chooses in one region of a batch, by the bounds of pre-activations."""
    slopes = {}
    for value, activation in _smooth(network).items():
        lines = relaxer(activation, bounds[network.source(value)], RECORDED)
        tables = (lines.slope_above,) if lines.parallel else (lines.slope_below, lines.slope_above)
        slopes[value] = tuple(table[member] for table in tables)
    return slopes


class Leaves(NamedTuple):
    """Leaves of branch and bound: subdomains, given by the signs of split neurons, in which forms are bounded.

    Attributes:
        neurons: By pre-activation, in their order, the unstable neurons that the columns are about.
        forms: Which form each leaf is about, (leaves,).
        signs: 1, -1 or, where the neuron is not split, 0: (leaves, columns), int8.
        duals: The slopes of neurons that are not split, the multipliers of split ones: (leaves, columns).
    """

    neurons: dict[int, Tensor]
    forms: Tensor
    signs: Tensor
    duals: Tensor

    @classmethod
    def whole(cls, neurons: dict[int, Tensor], slopes: Tensor) -> Leaves:
        """One leaf per form, the whole region: (forms, columns)."""
        return cls(neurons, torch.arange(len(slopes)), torch.zeros(slopes.shape, dtype=torch.int8), slopes)

    def pick(self, indices: Tensor) -> Leaves:
        return Leaves(self.neurons, self.forms[indices], self.signs[indices], self.duals[indices])


def join_leaves(batches: Sequence[Leaves]) -> Leaves:
    """Concatenates leaves about the same neurons."""
    columns = zip(*((batch.forms, batch.signs, batch.duals) for batch in batches), strict=True)
    return Leaves(batches[0].neurons, *(torch.cat(column) for column in columns))


class NeuronBounds(NamedTuple):
    """Lower bounds of neurons of a pre-activation, (count,), times signs, (count,); the leaves' forms are these."""

    neurons: Tensor
    signs: Tensor
    leaves: Leaves


@dataclass(eq=False)
class Record:
    """The record of a proof that the rows of a property are positive in a region.

    Attributes:
        rules: The rules that bound all neurons.
        hidden: By pre-activation, bounds of single neurons that may be better than those of the rules.
        rows: The leaves of the property's rows; None: the only rule has lines for them.
        ranges: By the value of a smooth activation, the derivatives, (size,) each, between which slopes are given by
            their shares.
    """

    rules: Sequence[RuleName]
    hidden: dict[int, list[NeuronBounds]] = field(default_factory=dict)
    rows: Leaves | None = None
    ranges: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)


def rules_of(network: Network, names: Iterable[str]) -> list[RuleName]:
    """The rules as `hidden_bounds` follows them: the forward driver bounds all neurons by lines."""
    return [RuleName.of(name, RELAXERS[name].parallel and network.suits_forward) for name in names]


class Recorder:
    """Keeps the slopes by which margins are proven in a batch of regions, the largest region of each question."""

    def __init__(self) -> None:
        self._found: dict[QuestionKey, tuple[float, Record]] = {}
        self._begun: tuple[Region, list[Record]] | None = None

    def begin(self, network: Network, region: Region, bounds: Mapping[str, Bounds]) -> None:
        """A new region's bounds follow; all neurons are bounded by rules, which gave these bounds by their names."""
        records = []
        for member in range(len(region.radius)):
            slopes = {name: smooth_slopes(network, RELAXERS[name], bounds[name], member) for name in bounds}
            records.append(Record([rule._replace(slopes=slopes[rule.name]) for rule in rules_of(network, bounds)]))
        self._network, self._begun = network, (region, records)

    def add(self, value: int, neurons: Tensor, signs: Tensor, slopes: Tables, bounds: Bounds) -> None:
        """Records the slopes of the bounds of some neurons, (count,), times signs, (count,).

        bounds: the bounds of the pre-activations before.
        """
        assert self._begun is not None
        for member, record in enumerate(self._begun[1]):
            leaves = self._leaves(member, slopes, bounds, len(neurons))
            record.hidden.setdefault(value, []).append(NeuronBounds(neurons, signs.to(torch.int8), leaves))

    def finish(self, region: Region, prop: Property, slopes: Tables, bounds: Bounds, margins: Tensor) -> None:
        """A property's rows, with bounds (batch, rows) above 0 where they are proven."""
        assert self._begun is not None
        (begun, records), self._begun = self._begun, None
        assert torch.equal(begun.radius, region.radius)
        points = range(len(records)) if region.which is None else region.which.tolist()
        for member, (point, record) in enumerate(zip(points, records, strict=True)):
            question = question_key(region.points[point], prop, member)
            radius = float(region.radius[member])
            if bool((margins[member] > 0).all()) and radius > self._found.get(question, (0.0, record))[0]:
                record.rows = self._leaves(member, slopes, bounds, prop.rows.shape[1])
                record.ranges = _ranges(self._network, bounds, member)
                self._found[question] = radius, record

    def take(self, point: Tensor, prop: Property, radius: float) -> Record | None:
        """The record of the region of this radius around a point, (size,); prop: a batch of one, proven there."""
        entry = self._found.get(question_key(point, prop))
        return entry[1] if entry is not None and entry[0] == radius else None

    def clear(self) -> None:
        """Forgets all regions, once whatever was needed of them is taken."""
        self._found = {}

    def _leaves(self, member: int, slopes: Tables, bounds: Bounds, forms: int) -> Leaves:
        network = self._network
        neurons = {
            value: (~network.stable(value, *interval))[member].nonzero().flatten() for value, interval in bounds.items()
        }
        first = {network.source(value): value for value in sorted(network.activations, reverse=True)}
        columns = [torch.zeros(forms, 0)]
        for source, unstable in neurons.items():
            value = first[source]
            table = torch.zeros(forms, len(unstable))
            if value in slopes:
                table = _rounded(network.activations[value], slopes[value][member][:, unstable])
            columns.append(table)
        return Leaves.whole(neurons, torch.cat(columns, 1))


def multiplier_units(multipliers: Tensor) -> tuple[Tensor, Tensor]:
    """Multipliers in float32's precision, (leaves, columns), as whole numbers over powers of two, one power per leaf.

    The largest of a leaf keeps all its bits; negative ones and what is no number become 0.
    """
    table = multipliers.double().nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
    largest = table.amax(1) if table.shape[1] else table.new_zeros(len(table))
    powers = torch.where(largest > 0, MULTIPLIER_BITS - torch.frexp(largest).exponent, 0).to(torch.int64)
    return torch.floor(torch.ldexp(table, powers[:, None]) + 0.5).to(torch.int64), powers


def rounded_duals(signs: Tensor, duals: Tensor) -> Tensor:
    """Slopes of neurons that are not split, multipliers of split ones, (leaves, columns), as a proof file has them.

    The result is in float64.
    """
    units, powers = multiplier_units(duals * signs.abs())
    multipliers = torch.ldexp(units.double(), -powers[:, None])
    return torch.where(signs == 0, duals.double(), multipliers)


def recording(recorder: Recorder | None, arithmetic: Arithmetic) -> Recorder | None:
    """The recorder, where an evaluation is one to be recorded."""
    return recorder if arithmetic.recorded else None


def dense(reduced: ReducedPath, forms: dict[int, LinearForms], slopes: Tables) -> Tables:
    """Slopes laid out like forms on a network that lost neurons, one for every neuron that the network had."""
    return {
        value: reduced.widen(value, table if table.ndim == 3 else replace(forms[value], coefficients=table).rows())
        for value, table in slopes.items()
    }


def lines_of(path: ReferencePath, forms: int) -> Tables:
    """The slopes of the path's lower lines for each of several forms: (batch, forms, size)."""
    relus = [value for value, activation in path.network.activations.items() if isinstance(activation, Relu)]
    return {
        relu: path.lines(relu).slope_below[:, None].repeat(1, forms, 1)
        for relu in relus
        if path.network.source(relu) in path.bounds
    }


def better_lines(lower: Sequence[Tensor], tables: Sequence[Tables]) -> Tables:
    """The slopes with the highest bounds among several for the same forms, (batch, forms) each."""
    best = torch.stack([bounds.nan_to_num(-torch.inf) for bounds in lower]).argmax(0)
    merged: Tables = {}
    for number, slopes in enumerate(tables):
        for relu, table in slopes.items():
            merged[relu] = torch.where((best == number)[..., None], table, merged.get(relu, torch.zeros_like(table)))
    return merged


def _smooth(network: Network) -> dict[int, Activation]:
    """The activations that are no ReLUs, by the values that they compute."""
    return {value: activation for value, activation in network.activations.items() if not activation.rectifier}


def _rounded(activation: Activation, slopes: Tensor) -> Tensor:
    """Slopes of ReLUs, or shares of the slopes of another activation, as a proof file has them."""
    rounded = RECORDED.slopes if activation.rectifier else RECORDED.shares
    return rounded(slopes.double()).nan_to_num(0).float()


def _ranges(network: Network, bounds: Bounds, member: int) -> dict[int, tuple[Tensor, Tensor]]:
    """The ranges of a `Record`."""
    ranges = {}
    for value, activation in _smooth(network).items():
        least, largest = activation.derivatives(*bounds[network.source(value)])
        ranges[value] = RECORDED.any_slopes(least[member]), RECORDED.any_slopes(largest[member])
    return ranges
