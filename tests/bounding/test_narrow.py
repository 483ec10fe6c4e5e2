"""Wide pre-activations, bounded by the few numbers that they are made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import relucert
from relucert import Network, Region
from relucert.arithmetic.rigor import DOUBLE, RECORDED, RIGOROUS, Arithmetic
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.interval import propagate
from relucert.bounding.layerwise import enclose
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import RELAXERS
from relucert.network import Add, IndexMap, Linear, Node, Power, Relu, work

POSITIONS, HEADS, SIZE = 6, 2, 4


class _Attention(nn.Module):
    """Self-attention of six positions, a ReLU layer behind it, and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, POSITIONS * HEADS * SIZE)
        self.heads = nn.ModuleList(nn.Linear(HEADS * SIZE, HEADS * SIZE) for _ in range(3))
        self.inner, self.last = nn.Linear(HEADS * SIZE, 6), nn.Linear(6 * POSITIONS, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.first(inputs).reshape(-1, POSITIONS, HEADS * SIZE)
        query, key, value = (
            head(tokens).reshape(-1, POSITIONS, HEADS, SIZE).permute(0, 2, 1, 3) for head in self.heads
        )
        shares = torch.softmax(query @ key.transpose(-1, -2) / 2, -1)
        mixed = (shares @ value).permute(0, 2, 1, 3).reshape(-1, POSITIONS, HEADS * SIZE)
        last: Tensor = self.last(torch.relu(self.inner(mixed + tokens)).flatten(1))
        return last


def _attention(monkeypatch: pytest.MonkeyPatch, most_work: int = 0) -> Network:
    """A network of which all pre-activations that are wide enough count as wide."""
    monkeypatch.setattr(work, "MOST_WORK", most_work)
    torch.manual_seed(3)
    return relucert.load(_Attention().double(), input_shape=(5,))


def _regions() -> Region:
    centres = torch.rand(2, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return Region.around(centres, torch.tensor([0.02, 0.1], dtype=torch.float64), "inf", (-2, 2))


def test_products_of_attention_are_wide_and_made_of_few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _attention(monkeypatch)
    wide = network.narrow_sources
    squares = POSITIONS * POSITIONS * HEADS * SIZE
    assert [value for value in wide if network.sizes[value] == squares]
    for value, sources in wide.items():
        assert 4 * sum(network.sizes[source] for source in sources) <= network.sizes[value]
        assert sources <= network.ancestors((value,))
    assert not network.suits_forward


def test_what_is_quickly_pulled_back_is_not_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _attention(monkeypatch, 10**9).narrow_sources
    assert not relucert.load("mnist-cnn").narrow_sources


@pytest.mark.parametrize("arithmetic", [DOUBLE, RIGOROUS], ids=["float", "rigorous"])
@pytest.mark.parametrize("relaxer", ["fast-lin", "crown"])
def test_bounds_enclose_samples(relaxer: str, arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch) -> None:
    network, region = _attention(monkeypatch), _regions()
    bounds = hidden_bounds(network, region, RELAXERS[relaxer], arithmetic)
    assert set(network.narrow_sources) < set(bounds)
    generator = torch.Generator().manual_seed(5)
    corners = torch.rand(2000, 1, 5, generator=generator, dtype=torch.float64) < 0.5
    points = region.centre + region.radius[:, None] * (2.0 * corners - 1)
    values = network.values(points.clamp(-2, 2).reshape(-1, 5))
    slack = 0 if arithmetic is RIGOROUS else 1e-12
    for value, interval in bounds.items():
        samples = values[value].unflatten(0, (-1, 2))
        assert bool(((interval.lower - slack <= samples) & (samples <= interval.upper + slack)).all()), value


def test_wide_values_have_the_intervals_that_those_they_are_made_of_imply(monkeypatch: pytest.MonkeyPatch) -> None:
    network, region = _attention(monkeypatch), _regions()
    bounds = hidden_bounds(network, region, RELAXERS["crown"], DOUBLE)
    for value, sources in network.narrow_sources.items():
        before = {earlier: interval for earlier, interval in bounds.items() if earlier < value}
        path = ReferencePath(network, region, before, RELAXERS["crown"], DOUBLE)
        narrow = {source: enclose(path, source) for source in sources}
        expected = propagate(network, region, before, value, DOUBLE, ends=narrow)
        wider = propagate(network, region, before, value, DOUBLE)
        for end, wanted, loose, sign in zip(bounds[value], expected, wider, (1, -1), strict=True):
            torch.testing.assert_close(end, wanted, rtol=1e-9, atol=1e-9)
            assert bool((sign * (end - loose) >= -1e-9).all())


def test_proof_files_are_about_neurons_that_were_pulled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    network, region = _attention(monkeypatch), _regions()
    recorded = hidden_bounds(network, region, RELAXERS["crown"], RECORDED)
    narrow = hidden_bounds(network, region, RELAXERS["crown"], RIGOROUS)
    value = next(iter(network.narrow_sources))
    tighter = [(after - before).sum() for before, after in zip(narrow[value], recorded[value], strict=True)]
    assert float(tighter[0]) > 0 > float(tighter[1])


def test_radii_stay_below_the_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    network = _attention(monkeypatch)
    image = torch.randn(1, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    certificate = relucert.certify(network, image, method="crown")[0]
    attack = relucert.attack(network, image, steps=60)[0]
    assert certificate.proven
    assert certificate.radius is not None
    assert attack.distance is not None
    assert 0 < certificate.radius < attack.distance


def test_wide_values_behind_a_layer_that_loses_neurons(monkeypatch: pytest.MonkeyPatch) -> None:
    """With most neurons before it gone, a value is not wide any more; it is bounded by the same narrower ones."""
    generator = torch.Generator().manual_seed(0)

    def linear(outputs: int, inputs: int, bias: Tensor) -> Linear:
        return Linear(torch.randn(outputs, inputs, generator=generator, dtype=torch.float64) / inputs**0.5, bias)

    hidden, narrow = 400, 8
    bias = torch.where(torch.arange(hidden) < hidden // 8, 0.0, -9.0).double()
    first, second = torch.arange(narrow).repeat_interleave(narrow), torch.arange(narrow).repeat(narrow)
    nodes = (
        Node(linear(hidden, 100, bias), (0,)),
        Node(Relu(), (1,)),
        Node(linear(narrow, hidden, torch.zeros(narrow).double()), (2,)),
        Node(IndexMap.of(first, (narrow,)), (3,)),
        Node(IndexMap.of(second, (narrow,)), (3,)),
        Node(Add(), (4, 5)),
        Node(Power(2), (6,)),
        Node(linear(2, narrow**2, torch.zeros(2).double()), (7,)),
    )
    network = Network((100,), nodes)
    count = network.pull_counts[6].multiplications * network.sizes[6]
    monkeypatch.setattr(work, "MOST_WORK", count - 1)
    region = Region.around(torch.zeros(1, 100).double(), torch.tensor([0.01]).double(), "inf")
    assert set(network.narrow_sources) == {6}
    for relaxer in ("fast-lin", "crown"):
        bounds = hidden_bounds(network, region, RELAXERS[relaxer], RIGOROUS)
        value = network.values(region.centre)[6]
        assert bool(((bounds[6].lower <= value) & (value <= bounds[6].upper)).all())
