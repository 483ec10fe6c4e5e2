"""Images with their labels: those bundled with the package, and those of the user's NumPy files."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, replace
from importlib import resources
from numbers import Real
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relucert.common.checks import checked_path, shown
from relucert.common.words import counted
from relucert.data import formats
from relucert.data.catalogue import NAMES
from relucert.data.formats import Array
from relucert.errors import InputError, LoadError

BUNDLED = "bundled.npz"
PICTURE = (1, 28, 28)  # shape of the bundled images
USUAL = (-0.5, 0.5)  # the default values of black and white pixels
MOST = 1e6  # the largest pixel that a user may ask for


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images in the network's input range, one row per image, and their labels.

    Attributes:
        images: (count, ...), float32 (float64 where the file has it).
        labels: (count,) int64, None if unknown.
        name: What the images are called in messages.
        picture_shape: The shape of the pictures that are stored as flat rows, colours first; None if unknown.
    """

    images: Tensor
    labels: Tensor | None
    name: str
    picture_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for tensor in (self.images, self.images if self.labels is None else self.labels):
            if not _has_rows(tensor):
                raise InputError(f"{self.name}: images and labels are tensors, one row per image, not {shown(tensor)}")
        if self.picture_shape is not None and not _is_picture(self.picture_shape, self.images):
            rows, shape = tuple(self.images.shape), shown(self.picture_shape)
            raise InputError(f"{self.name}: rows of {rows} are no pictures of {shape}")
        if self.labels is not None and len(self.labels) != len(self.images):
            raise InputError(
                f"{self.name}: {counted(len(self.images), 'image')} but {counted(len(self.labels), 'label')}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        labels = "without labels" if self.labels is None else "with labels"
        numbers = counted(self.images[:1].numel(), "number")
        return f"Dataset({self.name!r}, {counted(len(self), 'image')} of {numbers}, {labels})"

    def sha256(self) -> str:
        """The SHA-256 of all images, in their precision, and of their labels."""
        digest = hashlib.sha256(np.ascontiguousarray(self.images.numpy()).data)
        if self.labels is not None:
            digest.update(np.ascontiguousarray(self.labels.numpy()).data)
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """The beginning of the SHA-256 of all images and labels."""
        return self.sha256()[:16]

    def first(self, count: int) -> Dataset:
        """The first `count` images; asking for more than there are is an error."""
        if not _is_count(count) or not 1 <= count <= len(self):
            raise InputError(f"{self.name} has {counted(len(self), 'image')}; {shown(count)} were asked for")
        labels = None if self.labels is None else self.labels[:count]
        return replace(self, images=self.images[:count], labels=labels)


def scaled(
    stored: Array, labels: Array, name: str, picture_shape: tuple[int, ...], pixels: tuple[float, float] = USUAL
) -> Dataset:
    """Pixels from 0 to 255, (count, ...), as images between these two numbers, one row per image."""
    low, high = _range(pixels)
    images = torch.from_numpy(stored.reshape(len(stored), -1).astype(np.float32))
    images.mul_(high - low).div_(255).add_(low)
    return Dataset(images, torch.from_numpy(labels.astype(np.int64)), name, picture_shape)


def _range(pixels: object) -> tuple[float, float]:
    ends = pixels if isinstance(pixels, (tuple, list)) else ()
    numbers = [float(end) for end in ends if not isinstance(end, bool) and isinstance(end, Real)]
    if len(ends) == len(numbers) == 2 and -MOST <= numbers[0] < numbers[1] <= MOST:
        return numbers[0], numbers[1]
    raise InputError(f"pixels go from one number to a larger one, as in (0, 1), not {shown(pixels)}")


def bundled(*, pixels: tuple[float, float] = USUAL) -> Dataset:
    """The first 100 images of the MNIST test set, and their labels.

    Args:
        pixels: What black and white become: by default pixels / 255 - 0.5, which the bundled networks take.
    """
    with resources.as_file(resources.files(__package__) / BUNDLED) as path, np.load(path) as file:
        return scaled(file["images"], file["labels"], "the first 100 MNIST test images", PICTURE, pixels)


def read(path: str | os.PathLike[str]) -> Dataset:
    """Images of one's own, from a NumPy file without Python objects in it.

    Args:
        path: A `.npz` file (`images`, and `labels` if they are known) or a `.npy` file (images alone).
    """
    path = checked_path(path, "reading images")
    if path.suffix.lower() not in (".npz", ".npy"):
        raise LoadError(f"{path}: images come as .npz or .npy files, or by name: {', '.join(NAMES)}")
    if not path.is_file():
        raise LoadError(f"{path}: no such file")
    images, labels = formats.numpy_arrays(path)
    return Dataset(_images(images, path), None if labels is None else _labels(labels, path), path.name)


def _has_rows(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def _is_picture(shape: object, images: Tensor) -> bool:
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and size > 0 for size in shape):
        return False
    return images.ndim == 2 and math.prod(shape) == images.shape[1]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _images(array: Array, path: Path) -> Tensor:
    if array.dtype.kind in "iub":
        raise InputError(
            f"{path}: the images are {array.dtype}: scale the pixels to the network's own input range, as in "
            "numpy.savez('scaled.npz', images=images / 255, labels=labels) for one of inputs from 0 to 1"
        )
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InputError(f"{path}: the images are {array.dtype}, not floating point of at most 64 bits")
    if array.ndim < 2:
        raise InputError(f"{path}: the images need one row per image, the array's shape is {array.shape}")
    if array.size == 0:
        raise InputError(f"{path}: there are no images, the array's shape is {array.shape}")
    precision = np.float64 if array.dtype.itemsize == 8 else np.float32
    return torch.from_numpy(array.astype(precision))


def _labels(array: Array, path: Path) -> Tensor:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(f"{path}: the labels need one whole number an image, not {array.dtype} {array.shape}")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{path}: there is a label {int(array.max())}, which no network has a class for")
    return torch.from_numpy(array.astype(np.int64))
