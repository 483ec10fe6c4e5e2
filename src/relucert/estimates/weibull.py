"""Fits the reverse Weibull distribution, which the maxima of many bounded random numbers tend to follow."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

STARTS = (0.1, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # shapes from which the likelihood is maximised, as in the original
PENALTY = 0.01  # of the squared scale, against ends that run away; as in the original
IMPLAUSIBLE = 1e-3  # a fit with a smaller p-value is rejected; as in the original
FEWEST = 10  # numbers needed to fit three parameters
ALIKE = 1e-6  # the relative spread below which float32 numbers count as equal


class FitError(Exception):
    """No distribution could be fitted; the message says why."""


@dataclass(frozen=True)
class WeibullFit:
    """A fit: `location` is the distribution's upper end, `statistic` and `p_value` are of the Kolmogorov-Smirnov test.

    Where all numbers are equal the distribution is a single point, with scale 0 and no shape.
    """

    shape: float | None
    location: float
    scale: float
    statistic: float
    p_value: float


def fit(maxima: NDArray[np.float64]) -> WeibullFit:
    """The penalised maximum likelihood fit with the largest p-value over searches from several starting shapes."""
    if len(maxima) < FEWEST:
        raise FitError(f"a fit needs {FEWEST} batches or more, not {len(maxima)}")
    if not np.isfinite(maxima).all():
        raise FitError("a gradient is not a finite number")
    if not maxima.any():
        raise FitError("every sampled gradient is zero")
    top, spread = float(maxima.max()), float(np.ptp(maxima))
    if spread <= ALIKE * top:
        return WeibullFit(None, top, 0.0, 0.0, 1.0)
    scaled = (maxima - top) / spread  # the search succeeds more often on normalised numbers
    fits = [result for start in STARTS if (result := _search(scaled, start)) is not None]
    best = max(fits, key=lambda result: result.p_value, default=None)
    if best is None or best.p_value < IMPLAUSIBLE:
        raise FitError("the batches' largest gradients follow no reverse Weibull distribution")
    return WeibullFit(best.shape, top + spread * best.location, spread * best.scale, best.statistic, best.p_value)


def _search(numbers: NDArray[np.float64], start: float) -> WeibullFit | None:
    """The fit that the search from one starting shape ends at; None where it ends at no distribution."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            fitted = stats.weibull_max.fit(numbers, start, optimizer=_minimise)
            shape, location, scale = (float(number) for number in fitted)
            test = stats.kstest(numbers, "weibull_max", args=(shape, location, scale))
    except (stats.FitError, ValueError, RuntimeError):
        return None
    result = WeibullFit(shape, location, scale, float(test.statistic), float(test.pvalue))
    return result if all(map(math.isfinite, (shape, location, scale, result.p_value))) else None


def _minimise(loss: Callable[..., float], start: NDArray[np.float64], args: tuple[Any, ...], disp: int) -> Any:
    """The optimiser handed to SciPy's fit, with the penalty; a candidate is (shape, location, scale)."""

    def penalised(candidate: NDArray[np.float64], *arguments: Any) -> float:
        return loss(candidate, *arguments) + PENALTY * float(candidate[2]) ** 2

    return optimize.fmin(penalised, start, args=args, disp=disp)
