"""Images and labels as users hand them in: arrays, tensors, data sets, data loaders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from relucert.common.arrays import dense
from relucert.data import Dataset
from relucert.errors import InputError, in_one_line


@dataclass(frozen=True, eq=False)
class Samples:
    """Images (batch, ...) in any shape, their labels or None, and the layout of pictures, None where it is unknown."""

    images: Tensor
    labels: Any
    layout: str | None = None


def read_samples(images: Any, labels: Any) -> Samples:
    """Reads images and labels; a data set that has labels takes no others."""
    if not isinstance(images, (Dataset, TorchDataset, DataLoader)):
        return Samples(dense(images, "images"), labels)
    if isinstance(images, Dataset):
        shape = images.picture_shape
        pictures = images.images if shape is None else images.images.unflatten(1, shape)
        samples = Samples(pictures, images.labels, None if shape is None else "nchw")
    else:
        samples = Samples(*_collected(images))
    if labels is None:
        return samples
    if samples.labels is not None:
        raise InputError("these images come with labels of their own: leave out the labels, or pass images alone")
    return Samples(samples.images, labels, samples.layout)


def _collected(source: TorchDataset[Any] | DataLoader[Any]) -> tuple[Tensor, Tensor | None]:
    """All images of a data set or a data loader, and all labels unless it gives images alone."""
    images: list[Tensor] = []
    labels: list[Tensor] = []
    batched = isinstance(source, DataLoader) and source.batch_sampler is not None
    for number, item in enumerate(_items(source)):
        image, label = _pair(item)
        pixels = dense(image, "images of the data set")
        classes = None if label is None else dense(label, "labels of the data set")
        whole = batched if classes is None else classes.ndim > 0
        images.append(pixels if whole else pixels[None])
        if classes is not None:
            labels.append(classes if whole else classes[None])
        if images[-1].shape[1:] != images[0].shape[1:]:
            first, shape = tuple(images[0].shape[1:]), tuple(images[-1].shape[1:])
            raise InputError(f"the images of a data set have one shape; item {number} has {shape}, the first {first}")
    if not images:
        raise InputError("there are no images: the data set is empty")
    return torch.cat(images), torch.cat(labels) if labels else None


def _items(source: TorchDataset[Any] | DataLoader[Any]) -> Iterable[Any]:
    """The items of a data set, in order; any exception of its code becomes an InputError of one line."""
    count = 0
    try:
        if isinstance(source, DataLoader) or not hasattr(source, "__len__"):
            stream: Iterable[Any] = iter(source)
        else:
            stream = (source[index] for index in range(len(source)))
        for item in stream:
            yield item
            count += 1
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the data set fails after {count} items: {in_one_line(error)}") from error


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, (tuple, list)) and len(item) in (1, 2):
        return item[0], item[1] if len(item) == 2 else None
    if isinstance(item, (Tensor, np.ndarray)):
        return item, None
    raise InputError(f"a data set gives pairs of image and label, or images alone, not {type(item).__name__}")
