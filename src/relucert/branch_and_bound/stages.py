"""A network over one region as dense matrices between the neurons that are not inactive, in float32: for ascents.

Each pre-activation is a stage: its neurons that are not inactive, the unstable ones first, as affine functions of the
activations of earlier stages and of the input. Where products take less work so, active neurons are left out of the
stages: what they do is linear, and goes into the matrices. Beside them stands the same network in float64 without the
inactive neurons, with proven bounds, for what has to be proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RECORDED, RIGOROUS, Arithmetic
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import FAST_LIN
from relucert.branch_and_bound.products import MOST_DENSE, PreparedStage
from relucert.network import INPUT, FlatAffine, Network, Relu, pull_back, transposed
from relucert.network.cut import can_be_cut, without_neurons

if TYPE_CHECKING:
    from relucert.branch_and_bound.search_record import SearchRecord

MOST_NUMBERS = 2**27  # of all matrices together
CHUNK_NUMBERS = 2**22  # of forms that are pulled back at once
MOST_PRODUCTS = 2**32  # in one pass of a batch of nodes through all matrices: under a second
LARGEST_BATCH = 256  # nodes at once, at most
SAMPLED = 4  # neurons of a layer, or a few more, whose rows are counted


def search_bytes(network: Network | None = None) -> int:
    """The bytes that ReLU splitting takes, for a network or at most: matrices in float32, and as much on the way."""
    numbers, unstable = 0, 0
    if network is None:
        return 8 * MOST_NUMBERS
    for value in network.preactivations:
        numbers += network.sizes[value] * (network.sizes[INPUT] + unstable)
        unstable += network.sizes[value]
    return 8 * min(MOST_NUMBERS, numbers)


class TooLarge(Exception):  # noqa: N818 - a count, and no error of the user's
    """The dense matrices would be too large."""


@dataclass(frozen=True, eq=False)
class Maps:
    """Affine functions, (count,), of the activations of stages and of the input.

    Attributes:
        weights: By the number of a stage, (count, neurons of the stage).
        entrance: On the input's deviation from the reference, (count, inputs); None: none.
        bias: Their values where all activations are 0 and the input is the reference, (count,).
    """

    weights: dict[int, Tensor]
    entrance: Tensor | None
    bias: Tensor

    @property
    def numbers(self) -> int:
        """How many numbers the matrices have."""
        matrices = [*self.weights.values(), *([] if self.entrance is None else [self.entrance])]
        return sum(matrix.numel() for matrix in matrices)

    def pick(self, indices: Tensor, signs: Tensor | None = None) -> Maps:
        """Some of the functions, (count,), each times a sign."""
        factor = torch.ones(len(indices), dtype=self.bias.dtype) if signs is None else signs.to(self.bias.dtype)
        return Maps(
            {stage: weight[indices] * factor[:, None] for stage, weight in self.weights.items()},
            None if self.entrance is None else self.entrance[indices] * factor[:, None],
            self.bias[indices] * factor,
        )


@dataclass(frozen=True, eq=False)
class Stage:
    """The neurons of one pre-activation that are not inactive in the region.

    Attributes:
        value: The pre-activation.
        neurons: The indices in it of those that later stages are functions of, (count,), the unstable ones first.
        unstable_count: How many of them are unstable.
        lower, upper: The bounds of the unstable ones, (unstable,), in float32.
        maps: The neurons as affine functions of earlier stages and of the input.
        first: The number of unstable neurons of earlier stages.
    """

    value: int
    neurons: Tensor
    unstable_count: int
    lower: Tensor
    upper: Tensor
    maps: Maps
    first: int

    @property
    def columns(self) -> slice:
        """Where its unstable neurons stand among those of all stages."""
        return slice(self.first, self.first + self.unstable_count)


@dataclass(eq=False)
class Stages:
    """The stages of a network over one region (a batch of one), as far as it is bounded.

    Attributes:
        exact: The network in float64.
        region: In float64.
        folded: Whether active neurons go into the matrices.
        bounds: The proven bounds of all neurons of the pre-activations that are stages, (1, size) each.
        cut: The network without inactive neurons, where that can be cut out; values keep their numbers.
        cut_bounds: The proven bounds of the neurons that are left.
        kept: By pre-activation the indices of the neurons that are left, in their order, where some were cut out.
        pace: The seconds that the proof of a node's bound took last.
        record: Keeps what proves the bounds, where a proof is to be written.
        prepared: By stage, what all ascents over it share.
    """

    exact: Network
    region: Region
    folded: bool = False
    bounds: Bounds = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    cut_bounds: Bounds = field(default_factory=dict)
    kept: dict[int, Tensor] = field(default_factory=dict)
    pace: float = 0.0
    record: SearchRecord | None = None
    prepared: list[PreparedStage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cut = self.exact
        self.relus: dict[int, list[int]] = {}
        for value, node in self.exact.steps():
            if isinstance(node.operation, Relu):
                self.relus.setdefault(node.inputs[0], []).append(value)
        self._numbers = 0
        self._path: ReferencePath | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All but what is quickly made anew, for another process."""
        return {**self.__dict__, "_path": None}

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of proofs."""
        return RIGOROUS if self.record is None else RECORDED

    @property
    def batch_size(self) -> int:
        """How many nodes are bounded at once: fewer where the matrices are so large that time could not be kept."""
        return max(1, min(LARGEST_BATCH, MOST_PRODUCTS // max(1, self._numbers)))

    @property
    def unstable_count(self) -> int:
        """The number of unstable neurons of all stages."""
        return sum(stage.unstable_count for stage in self.stages)

    def add(self, value: int, interval: Interval) -> None:
        """Makes a stage of a pre-activation with its proven bounds, (1, size)."""
        self.bounds[value], self._path = interval, None
        unstable = interval.unstable[0].nonzero().flatten()
        not_inactive = torch.cat([unstable, _active(interval).nonzero().flatten()])
        neurons = unstable if self.folded else not_inactive
        maps = self.maps(value, neurons)
        self._numbers += maps.numbers
        lower, upper = (bound[0, unstable].float() for bound in interval)
        self.stages.append(Stage(value, neurons, len(unstable), lower, upper, maps, self.unstable_count))
        self.cut_bounds[value] = interval
        if len(not_inactive) and can_be_cut(self.cut, value):
            self.cut = without_neurons(self.cut, value, not_inactive)
            self.kept[value] = not_inactive
            self.cut_bounds[value] = Interval(interval.lower[:, not_inactive], interval.upper[:, not_inactive])

    def path(self) -> ReferencePath:
        """The reference path for proofs with slopes of each form's own."""
        if self._path is None:
            self._path = ReferencePath(self.cut, self.region, self.cut_bounds, FAST_LIN, self.arithmetic, upper=True)
        return self._path

    def cut_indices(self, stage: Stage) -> Tensor:
        """The indices of a stage's unstable neurons in the pre-activation of the cut network, (unstable,)."""
        if stage.value in self.kept:
            return torch.arange(stage.unstable_count)
        return stage.neurons[: stage.unstable_count]

    def maps(self, value: int, neurons: Tensor) -> Maps:
        """Neurons of a value, (count,), as functions of the stages and the input, in float32."""
        size = self.exact.sizes[value]
        step = max(1, CHUNK_NUMBERS // max(self.exact.sizes))
        chunks: list[Maps] = []
        for some in neurons.split(step) if len(neurons) else [neurons]:
            chunks.append(self.pulled(value, one_hot(some, size).double()))
            self._check_room(sum(chunk.numbers for chunk in chunks))
        return _joined(chunks)

    def _check_room(self, more: int) -> None:
        if self._numbers + more > MOST_NUMBERS:
            raise TooLarge(
                f"the network is too large to be split by neurons: {len(self.stages) + 1} of its "
                f"{len(self.exact.preactivations)} layers of ReLUs take more than {4 * MOST_NUMBERS / 2**30:g} GB as "
                "dense matrices, which is the most"
            )

    def pulled(self, value: int, forms: Tensor, offsets: Tensor | None = None) -> Maps:
        """Back-substitutes forms on a value, (count, size) in float64, plus offsets, to the stages and the input."""
        numbers = {relu: number for number, stage in enumerate(self.stages) for relu in self.relus[stage.value]}
        walk = _Walk(self.exact, len(forms), offsets, self.bounds if self.folded else {})
        left = pull_back(self.exact, value, forms[None], walk)
        weights: dict[int, Tensor] = {}
        for relu, form in walk.stopped.items():
            if relu not in numbers:
                raise AssertionError("a ReLU before its stage")
            number = numbers[relu]
            weight = form[0][:, self.stages[number].neurons].float()
            weights[number] = weights[number] + weight if number in weights else weight
        entrance = left[INPUT][0] if INPUT in left else None
        bias = walk.constant
        if entrance is not None:
            bias = bias + entrance @ self.region.reference[0]
            entrance = entrance.float()
        return Maps(weights, entrance, bias.float())


def folds(network: Network, bounds: Bounds) -> bool:
    """Whether products take less work with matrices without the active neurons."""
    return _work(network, bounds, folded=True) < _work(network, bounds, folded=False)


def _work(network: Network, bounds: Bounds, folded: bool) -> float:
    """About how many multiplications all products for one node take, sparse ones counted as the dense ones that take as
    long; infinite where the matrices are too large."""
    kept = {value: (bounds[value].unstable | bounds[value].active)[0] for value in network.preactivations}
    if folded:
        kept = {value: bounds[value].unstable[0] for value in network.preactivations}
    work = numbers = 0.0
    for value, which in kept.items():
        rows = which.nonzero().flatten()
        sample = rows[:: max(1, len(rows) // SAMPLED)]
        if not len(rows):
            continue
        walk = _Walk(network, len(sample), None, bounds if folded else {})
        left = pull_back(network, value, one_hot(sample, len(which)).double()[None], walk)
        matrices = [form[0][:, kept[network.node(relu).inputs[0]]] for relu, form in walk.stopped.items()]
        for matrix in [*matrices, *(form[0] for form in left.values())]:
            share = float(matrix.count_nonzero()) / max(1, matrix.numel())
            numbers += len(rows) * matrix.shape[1]
            work += len(rows) * matrix.shape[1] * min(1, share / MOST_DENSE)
    return work if numbers <= MOST_NUMBERS else torch.inf


def _active(interval: Interval) -> Tensor:
    """Which neurons are active and not unstable, (size,), by their bounds, (1, size)."""
    return interval.active[0] & ~interval.unstable[0]


class _Walk:
    """Pulls forms back to ReLUs and the input, and sums the constants on the way.

    bounds: by pre-activation, where active neurons do not stop a form.
    """

    def __init__(self, network: Network, count: int, offsets: Tensor | None, bounds: Bounds) -> None:
        self.network, self.bounds, self.stopped = network, bounds, dict[int, Tensor]()
        self.constant = torch.zeros(count, dtype=torch.float64) if offsets is None else offsets

    def affine(self, value: int, form: Tensor) -> Sequence[Tensor]:
        constant = FlatAffine.of(self.network, value).constant
        if constant is not None:
            self.constant = self.constant + form[0] @ constant
        return transposed(self.network, value, form)

    def activation(self, value: int, source: int, form: Tensor) -> Tensor | None:
        self.stopped[value] = form
        return form * _active(self.bounds[source]) if source in self.bounds else None

    def join(self, value: int, one: Tensor, other: Tensor) -> Tensor:
        return one + other


def _joined(chunks: list[Maps]) -> Maps:
    if len(chunks) == 1:
        return chunks[0]
    entrances = [chunk.entrance for chunk in chunks if chunk.entrance is not None]
    return Maps(
        {stage: torch.cat([chunk.weights[stage] for chunk in chunks]) for stage in chunks[0].weights},
        torch.cat(entrances) if entrances else None,
        torch.cat([chunk.bias for chunk in chunks]),
    )
