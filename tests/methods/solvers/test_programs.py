"""LP and LP-Full at a given radius: against the literal programs, against samples, and by every way to find slopes."""

import numpy as np
import pytest
import torch

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.interval import Bounds
from relucert.methods.solvers import proposer
from relucert.methods.solvers.dual import lower_slopes
from relucert.methods.solvers.solver import DualSolution, Unsolved
from relucert.methods.table import find_method
from relucert.network import Network
from tests.method_tables import PROGRAMS
from tests.methods.solvers.literal import LiteralProgram, full_bounds
from tests.nets import NETWORKS, centres

NORMS = (1.0, 2.0, float("inf"))
RADII = (0.15, 0.6)


def question(name: str, count: int = 1) -> tuple[Network, torch.Tensor, Property]:
    """A network, points, and their labels' margins over one rival each."""
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, count, seed=5)
    labels = network(points).argmax(1)
    return network, points, Property.margins(labels, (labels[:, None] + 1) % network.classes, network.classes)


def solve(method: str, network: Network, region: Region, prop: Property) -> tuple[Bounds, torch.Tensor]:
    chosen = find_method(method)
    hidden = chosen.hidden(network, region, RIGOROUS)
    margins = chosen.margins(network, region, prop, hidden, RIGOROUS)
    questions = ((point, prop.select(torch.tensor([place]))) for place, point in enumerate(region.points))
    assert all(chosen.remark(*asked) is None for asked in questions)
    return hidden, margins


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_lp_is_the_literal_program(name: str, norm: float, radius: float) -> None:
    network, points, prop = question(name)
    hidden, margins = solve("lp", network, Region.around(points, radius, norm), prop)
    literal = LiteralProgram(network, points[0].numpy(), radius, norm, hidden)
    wanted = literal.least(network.output, prop.rows[0, 0].numpy())
    assert float(margins) == pytest.approx(wanted, abs=1e-7 * (1 + abs(wanted)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_lp_full_is_the_literal_one(name: str, norm: float, radius: float) -> None:
    network, points, prop = question(name)
    hidden, margins = solve("lp-full", network, Region.around(points, radius, norm), prop)
    wanted = full_bounds(network, points[0].numpy(), radius, norm)
    for value, (lower, upper) in wanted.items():
        unstable = (lower < -1e-6) & (upper > 1e-6)  # a stable neuron's bounds need not be the programs'
        for one, other in zip(hidden[value], (lower, upper), strict=True):
            torch.testing.assert_close(one[unstable], other[unstable], rtol=1e-6, atol=1e-6)
    literal = LiteralProgram(network, points[0].numpy(), radius, norm, wanted)
    least = literal.least(network.output, prop.rows[0, 0].numpy())
    assert float(margins) == pytest.approx(least, abs=1e-4 * (1 + abs(least)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_bounds_enclose_samples(name: str, norm: float) -> None:
    network, points, prop = question(name, 2)
    hidden, margins = solve("lp-full", network, Region.around(points, RADII[1], norm), prop)
    generator = torch.Generator().manual_seed(7)
    rows = prop.rows
    for row, centre in enumerate(points):
        values = network.values(Norm(norm).sample(centre, RADII[1], 400, generator))
        for value, (lower, upper) in hidden.items():
            assert (values[value] >= lower[row]).all()
            assert (values[value] <= upper[row]).all()
        assert (values[-1] @ rows[row].T >= margins[row]).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["linear", "three layers", "residual"])
def test_ascent_climbs_to_the_programs(name: str, norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Fast-Lin's margin, nearly all the way to the program's: that is what wide networks get."""
    network, points, prop = question(name)
    region = Region.around(points, RADII[0], norm)
    plain = find_method("fast-lin").margins(
        network, region, prop, find_method("fast-lin").hidden(network, region, RIGOROUS), RIGOROUS
    )
    _, wanted = solve("lp", network, region, prop)
    monkeypatch.setattr(proposer, "SOLVABLE", -1)
    _, climbed = solve("lp", network, region, prop)
    assert float(plain) - 1e-12 <= float(climbed) <= float(wanted) + 1e-7
    assert float(wanted - climbed) <= 0.01 * float(wanted - plain) + 1e-6
    _, full = solve("lp-full", network, region, prop)
    assert float(full) >= float(climbed) - 1e-3 * abs(float(climbed))


def test_the_ball_has_both_signs() -> None:
    """A margin that only falls where an input falls, and one that only falls where it rises."""
    network = NETWORKS["linear"]().cast(torch.float64)
    points = torch.zeros(1, 6, dtype=torch.float64)
    for label in range(4):
        for norm in NORMS:
            prop = Property.margins(torch.tensor([label]), torch.tensor([[(label + 1) % 4]]), 4)
            row = prop.rows[0]
            literal = LiteralProgram(network, points[0].numpy(), 0.5, norm, {})
            form = (row @ network.nodes[0].operation.tensors()["weight"])[0]
            at_centre = float(row @ network(points)[0])
            wanted = at_centre - 0.5 * float(torch.linalg.vector_norm(form, Norm(norm).dual))
            assert literal.least(network.output, row[0].numpy()) == pytest.approx(wanted, abs=1e-7)
            _, margins = solve("lp", network, Region.around(points, 0.5, norm), prop)
            assert float(margins) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", PROGRAMS)
def test_a_batch_equals_its_members(method: str, norm: float) -> None:
    network, points, prop = question("five layers", 3)
    radii = torch.tensor([0.05, 0.4, 0.4], dtype=torch.float64)
    hidden, margins = solve(method, network, Region.around(points, radii, norm), prop)
    for row in range(3):
        one = torch.tensor([row])
        alone, margin = solve(method, network, Region.around(points[one], radii[one], norm), prop.select(one))
        torch.testing.assert_close(margins[one], margin, rtol=0, atol=1e-6)
        for value, interval in alone.items():
            unstable = interval.unstable  # a stable neuron's bounds need not be the programs'
            for side, other in zip(hidden[value].select(one), interval, strict=True):
                torch.testing.assert_close(side[unstable], other[unstable], rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_threads_change_nothing(norm: float) -> None:
    network, points, prop = question("five layers", 3)
    region = Region.around(points, 0.4, norm)
    _, wanted = solve("lp-full", network, region, prop)
    torch.set_num_threads(4)
    try:
        with torch.inference_mode():  # as in certify; threads do not inherit it
            _, margins = solve("lp-full", network, region, prop)
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(margins, wanted, rtol=0, atol=1e-6)


def test_slopes_are_the_multipliers_shares() -> None:
    zero, line = np.array([3.0, 0.0, 2.0, 0.0, 1e-320, -1.0]), np.array([1.0, 5.0, 0.0, 0.0, 1e-320, 4.0])
    slopes = lower_slopes(DualSolution(zero, line), np.full(6, 0.3))
    np.testing.assert_allclose(slopes, [0.25, 1, 0, 0.3, 0.5, 1], atol=1e-3)


@pytest.mark.parametrize("wrong", [np.array([np.nan, 1]), np.array([np.inf, 1]), np.ones(3)])
def test_multipliers_that_make_no_sense_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(Unsolved):
        lower_slopes(DualSolution(np.ones(2), wrong), np.zeros(2))
