"""The check that a certificate is feasible: `sum P dz^2 <= sum D v^2` for all v = (y, e), where `dz = A v`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from flint import fmpq
from numpy.typing import NDArray
from scipy import sparse

from relucert.checker.ball_region import Numbers, fraction
from relucert.checker.certificate_document import CertificateEntry, NormEntry
from relucert.checker.certificate_rows import RoundedRows, RowMaker, spatial
from relucert.checker.contraction import BITS, UP, Matrix, is_contraction
from relucert.checker.entries import Rejected, require
from relucert.checker.linearised_network import INPUT, THE_INPUT, CheckedNetwork

ZERO = fmpq(0)
DENSE = 0.2  # share of coefficients that are not 0, from which a matrix is a dense one
MOST_KEPT = 2**25  # coefficients of 8 bytes each that are kept for the next certificate
FARTHEST = 300  # powers of two by which numbers may differ, far from float64's underflow and overflow
Floats = NDArray[np.float64]


@dataclass(eq=False)
class Feasibility:
    """The check of a proof's certificates, which have the rows of the network in common."""

    linearised: CheckedNetwork
    maker: RowMaker = field(init=False)

    def __post_init__(self) -> None:
        self.maker = RowMaker(self.linearised)
        self._kept: dict[int, list[dict[int, RoundedRows]]] = {}

    def check(self, entry: CertificateEntry) -> None:
        """Raises Rejected unless a certificate, whose sizes are checked, is proven to be feasible."""
        if entry.norms is None:
            self._check_joint(entry)
        else:
            self._check_composed(entry, entry.norms)

    def input_weights(self, entry: CertificateEntry) -> Numbers:
        """The weights of all inputs, 0 for those that stay."""
        radii = self.linearised.region.radii
        weights = entry.inputs * len(radii) if len(entry.inputs) == 1 else entry.inputs
        return [fraction(weight) if radius > 0 else ZERO for weight, radius in zip(weights, radii, strict=True)]

    def check_sizes(self, entry: CertificateEntry) -> None:
        """Raises Rejected unless a certificate has one weight for each neuron and input."""
        counts, errors = self.linearised.counts
        check_counts("weights of deviations", entry.deviations, counts)
        check_counts("weights of errors", entry.errors, errors)
        fits = len(entry.inputs) in (1, len(self.linearised.region.radii))
        require(fits, "a certificate has neither one weight for all inputs nor one for each")

    def _check_joint(self, entry: CertificateEntry) -> None:
        """`I - B B'` is semidefinite with `B = P^(1/2) A D^(-1/2)`."""
        columns = {THE_INPUT: _quotients(self.linearised.region.radii, self.input_weights(entry))}
        for value, neurons in self.linearised.neurons.items():
            if neurons.followed:
                weights = [fraction(number) for number in entry.errors.get(value, [])]
                columns[value] = _quotients([fmpq(1)] * len(weights), weights)
        matrix = ScaledRows()
        for value in self.linearised.neurons:
            roots = _roots([fraction(number) for number in entry.deviations.get(value, [])], fmpq(1))
            done = 0
            for rows in self._joint_rows(value):
                count = len(next(iter(rows.values())).forms.units)
                row_roots = roots[done : done + count]
                matrix.add(row_roots, [(rows.get(source), factors) for source, factors in columns.items()])
                done += count
        require(matrix.is_short(), "a joint certificate is not proven to be feasible")

    def _joint_rows(self, value: int) -> Iterable[dict[int, RoundedRows]]:
        """The maps from inputs and from errors of unstable neurons to the unstable neurons of a layer, chunk by chunk;
        they are kept for the next certificate unless they are too many."""
        if value in self._kept:
            return self._kept[value]
        every = self.maker.maps(value, self.linearised.neurons[value].index, through=True)
        rows = (self._cut(maps) for maps in every)
        count = sum(map(len, self.linearised.neurons.values()))
        if count * (count + len(self.linearised.region.radii)) > MOST_KEPT:
            return rows
        self._kept[value] = list(rows)
        return self._kept[value]

    def _cut(self, maps: dict[int, RoundedRows]) -> dict[int, RoundedRows]:
        return {
            source: rows if source == THE_INPUT else rows.at(self.linearised.neurons[source].index)
            for source, rows in maps.items()
        }

    def _check_composed(self, entry: CertificateEntry, norms: dict[tuple[int, int], NormEntry]) -> None:
        """Goes from the last layer to the first: the squared deviations of a layer are bounded by those of its sources,
        whose weights this raises by the squared norm of the map over the source's share."""
        linearised = self.linearised
        pairs = {(value, source) for value in linearised.network.preactivations for source in linearised.sources(value)}
        require(set(norms) == pairs, "a composed certificate has not one norm for each layer and source")
        profiles = self._profiles(entry)
        required: dict[int, Numbers] = {}
        for value in reversed(linearised.network.preactivations):
            weights = self._carried(value, entry, required.get(value, [ZERO] * linearised.network.sizes[value]))
            sources = linearised.sources(value)
            shares = sum((fraction(norms[value, source].share) for source in sources), ZERO)
            require(shares <= 1, f"the shares of the sources of value {value} exceed 1")
            for source in sources:
                norm, profile = norms[value, source], profiles[source]
                number = fraction(norm.square) / fraction(norm.share)
                before = required.get(source, [ZERO] * len(profile))
                required[source] = [total + number * share for total, share in zip(before, profile, strict=True)]
            self._check_norms(value, weights, {source: norms[value, source] for source in sources}, profiles)
        radii = linearised.region.radii
        least = required.get(THE_INPUT, [ZERO] * len(radii))
        enough = all(
            weight >= number
            for weight, number, radius in zip(self.input_weights(entry), least, radii, strict=True)
            if radius > 0
        )
        require(enough, "the weights of inputs are less than the norms ask for")

    def _profiles(self, entry: CertificateEntry) -> dict[int, Numbers]:
        """By source, one number for each of its coordinates; raises Rejected where the entry has others."""
        linearised = self.linearised
        sources = {source for value in linearised.network.preactivations for source in linearised.sources(value)}
        sizes = {
            source: len(linearised.region.radii) if source == THE_INPUT else linearised.network.sizes[source]
            for source in sources
        }
        fits = all(len(numbers) == sizes.get(source) for source, numbers in entry.profiles.items())
        require(fits, "a profile has not one number for each neuron of a source")
        profiles = {source: entry.profiles.get(source, [1.0] * size) for source, size in sizes.items()}
        return {source: [fraction(number) for number in numbers] for source, numbers in profiles.items()}

    def _carried(self, value: int, entry: CertificateEntry, required: Numbers) -> Numbers:
        """The weights T with which the squared deviations of a pre-activation have to be bounded, one per neuron.

        required: The weights Q with which those of its ReLUs have to be bounded, one per neuron.
        """
        neurons = self.linearised.neurons[value]
        slopes = self.linearised.slopes[value].units.tolist()
        weights = [total if slope else ZERO for total, slope in zip(required, slopes, strict=True)]
        for index, neuron in enumerate(neurons.index.tolist()):
            weights[neuron] = fraction(entry.deviations[value][index])
            total = required[neuron]
            if total == 0:
                continue
            error, slope = fraction(entry.errors[value][index]), neurons.slope[index]
            if not (error > total if slope != 0 else error >= total):
                raise Rejected(f"the weight of an error of value {value} is less than the norms ask for")
            if slope != 0:
                weights[neuron] += total * slope * slope * error / (error - total)
        return weights

    def _check_norms(
        self, value: int, weights: Numbers, norms: dict[int, NormEntry], profiles: dict[int, Numbers]
    ) -> None:  # fmt: skip
        """Raises Rejected unless the norm of the map from every source to a layer with these weights is at most the
        certificate's; the coordinates of a source are weighed by its profile."""
        network = self.linearised.network
        wanted = [neuron for neuron in spatial(network, value).tolist() if weights[neuron] > 0]
        if not wanted:
            return
        roots, columns = {}, {}
        matrices = {}
        for source, norm in norms.items():
            roots[source] = _roots([weights[neuron] for neuron in wanted], fraction(norm.square))
            columns[source] = self._columns(source, profiles[source])
            order = spatial(network, max(source, INPUT))
            matrices[source] = ScaledRows(order[columns[source][order] > 0])
        done = 0
        for maps in self.maker.maps(value, torch.tensor(wanted), through=False):
            count = len(next(iter(maps.values())).forms.units)
            for source, matrix in matrices.items():
                row_roots = roots[source][done : done + count]
                matrix.add(row_roots, [(maps.get(source), columns[source])])
            done += count
        for source, matrix in matrices.items():
            require(matrix.is_short(), f"the norm of the map from value {source} to value {value} is not proven")

    def _columns(self, source: int, profile: Numbers) -> Floats:
        """The factors of a source's deviations over the roots of its profile: the radii of inputs, 1 for neurons and 0
        for inactive ones."""
        if source == THE_INPUT:
            return _quotients(self.linearised.region.radii, profile)
        passed = self.linearised.slopes[source].units > 0
        passed[self.linearised.neurons[source].index] = True
        return _quotients([fmpq(int(through)) for through in passed.tolist()], profile)


class ScaledRows:
    """A matrix `diag(roots) W diag(columns)` as integers, and a bound of how far it is off."""

    def __init__(self, order: NDArray[np.intp] | None = None) -> None:
        """order: the columns that count, neighbours beside each other; None: all."""
        self.order = order
        self._blocks: list[Matrix] = []
        self._squares = 0.0  # of errors
        self._fits = True

    def add(self, roots: Floats, maps: Iterable[tuple[RoundedRows | None, Floats]]) -> None:
        """Adds the rows of maps side by side, each map times its factors; None is a map of zeros. Rows whose root is 0
        are left out."""
        wanted = np.flatnonzero(roots)
        blocks = []
        for rows, factors in maps:
            if rows is None:
                blocks.append(np.zeros((len(wanted), len(factors)), dtype=np.int64))
            else:
                units = rows.forms.units[torch.from_numpy(wanted)] if len(wanted) < len(roots) else rows.forms.units
                blocks.append(self._scaled(units, rows.forms.bits, float(rows.max_error), roots[wanted], factors))
        block = np.concatenate(blocks, 1)
        if self.order is not None:
            block = block[:, self.order]
        sparse_block = np.count_nonzero(block) < DENSE * block.size
        self._blocks.append(sparse.csr_array(block) if sparse_block else block)

    def _scaled(
        self, units: torch.Tensor, bits: int, max_error: float, roots: Floats, factors: Floats
    ) -> NDArray[np.int64]:
        """The scaled entries as integers over 2**BITS. An entry is off by at most 0.51 of a unit where it is not 0: by
        four roundings of a number that is at most 1, then that to an integer; no underflow is large enough to count."""
        high, wide = (_exponent(numbers) for numbers in (roots, factors))
        power = high + wide - bits + BITS
        self._fits &= max(map(abs, (bits, high, wide))) < FARTHEST
        if not self._fits:
            return np.zeros(units.shape, dtype=np.int64)
        numbers = units.double().numpy() * (roots * 2.0**-high)[:, None] * (factors * 2.0**-wide)
        numbers = np.rint(np.ldexp(numbers, power))
        if not bool((np.abs(numbers) <= 2.0**BITS).all()):
            self._fits = False
            return np.zeros(units.shape, dtype=np.int64)
        count = int(torch.count_nonzero(units))
        spread = max_error * UP * float(np.linalg.norm(roots)) * float(np.linalg.norm(factors))
        self._squares += (0.51 * math.sqrt(count) * 2.0**-BITS + spread) ** 2
        return numbers.astype(np.int64)

    def is_short(self) -> bool:
        """Whether it is proven that the matrix is no longer than 1."""
        if not self._fits:
            return False
        if not self._blocks:
            return True
        matrix = self._whole()
        if matrix.shape[0] > matrix.shape[1]:
            matrix = sparse.csr_array(matrix.T) if isinstance(matrix, sparse.csr_array) else matrix.T
        return is_contraction(matrix, math.sqrt(self._squares) * UP)

    def _whole(self) -> Matrix:
        if all(isinstance(block, sparse.csr_array) for block in self._blocks):
            return sparse.csr_array(sparse.vstack(self._blocks, "csr"))
        return np.concatenate([
            block.toarray() if isinstance(block, sparse.csr_array) else block for block in self._blocks
        ])  # fmt: skip


def check_counts(subject: str, numbers: dict[int, list[float]], counts: dict[int, int]) -> None:
    """Refuses lists by layer that have not one number for each neuron."""
    expected = set(numbers) <= set(counts)
    fits = expected and all(len(numbers.get(value, [])) == count for value, count in counts.items())
    require(fits, f"it has not one number for each neuron: {subject}")


def _roots(weights: Numbers, square: fmpq) -> Floats:
    """Upper bounds, by little, of the roots of weights over a square."""
    return np.array([_root(weight / square) if weight > 0 else 0.0 for weight in weights])


def _quotients(radii: Numbers, weights: Numbers) -> Floats:
    """Upper bounds, by little, of radii over the roots of weights."""
    require(
        all(weight > 0 for weight, radius in zip(weights, radii, strict=True) if radius > 0), "a weight is not positive"
    )
    pairs = zip(radii, weights, strict=True)
    return np.array([_root(radius * radius / weight) if radius > 0 else 0.0 for radius, weight in pairs])


def _root(number: fmpq) -> float:
    """A float64 number that is at least the root, by little."""
    near = float(number)
    if near < 1e-290:
        return 1e-145
    root = math.sqrt(near)
    while fraction(root) ** 2 < number:
        root = math.nextafter(root, math.inf)
    return root


def _exponent(numbers: Floats) -> int:
    """The power of two just above all numbers >= 0."""
    largest = float(numbers.max(initial=0.0))
    return math.frexp(largest)[1] if largest else 0
