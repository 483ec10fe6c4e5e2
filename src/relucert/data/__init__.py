"""Images to certify: those bundled with the package, and the user's own NumPy files (never pickles)."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from torch import Tensor

from relucert.errors import InputError, LoadError

BUNDLED = "bundled.npz"
BROKEN = (ValueError, EOFError, OSError, MemoryError, KeyError, zipfile.BadZipFile, zlib.error)

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images, one a row and in the network's own input range, and what they show.

    images: (count, size), float32 (float64 where the file has it); labels: (count,) int64, None if unknown.
    """

    images: Tensor
    labels: Tensor | None
    name: str

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.images):
            raise InputError(f"{self.name}: {len(self.images)} images but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.images)

    def first(self, count: int) -> Dataset:
        """The first `count` images; asking for more than there are is an error."""
        if not 1 <= count <= len(self):
            raise InputError(f"{self.name} has {len(self)} images; {count} were asked for")
        return Dataset(self.images[:count], None if self.labels is None else self.labels[:count], self.name)


def bundled() -> Dataset:
    """The first 100 images of the MNIST test set as pixels / 255 - 0.5, and their labels."""
    with resources.as_file(resources.files(__name__) / BUNDLED) as path, np.load(path) as file:
        pixels, labels = file["images"], file["labels"]
    images = torch.from_numpy(pixels.reshape(len(pixels), -1)).float() / 255 - 0.5
    return Dataset(images, torch.from_numpy(labels.astype(np.int64)), "the first 100 MNIST test images")


def read(path: str | Path) -> Dataset:
    """Images of a `.npz` file (`images`, and `labels` if they are known) or a `.npy` file (images alone)."""
    path = Path(path)
    if path.suffix.lower() not in (".npz", ".npy"):
        raise LoadError(f"{path}: images come as .npz or .npy files")
    if not path.is_file():
        raise LoadError(f"{path}: no such file")
    images, labels = _arrays(path)
    return Dataset(_images(images, path), None if labels is None else _labels(labels, path), path.name)


def _arrays(path: Path) -> tuple[Array, Array | None]:
    """The arrays as stored; whatever NumPy makes of a broken file is one error for the user."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, NpzFile):
                return np.asarray(loaded), None
            stored = {name: loaded[name] for name in ("images", "labels") if name in loaded.files}
            names = ", ".join(loaded.files) or "nothing"
    except BROKEN as error:
        detail = "it holds Python objects (a pickle)" if "pickle" in str(error) else "truncated or damaged"
        raise LoadError(f"{path}: not a readable NumPy file: {detail}") from error
    if "images" not in stored:
        raise LoadError(f"{path}: no array `images`; the file has {names}")
    return stored["images"], stored.get("labels")


def _images(array: Array, path: Path) -> Tensor:
    if array.dtype.kind in "iub":
        raise InputError(f"{path}: the images are {array.dtype}: scale the pixels to the network's own input range")
    if array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise InputError(f"{path}: the images are {array.dtype}, not floating point of at most 64 bits")
    if array.ndim < 2:
        raise InputError(f"{path}: the images need one row an image, the array's shape is {array.shape}")
    if array.size == 0:
        raise InputError(f"{path}: there are no images, the array's shape is {array.shape}")
    precision = np.float64 if array.dtype.itemsize == 8 else np.float32
    return torch.from_numpy(array.reshape(len(array), -1).astype(precision))


def _labels(array: Array, path: Path) -> Tensor:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(f"{path}: the labels need one whole number an image, not {array.dtype} {array.shape}")
    return torch.from_numpy(array.astype(np.int64))
