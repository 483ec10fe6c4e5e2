"""A relaxer whose two lines are not parallel is a method like any other: its hidden layers go through the backward
driver, which bounds the unstable neurons only."""

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.layerwise import backward
from relucert.bounding.relaxers import CROWN
from relucert.errors import InputError
from relucert.methods.linear import LinearMethod
from relucert.network import Network
from relucert.network.cut import without_neurons
from relucert.query.targets import rivals
from relucert.search.radius import Searcher
from tests.nets import NETWORKS, NORMS, centres
from tests.regions import LIMITS, samples

RADIUS = 0.3


METHOD = LinearMethod("crown", CROWN)


@pytest.mark.parametrize("limits", ["none", *LIMITS])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_margins_and_neurons_are_enclosed(name: str, norm: float, limits: str) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, 2)
    region = Region.around(points, RADIUS, norm, **({} if limits == "none" else LIMITS[limits].given(points)))
    scores = network(points)
    labels = scores.argmax(1)
    prop = Property.margins(labels, rivals("untargeted", scores, labels, 0), network.classes)
    hidden = METHOD.hidden(network, region, RIGOROUS)
    margins = METHOD.margins(network, region, prop, hidden, RIGOROUS)
    generator = torch.Generator().manual_seed(5)
    for member in range(2):
        values = network.values(samples(region, member, 200, generator))
        for value, (lower, upper) in hidden.items():
            assert (values[value] >= lower[member]).all()
            assert (values[value] <= upper[member]).all()
        assert (values[-1] @ prop.rows[member].T >= margins[member]).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_equals_its_members(name: str) -> None:
    """Also where a neuron is unstable in one member alone."""
    network = NETWORKS[name]().cast(torch.float64)
    points, radii = centres(network, 3), torch.tensor([0.01, 0.2, 0.9], dtype=torch.float64)
    together = METHOD.hidden(network, Region.around(points, radii, 2), RIGOROUS)
    for member in range(3):
        alone = METHOD.hidden(network, Region.around(points[member : member + 1], radii[member], 2), RIGOROUS)
        for value, interval in alone.items():
            for one, other in zip(interval, together[value], strict=True):
                torch.testing.assert_close(one[0], other[member], rtol=0, atol=1e-10)


def test_neurons_that_intervals_decide_keep_their_signs() -> None:
    network = NETWORKS["five layers"]().cast(torch.float64)
    region = Region.around(centres(network), 0.1, 2)
    quick = hidden_bounds(network, region, METHOD.relaxer, RIGOROUS)
    whole = backward(network, region, METHOD.relaxer, RIGOROUS, network.preactivations)
    for value, interval in quick.items():
        assert (interval.unstable == whole[value].unstable).all()


@pytest.mark.parametrize("norm", NORMS)
def test_a_radius_that_is_returned_was_proven(norm: float) -> None:
    network = NETWORKS["three layers"]()
    points = centres(network, 4)
    scores = network.cast(torch.float64)(points)
    labels = scores.argmax(1)
    prop = Property.margins(labels, rivals("untargeted", scores, labels, 0), network.classes)
    double = network.cast(torch.float64)
    for end in Searcher(network, METHOD, RIGOROUS, 1e-4).run(Region.around(points, 0.0, norm), prop):
        assert end.radius is not None
        one = torch.tensor([end.question])
        region = Region.around(points[one], end.radius, norm)
        hidden = METHOD.hidden(double, region, RIGOROUS)
        assert (METHOD.margins(double, region, prop.select(one), hidden, RIGOROUS) > 0).all()


def test_the_forward_form_refuses_them() -> None:
    from relucert.bounding.forward import forward

    network = NETWORKS["three layers"]().cast(torch.float64)
    with pytest.raises(InputError, match="backward form"):
        forward(network, Region.around(centres(network), 0.1, 2), METHOD.relaxer, RIGOROUS, network.preactivations)


@pytest.mark.parametrize("name", NETWORKS)
def test_neurons_that_are_off_can_be_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    region = Region.around(centres(network, 3), torch.tensor([0.01, 0.05, 0.3]).double(), 2)
    whole = METHOD.hidden(network, region, RIGOROUS)
    cuts: list[int] = []

    def counted(network: Network, value: int, kept: Tensor) -> Network:
        cuts.append(value)
        return without_neurons(network, value, kept)

    monkeypatch.setattr("relucert.bounding.reference.WORTH_A_CUT", 1)
    monkeypatch.setattr("relucert.bounding.reference.without_neurons", counted)
    for value, interval in METHOD.hidden(network, region, RIGOROUS).items():
        for one, other in zip(interval, whole[value], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    if name == "five layers":
        assert cuts
