"""Bounds of all neurons, layer after layer, by back-substitution: the backward driver of CROWN and DeepPoly."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import Pull, Start
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reference import ReducedPath, ReferencePath
from relucert.bounding.relaxers import Relaxer
from relucert.network import INPUT, Network, unit_forms

CHUNK_BYTES = 2**23  # that pulling forms back holds at once: tuned on convolutional networks in bench/convolutions.py
NEARLY_ALL = 0.9  # of a layer's neurons being unstable, all are bounded anew, without a copy of the matrix
FIRST_FORMS = 32  # in the first chunk of a layer, whose forms tell how large they get


def backward(
    network: Network, region: Region, relaxer: Relaxer, arithmetic: Arithmetic, wanted: tuple[int, ...],
    *, prior: Bounds | None = None,
) -> Bounds:  # fmt: skip
    """Bounds of every wanted value and of every pre-activation before it: the paper's Algorithm 1, layer after layer.

    prior: bounds that hold already, as those of a larger region do; neurons whose sign they tell keep them.
    """
    values = sorted(set(network.preactivations) & network.ancestors(wanted) | set(wanted))
    bounds: Bounds = {}
    reduced = ReducedPath(network, region, relaxer, arithmetic)
    for value in values:
        bounds[value] = enclose(reduced.path, value, None if prior is None else prior[value])
        reduced.add(value, bounds[value], cut=value != values[-1])
    return bounds


def in_chunks(path: ReferencePath, positions: Tensor, numbers: int | None, pull: Callable[[Tensor], int]) -> None:
    """Pulls forms back, by their positions, (count,), as many at once as memory has room for.

    Args:
        numbers: How many numbers a form holds at once for each batch member; None: not known.
        pull: Takes some of the positions; returns the bytes of the largest forms met on the way.
    """
    numbers = (numbers or max(path.network.sizes)) * len(path.region.radius)
    first, step = 0, max(FIRST_FORMS, CHUNK_BYTES // (path.arithmetic.dtype.itemsize * numbers))
    while first < len(positions):
        chunk = positions[first : first + step]
        first += len(chunk)
        step = max(1, CHUNK_BYTES * len(chunk) // pull(chunk))


def enclose(path: ReferencePath, value: int, prior: Interval | None = None, *, numbers: int | None = None) -> Interval:
    """Bounds of all neurons of one value, from the path's bounds of every pre-activation before it.

    Args:
        prior: Bounds that hold already; only neurons that they leave unstable in some batch member are bounded anew.
        numbers: As in the network's `pull_counts`, where they are known.
    """
    network, region, arithmetic = path.network, path.region, path.arithmetic
    if value == INPUT:
        return Interval.around(region.reference, region.spans(arithmetic), arithmetic)
    neurons = torch.arange(network.sizes[value])
    if prior is not None:
        unstable = (~network.stable(value, *prior)).any(0).nonzero().flatten()
        neurons = neurons if len(unstable) > NEARLY_ALL * len(neurons) else unstable  # whole matrices are not copied
    intervals: list[Interval] = []

    def pull(chunk: Tensor) -> int:
        interval, largest = bound_neurons(path, value, chunk)
        intervals.append(interval)
        return largest

    in_chunks(path, neurons, numbers, pull)
    if prior is None:
        return Interval.join(intervals, 1)
    if not intervals:
        return prior
    unstable = ~network.stable(value, *prior)[:, neurons]
    return prior.replaced(neurons, prior.pick(neurons).meet(Interval.join(intervals, 1), unstable))


def bound_neurons(path: ReferencePath, value: int, neurons: Tensor) -> tuple[Interval, int]:
    """Bounds of some neurons of a value, (count,), and the bytes of the largest forms met on the way."""
    pulled = Pull(path).run(neuron_forms(path, value, neurons))
    upper = pulled.upper
    if upper is None:
        signs = path.region.radius.new_full((len(neurons),), -1)
        upper = -Pull(path).run(neuron_forms(path, value, neurons, signs)).lower
    return Interval(pulled.lower, upper), pulled.largest


def neuron_forms(path: ReferencePath, value: int, neurons: Tensor, signs: Tensor | None = None) -> Start:
    """Some neurons of a value, (count,), times signs, (count,), as forms on it or on what it is computed from."""
    start, forms = unit_forms(path.network, value, neurons, path.arithmetic.dtype)
    constant = path.reference(value)[:, neurons]
    cost = path.cost(value) if start != value else None
    slack = torch.zeros_like(constant) if cost is None else cost[:, neurons]
    if signs is None:
        return Start(start, forms, constant, slack)
    return Start(start, forms.scaled(signs), constant * signs, slack)
