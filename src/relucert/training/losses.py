"""What is minimised: cross-entropy, its worst case in a ball as far as an attack finds it, or as far as is proven."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from relucert.checks import check_number
from relucert.errors import InputError
from relucert.loading import torch_module
from relucert.methods.table import find_method
from relucert.network import Network, Shape
from relucert.norm import Norm
from relucert.query.inputs import check_batch, check_pixels
from relucert.query.property import Property, rivals
from relucert.recipes.recipe import Adversarial
from relucert.region import Ball
from relucert.rigor import DOUBLE, FLOAT


def robust_loss(
    network: Network | nn.Module | Callable[[], Network],
    images: Tensor,
    labels: Tensor,
    radius: float,
    norm: str | float | Norm = "inf",
) -> Tensor:
    """Cross-entropy at the worst scores that Fast-Lin can't exclude within the radius: an upper bound of it there.

    Differentiable in the weights, to drop into a training loop. A module is traced anew at every call; in a loop,
    hand over `relucert.live_network(module)` instead, which traces once and follows the weights.
    Rounding is ignored: a loss, not a certificate.
    """
    known = _network(network, tuple(check_pixels(images).shape[1:]))
    if known.classes < 2:
        raise InputError("a network with a single output has no rival classes to be robust against")
    images, labels = check_batch(images, labels, known.classes)
    if images[0].numel() != known.sizes[0]:
        raise InputError(f"each image must have the shape {known.input_shape}, not {tuple(images.shape[1:])}")
    margins = worst_margins(known, images, labels, radius, Norm.parse(norm))
    return functional.softplus(torch.logsumexp(-margins, 1)).mean()


def _network(given: object, shape: Shape) -> Network:
    live = torch_module.live_network(given, shape) if isinstance(given, nn.Module) else given
    known = live() if callable(live) and not isinstance(live, Network) else live
    if not isinstance(known, Network):
        raise InputError(f"a network, a module or relucert.live_network of one is needed, not {known!r}")
    return known


def worst_margins(network: Network, images: Tensor, labels: Tensor, radius: float, norm: Norm) -> Tensor:
    """Fast-Lin's lower bounds of every rival's margin, (batch, classes - 1), in plain arithmetic."""
    check_number("radius", radius, 0, sys.float_info.max)
    arithmetic = DOUBLE if images.dtype == torch.float64 else FLOAT
    cast = network.cast(arithmetic.dtype)
    points = images.flatten(1).to(arithmetic.dtype)
    ball = Ball(points, points.new_full((len(points),), radius), norm)
    scores = points.new_zeros(len(labels), network.classes)
    prop = Property(labels, rivals("untargeted", scores, labels, 0))
    method = find_method("fast-lin")
    return method.margins(cast, ball, prop, method.hidden(cast, ball, arithmetic), arithmetic)


def attacked(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    defence: Adversarial,
    generator: torch.Generator,
) -> Tensor:
    """Images within epsilon (p = infinity) and the box that projected gradient descent makes hard to classify."""
    steps, box = defence.steps, defence.box
    if box is not None and not bool(((images >= box[0]) & (images <= box[1])).all()):
        raise InputError(f"the images have numbers outside of the box from {box[0]:g} to {box[1]:g}")
    lower, upper = images - epsilon, images + epsilon
    if box is not None:
        lower, upper = lower.clamp(*box), upper.clamp(*box)
    noise = torch.rand(images.shape, generator=generator, dtype=images.dtype).to(images.device)
    found = torch.minimum(torch.maximum(images + epsilon * (2 * noise - 1), lower), upper)
    for _ in range(steps):
        found.requires_grad_(True)
        loss = functional.cross_entropy(model(found), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, found)
        moved = found.detach() + 2.5 * epsilon / steps * gradient.sign()
        found = torch.minimum(torch.maximum(moved, lower), upper)
    return found.detach()


def distilled(scores: Tensor, soft_labels: Tensor, temperature: float) -> Tensor:
    """Cross-entropy with soft labels at a temperature, times the temperature: gradients keep their size."""
    return temperature * functional.cross_entropy(scores / temperature, soft_labels)
