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
        raise InputError(f"each image must have the shape {expected}, one row an image; these have {shape}")
    if not bool(torch.isfinite(given).all()):
        raise InputError("the images have NaN or infinite pixels")
    return given.flatten(1).double()


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


def _tensor(given: ArrayLike | Tensor, what: str) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach().cpu()
    try:
        return torch.from_numpy(np.array(given))
    except (TypeError, ValueError) as error:
        raise InputError(f"the {what} are not an array of numbers: {error}") from None
