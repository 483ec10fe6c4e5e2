"""Fast-Lip against the paper's Algorithm 2, and CLEVER's one pass over the samples against one for each rival."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

import relucert
from bench.algorithm1 import Layers, dual_norm, two_sided_bounds
from bench.networks import images, layers

Array = NDArray[np.float32]
HEADER = ["what", "baseline, ms", "relucert, ms", "faster", "radius"]
STEPS = 15
START = 0.01  # where the bisection starts: the right order of magnitude, for free
BATCHES, SAMPLES = 10, 256


def rows() -> list[list[str]]:
    network = relucert.load("mnist-3x1024")
    data = images(network.sizes[0])[:2]
    labels = network.cast(torch.float32)(data).argmax(1)
    started = time.perf_counter()
    wanted = [_bisected(layers(network), x, int(label)) for x, label in zip(data.numpy(), labels, strict=True)]
    baseline = time.perf_counter() - started
    table = []
    for arithmetic in ("rigorous", "float"):
        certify = partial(relucert.certify, method="fast-lip", shells=1, arithmetic=arithmetic)
        started = time.perf_counter()
        radii = [answer.radius or 0.0 for answer in certify(network, data, labels)]
        seconds = time.perf_counter() - started
        gain = f"{100 * (np.mean(radii) / np.mean(wanted) - 1):+.1f} %"
        table.append(_cells(f"Fast-Lip, plain, {arithmetic}", baseline / 2, seconds / 2, gain))
    return [*table, _clever(network, data[:1])]


def _cells(name: str, baseline: float, seconds: float, gain: str) -> list[str]:
    return [name, f"{1e3 * baseline:.0f}", f"{1e3 * seconds:.0f}", f"{baseline / seconds:.1f}x", gain]


def _clever(network: relucert.Network, data: torch.Tensor) -> list[str]:
    label = int(network.cast(torch.float32)(data).argmax())
    started = time.perf_counter()
    for rival in range(network.classes):
        if rival != label:
            relucert.estimate(network, data, target=rival, batches=BATCHES, samples=SAMPLES)
    between = time.perf_counter()
    relucert.estimate(network, data, target="all", batches=BATCHES, samples=SAMPLES)
    ended = time.perf_counter()
    return _cells(f"CLEVER, nine rivals, {BATCHES} x {SAMPLES}", between - started, ended - between, "")


def _bisected(chain: Layers, x: Array, label: int) -> float:
    """The largest radius of 15 steps at which no rival's margin is spent."""
    low, high = 0.0, np.inf
    radius = START
    for _ in range(STEPS):
        if _proven(chain, x, label, radius):
            low = radius
        else:
            high = radius
        radius = 2 * low if np.isinf(high) else (low + high) / 2
    return low


def _proven(chain: Layers, x: Array, label: int, radius: float) -> bool:
    bounds = two_sided_bounds(Layers(chain.weights[:-1], chain.biases[:-1]), x, radius, np.inf)
    value = x
    for weight, bias in zip(chain.weights, chain.biases, strict=True):
        score = weight @ value + bias
        value = np.maximum(score, 0)
    rivals = np.delete(np.arange(len(score)), label)
    last = chain.weights[-1][label] - chain.weights[-1][rivals]
    steepest = dual_norm(_gradient_sizes([*chain.weights[:-1], last], bounds), np.inf)
    return bool((score[label] - score[rivals] > radius * steepest).all())


def _gradient_sizes(weights: list[Array], bounds: list[tuple[Array, Array]]) -> Array:
    """Algorithm 2 as it stands, vectorised: from the input, with the positive and negative parts of the weights."""
    centre = weights[0]
    low, high = np.zeros_like(centre), np.zeros_like(centre)
    for weight, (lower, upper) in zip(weights[1:], bounds, strict=True):
        active, unsure = lower >= 0, (lower < 0) & (upper > 0)
        plus, minus = np.maximum(weight, 0), np.minimum(weight, 0)
        below, above = np.minimum(centre + low, 0), np.maximum(centre + high, 0)
        new_high = plus[:, active] @ high[active] + minus[:, active] @ low[active]
        new_high += minus[:, unsure] @ below[unsure] + plus[:, unsure] @ above[unsure]
        new_low = plus[:, active] @ low[active] + minus[:, active] @ high[active]
        new_low += plus[:, unsure] @ below[unsure] + minus[:, unsure] @ above[unsure]
        centre = np.asarray(weight[:, active] @ centre[active], np.float32)
        low, high = np.asarray(new_low, np.float32), np.asarray(new_high, np.float32)
    return np.asarray(np.maximum(abs(centre + low), abs(centre + high)))
