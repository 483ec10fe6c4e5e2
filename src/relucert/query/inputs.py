"""Checks of what users hand in: images and labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from relucert.errors import InputError
from relucert.network import Network

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def check_images(images: ArrayLike | Tensor, network: Network) -> Tensor:
    """The images as rows (batch, size) in float64, which holds every float of a smaller kind exactly."""
    given = _tensor(images, "images")
    if given.ndim == 0 or len(given) == 0:
        raise InputError("there are no images: the batch is empty")
    if not given.is_floating_point():
        raise InputError(f"the images are {given.dtype}; scale them to the network's own input range, as floats")
    shape, expected = tuple(given.shape[1:]), network.input_shape
    if shape not in (expected, (network.sizes[0],)):
        raise InputError(f"each image must have the shape {expected}, one row per image; these have {shape}")
    if not bool(torch.isfinite(given).all()):
        raise InputError("the images have NaN or infinite pixels")
    return given.flatten(1).double().clone()  # what the caller does to the images later is no concern of the answers


def check_labels(labels: Sequence[int] | ArrayLike | Tensor | None, scores: Tensor) -> Tensor:
    """The labels (batch,), or the predictions where none are given; scores: (batch, classes)."""
    count, classes = scores.shape
    if labels is None:
        return scores.argmax(1)
    given = _tensor(labels, "labels")
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise InputError(f"labels must be whole numbers, not {given.dtype}")
    if tuple(given.shape) != (count,):
        raise InputError(f"{count} images need {count} labels, these have the shape {tuple(given.shape)}")
    given = given.long()
    if int(given.min()) < 0 or int(given.max()) >= classes:
        wrong = given[(given < 0) | (given >= classes)][0]
        raise InputError(f"label {int(wrong)} is not among the network's {classes} classes (0 to {classes - 1})")
    return given


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
    if not images.is_floating_point() or images.ndim < 2 or not images.numel():
        raise InputError(f"the images must be floats, one row per image, not {images.dtype} {tuple(images.shape)}")
    if not bool(torch.isfinite(images).all()):
        raise InputError("the images have NaN or infinite pixels")
    return images


def _tensor(given: ArrayLike | Tensor, what: str) -> Tensor:
    if isinstance(given, Tensor):
        if given.layout != torch.strided or given.is_meta or given.is_nested:
            raise InputError(f"the {what} must be an ordinary dense tensor")
        return given.detach().cpu()
    try:
        return torch.from_numpy(np.array(given))
    except (TypeError, ValueError) as error:
        raise InputError(f"the {what} are not an array of numbers: {error}") from None
