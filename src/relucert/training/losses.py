"""What is minimised: cross-entropy, its worst case in a ball as far as an attack finds it, or as far as is proven."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from relucert.ball import Ball, Norm
from relucert.bounding.method import find_method
from relucert.errors import InputError
from relucert.loading import torch_module
from relucert.network import Network
from relucert.property import Property, rivals
from relucert.rigor import DOUBLE, FLOAT

BOX = (-0.5, 0.5)


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
    if isinstance(network, nn.Module):
        network = torch_module.live_network(network, tuple(images.shape[1:]))
    known = network if isinstance(network, Network) else network()
    margins = worst_margins(known, images, labels, radius, Norm.parse(norm))
    return functional.softplus(torch.logsumexp(-margins, 1)).mean()


def worst_margins(network: Network, images: Tensor, labels: Tensor, radius: float, norm: Norm) -> Tensor:
    """Fast-Lin's lower bounds of every rival's margin, (batch, classes - 1), in plain arithmetic."""
    if not 0 <= radius < float("inf"):
        raise InputError(f"a radius must be a finite number >= 0, not {radius}")
    arithmetic = DOUBLE if images.dtype == torch.float64 else FLOAT
    cast = network.cast(arithmetic.dtype)
    points = images.flatten(1).to(arithmetic.dtype)
    ball = Ball(points, torch.full((len(points),), radius, dtype=arithmetic.dtype), norm)
    scores = torch.zeros(len(labels), network.classes)
    prop = Property(labels, rivals("untargeted", scores, labels, 0))
    method = find_method("fast-lin")
    return method.margins(cast, ball, prop, method.hidden(cast, ball, arithmetic), arithmetic)


def attacked(
    model: nn.Module, images: Tensor, labels: Tensor, epsilon: float, steps: int, generator: torch.Generator
) -> Tensor:
    """Images within epsilon (p = infinity) and the box that projected gradient descent makes hard to classify."""
    noise = torch.rand(images.shape, generator=generator, dtype=images.dtype)
    found = (images + epsilon * (2 * noise - 1)).clamp(*BOX)
    for _ in range(steps):
        found.requires_grad_(True)
        loss = functional.cross_entropy(model(found), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, found)
        moved = found.detach() + 2.5 * epsilon / steps * gradient.sign()
        found = torch.minimum(torch.maximum(moved, images - epsilon), images + epsilon).clamp(*BOX)
    return found.detach()


def distilled(scores: Tensor, soft_labels: Tensor, temperature: float) -> Tensor:
    """Cross-entropy with soft labels at a temperature, times the temperature: gradients keep their size."""
    return temperature * functional.cross_entropy(scores / temperature, soft_labels)
