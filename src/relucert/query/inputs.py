"""Checks of what users hand in: images and labels."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.common.arrays import dense
from relucert.errors import InputError
from relucert.network import Network
from relucert.query.plausible import scaled
from relucert.query.shapes import in_order
from relucert.query.types import LabelsLike


def check_images(images: Tensor, network: Network, layout: str | None = None) -> Tensor:
    """The images as rows (batch, size) in float64, which holds every float of a smaller kind exactly.

    layout: as for `in_order`.
    """
    check_any(images)
    if not images.is_floating_point():
        how = _how(network)
        raise InputError(f"the images are {images.dtype}; scale them to the network's own input range, as floats{how}")
    rows = in_order(images, network, layout)
    check_finite(rows)
    return rows.to(torch.float64, copy=True)  # what the caller does to the images later is no concern of the answers


def check_any(images: Tensor) -> None:
    if images.ndim == 0 or images.numel() == 0:
        raise InputError(f"there are no images: the batch is empty, its shape is {tuple(images.shape)}")


def check_finite(images: Tensor) -> None:
    """Refuses images (batch, ...) that have pixels which are no numbers, or infinite."""
    finite = torch.isfinite(images).flatten(1).all(1)
    if not bool(finite.all()):
        raise InputError(f"image {int((~finite).int().argmax())} has NaN or infinite pixels (counted from 0)")


def _how(network: Network) -> str:
    """The advice how to scale bytes to the network's input range."""
    if network.input_range is None:
        return ", as in images / 255 for inputs from 0 to 1, or images / 255 - 0.5 for inputs from -0.5 to 0.5"
    line = scaled(0, 255, *network.input_range)
    return "" if line is None else f", as in {line}"


def check_labels(labels: LabelsLike | None, scores: Tensor) -> Tensor:
    """The labels (batch,), by default the predictions; scores: (batch, classes)."""
    count, classes = scores.shape
    if labels is None:
        return scores.argmax(1)
    tensor = dense(labels, "labels")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"labels must be whole numbers, not {tensor.dtype}")
    if tuple(tensor.shape) != (count,):
        raise InputError(f"labels must be one per image, {count:,} in all, not an array of shape {tuple(tensor.shape)}")
    tensor = tensor.long()
    if int(tensor.min()) < 0 or int(tensor.max()) >= classes:
        wrong = tensor[(tensor < 0) | (tensor >= classes)][0]
        raise InputError(f"label {int(wrong)} is not among the network's {classes} classes (0 to {classes - 1})")
    return tensor


def check_batch(images: object, labels: object, classes: int) -> tuple[Tensor, Tensor]:
    """Images as they are and labels as int64, fit to compute a loss of."""
    if not isinstance(labels, Tensor):
        raise InputError(f"the labels must be a tensor, not {type(labels).__name__}")
    pixels = check_pixels(images)
    return pixels, check_labels(labels, torch.empty(len(pixels), classes)).to(pixels.device)


def check_pixels(images: object) -> Tensor:
    """The images as they are: a tensor of finite floats, one row per image."""
    if not isinstance(images, Tensor):
        raise InputError(f"the images must be a tensor, not {type(images).__name__}")
    if images.layout != torch.strided or images.is_meta or images.is_nested:
        raise InputError("the images must be an ordinary dense tensor")
    if not images.is_floating_point() or images.ndim < 2 or not images.numel():
        how = ": scale them, as in images / 255" if images.dtype == torch.uint8 else ""
        raise InputError(f"the images must be floats, one row per image, not {images.dtype} {tuple(images.shape)}{how}")
    check_finite(images)
    return images
