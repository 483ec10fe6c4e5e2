"""A small network as affine functions of few numbers, its atoms: the inputs, and what activations return.

Whatever is affine between two activations is one matrix, so that a pass over many boxes has few steps. Squares that
only the outputs are functions of stay squares: a row of outputs is then a quadratic function of the other atoms. A ReLU
of such squares, as in the larger of two margins, gives alternatives: `c relu(z) >= max(0, c z)` for c >= 0, so a row is
positive where it is with 0 in the place of the ReLU, or with z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval_propagation import interval_bounds
from relucert.network import INPUT, Activation, Affine, FlatAffine, Network, Power, Relu

MOST_ATOMS = 160  # each is a generator in every box
MOST_ALTERNATIVES = 8  # of one row


class AffineFunctions(NamedTuple):
    """Affine functions of the atoms, whose exact coefficients are off by at most the errors.

    Attributes:
        weight, error: Coefficients on the atoms and, last, constants: (count, atoms + 1).
    """

    weight: Tensor
    error: Tensor

    @property
    def used(self) -> Tensor:
        """Which atoms they depend on, but for errors, (atoms,)."""
        return (self.weight != 0).any(0)[:-1]

    @classmethod
    def join(cls, groups: Sequence[AffineFunctions]) -> AffineFunctions:
        return cls(*(torch.cat(tables) for tables in zip(*groups, strict=True)))

    def pick(self, indices: Tensor) -> AffineFunctions:
        return AffineFunctions(self.weight[indices], self.error[indices])

    def plus(self, factor: Tensor, other: AffineFunctions) -> AffineFunctions:
        """Adds the other functions times numbers that are not negative, (count,)."""
        scale = factor[:, None]
        weight, error = self.weight + scale * other.weight, self.error + scale * other.error
        size = self.weight.abs() + scale * other.weight.abs()
        return AffineFunctions(weight, RIGOROUS.above(error + RIGOROUS.gamma(2) * size, 8))


class FusedLayer(NamedTuple):
    """The neurons of one activation.

    Attributes:
        activation: The activation.
        functions: Their pre-activations.
        atoms: Where their outputs stand among the atoms.
    """

    activation: Activation
    functions: AffineFunctions
    atoms: slice

    @property
    def is_square(self) -> bool:
        return isinstance(self.activation, Power) and self.activation.exponent == 2

    @property
    def numbers(self) -> Tensor:
        """The numbers of these atoms."""
        return torch.arange(self.atoms.start, self.atoms.stop)


@dataclass(frozen=True, eq=False)
class Fused:
    """A network and a property as functions of the atoms.

    Attributes:
        inputs: The number of inputs, which are the first atoms.
        layers: The activations that a relaxation replaces, in topological order.
        squares: The squares that only rows depend on.
        rows: Lower bounds of the property's rows, each once: (alternatives, atoms + 1).
        groups: Which of these are alternatives of each row of the property: (rows, alternatives).
        sizes: The largest absolute values of the atoms in the region, and 1 for constants: (atoms + 1,).
    """

    inputs: int
    layers: tuple[FusedLayer, ...]
    squares: tuple[FusedLayer, ...]
    rows: AffineFunctions
    groups: Tensor
    sizes: Tensor

    def charge(self, functions: AffineFunctions) -> Tensor:
        """How far functions are off in the region by the errors of their coefficients, at most: (count,)."""
        return RIGOROUS.above(functions.error @ self.sizes, len(self.sizes) + 2)


def fuse(network: Network, region: Region, prop: Property) -> Fused | None:
    """The network over one region in float64; None where no square is left to the rows, or where it is too large."""
    if network.inference.rounds or _atoms(network) > MOST_ATOMS:
        return None
    layers, output = _layers(network)
    squares, maxima = _left_to_rows(layers)
    rows = _times(prop.rows[0], prop.offsets[0], output)
    alternatives: list[list[AffineFunctions]] = [[rows.pick(torch.tensor([row]))] for row in range(len(rows.weight))]
    for layer in reversed(maxima):
        for number, group in enumerate(alternatives):
            expanded = _expanded(group, layer)
            if expanded is None:
                return None
            alternatives[number] = expanded
    together = AffineFunctions.join([row for group in alternatives for row in group])
    if not any(bool(together.used[layer.atoms].any()) for layer in squares):
        return None
    owners = torch.tensor([number for number, group in enumerate(alternatives) for _ in group])
    together, places = _distinct(together)
    groups = torch.zeros(len(alternatives), len(together.weight), dtype=torch.bool)
    groups[owners, places] = True
    left_to_rows = {layer.atoms.start for layer in (*squares, *maxima)}
    relaxed = tuple(layer for layer in layers if layer.atoms.start not in left_to_rows)
    return Fused(network.sizes[INPUT], relaxed, tuple(squares), together, groups, _sizes(network, region))


def _layers(network: Network) -> tuple[list[FusedLayer], AffineFunctions]:
    """All activations, and the outputs."""
    atoms, first = _atoms(network), network.sizes[INPUT]
    values: dict[int, tuple[Tensor, Tensor]] = {INPUT: _units(0, first, atoms)}
    layers = []
    for value, node in network.steps():
        if isinstance(node.operation, Affine):
            values[value] = _affine(FlatAffine.of(network, value), [values[source] for source in node.inputs])
            continue
        size = network.sizes[value]
        functions = AffineFunctions(*(table.T for table in values[node.inputs[0]]))
        layers.append(FusedLayer(network.activations[value], functions, slice(first, first + size)))
        values[value] = _units(first, size, atoms)
        first += size
    return layers, AffineFunctions(*(table.T for table in values[network.output]))


def _atoms(network: Network) -> int:
    return sum(network.sizes[value] for value in (INPUT, *network.activations))


def _units(first: int, size: int, atoms: int) -> tuple[Tensor, Tensor]:
    weight = torch.zeros(atoms + 1, size, dtype=torch.float64)
    weight[torch.arange(first, first + size), torch.arange(size)] = 1
    return weight, torch.zeros_like(weight)


def _affine(affine: FlatAffine, sources: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """An affine operation on functions, (atoms + 1, size) each."""
    terms = affine.operation.terms
    gamma = RIGOROUS.gamma(terms + 8)
    weight = affine.linear(*(weight for weight, _ in sources)).clone()  # it may be a view of its source
    error = affine.magnitude(*(RIGOROUS.above(error + gamma * 2 * weight.abs(), 4) for weight, error in sources))
    if affine.constant is not None:
        weight[-1] += affine.constant
        error[-1] += 2 * gamma * (weight[-1].abs() + affine.constant.abs())
    return weight, RIGOROUS.above(error, 2 * terms + 14)


def _times(rows: Tensor, offsets: Tensor, functions: AffineFunctions) -> AffineFunctions:
    """Rows of a property, (count, outputs), and offsets, as functions of the atoms."""
    gamma = RIGOROUS.gamma(rows.shape[1] + 4)
    size = rows.abs() @ (functions.error + gamma * functions.weight.abs())
    weight = rows @ functions.weight
    weight[:, -1] += offsets
    size[:, -1] += gamma * (weight[:, -1].abs() + offsets.abs())
    return AffineFunctions(weight, RIGOROUS.above(size, 2 * rows.shape[1] + 8))


def _left_to_rows(layers: list[FusedLayer]) -> tuple[list[FusedLayer], list[FusedLayer]]:
    """The squares that only rows and maxima depend on, and the maxima: ReLUs of such squares, which only they need."""
    needed = torch.zeros(layers[0].functions.weight.shape[1] - 1, dtype=torch.bool) if layers else torch.zeros(0)
    squares: list[FusedLayer] = []
    maxima: list[FusedLayer] = []
    of_squares = torch.zeros_like(needed)
    for layer in layers:
        of_squares[layer.atoms] = layer.is_square or bool((layer.functions.used & of_squares).any())
    for layer in reversed(layers):
        quadratic, left = bool((layer.functions.used & of_squares).any()), not bool(needed[layer.atoms].any())
        if left and quadratic and isinstance(layer.activation, Relu):
            maxima.append(layer)
            continue
        if left and layer.is_square and not quadratic:
            squares.append(layer)
        needed |= layer.functions.used
    return squares[::-1], maxima[::-1]


def _expanded(group: list[AffineFunctions], layer: FusedLayer) -> list[AffineFunctions] | None:
    """The alternatives of a row without the ReLUs of a layer; None where they are too many, or a ReLU is subtracted."""
    for number, atom in enumerate(layer.numbers.tolist()):
        before = layer.functions.pick(torch.tensor([number]))
        longer = []
        for row in group:
            factor = row.weight[:, atom].clone()
            if not bool((factor >= 0).all()):
                return None
            row.weight[:, atom] = 0
            longer.append(row)
            if bool(factor > 0):
                longer.append(row.plus(factor, before))
        group = longer
        if len(group) > MOST_ALTERNATIVES:
            return None
    return group


def _distinct(functions: AffineFunctions) -> tuple[AffineFunctions, Tensor]:
    """The functions without those that are others but for rounding, and where each of them is now: (count,)."""
    _, places = torch.unique(functions.weight.float(), dim=0, return_inverse=True)
    first = torch.zeros(int(places.max()) + 1, dtype=torch.long)
    first[places.flip(0)] = torch.arange(len(places)).flip(0)
    weight = functions.weight[first]
    missed = RIGOROUS.above(functions.error + (functions.weight - weight[places]).abs(), 4)
    error = torch.stack([missed[places == number].amax(0) for number in range(len(weight))])
    return AffineFunctions(weight, error), places


def _sizes(network: Network, region: Region) -> Tensor:
    values = [INPUT, *network.activations]
    bounds = interval_bounds(network, region, RIGOROUS, tuple(values))
    sizes = [bounds[value].largest[0] for value in values]
    return torch.cat([*sizes, torch.ones(1, dtype=torch.float64)])
