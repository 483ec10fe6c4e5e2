"""How many multiplications bounds of a network take, counted without computing any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from typing_extensions import assert_never

from relucert.arithmetic.forms import LinearForms
from relucert.network.activation import Activation
from relucert.network.operation import Affine
from relucert.network.pull_back import INPUT, pull_back, unit_forms

if TYPE_CHECKING:
    from relucert.network.graph import Network

MOST_WORK = 10**9  # multiplications for pulling all neurons of a pre-activation back, which is done all the same
LEAST_GAIN = 4  # times as many neurons as there are numbers that they are made of


def forward_work(network: Network) -> int:
    """Multiplications of one evaluation by the forward driver, all neurons unstable."""
    work, rows, units = 0, [0], [network.sizes[INPUT]]  # units are symbols of one coordinate each
    needed = network.ancestors(network.preactivations)
    for value, node in network.steps():
        dense, single = (max(counts[source] for source in node.inputs) for counts in (rows, units))
        operation = node.operation
        if isinstance(operation, Activation):
            dense, single = dense + single, network.sizes[value]
        elif not isinstance(operation, Affine):
            assert_never(operation)
        elif operation.work:
            work += (dense if operation.matrix is not None else dense + single) * operation.work * (value in needed)
            dense, single = dense + single, 0
        rows.append(dense)
        units.append(single)
    return work


def backward_work(network: Network) -> int:
    """Multiplications of one evaluation by the backward driver, all neurons unstable."""
    return sum(network.sizes[value] * count.multiplications for value, count in network.pull_counts.items())


def narrow_sources(network: Network) -> dict[int, set[int]]:
    """By wide pre-activation, the values of far fewer numbers that it is made of.

    Wide are those whose neurons take long to pull back, and are moves, scales and sums of few numbers.
    """
    wide = {}
    for value, count in network.pull_counts.items():
        if count.multiplications * network.sizes[value] > MOST_WORK:
            sources = _computed_sources(network, value)
            if LEAST_GAIN * sum(network.sizes[source] for source in sources) <= network.sizes[value]:
                wide[value] = sources
    return wide


def _computed_sources(network: Network, value: int) -> set[int]:
    """The results of products from which moves, scales and sums alone lead to a value, activations apart."""
    sources, pending = set[int](), [value]
    while pending:
        current = pending.pop()
        operation = network.node(current).operation if current != INPUT else None
        if isinstance(operation, Affine):
            if operation.work:
                sources.add(current)
            else:
                pending.extend(network.node(current).inputs)
    return sources


class PullCount(NamedTuple):
    """What the back-substitution of one form to the input takes.

    Attributes:
        multiplications: All of them, apart from one for each coefficient.
        numbers: The most numbers that are held at once.
    """

    multiplications: int
    numbers: int


def pull_counts(network: Network) -> dict[int, PullCount]:
    """By pre-activation, what the neuron in its middle takes."""
    counts, network = {}, network.cast(torch.float32)
    for value in network.preactivations:
        if value != INPUT:
            counter = _Counter(network)
            middle = torch.tensor([network.sizes[value] // 2])
            start, forms = unit_forms(network, value, middle, torch.float32)
            remaining = pull_back(network, start, forms, counter)
            numbers = max(counter.numbers, *(form.terms for form in remaining.values()))
            counts[value] = PullCount(counter.multiplications, numbers)
    return counts


@dataclass(eq=False)
class _Counter:
    """The rule of a pull-back of one form that only counts."""

    network: Network
    multiplications: int = 0
    numbers: int = 1

    def affine(self, value: int, form: LinearForms) -> tuple[LinearForms, ...]:
        node = self.network.node(value)
        assert isinstance(node.operation, Affine)
        self.multiplications += form.terms * node.operation.work // self.network.sizes[value]
        self.numbers = max(self.numbers, int(form.terms * node.operation.products))
        return node.operation.pull(form, [self.network.shapes[source] for source in node.inputs])

    def activation(self, value: int, source: int, form: LinearForms) -> LinearForms:
        return form

    def join(self, value: int, one: LinearForms, other: LinearForms) -> LinearForms:
        return one.plus(other)
