"""Checks an imported network against its source: both are run on the same random inputs, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod

import torch
from torch import Tensor

from relucert.common.progress import Progress, Report, silent
from relucert.common.words import counted
from relucert.errors import LoadError, MismatchError
from relucert.network import Log, Network, Power, Reciprocal, Shape, Softplus, Sqrt

SCALES = (0.1, 1.0, 10.0)  # of the random inputs
PER_SCALE = 5  # random inputs
FEWEST = 2  # per scale, where inputs are large
PLENTY = 2**18  # numbers that the inputs of one scale have at the most, where more than the fewest are drawn
SLICE_BYTES = 2**24  # of the largest value, at the inputs that are run at once
FAR = (1e4, -1e16, 1e40, -1e100)
"""Scales of one more input each, where no value leaves the precision: clips far out act there, too, on either side."""
FAR_WITH_SQUARES = (1e2, -1e3)  # these scales for networks with squares
ROOM = 2.0**-20  # share of a precision's largest number that values may reach there
STAGE = "comparison with the original"
DOMAINS = (Log, Sqrt, Reciprocal)  # activations that are not defined everywhere
SAFETY = 8.0
"""The runtime may differ by this many times the estimated rounding error of our evaluation."""


def compare(
    network: Network,
    run: Callable[[Tensor], Tensor],
    precision: torch.dtype,
    runtime: str,
    casts: Collection[torch.dtype] = (),
    report: Report = silent,
    inputs_in: torch.dtype | None = None,
) -> None:
    """Raises MismatchError unless `run`, computing in `precision`, agrees with the network up to rounding.

    casts: the precisions that it changes to on the way; inputs_in: that of the original's inputs, where it is narrower.
    report: told at how many inputs, of how many, they were compared.
    """
    near = _usable(network, probes(network.input_shape), inputs_in or precision)
    softplus = any(isinstance(activation, Softplus) for activation in network.activations.values())
    casts = (*casts, torch.float32) if softplus else casts  # PyTorch's is the identity from where float32 can't tell it
    coarsest = max((precision, *casts), key=lambda dtype: torch.finfo(dtype).eps)
    least = min((inputs_in or precision, *casts), key=lambda dtype: torch.finfo(dtype).max)
    inputs = torch.cat([near.to(precision), _far(network, near[:1], least).to(precision)])
    double, single = network.cast(torch.float64), network.cast(torch.float32)
    batches: list[tuple[Tensor, ...]] = []
    for batch in inputs.split(max(2, SLICE_BYTES // (8 * max(network.sizes)))):  # two at least: a batch
        outputs = _expected(network, run, batch, runtime)
        batches.append((outputs, *_scores(double, batch.double()), single(batch.float()).double()))
        report(Progress(sum(len(outputs) for outputs, *_ in batches), len(inputs), stage=STAGE))
    expected, scores, largest, rounded = (torch.cat(columns) for columns in zip(*batches, strict=True))
    alone, first = run(inputs[:1].clone()).double(), expected[:1]
    if alone.shape != first.shape or not torch.allclose(alone, first, rtol=1e-3, atol=1e-6):
        raise MismatchError(f"{network.name}: {runtime} treats an image on its own differently from one in a batch")
    difference = (scores - expected).abs().amax(1)
    lost = (rounded - scores).abs().amax(1)[: len(near)]
    if not bool((difference <= _allowed(scores, largest, lost, coarsest)).all()):
        raise MismatchError(
            f"{network.name}: the imported network differs from {runtime} by up to "
            f"{difference.max().item():.3g} at random inputs, more than rounding explains; it is refused"
        )


def _expected(network: Network, run: Callable[[Tensor], Tensor], inputs: Tensor, runtime: str) -> Tensor:
    """The runtime's outputs, which are numbers, (batch, classes)."""
    expected = run(inputs.clone()).double()
    if expected.shape != (len(inputs), network.classes):
        raise MismatchError(
            f"{network.name}: {runtime} gives outputs of shape {tuple(expected.shape)}, "
            f"the imported network {(len(inputs), network.classes)}"
        )
    if not bool(torch.isfinite(expected).all()):
        raise MismatchError(f"{network.name}: {runtime} gives outputs that are not finite at random inputs")
    return expected


def _scores(network: Network, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs, and the largest absolute value on the way, (batch,)."""
    largest = inputs.new_zeros(len(inputs))
    for value in network.passing(inputs):
        largest = torch.maximum(largest, torch.maximum(value.amax(1), -value.amin(1)))
    return value, largest


def in_batches(run: Callable[[Tensor], Tensor], batch: int | None) -> Callable[[Tensor], Tensor]:
    """A function of any number of images, from one that takes exactly `batch` at once (None: any number)."""

    def run_all(images: Tensor) -> Tensor:
        if batch is None:
            return run(images)
        padding = images.new_zeros(-len(images) % batch, *images.shape[1:])
        outputs = [run(chunk) for chunk in torch.cat([images, padding]).split(batch)]
        if any(output.shape[:1] != (batch,) for output in outputs):
            raise LoadError(
                f"an output of shape {tuple(outputs[0].shape)} for {counted(batch, 'image')} does not start with them"
            )
        return torch.cat(outputs)[: len(images)]

    return run_all


def one_by_one(run: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of any number of images, from one that takes a single image without a batch axis: rows of scores."""
    return lambda images: torch.stack([run(image).flatten() for image in images])


def probes(shape: Shape) -> Tensor:
    """Random inputs at several scales and one input of zeros, the same at every call: (batch, *shape), float32.

    Of large inputs there are fewer: each has many numbers.
    """
    generator = torch.Generator().manual_seed(0)
    count = min(PER_SCALE, max(FEWEST, PLENTY // max(1, prod(shape))))
    drawn = [scale * torch.randn(count, *shape, generator=generator) for scale in SCALES]
    return torch.cat([*drawn, torch.zeros(1, *shape)])


def _usable(network: Network, inputs: Tensor, precision: torch.dtype) -> Tensor:
    """The inputs, or their absolute values, at which every activation is defined and nothing leaves the precision."""
    if network.rectifiers_only:
        return inputs
    if any(isinstance(activation, DOMAINS) for activation in network.activations.values()):
        inputs = torch.cat([inputs, inputs.abs()])
    _, largest = _scores(network.cast(torch.float64), inputs.double())
    usable = inputs[largest < ROOM * torch.finfo(precision).max]
    if not len(usable):
        raise MismatchError(
            f"{network.name}: at every random input a value is not defined or too large, so nothing shows that it was "
            "understood; it is refused"
        )
    return usable


def _far(network: Network, probe: Tensor, precision: torch.dtype) -> Tensor:
    """An input at larger scales, as far as no value of the network there leaves the precision: (batch, *shape).

    Not as far for networks with squares: far out, the difference of two, which a product is, is all rounding.
    """
    squares = any(isinstance(activation, Power) for activation in network.activations.values())
    limit = ROOM * torch.finfo(precision).max
    scales = [scale for scale in (FAR_WITH_SQUARES if squares else FAR) if abs(scale) < limit]
    inputs = torch.cat([scale * probe.double() for scale in scales] or [probe[:0].double()])
    if not len(inputs):
        return inputs
    _, largest = _scores(network.cast(torch.float64), inputs)
    return inputs[largest < limit]


def _allowed(scores: Tensor, largest: Tensor, lost: Tensor, precision: torch.dtype) -> Tensor:
    """The largest difference that rounding in this precision explains, for each input: (batch,).

    A float32 evaluation of the first inputs, the near ones, shows how much this network amplifies rounding errors,
    relative to its largest value. A worst-case bound would not do: it grows with every layer, until nothing counts as a
    mismatch.

    Args:
        scores: In float64: (batch, classes).
        largest: The largest absolute value on the way: (batch,).
        lost: What a float32 evaluation differs by: (near inputs,).
        precision: The runtime's.
    """
    relative = lost / largest[: len(lost)].clamp(min=torch.finfo(torch.float64).tiny)
    amplified = relative.max() / torch.finfo(torch.float32).eps * largest
    limits = torch.finfo(precision)
    return SAFETY * limits.eps * (amplified + 2 * scores.abs().amax(1) + limits.tiny)
