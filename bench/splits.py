"""What splits by signs of neurons add to a quadratic certificate, on questions that it leaves open.

    python -m bench.splits mnist-5x256 --radius 0.045 --questions 20 --levels 5

For each of the first bundled images, the weakest rival, p = infinity, no box: the certificate's bound at the root, and
level by level the leaves that are open and the bound of the weakest. A leaf has the root's weights, which stay feasible
as a split only shrinks intervals, and slopes, centres and a factor that climb. Either of two rules chooses the neuron:
where the minima on both sides of 0 differ most (`apart`), or where both lie deepest below the value at 0 (`wells`).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import relucert
from relucert import data
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.adam import Adam
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import CROWN
from relucert.methods.quadratic.ascent import AGAIN, COOLED, DECAY, CertificateAscent, Layout
from relucert.methods.quadratic.dual import Term, evaluate, term
from relucert.methods.quadratic.linearised_network import LinearisedNetwork, Neurons
from relucert.methods.quadratic.pieces import Piece, relu_pieces
from relucert.methods.quadratic.rows import RegionRows
from relucert.methods.quadratic.solve import INFLATION
from relucert.network import Network

STEPS = 60  # of an ascent in every leaf


@dataclass(eq=False)
class Leaves:
    """Leaves of one row's tree.

    Attributes:
        rows: Whose solver has the root's certificate.
        row: Which one.
        table: The dual point and the logarithm of the factor of every leaf.
        lower: By layer, how far below the reference pre-activations may lie, (leaves, count).
        upper: How far above.
    """

    rows: RegionRows
    row: int
    table: Tensor
    lower: dict[int, Tensor]
    upper: dict[int, Tensor]

    @classmethod
    def root(cls, rows: RegionRows, row: int) -> Leaves:
        solution, quick = rows.solver.solutions[row], rows.solver.quick
        assert solution is not None
        layout = Layout(quick, own=False)
        table = torch.zeros(1, sum(layout.sizes))
        point = layout.point(table)
        point.inputs.copy_(solution.point.inputs)
        for value, neurons in quick.neurons.items():
            point.shares[value].copy_(solution.point.shares[value])
            if neurons.following:
                point.errors[value].copy_(solution.point.errors[value])
        table[:, -1] = math.log(solution.factor)
        lower = {value: neurons.lower[None].clone() for value, neurons in quick.neurons.items()}
        upper = {value: neurons.upper[None].clone() for value, neurons in quick.neurons.items()}
        return cls(rows, row, table, lower, upper)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def linearised(self) -> LinearisedNetwork:
        """With intervals of every leaf's own."""
        quick = self.rows.solver.quick
        neurons = {value: _within(its, self.lower[value], self.upper[value]) for value, its in quick.neurons.items()}
        return replace(quick, neurons=neurons)

    @property
    def _ascent(self) -> CertificateAscent:
        solver = self.rows.solver
        solution = solver.solutions[self.row]
        assert solution is not None
        base = solution.certificate.weights.map(Tensor.float).inflated(torch.tensor([INFLATION]))
        forms = solver.forms[self.row].expand(len(self), -1)
        heights = solver.heights[self.row].expand(len(self))
        return CertificateAscent(Layout(self.linearised, own=False), forms, heights, base, self.table.clone(), None)

    def climb(self) -> Tensor:
        """Bounds after an ascent in every leaf, (leaves,)."""
        ascent, rates = self._ascent, AGAIN * Layout(self.rows.solver.quick, own=False).rates()
        adam, best = Adam([ascent.table], DECAY, 1e-12), torch.full((len(self),), -torch.inf)
        for step in range(STEPS):
            before = ascent.table.clone()
            found = ascent.step(adam, rates * (1 - (1 - COOLED) * step / STEPS))
            better = found > best
            best[better], self.table[better] = found[better], before[better]
        return best

    def scores(self, rule: str) -> dict[int, Tensor]:
        """By layer, how much a split of each neuron matters, (leaves, count)."""
        ascent = self._ascent
        weights, point = ascent.base.times(self.table[:, -1].exp()), ascent.layout.point(self.table)
        found = evaluate(ascent.linearised, ascent.forms, ascent.heights, weights, point)
        scores = {}
        for value, neurons in ascent.linearised.neurons.items():
            function = term(value, found.pulled, weights, found.middles[value], point)
            negative, positive = neurons.pieces
            below, above = _least(function, negative), _least(function, positive)
            at_zero = function.at(positive, positive.low)
            score = (below - above).abs() if rule == "apart" else at_zero - torch.maximum(below, above)
            is_open = (neurons.lower < -neurons.centre) & (neurons.upper > -neurons.centre)
            scores[value] = torch.where(is_open, score, -torch.inf)
        return scores

    def split(self, rule: str) -> Leaves:
        """Both halves of every leaf."""
        scores = self.scores(rule)
        values, widths = list(scores), [part.shape[1] for part in scores.values()]
        best = torch.cat(list(scores.values()), 1).argmax(1).tolist()
        lower = {value: part.repeat(2, 1) for value, part in self.lower.items()}
        upper = {value: part.repeat(2, 1) for value, part in self.upper.items()}
        for leaf, position in enumerate(best):
            layer = 0
            while position >= widths[layer]:
                position, layer = position - widths[layer], layer + 1
            value = values[layer]
            zero = -float(self.rows.solver.quick.neurons[value].centre[position])
            upper[value][leaf, position] = zero
            lower[value][leaf + len(self), position] = zero
        return Leaves(self.rows, self.row, self.table.repeat(2, 1), lower, upper)

    def select(self, leaves: Tensor) -> Leaves:
        lower = {value: part[leaves] for value, part in self.lower.items()}
        upper = {value: part[leaves] for value, part in self.upper.items()}
        return Leaves(self.rows, self.row, self.table[leaves], lower, upper)


def _within(neurons: Neurons, lower: Tensor, upper: Tensor) -> Neurons:
    """ReLUs with other bounds of deviations, (leaves, count) each."""
    pieces = relu_pieces(neurons.centre, neurons.slope, lower, upper)
    return replace(neurons, lower=lower, upper=upper, pieces=pieces)


def _least(function: Term, piece: Piece) -> Tensor:
    """The least value of a term on a piece."""
    curvature, slope = function.curvature(piece), function.slope(piece)
    end = torch.where(slope + curvature * (piece.low + piece.high) > 0, piece.low, piece.high)
    turn = (-slope / torch.where(curvature > 0, 2 * curvature, 1)).minimum(piece.high).maximum(piece.low)
    return function.at(piece, torch.where(curvature > 0, turn, end))


def questions(network: Network, radius: float) -> Iterator[tuple[int, RegionRows, int]]:
    """Images with the row that decides, where certificates leave it open."""
    images = data.bundled()
    assert images.labels is not None
    for number, (image, label) in enumerate(zip(images.images.double(), torch.as_tensor(images.labels), strict=True)):
        point = image.flatten()[None]
        if int(network(point).argmax()) != int(label):
            continue
        rivals = [rival for rival in range(network.classes) if rival != int(label)]
        prop = Property.margins(label[None], torch.tensor([rivals]), network.classes).cast(torch.float64)
        region = Region.around(point, radius, math.inf)
        rows = RegionRows.of(network, region, prop, hidden_bounds(network, region, CROWN, RIGOROUS))
        row = rows.least()
        if not float(rows.solver.bounds[row]) > 0:
            yield number, rows, row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="a zoo name for MNIST, or a file")
    parser.add_argument("--radius", type=float, default=0.045)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--levels", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network = relucert.load(arguments.network).cast(torch.float64)
    asked = zip(range(arguments.questions), questions(network, arguments.radius), strict=False)
    for _, (number, rows, row) in asked:
        height = float(rows.heights[row])
        print(f"image {number}: {height:.3f} at the centre, root {float(rows.solver.bounds[row]):.3f}", flush=True)
        for rule in ("apart", "wells"):
            started, leaves, told = time.process_time(), Leaves.root(rows, row), []
            told.append(f"{float(leaves.climb().min()):.3f}")
            for _ in range(arguments.levels):
                leaves = leaves.split(rule)
                found = leaves.climb()
                leaves = leaves.select((~(found > 0)).nonzero().flatten())
                told.append(f"{float(found.min()):.3f} ({len(leaves)})")
                if not len(leaves):
                    break
            print(f"  {rule}: {', '.join(told)} in {time.process_time() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
