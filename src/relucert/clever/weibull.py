"""The reverse Weibull distribution, which the largest of many bounded numbers tend to follow, fitted to a sample."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

SHAPES = (1.0, 3.0, 10.0)  # where the search for the largest likelihood starts, one after the other
FEWEST = 10  # numbers to which three parameters can be fitted
FARTHEST = 10.0  # spreads of the sample: an end further beyond it is not seen in it
ALIKE = 1e-6  # relative spread of a float32 number that is always the same


class FitError(Exception):
    """No distribution could be fitted; the message says why."""


@dataclass(frozen=True)
class WeibullFit:
    """`location` is the end of the distribution, `statistic` and `p_value` are those of Kolmogorov and Smirnov.

    Where all numbers are alike the distribution is a point, of scale 0 and no shape.
    """

    shape: float | None
    location: float
    scale: float
    statistic: float
    p_value: float


def fit(maxima: NDArray[np.float64]) -> WeibullFit:
    """By maximum likelihood from several starts; of the local maxima found, the one that fits best is taken.

    The likelihood itself can't choose: it grows without bound where the location meets the largest number.
    """
    if len(maxima) < FEWEST:
        raise FitError(f"{len(maxima)} batches are too few for a fit, {FEWEST} are needed")
    if not np.isfinite(maxima).all():
        raise FitError("a gradient is not a finite number")
    if not maxima.any():
        raise FitError("every sampled gradient is zero")
    top, spread = float(maxima.max()), float(np.ptp(maxima))
    if spread <= ALIKE * top:
        return WeibullFit(None, top, 0.0, 0.0, 1.0)
    scaled = (maxima - top) / spread  # the search succeeds more often on numbers of one size
    found = [own for shape in SHAPES if (own := _fit_from(scaled, shape)) is not None]
    if not found:
        raise FitError("the likelihood of a reverse Weibull distribution could not be maximised")
    best = max(found, key=lambda own: own.p_value)
    return WeibullFit(best.shape, top + spread * best.location, spread * best.scale, best.statistic, best.p_value)


def _fit_from(numbers: NDArray[np.float64], shape: float) -> WeibullFit | None:
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            fitted = stats.weibull_max.fit(numbers, shape, loc=0.1, scale=1.0)
            statistic, p_value = stats.kstest(numbers, "weibull_max", args=fitted)
    except (stats.FitError, ValueError, RuntimeError):
        return None
    own = WeibullFit(*(float(number) for number in (*fitted, statistic, p_value)))
    finite = all(map(math.isfinite, (*fitted, statistic, p_value)))
    sound = finite and 0 <= own.location <= FARTHEST and own.scale > 0
    return own if sound else None
