"""LP and LP-Full written down as they stand: every value of the network a block of variables, one program at a time.

Perturbations have both signs.
"""

import clarabel
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csc_matrix

from relucert.bounding.interval import Bounds, Interval
from relucert.network import Affine, Network

Array = NDArray[np.float64]


class LiteralProgram:
    """The triangle relaxation of a network in float64 around a point (size,)."""

    def __init__(self, network: Network, point: Array, radius: float, p: float, bounds: Bounds) -> None:
        self.network, self.p, self.radius = network, p, radius
        self.starts = np.cumsum([0, *network.sizes])
        self.size = int(self.starts[-1]) + (network.sizes[0] if p == 1 else 0)
        self.point = point
        self.equal: list[tuple[Array, float]] = []
        self.below: list[tuple[Array, float]] = []
        self._ball()
        for value, node in network.steps():
            if isinstance(node.operation, Affine):
                self._affine(value)
            elif node.inputs[0] in bounds:
                interval = bounds[node.inputs[0]]
                for neuron in range(network.sizes[value]):
                    lower, upper = float(interval.lower[0, neuron]), float(interval.upper[0, neuron])
                    self._triangle(value, node.inputs[0], neuron, lower, upper)

    def least(self, value: int, form: Array) -> float:
        """The least value of a form on a value."""
        cost = np.zeros(self.size)
        cost[self._block(value)] = form
        if self.p == 2:
            return self._conic(cost)
        free = [(None, None)] * self.size
        solved = linprog(cost, *_arrays(self.below), *_arrays(self.equal), bounds=free, method="highs")
        assert solved.status == 0
        return float(solved.fun)

    def _conic(self, cost: Array) -> float:
        inside = np.zeros((self.network.sizes[0] + 1, self.size))
        inside[1:, self._block(0)] = -np.eye(self.network.sizes[0])
        rows = [row for row, _ in [*self.equal, *self.below]]
        right = [amount for _, amount in [*self.equal, *self.below]]
        cones = [
            clarabel.ZeroConeT(len(self.equal)),
            clarabel.NonnegativeConeT(len(self.below)),
            clarabel.SecondOrderConeT(len(inside)),
        ]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        solved = clarabel.DefaultSolver(
            csc_matrix((self.size, self.size)), cost, csc_matrix(np.concatenate([rows, inside])),
            np.concatenate([right, [self.radius], -self.point]), cones, settings,
        ).solve()  # fmt: skip
        assert solved.status == clarabel.SolverStatus.Solved
        return float(solved.obj_val)

    def _block(self, value: int) -> slice:
        return slice(int(self.starts[value]), int(self.starts[value + 1]))

    def _unit(self, value: int, neuron: int, factor: float = 1.0) -> Array:
        row = np.zeros(self.size)
        row[self.starts[value] + neuron] = factor
        return row

    def _ball(self) -> None:
        count = self.network.sizes[0]
        for place, centre in enumerate(self.point):
            size = self._unit(0, place) * 0
            if self.p == 1:
                size[self.size - count + place] = -1
            for sign in (1.0, -1.0):
                right = sign * centre + (0.0 if self.p == 1 else self.radius)
                self.below.append((self._unit(0, place, sign) + size, right))
        if self.p == 1:
            whole = np.zeros(self.size)
            whole[-count:] = 1
            self.below.append((whole, self.radius))

    def _affine(self, value: int) -> None:
        node, network = self.network.node(value), self.network
        shapes = [network.shapes[source] for source in node.inputs]
        zeros = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
        constant = node.operation.apply(*zeros).flatten().numpy()
        rows = np.zeros((network.sizes[value], self.size))
        for place, source in enumerate(node.inputs):
            for neuron in range(network.sizes[source]):
                given = [zero.clone() for zero in zeros]
                given[place].view(-1)[neuron] = 1
                rows[:, self.starts[source] + neuron] += node.operation.apply(*given).flatten().numpy() - constant
        for neuron, row in enumerate(rows):
            self.equal.append((self._unit(value, neuron) - row, float(constant[neuron])))

    def _triangle(self, value: int, source: int, neuron: int, lower: float, upper: float) -> None:
        after, before = self._unit(value, neuron), self._unit(source, neuron)
        if upper <= 0:
            self.equal.append((after, 0.0))
        elif lower >= 0:
            self.equal.append((after - before, 0.0))
        else:
            slope = upper / (upper - lower)
            self.below += [(-after, 0.0), (before - after, 0.0), (after - slope * before, -slope * lower)]


def _arrays(rows: list[tuple[Array, float]]) -> tuple[Array | None, Array | None]:
    if not rows:
        return None, None
    return np.array([row for row, _ in rows]), np.array([right for _, right in rows])


def full_bounds(network: Network, point: Array, radius: float, p: float) -> Bounds:
    """LP-Full's bounds of every neuron, all of them by programs, layer after layer."""
    bounds: Bounds = {}
    for value in network.preactivations:
        program = LiteralProgram(network, point, radius, p, bounds)
        size = network.sizes[value]
        lower = [program.least(value, np.eye(size)[neuron]) for neuron in range(size)]
        upper = [-program.least(value, -np.eye(size)[neuron]) for neuron in range(size)]
        bounds[value] = Interval(*(torch.tensor([side], dtype=torch.float64) for side in (lower, upper)))
    return bounds
