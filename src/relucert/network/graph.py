"""The network: an immutable graph of operations in topological order."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isinf, prod

import torch
from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.common.checks import shown
from relucert.common.deadline import check_time
from relucert.errors import InputError, NetworkError
from relucert.network.activation import Activation
from relucert.network.inference import REAL, Inference
from relucert.network.operation import Affine
from relucert.network.registry import Layer, is_layer
from relucert.network.rounded_activation import evaluated
from relucert.network.selection import Computed, apply, computed
from relucert.network.squared_products import SquaredProduct, squared_products
from relucert.network.work import PullCount, backward_work, forward_work, narrow_sources, pull_counts


@dataclass(frozen=True, eq=False)
class Node:
    """An operation and the values it takes: value 0 is the network's input, value i the result of node i - 1.

    exact: whether nothing rounds here when the network is evaluated in floating point, as it is part of a layer that
    only selects numbers, such as a maximum.
    roundings: how many roundings meet in one number of an affine operation, in any order of summation, where these are
    not the operation's own: more, where it is part of a longer sum, or none, where it is part of a question about the
    network, which nobody evaluates.
    """

    operation: Layer
    inputs: tuple[int, ...]
    exact: bool = False
    roundings: int | None = None

    def __repr__(self) -> str:
        return f"Node({self.operation!r} of {', '.join(map(str, self.inputs))})"


@dataclass(frozen=True, eq=False)
class Network:
    """A piecewise linear map from an input of `input_shape` to a vector of class scores, the last node's value.

    What it computes is in its nodes alone.

    Attributes:
        input_shape: The shape of one input, without the batch.
        nodes: The operations in topological order.
        name: What it is called in tables.
        input_range: The lowest and the highest number of the inputs it was trained on; None where unknown.
        picture_shape: Of the pictures that a flat input is made of, colours first; None where unknown.
        remarks: What an import left out of the original, in words.
        inference: What it is evaluated in: bounds are about real arithmetic, or about every evaluation that rounds so.
        real_only: Why nothing is said about evaluations in floating point, in words; empty where something is.
    """

    input_shape: Shape
    nodes: tuple[Node, ...]
    name: str = "network"
    input_range: tuple[float, float] | None = None
    picture_shape: Shape | None = None
    remarks: tuple[str, ...] = ()
    inference: Inference = REAL
    real_only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for shape in (self.input_shape, self.picture_shape):
            if shape is not None and not _is_shape(shape):
                raise NetworkError(f"an input's shape is a tuple of whole numbers, not {shown(shape)}")
        if not self.input_shape or prod(self.input_shape) < 1:
            raise NetworkError(f"an input of shape {self.input_shape} has no numbers")
        if self.input_range is not None and not _is_range(self.input_range):
            raise NetworkError(f"an input's range is a finite number and a larger one, not {shown(self.input_range)}")
        if self.picture_shape is not None and prod(self.picture_shape) != prod(self.input_shape):
            raise NetworkError(f"pictures of shape {self.picture_shape} are no inputs of shape {self.input_shape}")
        if not _are_nodes(self.nodes):
            raise NetworkError(f"a network's nodes are a tuple of Node, not {shown(self.nodes)}")
        if not self.nodes:
            raise NetworkError("the network has no operation: its output would be its input")
        for value, node in self.steps():
            _check(value, node)
        if len(self.shapes[-1]) != 1 or not self.sizes[-1]:
            raise NetworkError(f"the output must be a vector of class scores, its shape is {self.shapes[-1]}")

    def __repr__(self) -> str:
        return f"Network({self.name!r}, {self.describe()}, {self.parameters:,} parameters)"

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of every value, without the batch."""
        shapes = [self.input_shape]
        for node in self.nodes:
            shapes.append(node.operation.shape(*(shapes[source] for source in node.inputs)))
        return tuple(shapes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of entries of every value."""
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def output(self) -> int:
        """The index of the value that is the network's output."""
        return len(self.nodes)

    @property
    def classes(self) -> int:
        """The number of class scores."""
        return self.sizes[-1]

    @cached_property
    def preactivations(self) -> tuple[int, ...]:
        """The values that feed an activation, in order: the pre-activations."""
        return tuple(sorted({node.inputs[0] for node in self.nodes if isinstance(node.operation, Activation)}))

    @cached_property
    def activations(self) -> Mapping[int, Activation]:
        """The activations by the values that they compute, in order."""
        return {value: node.operation for value, node in self.steps() if isinstance(node.operation, Activation)}

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For every value, the values that are computed from it directly, in order."""
        users: list[list[int]] = [[] for _ in self.shapes]
        for value, node in self.steps():
            for source in set(node.inputs):
                users[source].append(value)
        return tuple(map(tuple, users))

    @property
    def rectifiers_only(self) -> bool:
        """Whether every activation is ReLU."""
        return all(activation.rectifier for activation in self.activations.values())

    @property
    def steep(self) -> bool:
        """Whether some activation is unboundedly steep, as reciprocals and roots are where they end to be defined."""
        return any(isinf(activation.lipschitz) for activation in self.activations.values())

    def stable(self, value: int, lower: Tensor, upper: Tensor) -> Tensor:
        """Which neurons of a pre-activation are stable: all activations that it feeds are affine between these bounds.

        Of a value that feeds no activation none is: (batch, size).
        """
        activations = [activation for activation in self.activations if self.source(activation) == value]
        stable = torch.full_like(lower, bool(activations), dtype=torch.bool)
        for activation in activations:
            stable = stable & self.activations[activation].is_affine(lower, upper)
        return stable

    @cached_property
    def activation_depths(self) -> tuple[int, ...]:
        """For every value, the largest number of activations on a path from the input to it."""
        depth = [0]
        for node in self.nodes:
            below = max(depth[source] for source in node.inputs)
            depth.append(below + isinstance(node.operation, Activation))
        return tuple(depth)

    @cached_property
    def roundings(self) -> tuple[int, ...]:
        """How many roundings meet in one number of every value, as the network is evaluated; 0: nothing rounds."""
        return (0, *(_roundings(node, self.inference) for node in self.nodes))

    @cached_property
    def suits_forward(self) -> bool:
        """Whether carrying all symbols forward takes no more multiplications than pulling every neuron back, and none
        is bounded by narrower values."""
        return not self.narrow_sources and forward_work(self) <= backward_work(self)

    @cached_property
    def narrow_sources(self) -> dict[int, set[int]]:
        """By wide pre-activation, as those of attention in large networks, the values of few numbers that it is made
        of."""
        return narrow_sources(self)

    @cached_property
    def products(self) -> tuple[SquaredProduct, ...]:
        """The products of two computed values, which are written in squares."""
        return squared_products(self)

    @cached_property
    def factor_roots(self) -> dict[int, set[int]]:
        """By the pre-activations of a product's squares, the roots of its factors, but for values of activations."""
        return {
            self.source(square): set(product.roots) - set(self.activations)
            for product in self.products
            for square in (product.plus, product.minus)
        }

    @cached_property
    def bounded(self) -> tuple[int, ...]:
        """The pre-activations and the roots of products' factors, in order."""
        return tuple(sorted(set(self.preactivations).union(*self.factor_roots.values())))

    @cached_property
    def pull_counts(self) -> dict[int, PullCount]:
        """By pre-activation, what the back-substitution of one neuron to the input takes."""
        return pull_counts(self)

    @property
    def finite(self) -> bool:
        """Whether no stored number is NaN or infinite; a cast that overflows makes some infinite."""
        return all(
            bool(torch.isfinite(tensor).all()) for node in self.nodes for tensor in node.operation.tensors().values()
        )

    @property
    def parameters(self) -> int:
        """The number of stored weights, biases and other constants."""
        return sum(tensor.numel() for node in self.nodes for tensor in node.operation.tensors().values())

    def node(self, value: int) -> Node:
        """The node that computes a value, which is not the input."""
        return self.nodes[value - 1]

    def source(self, value: int) -> int:
        """The value that the node of a value takes first: of an activation its pre-activation."""
        return self.node(value).inputs[0]

    def affine(self, value: int) -> Affine:
        """The operation that computes a value, where it is affine."""
        operation = self.node(value).operation
        assert isinstance(operation, Affine)
        return operation

    def steps(self) -> Iterator[tuple[int, Node]]:
        """Every node with the index of the value it computes."""
        return enumerate(self.nodes, start=1)

    def cast(self, dtype: torch.dtype) -> Network:
        """The same network with its tensors in another precision; the checks are not repeated."""
        nodes = (replace(node, operation=node.operation.cast(dtype)) for node in self.nodes)
        return self._with_nodes(nodes, "activations")

    def with_operations(self, operations: Mapping[int, Layer]) -> Network:
        """The same graph with other operations, by the values they compute; the checks are not repeated."""
        nodes = (replace(node, operation=operations.get(value, node.operation)) for value, node in self.steps())
        counts = "suits_forward", "narrow_sources", "pull_counts"
        return self._with_nodes(nodes, "shapes", "sizes", *counts, "roundings", "activations")

    def _with_nodes(self, nodes: Iterable[Node], *stale: str) -> Network:
        """A copy with other nodes, which drops the cached properties that were of the nodes here."""
        twin = copy(self)
        for name in stale:
            twin.__dict__.pop(name, None)
        object.__setattr__(twin, "nodes", tuple(nodes))
        return twin

    def evaluated_in(self, inference: Inference) -> Network:
        """The same network, evaluated in a precision that represents its weights; other ones are refused."""
        if inference.rounds and self.real_only:
            raise InputError(f"inference {inference.name!r}: {self.real_only[0]}")
        nodes = []
        for value, node in self.steps():
            operation: Layer | None = node.operation
            if isinstance(operation, Activation):
                operation = evaluated(operation, inference)
            if operation is None:
                raise InputError(
                    f"inference {inference.name!r}: node {value} ({node.operation.name}) rounds, which is not charged: "
                    "no runtime evaluates products and quotients as they are written here; leave it out for real "
                    "arithmetic"
                )
            nodes.append(replace(node, operation=operation))
            if not node.operation.can_be_evaluated(inference):
                raise InputError(
                    f"inference {inference.name!r}: node {value} ({node.operation.name}) has numbers that "
                    f"{inference.name} does not represent, divides by one near the ends of its range, or has a "
                    f"negative variance; "
                    f"give the network with {inference.name} weights"
                )
        twin = self._with_nodes(nodes, "roundings", "activations")
        object.__setattr__(twin, "inference", inference)
        return twin

    def values(self, images: Tensor) -> list[Tensor]:
        """Every value at these images, each flat: (batch, size). Raises TimeUp between two layers once time is over."""
        return list(self._evaluated(images, [(value, []) for value in range(len(self.nodes) + 1)]))

    def passing(self, images: Tensor) -> Iterator[Tensor]:
        """Yields the values in order, as far as the output needs them; none is kept for longer than needed."""
        return self._evaluated(images, self._output_schedule)

    def _evaluated(self, images: Tensor, schedule: Iterable[tuple[int, Iterable[int]]]) -> Iterator[Tensor]:
        """Yields values of a `schedule`, each flat: (batch, size)."""
        values: dict[int, Computed] = {}
        for value, dropped in schedule:
            check_time()
            if value:
                node = self.node(value)
                values[value] = apply(node.operation, node.exact, [values[source] for source in node.inputs])
            else:
                values[value] = images.reshape(-1, *self.input_shape)
            tensor = computed(values[value])
            yield tensor.flatten(1) if tensor.ndim > 1 else tensor[:, None]  # a single number has no axis but the batch
            for source in dropped:
                del values[source]

    @cached_property
    def _output_schedule(self) -> list[tuple[int, list[int]]]:
        return self.schedule((self.output,))

    def __call__(self, images: Tensor) -> Tensor:
        """The class scores: (batch, classes), in the precision of the images and weights."""
        return deque(self.passing(images), maxlen=1).pop()

    def ancestors(self, wanted: Collection[int], ends: Collection[int] = ()) -> set[int]:
        """The values needed to compute the wanted ones, including these.

        ends: values that are known: what they are computed from is not needed for them.
        """
        needed = set(wanted)
        for value, node in reversed(list(self.steps())):
            if value in needed and value not in ends:
                needed.update(node.inputs)
        return needed

    def schedule(self, wanted: Collection[int], ends: Collection[int] = ()) -> list[tuple[int, list[int]]]:
        """The same values in the order of the graph, each with those that are not needed any more after it."""
        needed = sorted(self.ancestors(wanted, ends))
        last = {value: value for value in needed}
        for value in needed:
            if value and value not in ends:
                last |= dict.fromkeys(self.node(value).inputs, value)
        dropped: dict[int, list[int]] = {value: [] for value in needed}
        for source, value in last.items():
            dropped[value].append(source)
        return list(dropped.items())

    def nearest_preactivations(self, value: int) -> tuple[int, ...]:
        """The pre-activations whose activations reach a value through affine operations alone, in order."""
        nearest = self.ancestors((value,), self.activations) & set(self.activations)
        return tuple(sorted({self.source(activation) for activation in nearest}))

    def describe(self) -> str:
        """The layer sizes in one line, as in `784-20-10`; with images as in `3x32x32 - 8x16x16 - 10`."""
        shapes = [self.shapes[value] for value in (0, *self.preactivations, self.output)]
        between = " - " if any(len(shape) > 1 for shape in shapes) else "-"
        return between.join("x".join(map(str, shape)) for shape in shapes)


def needed_nodes(nodes: Sequence[Node], output: int | None = None) -> list[Node]:
    """The nodes that the output (by default the last value) depends on, with their inputs renumbered."""
    last = len(nodes) if output is None else output
    needed = {last}
    for value in range(last, 0, -1):
        if value in needed:
            needed.update(nodes[value - 1].inputs)
    renumbered = {value: index for index, value in enumerate(sorted(needed | {0}))}
    return [
        replace(nodes[value - 1], inputs=tuple(renumbered[source] for source in nodes[value - 1].inputs))
        for value in sorted(needed - {0})
    ]


def _roundings(node: Node, inference: Inference) -> int:
    if not inference.rounds or not isinstance(node.operation, Affine):
        return 0
    # What is selected is rounded first, where the precision does not represent it.
    if node.exact and all(inference.represents(tensor) for tensor in node.operation.tensors().values()):
        return 0
    return node.operation.roundings if node.roundings is None else node.roundings


def _is_shape(candidate: object) -> bool:
    return isinstance(candidate, tuple) and all(isinstance(size, int) and size >= 0 for size in candidate)


def _is_range(candidate: object) -> bool:
    numbers = (
        isinstance(candidate, tuple) and len(candidate) == 2 and all(isinstance(end, (int, float)) for end in candidate)
    )
    return numbers and -inf < candidate[0] < candidate[1] < inf  # type: ignore[index]


def _are_nodes(candidate: object) -> bool:
    return isinstance(candidate, tuple) and all(isinstance(node, Node) for node in candidate)


def _check(value: int, node: Node) -> None:
    if not is_layer(type(node.operation)):
        raise NetworkError(f"node {value}: {shown(node.operation)} is neither affine nor an activation")
    if len(node.inputs) != node.operation.arity or not all(0 <= source < value for source in node.inputs):
        raise NetworkError(f"node {value} ({node.operation.name}) takes the values {node.inputs}")
    if node.roundings is not None and not (isinstance(node.operation, Affine) and node.roundings >= 0):
        raise NetworkError(f"node {value} ({node.operation.name}) has {shown(node.roundings)} roundings")
    for name, tensor in node.operation.tensors().items():
        if not tensor.is_floating_point():
            raise NetworkError(f"node {value} ({node.operation.name}): {name} is {tensor.dtype}, not floating point")
        if not bool(torch.isfinite(tensor).all()):
            raise NetworkError(f"node {value} ({node.operation.name}): {name} has NaN or infinite numbers")
