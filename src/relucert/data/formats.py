"""Readers for the files that images come in: idx, CIFAR binary and NumPy, read as plain bytes, never as pickles.

Every reader returns pixels (count, size) uint8 and labels (count,) from 0 to 9, or raises LoadError.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from relucert.common.words import counted
from relucert.errors import LoadError

Array = np.ndarray[Any, np.dtype[Any]]
Pixels = tuple[Array, Array]
Content = gzip.GzipFile | io.BufferedReader

CLASSES = 10  # of MNIST and CIFAR-10
GZIP = b"\x1f\x8b"  # how a gzipped file begins
IDX_UNSIGNED_BYTES = 8  # the type code of bytes in an idx file
CIFAR_IMAGE = 3 * 32 * 32  # bytes
BLOCK = 2**20  # bytes read at once
LIMIT = 4 * 2**30  # bytes of an unpacked file: a small gzipped one could otherwise fill the memory
BROKEN_NUMPY = (ValueError, EOFError, OSError, MemoryError, KeyError, zipfile.BadZipFile, zlib.error)

NUMPY_HEADS = (b"", b"P", b"\x93", b"\x80")  # how an empty file, an archive, an array and a pickle begin


def read_idx(images: Path, labels: Path, shape: tuple[int, int]) -> Pixels:
    """Reads the original MNIST form, each file plain or gzipped; shape: (rows, columns) of an image."""
    return _checked(_idx_array(images, shape), _idx_array(labels, ()), f"{images.parent}: {images.name}, {labels.name}")


def read_cifar(*batches: Path) -> Pixels:
    """Reads the CIFAR-10 binary form: records of a label, then 1,024 red, 1,024 green and 1,024 blue pixels."""
    records = []
    for batch in batches:
        with _opened(batch) as file:
            records.append(_records(file.read(), str(batch)))
    return _split(records)


def read_cifar_archive(archive: Path, members: Sequence[str]) -> Pixels:
    """Reads the same records from the original `.tar.gz`; nothing is unpacked onto the disk."""
    records_by_name: dict[str, Array] = {}
    with _opened(archive) as file, tarfile.open(fileobj=file, mode="r:") as entries:
        for entry in entries:
            name = PurePosixPath(entry.name).name
            content = entries.extractfile(entry) if name in members and entry.isfile() else None
            if content is not None:
                records_by_name[name] = _records(content.read(), f"{archive}, {name}")
            if len(records_by_name) == len(members):
                break
    if missing := [name for name in members if name not in records_by_name]:
        raise LoadError(f"{archive}: the archive has no {', '.join(missing)}")
    return _split([records_by_name[name] for name in members])


def read_npz(path: Path, shape: tuple[int, ...]) -> Pixels:
    """Reads the arrays `images`, uint8 of shape (count, *shape), and `labels` of a `.npz` file.

    shape: (rows, columns) of an image, or (rows, columns, 3) for colours, which become the first axis of an image.
    """
    images, labels = numpy_arrays(path)
    if labels is None:
        raise LoadError(f"{path}: no array `labels`")
    if images.dtype != np.uint8 or images.shape[1:] != shape:
        raise LoadError(
            f"{path}: `images` must be uint8 of shape {_times('count', *shape)}, not {images.dtype} {images.shape}"
        )
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise LoadError(f"{path}: `labels` must be one whole number an image, not {labels.dtype} {labels.shape}")
    return _checked(np.moveaxis(images, 3, 1) if images.ndim == 4 else images, labels, str(path))


def numpy_arrays(path: Path) -> tuple[Array, Array | None]:
    """The arrays `images` and `labels` (None if absent) as stored; any failure of NumPy becomes a LoadError."""
    head = b""
    try:
        with path.open("rb") as file:
            head = file.read(1)
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, NpzFile):
                return np.asarray(loaded), None
            wanted = [name for name in ("images", "labels") if name in loaded.files]
            entries = loaded.zip.infolist() if loaded.zip else []
            sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in entries}
            if sum(sizes[name] for name in wanted) > LIMIT:
                raise _too_large(path)
            stored: dict[str, Any] = {name: loaded[name] for name in wanted}
            names = ", ".join(loaded.files) or "nothing"
    except LoadError:
        raise
    except BROKEN_NUMPY as error:
        if head not in NUMPY_HEADS:
            raise LoadError(f"{path}: not a NumPy {'archive' if path.suffix == '.npz' else 'array'}") from error
        detail = "it holds Python objects (a pickle)" if "pickle" in str(error) else "truncated or damaged"
        raise LoadError(f"{path}: not a readable NumPy file: {detail}") from error
    if "images" not in stored:
        raise LoadError(f"{path}: no array `images`; the file has {names}")
    if strange := [name for name, array in stored.items() if not isinstance(array, np.ndarray)]:
        raise LoadError(f"{path}: `{strange[0]}` is not a NumPy array")
    return stored["images"], stored.get("labels")


def _idx_array(path: Path, shape: tuple[int, ...]) -> Array:
    """Reads an idx file: four bytes, one size per axis, then exactly as many bytes as the sizes announce."""
    expected = bytes((0, 0, IDX_UNSIGNED_BYTES, 1 + len(shape)))
    with _opened(path) as file:
        start = file.read(len(expected))
        if start != expected:
            begun = f"begins with {start.hex(' ')}" if start else "is empty"
            raise LoadError(f"{path}: not an idx file of {_things(shape)}: it {begun}, not with {expected.hex(' ')}")
        header = file.read(4 * (1 + len(shape)))
        if len(header) < 4 * (1 + len(shape)):
            raise LoadError(f"{path}: truncated: the header ends too early")
        announcement: list[int] = np.frombuffer(header, ">u4").tolist()
        count, *sizes = announcement
        if tuple(sizes) != shape:
            raise LoadError(f"{path}: images of {_times(*shape)} pixels are expected, not {_times(*sizes)}")
        announced = count * math.prod(shape)
        content = _up_to(announced + 1, file)  # one more byte, to reach the end and with it a gzip file's checksum
    if len(content) != announced:
        wrong = "truncated: fewer" if len(content) < announced else "damaged: more"
        raise LoadError(f"{path}: {wrong} bytes than the {count} {_things(shape)} that the header announces")
    return np.frombuffer(content, np.uint8).reshape(count, *shape)


def _up_to(most: int, file: Content) -> bytearray:
    """Reads at most this many bytes, in blocks, so that a damaged header can't ask for terabytes at once."""
    content = bytearray()
    while block := file.read(min(BLOCK, most - len(content))):
        content += block
    return content


def _records(content: bytes, where: str) -> Array:
    size = 1 + CIFAR_IMAGE
    if not content:
        raise LoadError(f"{where}: the file is empty")
    if len(content) % size:
        raise LoadError(f"{where}: truncated or damaged: {len(content):,} bytes are not whole records of {size:,}")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    _checked(records[:, 1:], records[:, 0], where)
    return records


def _split(records: list[Array]) -> Pixels:
    """The pixels and labels of all batches together."""
    together = np.concatenate(records)
    return together[:, 1:], together[:, 0]


def _checked(images: Array, labels: Array, where: str) -> Pixels:
    """Checks that there are images, as many labels as images, and no label out of range; flattens the images."""
    if len(images) != len(labels):
        raise LoadError(f"{where}: {counted(len(images), 'image')} but {counted(len(labels), 'label')}")
    if len(images) == 0:
        raise LoadError(f"{where}: there are no images")
    wrong = labels[(labels < 0) | (labels >= CLASSES)]
    if len(wrong):
        raise LoadError(f"{where}: the labels go from 0 to {CLASSES - 1}, but there is a {wrong[0]}")
    return images.reshape(len(images), -1), labels


class _Unzipped(gzip.GzipFile):
    """A gzipped file that raises LoadError once its content exceeds the limit."""

    def read(self, size: int | None = -1) -> bytes:
        most = LIMIT + 1 - self.tell()
        content = super().read(most if size is None or size < 0 else min(size, most))
        if self.tell() > LIMIT:
            raise _too_large(self.name)
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if offset > LIMIT:
            raise _too_large(self.name)
        return super().seek(offset, whence)


def _too_large(path: object) -> LoadError:
    return LoadError(f"{path}: too large: more than {LIMIT:,} bytes once it is unpacked")


@contextmanager
def _opened(path: Path) -> Iterator[Content]:
    """Opens a file, unzipping its content if it is gzipped; a damaged or unreadable file raises LoadError."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > LIMIT:
                raise _too_large(path)
            if file.peek(len(GZIP)).startswith(GZIP):
                with _Unzipped(path, fileobj=file) as unzipped:
                    yield unzipped
            else:
                yield file
    except LoadError:
        raise
    except (EOFError, ValueError, zlib.error, tarfile.TarError, gzip.BadGzipFile) as error:
        raise LoadError(f"{path}: truncated or damaged ({error})") from error
    except OSError as error:
        raise LoadError(f"{path}: can't be read: {error.strerror or error}") from error


def _things(shape: tuple[int, ...]) -> str:
    return "images" if shape else "labels"


def _times(*sizes: object) -> str:
    return " x ".join(map(str, sizes))
