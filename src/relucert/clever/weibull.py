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
    """By maximum likelihood over shapes >= 1: with smaller ones it grows without bound as the end nears the largest.

    SciPy searches from several starts; the distribution of shape 1, at the edge, is known in closed form.
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
    found = [own for start in SHAPES if (own := _search(scaled, start)) is not None]
    edge = (1.0, 0.0, float(-scaled.mean()))
    shape, location, scale = max([edge, *found], key=lambda own: float(stats.weibull_max.logpdf(scaled, *own).sum()))
    if location > FARTHEST:
        raise FitError("the fitted distribution ends far beyond every number it was fitted to")
    statistic, p_value = stats.kstest(scaled, "weibull_max", args=(shape, location, scale))
    return WeibullFit(shape, top + spread * location, spread * scale, float(statistic), float(p_value))


def _search(numbers: NDArray[np.float64], start: float) -> tuple[float, float, float] | None:
    """Shape, location and scale at a maximum of the likelihood; None where the search ends outside what is allowed."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            shape, location, scale = (float(part) for part in stats.weibull_max.fit(numbers, start, loc=0.1, scale=1.0))
    except (stats.FitError, ValueError, RuntimeError):
        return None
    allowed = all(map(math.isfinite, (shape, location, scale))) and shape >= 1 and location >= 0 and scale > 0
    return (shape, location, scale) if allowed else None
