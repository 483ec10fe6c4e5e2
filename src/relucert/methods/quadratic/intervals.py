"""Tighter bounds of pre-activations, layer after layer, by one joint certificate for all neurons of a layer.

Where a radius goes far beyond CROWN's, CROWN's intervals grow from layer to layer until they say nothing. A neuron is a
form on the network that ends at its layer, and so is its negative: quadratic certificates bound both, from the bounds
of the layers before. CROWN's bounds from the tightened layers are taken, too, where they are better.
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
from relucert.bounding.backward import enclose
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import CROWN
from relucert.methods.quadratic.ascent import AGAIN
from relucert.methods.quadratic.dual import DualPoint, Weights
from relucert.methods.quadratic.feasible import feasible_joint
from relucert.methods.quadratic.proof import Ground, prove_margins
from relucert.methods.quadratic.scene import Scene
from relucert.methods.quadratic.shared import SharedClimb
from relucert.methods.quadratic.shared_memory import SharedMemory
from relucert.network import Network, Node, Reshape

STEPS, STEPS_AGAIN = 150, 60  # of an ascent, from nothing and from what was found at another radius
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

    def select(self, rows: Tensor) -> LayerProof:
        """The proofs of some forms."""
        return LayerProof(
            self.neurons[rows], self.signs[rows], self.weights, self.factors[rows],
            self.point.map(lambda part: part[rows]), {value: part[rows] for value, part in self.links.items()},
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tightened:
    """Tightened bounds.

    Attributes:
        bounds: Of every pre-activation, (1, size) each.
        proofs: By layer, what proves bounds that are not CROWN's.
        memories: By layer, where to start at another radius.
    """

    bounds: Bounds
    proofs: dict[int, LayerProof] = field(default_factory=dict)
    memories: dict[int, SharedMemory] = field(default_factory=dict)


def tightened(network: Network, region: Region, bounds: Bounds, memories: Mapping[int, SharedMemory]) -> Tightened:
    """Tightens bounds layer by layer.

    Args:
        network: In float64.
        region: A batch of one, in float64.
        bounds: Proven ones by CROWN, (1, size) each.
        memories: By layer, what was found at another radius.
    """
    found = Tightened({})
    for value in network.preactivations:
        interval = bounds[value].cast(torch.float64)
        if found.proofs:
            path = ReferencePath(network, region, found.bounds, CROWN, RIGOROUS)
            interval = enclose(path, value, interval)
        layer = _Layer.of(network, region, found.bounds, value, interval)
        if layer is not None:
            with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]  # the interval stays as it is
                climb = layer.climb(memories.get(value))
                found.memories[value] = SharedMemory.of(climb, layer.keys, layer.radius)
                proof = layer.prove(climb)
                if proof is not None:
                    interval, found.proofs[value] = layer.interval, proof
        found.bounds[value] = interval
    return found


@dataclass(eq=False)
class _Layer:
    """The neurons of a layer as forms on the network that ends there.

    Attributes:
        scene: Of that network.
        bounds: Proven ones of the layers before, (1, size) each.
        interval: Of the layer, (1, size).
        neurons: (forms,).
        signs: 1 or -1, (forms,).
    """

    scene: Scene
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
        before = {place: widened(bounds[place]) for place in prefix.preactivations}
        scene = Scene.of(prefix, region, before)
        if not scene.unstable or scene.unstable > MOST_JOINT:
            return None
        signs = torch.ones(len(neurons), dtype=torch.float64)
        return cls(scene, before, interval, neurons.repeat(2), torch.cat([signs, -signs]))

    @property
    def radius(self) -> float:
        return float(self.scene.region.radius[0])

    @property
    def keys(self) -> list[int]:
        """A number for each form: neurons count from 1, their negatives are negative."""
        return (self.signs * (self.neurons + 1)).long().tolist()

    @cached_property
    def forms(self) -> Tensor:
        """On the layer, (forms, size)."""
        rows = torch.zeros(len(self.neurons), self.scene.network.classes, dtype=torch.float64)
        return rows.scatter(1, self.neurons[:, None], self.signs[:, None])

    def climb(self, memory: SharedMemory | None) -> SharedClimb:
        """Finds a certificate and the dual variables of all forms."""
        heights = self.forms @ self.scene.values[self.scene.network.output][0]
        climb = SharedClimb.start(self.scene, self.forms, heights)
        if memory is None or not memory.suits(self.radius):
            climb.climb(STEPS)
        else:
            memory.recall(climb, self.keys, self.radius)
            climb.climb(STEPS_AGAIN, AGAIN)
        return climb

    def prove(self, climb: SharedClimb) -> LayerProof | None:
        """Proves bounds and meets the interval with them; None where nothing is proven."""
        weights = feasible_joint(self.scene, climb.settled().map(Tensor.double))
        if weights is None:
            return None
        factors = climb.table[:, -1].double().exp()
        point = climb.layout.point(climb.table).map(Tensor.double)
        ground = Ground.of(self.scene, self.bounds)
        offsets = torch.zeros_like(factors)
        bounds, links = prove_margins(ground, self.forms, offsets, weights.times(factors), point)
        return self._met(bounds, LayerProof(self.neurons, self.signs, weights, factors, point, links))

    def _met(self, bounds: Tensor, proof: LayerProof) -> LayerProof | None:
        """Meets the interval with lower bounds of forms, (forms,), and returns the proofs of those that are better."""
        lower, upper = (side.clone() for side in self.interval)
        known = torch.where(self.signs > 0, lower[0, self.neurons], -upper[0, self.neurons])
        better = bounds > known
        below, above = better & (self.signs > 0), better & (self.signs < 0)
        lower[0, self.neurons[below]], upper[0, self.neurons[above]] = bounds[below], -bounds[above]
        self.interval = Interval(lower, upper)
        return proof.select(better.nonzero().flatten()) if bool(better.any()) else None


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
