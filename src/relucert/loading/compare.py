"""Checks an imported network against its source: both are run on the same random inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from relucert.errors import LoadError, MismatchError
from relucert.network import Network, Shape

SCALES = (0.1, 1.0, 10.0)
PER_SCALE = 5
SAFETY = 8.0
"""The runtime may differ by this many times the estimated rounding error of our evaluation."""


def compare(
    network: Network,
    run: Callable[[Tensor], Tensor],
    precision: torch.dtype,
    runtime: str,
    casts: Collection[torch.dtype] = (),
) -> None:
    """Raises MismatchError unless `run`, computing in `precision`, agrees with the network up to rounding.

    casts: the precisions that it changes to on the way.
    """
    inputs = probes(network.input_shape).to(precision)
    values = network.cast(torch.float64).values(inputs.double())
    expected = run(inputs.clone()).double()
    if expected.shape != values[-1].shape:
        raise MismatchError(
            f"{network.name}: {runtime} gives outputs of shape {tuple(expected.shape)}, "
            f"the imported network {tuple(values[-1].shape)}"
        )
    if not bool(torch.isfinite(expected).all()):
        raise MismatchError(f"{network.name}: {runtime} gives outputs that are not finite at random inputs")
    alone = run(inputs[:1].clone()).double()
    if alone.shape != expected[:1].shape or not torch.allclose(alone, expected[:1], rtol=1e-3, atol=1e-6):
        raise MismatchError(f"{network.name}: {runtime} treats an image on its own differently from one in a batch")
    difference = (values[-1] - expected).abs().amax(1)
    coarsest = max((precision, *casts), key=lambda dtype: torch.finfo(dtype).eps)
    allowed = _allowed(network, inputs, values, coarsest)
    if not bool((difference <= allowed).all()):
        raise MismatchError(
            f"{network.name}: the imported network differs from {runtime} by up to "
            f"{difference.max().item():.3g} at random inputs, more than rounding explains; it is refused"
        )


def in_batches(run: Callable[[Tensor], Tensor], batch: int | None) -> Callable[[Tensor], Tensor]:
    """The same for any number of images, where `run` takes exactly `batch` at once (None: any number)."""

    def run_all(images: Tensor) -> Tensor:
        if batch is None:
            return run(images)
        padding = images.new_zeros(-len(images) % batch, *images.shape[1:])
        outputs = [run(part) for part in torch.cat([images, padding]).split(batch)]
        if any(output.shape[:1] != (batch,) for output in outputs):
            raise LoadError(f"an output of shape {tuple(outputs[0].shape)} for {batch} images does not start with them")
        return torch.cat(outputs)[: len(images)]

    return run_all


def one_by_one(run: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same for any number of images, where `run` takes one that has no axis for a batch: rows of scores."""
    return lambda images: torch.stack([run(image).flatten() for image in images])


def probes(shape: Shape) -> Tensor:
    """Random inputs at several scales and one input of zeros, the same at every call: (batch, *shape), float32."""
    generator = torch.Generator().manual_seed(0)
    drawn = [scale * torch.randn(PER_SCALE, *shape, generator=generator) for scale in SCALES]
    return torch.cat([*drawn, torch.zeros(1, *shape)])


def _allowed(network: Network, inputs: Tensor, values: list[Tensor], precision: torch.dtype) -> Tensor:
    """The largest difference that rounding in this precision explains, for each input: (batch,).

    A float32 evaluation shows how much this network amplifies rounding errors, relative to its largest value. A
    worst-case bound would not do: it grows with every layer, until nothing counts as a mismatch.
    """
    largest = torch.cat(values, dim=1).abs().amax(1)
    single = network.cast(torch.float32)(inputs.float()).double()
    lost = (single - values[-1]).abs().amax(1) / largest.clamp(min=torch.finfo(torch.float64).tiny)
    amplified = lost.max() / torch.finfo(torch.float32).eps * largest
    limits = torch.finfo(precision)
    return SAFETY * limits.eps * (amplified + 2 * values[-1].abs().amax(1) + limits.tiny)
