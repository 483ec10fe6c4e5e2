"""The fit of the reverse Weibull distribution: it recovers what was drawn, and says when it can't."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from relucert.estimates import weibull

pytestmark = pytest.mark.full_effort


@pytest.mark.parametrize(("shape", "location", "scale"), [(2.0, 5.0, 1.0), (4.0, 0.03, 0.002), (8.0, 1e4, 300.0)])
def test_the_end_of_a_drawn_distribution_is_found(shape: float, location: float, scale: float) -> None:
    drawn = stats.weibull_max.rvs(shape, loc=location, scale=scale, size=2000, random_state=1)
    fitted = weibull.fit(drawn)
    assert fitted.location >= drawn.max()
    assert fitted.location == pytest.approx(location, abs=0.5 * scale)
    assert fitted.shape == pytest.approx(shape, rel=0.5)
    assert fitted.p_value > 0.05
    assert 0 < fitted.statistic < 0.05


def test_numbers_that_are_alike_are_a_point() -> None:
    assert weibull.fit(np.full(50, 2.0)) == weibull.WeibullFit(None, 2.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("maxima", "message"),
    [
        (np.zeros(50), "zero"),
        (np.arange(9.0), "10 batches or more, not 9"),
        (np.array([np.nan] * 20), "finite"),
        (np.array([np.inf, *range(20)]), "finite"),
    ],
)
def test_a_failure_is_said(maxima: NDArray[np.float64], message: str) -> None:
    with pytest.raises(weibull.FitError, match=message):
        weibull.fit(maxima)


def test_numbers_of_another_kind_are_no_fit() -> None:
    with pytest.raises(weibull.FitError, match="no reverse Weibull"):
        weibull.fit(np.array([3.0] * 200 + [2.9] * 150 + [2.5] * 50))


def test_a_sample_without_a_visible_end_keeps_it_near() -> None:
    drawn = stats.norm.rvs(size=500, random_state=3)
    fitted = weibull.fit(drawn)
    assert drawn.max() < fitted.location < drawn.max() + 20 * np.ptp(drawn)
