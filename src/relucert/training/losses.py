"""Training losses: cross-entropy at adversarial images, an upper bound of it in a ball, and with soft labels."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from relucert.arithmetic.box import check_inside
from relucert.arithmetic.norm import NormLike
from relucert.arithmetic.region import RegionShape
from relucert.common.checks import check_number, shown
from relucert.common.names import LOSS_BOUNDS, LossBounds
from relucert.common.numbers import NumberLike, number_above
from relucert.errors import InputError
from relucert.inputs.loading import load, torch_module
from relucert.inputs.recipes.recipe import Adversarial
from relucert.network import Network, Shape
from relucert.query.inputs import check_batch, check_pixels
from relucert.query.shapes import in_order, module_shape
from relucert.query.types import BoxLike, ScaleLike
from relucert.training.margins import worst_margins


def robust_loss(
    network: Network | nn.Module | Callable[[], Network],
    images: Tensor,
    labels: Tensor,
    radius: NumberLike,
    norm: NormLike = "inf",
    *,
    method: LossBounds = "fast-lin",
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    input_shape: tuple[int, ...] | None = None,
) -> Tensor:
    """An upper bound of the cross-entropy within the radius around each image, from lower bounds of the margins.

    It is differentiable in the weights, for use in a training loop. A module is traced anew at every call; in a loop,
    pass `relucert.live_network(module)` instead, which traces once and follows the weights. Rounding is ignored: this
    is a loss, not a certificate.

    Args:
        network: A Network, a torch.nn.Module, or what `relucert.live_network` returns.
        images: One row per image, in the network's own input range.
        labels: (batch,), one class per image.
        radius: Within which the loss is bounded.
        norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1.
        method: What bounds the margins: "fast-lin"; "crown": tighter, and slower; or "interval": looser, many times
            faster, and for p = inf better to train with.
        box: The valid inputs, as for `certify`.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        input_shape: Of one image, where neither the network nor the images tell it.
    """
    checked = _network(network, tuple(check_pixels(images).shape[1:]), input_shape)
    if checked.classes < 2:
        raise InputError("a network with a single output has no rival classes to be robust against")
    distance = number_above(radius, "the radius")
    check_number("radius", distance, 0, sys.float_info.max)
    bounding = LOSS_BOUNDS.find(method)
    images, labels = check_batch(images, labels, checked.classes)
    images = in_order(images, checked)
    shape = RegionShape.parse(norm, box, scale, checked.input_shape)
    check_inside(images.detach().double(), shape.box)
    margins = worst_margins(checked, images, labels, distance, shape, bounding)
    return functional.softplus(torch.logsumexp(-margins, 1)).mean()


def _network(source: object, shape: Shape, input_shape: Shape | None) -> Network:
    if isinstance(source, nn.Module):
        return torch_module.live_network(source, input_shape or module_shape(source, shape))()
    network = source() if callable(source) and not isinstance(source, (Network, type)) else source
    if not isinstance(network, Network):
        raise InputError(f"a network, a module or relucert.live_network of one is needed, not {shown(network)}")
    return load(network, input_shape=input_shape)


def attacked(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    epsilon: float,
    defence: Adversarial,
    generator: torch.Generator,
) -> Tensor:
    """Adversarial images by projected gradient descent, within epsilon (p = infinity) and the defence's box."""
    steps, box = defence.steps, defence.box
    if box is not None and not bool(((images >= box[0]) & (images <= box[1])).all()):
        raise InputError(f"the images have numbers outside of the box from {box[0]:g} to {box[1]:g}")
    lower, upper = images - epsilon, images + epsilon
    if box is not None:
        lower, upper = lower.clamp(*box), upper.clamp(*box)
    noise = torch.rand(images.shape, generator=generator, dtype=images.dtype).to(images.device)
    adversarial = torch.minimum(torch.maximum(images + epsilon * (2 * noise - 1), lower), upper)
    for _ in range(steps):
        adversarial.requires_grad_(True)
        loss = functional.cross_entropy(model(adversarial), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, adversarial)
        moved = adversarial.detach() + 2.5 * epsilon / steps * gradient.sign()
        adversarial = torch.minimum(torch.maximum(moved, lower), upper)
    return adversarial.detach()


def distilled(scores: Tensor, soft_labels: Tensor, temperature: float) -> Tensor:
    """Cross-entropy with soft labels at a temperature, times the temperature so that gradients keep their size."""
    return temperature * functional.cross_entropy(scores / temperature, soft_labels)
