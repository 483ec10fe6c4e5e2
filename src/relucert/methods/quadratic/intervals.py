"""Tighter bounds of pre-activations, layer after layer, by joint certificates.

Where a radius goes far beyond CROWN's, CROWN's intervals grow from layer to layer until they say nothing. A neuron is a
form on the network that ends at its layer, and so is its negative: quadratic certificates bound both, from the bounds
of the layers before. All neurons of a layer share one certificate at first; those whose sign it leaves open go on with
weights of their own. CROWN's bounds from the tightened layers are taken, too, where they are better.
Every bound that is used is proven in float64; what proves it goes into proof files.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.common.deadline import TimeUp, until
from relucert.methods.quadratic.ascent import AGAIN
from relucert.methods.quadratic.dual import DualPoint, Weights
from relucert.methods.quadratic.feasible import deviation_map, feasible_joint
from relucert.methods.quadratic.linearised_network import LinearisedNetwork
from relucert.methods.quadratic.memory import SharedMemory
from relucert.methods.quadratic.proof import RigorousLinearisation, prove_margins
from relucert.methods.quadratic.shared import SharedAscent
from relucert.network import Network, Node, Reshape

STEPS, STEPS_AGAIN = 150, 60  # with shared weights, from nothing and from what was found at another radius
STEPS_OWN = 60  # with weights of their own: 120 narrow intervals by 1 to 3 % more (9x100, layers 3 and 4)
ROOM = 2.0**-16  # by which bounds of neurons are widened, relatively: whoever checks a proof has bounds of his own
MOST_JOINT = 6000  # unstable neurons of a joint certificate, whose matrix has one row for each


@dataclass(frozen=True, eq=False)
class LayerProof:
    """What proves bounds of neurons of one layer, one form for each: plus or minus the neuron.

    Attributes:
        neurons: (forms,).
        signs: 1 or -1, (forms,).
        weights: Of the certificate that the forms share, one row, proven to be feasible.
        factors: Of these weights, (forms,).
        point: The centres, (forms, ...); its shares are not part of the proof, the links are.
        links: lambda by layer, taken as exact, (forms, count) each.
    """

    neurons: Tensor
    signs: Tensor
    weights: Weights
    factors: Tensor
    point: DualPoint
    links: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class Tightened:
    """Tightened bounds.

    Attributes:
        bounds: Of every pre-activation, (1, size) each.
        proofs: By layer, what proves bounds that are not CROWN's.
        memories: By layer, where to start at another radius.
    """

    bounds: Bounds
    proofs: dict[int, list[LayerProof]] = field(default_factory=dict)
    memories: dict[int, SharedMemory] = field(default_factory=dict)

    def tighten(
        self, network: Network, region: Region, value: int, interval: Interval, memory: SharedMemory | None
    ) -> None:
        """Adds the bounds of a layer, after those of all layers before.

        Args:
            interval: Proven bounds of the layer, (1, size).
            memory: What was found at another radius.
        """
        if self.proofs:
            path = ReferencePath(network, region, self.bounds, CROWN, RIGOROUS)
            interval = enclose(path, value, interval)
        layer = _Layer.of(network, region, self.bounds, value, interval)
        if layer is not None:
            with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]  # the interval stays as it is
                ascent = layer.ascent(memory)
                self.memories[value] = SharedMemory.of_shared(ascent, layer.keys, layer.radius)
                proofs = [*layer.prove(ascent), *layer.prove_own(ascent)]
                if proofs:
                    interval, self.proofs[value] = layer.interval, proofs
        self.bounds[value] = interval


def tightened(network: Network, region: Region, bounds: Bounds, memories: Mapping[int, SharedMemory]) -> Tightened:
    """Tightens bounds layer by layer.

    Args:
        network: In float64.
        region: A batch of one, in float64.
        bounds: Proven ones by CROWN, (1, size) each.
        memories: By layer, what was found at another radius.
    """
    tight = Tightened({})
    for value in network.preactivations:
        tight.tighten(network, region, value, bounds[value].cast(torch.float64), memories.get(value))
    return tight


def tightened_until(network: Network, region: Region, bounds: Bounds, ends: float) -> Bounds:
    """Bounds with those of the first layers tightened, as many as time allows.

    Args:
        network: In float64.
        region: A batch of one, in float64.
        bounds: Proven ones, (1, size) each.
        ends: By the monotonic clock, when it has to be over.
    """
    tight = Tightened({})
    with suppress(TimeUp), until(ends):
        for value in network.preactivations:
            tight.tighten(network, region, value, bounds[value].cast(torch.float64), None)
    return {**bounds, **tight.bounds}


@dataclass(eq=False)
class _Layer:
    """The neurons of a layer as forms on the network that ends there.

    Attributes:
        linearised: Of that network.
        bounds: Proven ones of the layers before, (1, size) each.
        interval: Of the layer, (1, size).
        neurons: (forms,).
        signs: 1 or -1, (forms,).
    """

    linearised: LinearisedNetwork
    bounds: Bounds
    interval: Interval
    neurons: Tensor
    signs: Tensor

    @classmethod
    def of(cls, network: Network, region: Region, bounds: Bounds, value: int, interval: Interval) -> _Layer | None:
        """The unstable neurons of a layer and their negatives; None where certificates tell nothing of them."""
        neurons = interval.unstable[0].nonzero().flatten()
        if not len(neurons) or not network.activation_depths[value]:
            return None
        prefix = prefix_of(network, value)
        before = {layer: widened(bounds[layer]) for layer in prefix.preactivations}
        linearised = LinearisedNetwork.of(prefix, region, before)
        if not linearised.unstable or linearised.unstable > MOST_JOINT:
            return None
        signs = torch.ones(len(neurons), dtype=torch.float64)
        return cls(linearised, before, interval, neurons.repeat(2), torch.cat([signs, -signs]))

    @property
    def radius(self) -> float:
        return float(self.linearised.region.radius[0])

    @property
    def keys(self) -> list[int]:
        """A number for each form: neurons count from 1, their negatives are negative."""
        return (self.signs * (self.neurons + 1)).long().tolist()

    @cached_property
    def forms(self) -> Tensor:
        """On the layer, (forms, size)."""
        rows = torch.zeros(len(self.neurons), self.linearised.network.classes, dtype=torch.float64)
        return rows.scatter(1, self.neurons[:, None], self.signs[:, None])

    @cached_property
    def deviations(self) -> Tensor:
        return deviation_map(self.linearised)

    @cached_property
    def rigorous(self) -> RigorousLinearisation:
        return RigorousLinearisation.of(self.linearised, self.bounds)

    def ascent(self, memory: SharedMemory | None) -> SharedAscent:
        """Finds a certificate and the dual variables of all forms."""
        heights = self.forms @ self.linearised.values[self.linearised.network.output][0]
        ascent = SharedAscent.start(self.linearised, self.forms, heights)
        if memory is None or not memory.suits(self.radius):
            ascent.ascend(STEPS)
        else:
            memory.recall_shared(ascent, self.keys, self.radius)
            ascent.ascend(STEPS_AGAIN, AGAIN)
        return ascent

    def prove(self, ascent: SharedAscent) -> list[LayerProof]:
        """Proves bounds by the certificate that all forms share, and meets the interval with them."""
        weights = feasible_joint(self.linearised, ascent.settled().map(Tensor.double), self.deviations)
        if weights is None:
            return []
        point = ascent.point.map(Tensor.double)
        return self._proven(torch.arange(len(self.neurons)), [weights], ascent.table[:, -1].double().exp(), point)

    def prove_own(self, ascent: SharedAscent) -> list[LayerProof]:
        """The same by certificates of their own, for neurons whose sign is still open."""
        rows = self.interval.unstable[0, self.neurons].nonzero().flatten()
        if not len(rows):
            return []
        own = ascent.own(rows)
        for _ in own.steps(STEPS_OWN):
            pass
        weights = own.settled()[1].map(Tensor.double)
        certificates = [
            feasible_joint(self.linearised, weights.select(slice(row, row + 1)), self.deviations)
            for row in range(len(rows))
        ]
        kept = torch.tensor([row for row, weights in enumerate(certificates) if weights is not None], dtype=torch.long)
        point = own.layout.point(own.table[kept]).map(Tensor.double)
        factors = torch.ones(len(kept), dtype=torch.float64)
        return self._proven(rows[kept], [weights for weights in certificates if weights is not None], factors, point)

    def _proven(
        self, rows: Tensor, certificates: list[Weights], factors: Tensor, point: DualPoint
    ) -> list[LayerProof]:  # fmt: skip
        """Proves bounds of some forms, (rows,), and meets the interval with them.

        Args:
            certificates: One for all of these forms, or one for each.
            factors: Of their weights, (rows,).
            point: (rows, ...).
        """
        if not len(rows):
            return []
        weights = Weights.stacked(certificates).times(factors)
        offsets = torch.zeros_like(factors)
        bounds, links = prove_margins(self.rigorous, self.forms[rows], offsets, weights, point)
        better = self._met(rows, bounds)
        groups = [better] if len(certificates) == 1 else better.split(1)
        return [
            LayerProof(
                self.neurons[rows[group]], self.signs[rows[group]], certificates[int(group[0]) % len(certificates)],
                factors[group], point.select(group),
                {value: numbers[group] for value, numbers in links.items()},
            )
            for group in groups if len(group)
        ]  # fmt: skip

    def _met(self, rows: Tensor, bounds: Tensor) -> Tensor:
        """Meets the interval with lower bounds of some forms, (rows,), and returns which of them are better."""
        lower, upper = (end.clone() for end in self.interval)
        neurons, signs = self.neurons[rows], self.signs[rows]
        current = torch.where(signs > 0, lower[0, neurons], -upper[0, neurons])
        better = bounds > current
        below, above = better & (signs > 0), better & (signs < 0)
        lower[0, neurons[below]], upper[0, neurons[above]] = bounds[below], -bounds[above]
        self.interval = Interval(lower, upper)
        return better.nonzero().flatten()


def prefix_of(network: Network, value: int) -> Network:
    """The network whose output is a value, as a vector."""
    shape = network.shapes[value]
    last = (Node(Reshape(shape, (prod(shape),)), (value,)),) if len(shape) != 1 else ()
    nodes = (*network.nodes[:value], *last)
    return replace(network, nodes=nodes, picture_shape=None)


def widened(interval: Interval) -> Interval:
    """Bounds with some room, in float64."""
    room = ROOM * (interval.upper - interval.lower)
    return Interval((interval.lower - room).double(), (interval.upper + room).double())
