"""Every form of MNIST and CIFAR-10 gives the same images; every fault of a file is one clear line."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relucert import data
from relucert.data import formats
from relucert.errors import LoadError
from tests.data.samples import (
    ARCHIVE,
    BATCH,
    DIGITS,
    IMAGE_FILE,
    LABEL_FILE,
    LABELS,
    MNIST_FILES,
    PICTURES,
    archive,
    idx,
    npz,
    records,
    store,
)

DOTTED = {"t10k-images.idx3-ubyte": idx(DIGITS), "t10k-labels.idx1-ubyte": idx(LABELS)}
PLAIN = {IMAGE_FILE: idx(DIGITS), LABEL_FILE: idx(LABELS)}
MNIST_FORMS = {
    "plain": PLAIN,
    "gzipped": MNIST_FILES,
    "mixed": {IMAGE_FILE: idx(DIGITS), f"{LABEL_FILE}.gz": gzip.compress(idx(LABELS))},
    "dotted": DOTTED,
    "dotted and gzipped": {f"{name}.gz": gzip.compress(content) for name, content in DOTTED.items()},
    "unpacked under its old name": {f"{name}.gz": content for name, content in PLAIN.items()},
    "in mnist/": {f"mnist/{name}": content for name, content in PLAIN.items()},
    "in MNIST/raw/": {f"MNIST/raw/{name}": content for name, content in MNIST_FILES.items()},
    "NumPy": {"mnist_test.npz": npz(images=DIGITS, labels=LABELS)},
}
CIFAR_FORMS = {
    "binary": {BATCH: records()},
    "in its folder": {f"cifar-10-batches-bin/{BATCH}": records()},
    "archive": {ARCHIVE: archive(test_batch=records())},
    "NumPy": {"cifar10_test.npz": npz(images=PICTURES, labels=LABELS)},
}


@pytest.mark.parametrize("form", MNIST_FORMS)
def test_mnist(tmp_path: Path, form: str) -> None:
    dataset = data.load("mnist", "test", store(tmp_path, MNIST_FORMS[form]))
    assert dataset.images.shape == (5, 784)
    assert dataset.images.dtype == torch.float32
    assert dataset.images.is_contiguous()
    assert torch.equal(dataset.images, torch.tensor(DIGITS).reshape(5, 784).float() / 255 - 0.5)
    assert dataset.labels is not None
    assert dataset.labels.dtype == torch.int64
    assert dataset.labels.tolist() == LABELS.tolist()
    assert dataset.name == "the MNIST test images"


@pytest.mark.parametrize("form", CIFAR_FORMS)
def test_cifar10(tmp_path: Path, form: str) -> None:
    dataset = data.load("cifar10", "test", store(tmp_path, CIFAR_FORMS[form]))
    assert dataset.images.shape == (5, 3072)
    assert dataset.images.dtype == torch.float32
    assert dataset.images.is_contiguous()
    colours_first = torch.tensor(PICTURES).permute(0, 3, 1, 2).reshape(5, 3072)
    assert torch.equal(dataset.images, colours_first.float() / 255 - 0.5)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == LABELS.tolist()
    assert dataset.name == "the CIFAR-10 test images"


def test_training_images_come_in_order(tmp_path: Path) -> None:
    parts = {f"data_batch_{n}": records(PICTURES[n - 1 : n], LABELS[n - 1 : n]) for n in range(1, 6)}
    shuffled = {name: parts[name] for name in sorted(parts, reverse=True)}
    forms = {
        "binary": {f"{name}.bin": content for name, content in parts.items()},
        "archive": {ARCHIVE: archive(**shuffled, test_batch=records())},
        "NumPy": {"cifar10_train.npz": npz(images=PICTURES, labels=LABELS)},
    }
    datasets = [data.load("cifar10", "train", store(tmp_path / form, files)) for form, files in forms.items()]
    for dataset in datasets:
        assert torch.equal(dataset.images, datasets[0].images)
        assert dataset.labels is not None
        assert dataset.labels.tolist() == LABELS.tolist()
        assert dataset.name == "the CIFAR-10 training images"


def test_splits_are_told_apart(tmp_path: Path) -> None:
    store(tmp_path, PLAIN | {"train-images-idx3-ubyte": idx(DIGITS[:3]), "train-labels-idx1-ubyte": idx(LABELS[:3])})
    assert [len(data.load("mnist", split, tmp_path)) for split in data.SPLITS] == [3, 5]


GZIPPED = gzip.compress(idx(DIGITS))
ARCHIVED = archive(test_batch=records())
HUGE = bytes((0, 0, 8, 3)) + np.array((2**32 - 1, 28, 28), ">u4").tobytes()
BAD: dict[str, tuple[str, dict[str, bytes], str]] = {
    "empty images": ("mnist", PLAIN | {IMAGE_FILE: b""}, "images: it is empty"),
    "empty labels": ("mnist", PLAIN | {LABEL_FILE: b""}, "labels: it is empty"),
    "swapped": ("mnist", PLAIN | {IMAGE_FILE: idx(LABELS)}, "not an idx file of images"),
    "text": ("mnist", PLAIN | {LABEL_FILE: b"<html>not found</html>"}, "begins with 3c 68 74 6d"),
    "a pickle": ("mnist", PLAIN | {LABEL_FILE: pickle.dumps([1])}, "not an idx file"),
    "floats": ("mnist", PLAIN | {IMAGE_FILE: b"\0\0\x0d\x03" + idx(DIGITS)[4:]}, "begins with 00 00 0d 03"),
    "cut header": ("mnist", PLAIN | {IMAGE_FILE: idx(DIGITS)[:9]}, "truncated"),
    "cut images": ("mnist", PLAIN | {IMAGE_FILE: idx(DIGITS)[:-1]}, "truncated: fewer bytes than the 5 images"),
    "cut labels": ("mnist", PLAIN | {LABEL_FILE: idx(LABELS)[:-1]}, "truncated: fewer bytes than the 5 labels"),
    "terabytes announced": ("mnist", PLAIN | {IMAGE_FILE: HUGE}, "truncated"),
    "longer": ("mnist", PLAIN | {IMAGE_FILE: idx(DIGITS) + b"\0"}, "more bytes than the 5 images"),
    "other pictures": ("mnist", PLAIN | {IMAGE_FILE: idx(DIGITS[:, :20])}, "28 x 28 pixels are expected, not 20 x 28"),
    "fewer labels": ("mnist", PLAIN | {LABEL_FILE: idx(LABELS[:4])}, "5 images but 4 labels"),
    "no images": ("mnist", {IMAGE_FILE: idx(DIGITS[:0]), LABEL_FILE: idx(LABELS[:0])}, "there are no images"),
    "label 10": ("mnist", PLAIN | {LABEL_FILE: idx(LABELS + 1)}, "from 0 to 9, but there is a 10"),
    "gzip cut": ("mnist", MNIST_FILES | {f"{IMAGE_FILE}.gz": GZIPPED[:-9]}, "truncated or damaged"),
    "gzip checksum": ("mnist", MNIST_FILES | {f"{IMAGE_FILE}.gz": GZIPPED[:-8] + bytes(8)}, "truncated or damaged"),
    "gzip damaged": ("mnist", MNIST_FILES | {f"{IMAGE_FILE}.gz": GZIPPED[:20] + b"\xff" * 99}, "damaged"),
    "npz cut": ("mnist", {"mnist_test.npz": npz(images=DIGITS, labels=LABELS)[:1000]}, "truncated or damaged"),
    "npz empty": ("mnist", {"mnist_test.npz": b""}, "truncated or damaged"),
    "npz pickled": ("mnist", {"mnist_test.npz": npz(images=np.array([None]), labels=LABELS)}, "a pickle"),
    "npz unlabelled": ("mnist", {"mnist_test.npz": npz(images=DIGITS)}, "no array `labels`"),
    "npz otherwise": ("mnist", {"mnist_test.npz": npz(x_test=DIGITS)}, "no array `images`; the file has x_test"),
    "npz scaled": ("mnist", {"mnist_test.npz": npz(images=DIGITS / 255, labels=LABELS)}, "must be uint8"),
    "npz flat": ("mnist", {"mnist_test.npz": npz(images=DIGITS[0], labels=LABELS)}, "count x 28 x 28"),
    "npz labels": ("mnist", {"mnist_test.npz": npz(images=DIGITS, labels=LABELS / 1)}, "whole number"),
    "npz label rows": ("mnist", {"mnist_test.npz": npz(images=DIGITS, labels=LABELS[:, None])}, "whole number"),
    "npz count": ("mnist", {"mnist_test.npz": npz(images=DIGITS, labels=LABELS[:2])}, "5 images but 2 labels"),
    "npz label -1": ("mnist", {"mnist_test.npz": npz(images=DIGITS, labels=LABELS.astype(int) - 1)}, "there is a -1"),
    "npz label 256": ("mnist", {"mnist_test.npz": npz(images=DIGITS, labels=LABELS.astype(int) + 249)}, "is a 256"),
    "colours first": (
        "cifar10",
        {"cifar10_test.npz": npz(images=PICTURES.transpose(0, 3, 1, 2), labels=LABELS)},
        "count x 32 x 32 x 3",
    ),
    "cut batch": ("cifar10", {BATCH: records()[:-1]}, "15,364 bytes are not whole records of 3,073"),
    "empty batch": ("cifar10", {BATCH: b""}, "empty"),
    "batch label": ("cifar10", {BATCH: records(labels=LABELS + 3)}, "there is a 10"),
    "archive cut": ("cifar10", {ARCHIVE: ARCHIVED[: len(ARCHIVED) // 2]}, "truncated or damaged"),
    "archive damaged": ("cifar10", {ARCHIVE: ARCHIVED[:50] + bytes(50) + ARCHIVED[100:]}, "truncated or damaged"),
    "archive empty": ("cifar10", {ARCHIVE: b""}, "truncated or damaged"),
    "archive of something": ("cifar10", {ARCHIVE: archive(train=b"")}, "the archive has no test_batch.bin"),
    "archive with a cut batch": ("cifar10", {ARCHIVE: archive(test_batch=records()[1:])}, "not whole records"),
    "archive label": ("cifar10", {ARCHIVE: archive(test_batch=records(labels=LABELS + 3))}, "there is a 10"),
    "not an archive": ("cifar10", {ARCHIVE: gzip.compress(b"hello")}, "truncated or damaged"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str) -> None:
    name, files, words = BAD[case]
    with pytest.raises(LoadError) as caught:
        data.load(name, "test", store(tmp_path, files))
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert any(file in message for file in files)


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that is there and can't be read")
@pytest.mark.parametrize(("name", "file"), [("mnist", IMAGE_FILE), ("cifar10", BATCH), ("cifar10", ARCHIVE)])
def test_unreadable(tmp_path: Path, name: str, file: str) -> None:
    store(tmp_path, {LABEL_FILE: idx(LABELS)})
    (tmp_path / file).symlink_to("/proc/self/mem")
    with pytest.raises(LoadError, match=f"{file}: can't be read: Input/output error"):
        data.load(name, "test", tmp_path)


LARGE: dict[str, tuple[str, dict[str, bytes]]] = {
    "idx": ("mnist", PLAIN),
    "gzipped": ("mnist", MNIST_FILES),
    "NumPy": ("mnist", {"mnist_test.npz": npz(images=DIGITS, labels=LABELS)}),
    "batch": ("cifar10", {BATCH: records()}),
    "gzipped batch": ("cifar10", {BATCH: gzip.compress(bytes(10**6))}),
    "archive": ("cifar10", {ARCHIVE: ARCHIVED}),
    "a large stranger": ("cifar10", {ARCHIVE: archive(stranger=bytes(10**6), test_batch=records())}),
}


@pytest.mark.parametrize("case", LARGE)
def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, files = LARGE[case]
    monkeypatch.setattr(formats, "LIMIT", 3000)
    with pytest.raises(LoadError, match="too large: more than 3,000 bytes"):
        data.load(name, "test", store(tmp_path, files))


def test_members_that_are_no_arrays(tmp_path: Path) -> None:
    for member in ("images", "labels"):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as file:
            for name in ("images", "labels"):
                file.writestr(
                    f"{name}.npy", b"hello" if name == member else npy(DIGITS if name == "images" else LABELS)
                )
        with pytest.raises(LoadError, match=f"`{member}` is not a NumPy array"):
            data.load("mnist", "test", store(tmp_path, {"mnist_test.npz": content.getvalue()}))


def npy(array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
