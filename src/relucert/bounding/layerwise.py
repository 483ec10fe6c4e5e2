"""Bounds of all neurons, layer after layer, by back-substitution: the backward driver of CROWN and DeepPoly."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.backward import NO_DUALS, Pull, PulledBack
from relucert.bounding.interval import Bounds, Interval
from relucert.bounding.reduced_path import ReducedPath
from relucert.bounding.reference import ReferencePath
from relucert.bounding.relaxers import Relaxer
from relucert.network import INPUT, LinearForms, Network, unit_forms

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
    needed = network.ancestors(wanted)
    values = sorted(set(network.preactivations) & needed | set(wanted))
    bounds: Bounds = {}
    reduced = ReducedPath(network, region, relaxer, arithmetic)
    for value in values:
        bounds[value] = enclose(reduced.path, value, None if prior is None else prior[value])
        reduced.add(value, bounds[value], cut=value != values[-1])
    return bounds


def first_chunk(path: ReferencePath, numbers: int) -> int:
    """How many forms are pulled back at once, if each holds that many numbers for each batch member."""
    return max(FIRST_FORMS, CHUNK_BYTES // (path.arithmetic.dtype.itemsize * numbers * len(path.region.radius)))


def enclose(path: ReferencePath, value: int, prior: Interval | None = None, *, numbers: int | None = None) -> Interval:
    """Bounds of all neurons of one value, from the path's bounds of every pre-activation before it.

    Args:
        prior: Bounds that hold already; only neurons that they leave unstable in some batch member are bounded anew.
        numbers: As in the network's `pull_counts`, where they are known.
    """
    network, region, arithmetic = path.network, path.region, path.arithmetic
    if value == INPUT:
        below, above = region.spans(arithmetic)
        return Interval(arithmetic.floor(region.reference - below), arithmetic.ceil(region.reference + above))
    neurons = torch.arange(network.sizes[value])
    if prior is not None:
        unstable = (~network.stable(value, *prior)).any(0).nonzero().flatten()
        neurons = neurons if len(unstable) > NEARLY_ALL * len(neurons) else unstable  # whole matrices are not copied
    intervals: list[Interval] = []
    first, step = 0, first_chunk(path, numbers or max(network.sizes))
    while first < len(neurons):
        chunk = neurons[first : first + step]
        interval, largest = _bound_neurons(path, value, chunk)
        intervals.append(interval)
        first += len(chunk)
        step = max(1, CHUNK_BYTES * len(chunk) // largest)
    if not intervals and prior is not None:
        return prior
    interval = Interval.join(intervals, 1)
    return interval if prior is None else prior.replaced(neurons, interval, ~network.stable(value, *prior))


def _bound_neurons(path: ReferencePath, value: int, neurons: Tensor) -> tuple[Interval, int]:
    """Bounds of some neurons, (batch, count), and the bytes of the largest forms met on the way."""
    pulled = bound_neurons(path, value, neurons)
    if pulled.upper is not None:
        return Interval(pulled.lower, pulled.upper), pulled.largest
    return Interval(pulled.lower, -bound_neurons(path, value, neurons, sign=-1).lower), pulled.largest


def bound_neurons(path: ReferencePath, value: int, neurons: Tensor, *, sign: int = 1) -> PulledBack:
    """Bounds of some neurons of a value, (count,), or with the sign -1 of their negatives."""
    signs = None if sign > 0 else path.region.radius.new_full((len(neurons),), sign)
    start, forms, constant, slack = neuron_forms(path, value, neurons, signs)
    return Pull(path, NO_DUALS, constant, slack).run(forms, start)


def neuron_forms(
    path: ReferencePath, value: int, neurons: Tensor, signs: Tensor | None = None
) -> tuple[int, LinearForms, Tensor, Tensor]:
    """Some neurons of a value, (count,), times signs, (count,), as forms on a value, which comes first; and the forms'
    values at the reference, and what they may lose from these so far, (batch, count) each."""
    start, forms = unit_forms(path.network, value, neurons, path.arithmetic.dtype)
    constant = path.reference(value)[:, neurons]
    cost = path.cost(value) if start != value else None
    slack = torch.zeros_like(constant) if cost is None else cost[:, neurons]
    if signs is None:
        return start, forms, constant, slack
    return start, forms.scaled(signs), constant * signs, slack
