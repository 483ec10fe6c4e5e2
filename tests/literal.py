"""Algorithm 1 of the paper, ComputeTwoSideBounds, transcribed loop by loop in float64: slow, and to be read beside it.

One index is mended: the loop over k must also update A of index 0.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def two_side_bounds(
    weights: list[Array], biases: list[Array], x0: Array, eps: float, p: float
) -> list[tuple[Array, Array]]:
    bounds: list[tuple[Array, Array]] = []
    saved: dict[int, Array] = {}
    for m in range(1, len(weights) + 1):
        bounds.append(_compute(weights, biases, x0, eps, p, bounds, m, saved))
    return bounds


def _compute(
    w: list[Array], b: list[Array], x0: Array, eps: float, p: float,
    bounds: list[tuple[Array, Array]], m: int, saved: dict[int, Array],
) -> tuple[Array, Array]:  # fmt: skip
    big_t: dict[int, Array] = {}
    big_h: dict[int, Array] = {}
    if m == 1:
        saved[0] = w[0]
    else:
        for k in range(m - 1, -1, -1):
            if k == m - 1:
                lower, upper = bounds[k - 1]
                d = np.zeros((len(lower), len(lower)))
                for r in range(len(lower)):
                    if lower[r] < 0 < upper[r]:
                        d[r, r] = upper[r] / (upper[r] - lower[r])
                    elif lower[r] >= 0:
                        d[r, r] = 1
                saved[m - 1] = w[m - 1] @ d
            else:
                saved[k] = saved[m - 1] @ saved[k]
            if k == 0:
                continue
            lower, upper = bounds[k - 1]
            big_t[k] = np.zeros((len(lower), len(saved[k])))
            big_h[k] = np.zeros((len(lower), len(saved[k])))
            for r in range(len(lower)):
                if lower[r] < 0 < upper[r]:
                    for j in range(len(saved[k])):
                        if saved[k][j, r] > 0:
                            big_t[k][r, j] = lower[r]
                        else:
                            big_h[k][r, j] = lower[r]
    low, high = np.zeros(len(b[m - 1])), np.zeros(len(b[m - 1]))
    for j in range(len(low)):
        nu = saved[0][j] @ x0 + b[m - 1][j]
        mu_plus = mu_minus = 0.0
        for k in range(1, m):
            mu_plus -= saved[k][j] @ big_t[k][:, j]
            mu_minus -= saved[k][j] @ big_h[k][:, j]
            nu += saved[k][j] @ b[k - 1]
        q = 1.0 if np.isinf(p) else (np.inf if p == 1 else p / (p - 1))
        reach = eps * float(np.linalg.norm(saved[0][j], q))
        high[j] = mu_plus + nu + reach
        low[j] = mu_minus + nu - reach
    return low, high


def gradient_bounds(weights: list[Array], patterns: list[tuple[Array, Array]]) -> Array:
    """Algorithm 2 of the paper (Fast-Lip), loop by loop: bounds of the absolute entries of the product of all weights.

    patterns: for each layer but the last, which neurons are always active and which are unstable.
    """
    c, lo, up = weights[0], np.zeros_like(weights[0]), np.zeros_like(weights[0])
    for w, (active, unsure) in zip(weights[1:], patterns, strict=True):
        c2, l2, u2 = (np.zeros((len(w), c.shape[1])) for _ in range(3))
        for k in range(c.shape[1]):
            for j in range(len(w)):
                for i in range(len(c)):
                    low, high = c[i, k] + lo[i, k], c[i, k] + up[i, k]
                    if active[i]:
                        c2[j, k] += w[j, i] * c[i, k]
                        u2[j, k] += w[j, i] * (up[i, k] if w[j, i] > 0 else lo[i, k])
                        l2[j, k] += w[j, i] * (lo[i, k] if w[j, i] > 0 else up[i, k])
                    elif unsure[i]:
                        u2[j, k] += w[j, i] * (min(low, 0) if w[j, i] < 0 else max(high, 0))
                        l2[j, k] += w[j, i] * (min(low, 0) if w[j, i] > 0 else max(high, 0))
        c, lo, up = c2, l2, u2
    return np.maximum(abs(c + lo), abs(c + up))


def crown_bounds(
    w: list[Array], b: list[Array], x0: Array, eps: float, p: float, bounds: list[tuple[Array, Array]]
) -> tuple[Array, Array]:
    """CROWN's theorem 3.2 with corollary 3.3, entry by entry: bounds of the last layer, given those of the others.

    "Efficient Neural Network Robustness Certification with General Activation Functions", Zhang et al. 2018; the lower
    lines of unstable neurons are the adaptive ones of its table 3.
    """
    m = len(w)
    q = 1.0 if np.isinf(p) else (np.inf if p == 1 else p / (p - 1))
    low, high = np.zeros(len(b[-1])), np.zeros(len(b[-1]))
    for j in range(len(b[-1])):
        for upper_side in (True, False):
            row = np.zeros(len(b[-1]))
            row[j] = 1.0
            total = row @ b[m - 1]
            for k in range(m - 1, 0, -1):
                reached = row @ w[k]
                row = np.zeros(len(reached))
                offsets = np.zeros(len(reached))
                for i in range(len(reached)):
                    (above, above_at), (below, below_at) = _crown_lines(bounds[k - 1][0][i], bounds[k - 1][1][i])
                    takes_upper = (reached[i] >= 0) == upper_side
                    row[i] = reached[i] * (above if takes_upper else below)
                    offsets[i] = above_at if takes_upper else below_at
                total += row @ (b[k - 1] + offsets)
            row = row @ w[0]
            reach = eps * float(np.linalg.norm(row, q))
            if upper_side:
                high[j] = row @ x0 + total + reach
            else:
                low[j] = row @ x0 + total - reach
    return low, high


def _crown_lines(lower: float, upper: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Of a ReLU's upper and lower line the slope and the offset, as in `slope * (z + offset)`."""
    if lower >= 0:
        return (1.0, 0.0), (1.0, 0.0)
    if upper <= 0:
        return (0.0, 0.0), (0.0, 0.0)
    return (upper / (upper - lower), -lower), (1.0 if upper > -lower else 0.0, 0.0)


def interval_bounds(
    weights: list[Array], biases: list[Array], x0: Array, eps: float, p: float
) -> list[tuple[Array, Array]]:
    """Interval bound propagation, entry by entry: bounds of every layer from those of the one before.

    "On the Effectiveness of Interval Bound Propagation for Training Verifiably Robust Models", Gowal et al. 2018,
    equation 6; the first layer, whose input is a ball, by the dual norm of its rows.
    """
    q = 1.0 if np.isinf(p) else (np.inf if p == 1 else p / (p - 1))
    bounds: list[tuple[Array, Array]] = []
    for w, b in zip(weights, biases, strict=True):
        low, high = np.zeros(len(b)), np.zeros(len(b))
        for j in range(len(b)):
            if not bounds:
                reach = eps * float(np.linalg.norm(w[j], q))
                low[j], high[j] = w[j] @ x0 + b[j] - reach, w[j] @ x0 + b[j] + reach
                continue
            low[j], high[j] = b[j], b[j]
            for i in range(w.shape[1]):
                below, above = max(bounds[-1][0][i], 0.0), max(bounds[-1][1][i], 0.0)
                low[j] += w[j, i] * (below if w[j, i] > 0 else above)
                high[j] += w[j, i] * (above if w[j, i] > 0 else below)
        bounds.append((low, high))
    return bounds
