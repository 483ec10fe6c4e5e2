"""Boxes and scales: every driver, method and norm against points of the region, and against wider regions."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS
from relucert.common.names import FormName, MethodName, RelaxerName
from relucert.errors import InputError
from relucert.methods.table import METHODS, find_method
from relucert.network import Rows
from tests.method_tables import FORMS, LINEAR, PARALLEL, PROGRAMS
from tests.nets import NETWORKS, NORMS, centres, mlp
from tests.regions import LIMITS, samples

RADIUS = 0.3


@pytest.mark.parametrize(("method", "form"), FORMS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_bounds_enclose_the_region_and_lie_within_those_of_the_ball(
    name: str, limits: str, norm: float, method: RelaxerName, form: FormName
) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, 2)
    options = LIMITS[limits].given(points)
    region = Region.around(points, RADIUS, norm, **options)
    bounds = relucert.bounds(network, region, method=method, form=form)
    generator = torch.Generator().manual_seed(7)
    places = sorted({*network.preactivations, network.output})
    for member in range(len(points)):
        values = network.values(samples(region, member, 200, generator))
        for value, (lower, upper) in zip(places, bounds, strict=True):
            assert (values[value] >= lower[member]).all()
            assert (values[value] <= upper[member]).all()
    if "scale" not in options:
        wide = relucert.bounds(network, Region.around(points, RADIUS, norm), method=method, form=form)
        for inner, outer in zip(bounds[:1], wide[:1], strict=True):  # deeper, other slopes may be worse
            assert (inner.lower >= outer.lower - 1e-9).all()
            assert (inner.upper <= outer.upper + 1e-9).all()


@pytest.mark.parametrize("method", PARALLEL)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_forward_and_backward_agree(name: str, limits: str, norm: float, method: RelaxerName) -> None:
    network = NETWORKS[name]()
    points = centres(network)
    region = Region.around(points, RADIUS, norm, **LIMITS[limits].given(points))
    ahead, back = (
        relucert.bounds(network, region, method=method, form=form, arithmetic="float")
        for form in ("forward", "backward")
    )
    for one, other in zip(ahead, back, strict=True):
        torch.testing.assert_close(one.lower, other.lower, rtol=0, atol=1e-10)
        torch.testing.assert_close(one.upper, other.upper, rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("limits", LIMITS)
def test_the_region_s_own_numbers_are_right(limits: str, norm: float) -> None:
    """Of single forms: what the region says is reached by no point, and nearly by some."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    region = Region.around(points, 0.4, norm, **LIMITS[limits].given(points))
    forms = torch.randn(3, 12, 5, generator=generator, dtype=torch.float64)
    proven, plain = (region.deviation(Rows(forms, (forms.shape[-1],)), arithmetic) for arithmetic in (RIGOROUS, DOUBLE))
    for member in range(3):
        values = (samples(region, member, 20_000, generator) - region.reference[member]) @ forms[member].T
        assert (-values.amin(0) <= proven.below[member]).all()
        assert (values.amax(0) <= proven.above[member]).all()
        if norm in (1.0, 2.0, math.inf):
            assert (values.amax(0) - values.amin(0) >= 0.6 * (proven.below + proven.above)[member]).all()
    for one, other in zip(proven, plain, strict=True):
        assert (one >= other).all()
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", ["three layers", "residual"])
def test_margins_hold_in_the_region(name: str, limits: str, norm: float, method: str) -> None:
    """With rows and offsets of any kind: what must stay positive is at least what is proven."""
    network = NETWORKS[name]().cast(torch.float64)
    points = centres(network, 2)
    region = Region.around(points, RADIUS, norm, **LIMITS[limits].given(points))
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(2, 3, network.classes, generator=generator, dtype=torch.float64)
    prop = Property(rows, torch.randn(2, 3, generator=generator, dtype=torch.float64))
    chosen = find_method(method)
    with torch.inference_mode():
        margins = chosen.margins(network, region, prop, chosen.hidden(network, region, RIGOROUS), RIGOROUS)
    for member in range(2):
        values = network(samples(region, member, 300, generator)) @ rows[member].T + prop.offsets[member]
        assert (values >= margins[member]).all()


LOSSES = {"interval": 2e-4, "op-norm": 2e-4, "crown": 0.04, "sdp": 0.3}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.sampled
def test_a_box_never_makes_a_radius_smaller(norm: float, method: MethodName) -> None:
    """Not by more than other slopes may cost, where they bound the neurons; intervals have none. Those of CROWN jump,
    and quadratic certificates are soon given up in these tests."""
    network = NETWORKS["three layers"]()
    points = centres(network)
    asked: dict[str, Any] = {"norm": norm, "method": method, "target": "runner-up"}
    inside = relucert.certify(network, points, box=(float(points.min()), float(points.max())), **asked)
    for one, other in zip(inside, relucert.certify(network, points, **asked), strict=True):
        assert one.radius is not None
        assert other.radius is not None
        assert one.radius >= other.radius * (1 - LOSSES.get(method, 0.03))


@pytest.mark.parametrize("norm", NORMS)
def test_a_scale_of_ones_changes_nothing_and_a_uniform_one_divides(norm: float) -> None:
    network = NETWORKS["three layers"]()
    points = centres(network)
    plain = relucert.certify(network, points, norm=norm)
    for factor in (1.0, 4.0):
        scaled = relucert.certify(network, points, norm=norm, scale=torch.full((6,), factor))
        for one, other in zip(scaled, plain, strict=True):
            assert other.radius is not None
            assert one.radius == pytest.approx(other.radius / factor, rel=2e-4)


def test_coordinates_that_stay_do_not_count() -> None:
    """A network that looks at two coordinates, of which the scale lets one move."""
    network = mlp(2, 8, 3, seed=3)
    points = centres(network, 4)
    for norm in (1.0, 2.0, math.inf):
        radii = [one.radius for one in relucert.certify(network, points, norm=norm, scale=[1.0, 0.0])]
        for radius, other in zip(radii, relucert.certify(network, points, norm=1, scale=[1.0, 0.0]), strict=True):
            assert radius == pytest.approx(other.radius, rel=2e-4)  # in one dimension all norms are alike


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", [*LINEAR, *PROGRAMS])
def test_where_no_valid_input_changes_the_decision_the_radius_is_infinite(method: MethodName, norm: float) -> None:
    network = NETWORKS["three layers"]()
    points = centres(network, 2)
    for image in points:
        (answer,) = relucert.certify(network, image[None], norm=norm, method=method, box=(image - 1e-4, image + 1e-4))
        assert answer.radius == math.inf
        assert answer.proven
        assert "every valid input" in str(answer.reason)
        assert answer.to_json()["radius"] == "inf"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (0.5, -0.5)}, "larger largest"),
        ({"box": (0.5,)}, "a pair"),
        ({"box": 3}, "a pair"),
        ({"box": (-math.inf, 1.0)}, "finite"),
        ({"box": ([-1.0] * 5, [1.0] * 5)}, "input's shape"),
        ({"box": ([1.0] * 6, [-1.0] * 6)}, "below the lowest"),
        ({"box": ([math.nan] * 6, [1.0] * 6)}, "no number"),
        ({"box": (["a"] * 6, [1.0] * 6)}, "array of numbers"),
        ({"box": (-1e-3, 1e-3)}, "outside the box"),
        ({"scale": [1.0] * 5}, "input's shape"),
        ({"scale": [-1.0] + [1.0] * 5}, ">= 0"),
        ({"scale": [0.0] * 6}, "at least one above 0"),
        ({"scale": [math.inf] * 6}, "finite"),
        ({"scale": "wide"}, "array of numbers"),
    ],
)
@pytest.mark.parametrize("call", [relucert.certify, relucert.attack, relucert.exact, relucert.estimate])
def test_bad_boxes_and_scales_are_refused_by_every_call(call: Any, options: dict[str, Any], message: str) -> None:
    network = NETWORKS["three layers"]()
    with pytest.raises(InputError, match=message):
        call(network, centres(network), **options)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("limits", LIMITS)
def test_every_norm_finds_a_radius_in_every_region(limits: str, norm: float) -> None:
    network = NETWORKS["three layers"]()
    points = centres(network)
    for answer in relucert.certify(network, points, norm=norm, **LIMITS[limits].given(points)):
        assert answer.radius is not None
        assert answer.proven
        assert answer.evaluations < 20


def test_numbers_of_any_kind_make_a_box() -> None:
    network = NETWORKS["three layers"]()
    points = centres(network).clamp(-1, 1)
    plain = [answer.radius for answer in relucert.certify(network, points, box=(-1.0, 1.0))]
    for one in (np.float32(1), np.int64(1), torch.tensor(1.0), 1):
        assert [answer.radius for answer in relucert.certify(network, points, box=(-one, one))] == plain


def test_coordinates_that_stay_must_be_representable() -> None:
    network = NETWORKS["three layers"]()
    points = centres(network, 1) + 1e-9
    for call in (relucert.attack, relucert.exact):
        with pytest.raises(InputError, match="scale 0"):
            call(network, points, scale=[0.0, 1, 1, 1, 1, 1])


def test_tiny_scales_do_not_end_the_search() -> None:
    network = NETWORKS["three layers"]()
    points = centres(network, 2)[1:].float()
    (plain,), (scaled,) = (relucert.exact(network, points, scale=scale) for scale in (None, torch.full((6,), 2.0**-30)))
    assert scaled.closed
    assert scaled.upper is not None
    assert plain.upper is not None
    assert scaled.upper * 2.0**-30 == pytest.approx(plain.upper, rel=2e-3)
