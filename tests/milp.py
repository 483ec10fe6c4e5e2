"""The minimum distortion as a mixed-integer program for HiGHS: slow, trusted to about 1e-6, and another's arithmetic.

For p = 1 and infinity and small networks of affine operations and ReLUs: what exact answers are compared with.
"""

import math
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

import relucert
from relucert.arithmetic.region import Region
from relucert.network import Affine, Network

Array = NDArray[np.float64]
SHARES = (1 / 64, 1 / 16, 1 / 4, 1)  # of the radius
INFEASIBLE = 2  # the status of scipy.optimize.milp


def nearest(
    network: Network, centre: Tensor, label: int, rival: int, norm: float, radius: float,
    box: tuple[float, float] | None = None,
) -> tuple[float, Tensor] | None:  # fmt: skip
    """The least distance from a centre, (size,), at which the rival catches up with the label, and a point there.

    Only points within the radius are looked at, and with a box only those whose coordinates lie in it; None where
    the rival never catches up among them. The smaller the radius, the tighter the program, so that smaller balls are
    looked at first: the nearest point of one is the nearest of all.
    """
    for share in SHARES:
        program = _Program(network.cast(torch.float64), centre.double(), norm, share * radius, box)
        if (answer := program.solve(label, rival)) is not None:
            return answer
    return None


class _Program:
    """Columns: every value of the network, a binary for every neuron (is it active?), the deviations from the centre
    and, last, the distance."""

    def __init__(
        self, network: Network, centre: Tensor, norm: float, radius: float, box: tuple[float, float] | None
    ) -> None:
        self.network = network
        neurons, inputs = network.preactivations, network.sizes[0]
        sizes = [*network.sizes, *(network.sizes[value] for value in neurons), inputs, 1]
        ends = list(accumulate(sizes, initial=0))
        blocks = [slice(*pair) for pair in pairwise(ends)]
        self.values, rest = blocks[: len(network.sizes)], blocks[len(network.sizes) :]
        *switches, self.deviation, self.distance = rest
        self.switches = dict(zip(neurons, switches, strict=True))
        self.lower, self.upper = np.full(ends[-1], -np.inf), np.full(ends[-1], np.inf)
        self.whole = np.zeros(ends[-1])
        self.rows: list[LinearConstraint] = []
        self._place_input(centre.numpy(), norm, radius, box)
        self._bound_neurons(Region.around(centre[None], radius, norm))
        for value, node in network.steps():
            if isinstance(node.operation, Affine):
                self._place_affine(value, node.operation, node.inputs)
            else:
                self._place_relu(value, node.inputs[0])

    def solve(self, label: int, rival: int) -> tuple[float, Tensor] | None:
        score = self.values[-1].start
        margin = np.zeros((1, len(self.lower)))
        margin[0, score + label], margin[0, score + rival] = 1, -1
        rows = [*self.rows, LinearConstraint(margin, -np.inf, 0)]
        solution = self._run(rows, self.lower, self.upper)
        if solution is None:
            return None
        # Once more with the binaries whole: those of the first answer are so only up to a tolerance.
        whole = self.whole == 1
        lower, upper = (np.where(whole, solution.round(), side) for side in (self.lower, self.upper))
        solution = self._run(rows, lower, upper)
        assert solution is not None
        return float(solution[self.distance][0]), torch.from_numpy(solution[self.values[0]].copy())

    def _run(self, rows: list[LinearConstraint], lower: Array, upper: Array) -> Array | None:
        objective = np.zeros(len(lower))
        objective[self.distance] = 1
        ended = milp(
            objective, integrality=self.whole, bounds=Bounds(lower, upper), constraints=rows, options={"mip_rel_gap": 0}
        )
        if ended.status == INFEASIBLE:
            return None
        if not ended.success:
            raise ArithmeticError(f"HiGHS ended with status {ended.status}: {ended.message}")
        solution: Array = ended.x
        return solution

    def _row(self, terms: list[tuple[slice, Array]], lower: Array | float, upper: Array | float) -> None:
        """Constraints lower <= sum of matrix times block <= upper."""
        matrix = np.zeros((len(terms[0][1]), len(self.lower)))
        for block, coefficients in terms:
            matrix[:, block] += coefficients
        self.rows.append(LinearConstraint(matrix, lower, upper))

    def _place_input(self, centre: Array, norm: float, radius: float, box: tuple[float, float] | None) -> None:
        low, high = (-np.inf, np.inf) if box is None else box
        self.lower[self.values[0]] = np.maximum(centre - radius, low)
        self.upper[self.values[0]] = np.minimum(centre + radius, high)
        self.upper[self.distance] = radius
        unit = np.eye(len(centre))
        self._row([(self.deviation, unit), (self.values[0], -unit)], -centre, np.inf)
        self._row([(self.deviation, unit), (self.values[0], unit)], centre, np.inf)
        if norm not in (1.0, math.inf):
            raise ValueError(f"no linear program for p = {norm}")
        total = np.ones((1, len(centre))) if norm == 1 else unit
        self._row([(self.deviation, total), (self.distance, -np.ones((len(total), 1)))], -np.inf, 0)

    def _bound_neurons(self, ball: Region) -> None:
        neurons = sorted({*self.network.preactivations, self.network.output})
        for value, bounds in zip(neurons, relucert.bounds(self.network, ball), strict=True):
            block = self.values[value]
            self.lower[block] = np.maximum(self.lower[block], bounds.lower[0].numpy())
            self.upper[block] = np.minimum(self.upper[block], bounds.upper[0].numpy())
        for value, switch in self.switches.items():
            self.whole[switch] = 1
            self.lower[switch] = self.lower[self.values[value]] >= 0
            self.upper[switch] = self.upper[self.values[value]] > 0

    def _place_affine(self, value: int, operation: Affine, sources: tuple[int, ...]) -> None:
        shapes = [self.network.shapes[source] for source in sources]
        terms = [(self.values[value], np.eye(self.network.sizes[value]))]
        for place, source in enumerate(sources):
            size = self.network.sizes[source]
            operands = [torch.zeros(size, *shape, dtype=torch.float64) for shape in shapes]
            operands[place] = torch.eye(size, dtype=torch.float64).reshape(size, *shapes[place])
            terms.append((self.values[source], -operation.linear(*operands).reshape(size, -1).numpy().T))
        constant = operation.apply(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes)).flatten().numpy()
        self._row(terms, constant, constant)

    def _place_relu(self, value: int, source: int) -> None:
        """max(z, 0) with the big-M constants l <= z <= u: above 0 and z, below u * active and z - l * (1 - active)."""
        after, before, switch = self.values[value], self.values[source], self.switches[source]
        lower, upper, unit = self.lower[before], self.upper[before], np.eye(self.network.sizes[value])
        self.lower[after] = np.maximum(self.lower[after], 0)
        self._row([(after, unit), (before, -unit)], 0, np.inf)
        self._row([(after, unit), (switch, -np.diag(upper.clip(min=0)))], -np.inf, 0)
        self._row([(after, unit), (before, -unit), (switch, -np.diag(lower.clip(max=0)))], -np.inf, -lower.clip(max=0))
