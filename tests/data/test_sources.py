"""Where collections come from: the directory that was named and nothing else, or the cache, or a download."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from relucert import data
from relucert.data import catalogue
from relucert.errors import InputError, LoadError
from tests.data.samples import (
    BATCH,
    CIFAR_FILES,
    DIGITS,
    IMAGE_FILE,
    LABEL_FILE,
    LABELS,
    MNIST_FILES,
    Mirror,
    idx,
    records,
    store,
)
from tests.shared import SHARED

DATA = SHARED / "data"
TEST_BATCH = "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"  # SHA-256 of the original file


def test_names(tmp_path: Path) -> None:
    store(tmp_path, CIFAR_FILES | MNIST_FILES)
    for name in ("cifar10", "cifar-10", "cifar", "CIFAR-10"):
        assert data.load(name, "test", str(tmp_path)).images.shape == (5, 3072)
    for name in ("mnist", "MNIST"):
        assert data.load(name, "test", tmp_path).images.shape == (5, 784)


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="unknown data set 'mnits'; known are mnist, cifar10; did you mean 'mnist'"):
        data.load("mnits", "test")
    with pytest.raises(InputError, match="unknown split 'validation'; known are train, test"):
        data.load("mnist", "validation")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "files", "parts"),
    [
        ("mnist", {}, [f"{IMAGE_FILE}[.gz] with {LABEL_FILE}[.gz], or mnist_test.npz", "mnist/ and MNIST/raw/"]),
        ("mnist", {IMAGE_FILE: idx(DIGITS)}, [f"found only {IMAGE_FILE}"]),
        ("mnist", {f"mnist/{LABEL_FILE}": idx(LABELS), IMAGE_FILE: idx(DIGITS)}, [IMAGE_FILE, LABEL_FILE]),
        ("mnist", {"mnist.pkl.gz": b"..."}, ["mnist.pkl.gz holds pickles, which are never opened"]),
        ("cifar10", {}, [f"{BATCH}, or cifar-10-binary.tar.gz, or cifar10_test.npz", "cifar-10-batches-bin/"]),
        ("cifar10", {"cifar-10-batches-py/test_batch": b"..."}, ["cifar-10-batches-py holds pickles"]),
        ("cifar10", {f"{BATCH}/folder": b""}, ["does not hold the CIFAR-10 test images"]),
    ],
)
def test_a_directory_without_the_data(
    tmp_path: Path, mnist: Mirror, cifar10: Mirror, name: str, files: dict[str, bytes], parts: list[str]
) -> None:
    with pytest.raises(LoadError) as caught:
        data.load(name, "test", store(tmp_path, files))
    for part in (str(tmp_path), *parts):
        assert part in str(caught.value)
    assert mnist.asked == cifar10.asked == []


def test_a_part_of_the_training_batches(tmp_path: Path) -> None:
    store(tmp_path, {f"data_batch_{number}.bin": records() for number in (1, 2, 4, 5)})
    with pytest.raises(LoadError, match=r"data_batch_3.bin with .*found only data_batch_1.bin, data_batch_2.bin, data"):
        data.load("cifar10", "train", tmp_path)


def test_a_directory_that_is_not_there(tmp_path: Path, mnist: Mirror) -> None:
    for place in (tmp_path / "missing", store(tmp_path, {"file": b""}) / "file", "~nobody-at-all/data"):
        with pytest.raises(LoadError, match=r": there is no such folder to take the MNIST test images from"):
            data.load("mnist", "test", place)
    assert mnist.asked == []


def test_the_environment_variable(tmp_path: Path, mnist: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = tmp_path / "named", tmp_path / "other"
    store(named, {IMAGE_FILE: idx(DIGITS[:2]), LABEL_FILE: idx(LABELS[:2])})
    store(other, {IMAGE_FILE: idx(DIGITS[:3]), LABEL_FILE: idx(LABELS[:3])})
    monkeypatch.setenv("RELUCERT_DATA", str(named))
    assert len(data.load("mnist", "test")) == 2
    assert len(data.load("mnist", "test", other)) == 3
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RELUCERT_DATA", "~/other")
    assert len(data.load("mnist", "test")) == 3
    for wrong in (tmp_path, tmp_path / "nowhere"):
        monkeypatch.setenv("RELUCERT_DATA", str(wrong))
        with pytest.raises(LoadError, match=f"RELUCERT_DATA={wrong}"):
            data.load("mnist", "test")
    assert mnist.asked == []
    monkeypatch.setenv("RELUCERT_DATA", "")
    assert len(data.load("mnist", "test")) == 5
    assert mnist.asked == list(mnist.files)


def test_downloaded_once(mnist: Mirror, cifar10: Mirror, cache: Path) -> None:
    for mirror, name in ((mnist, "mnist"), (cifar10, "cifar10")):
        first = data.load(name, "test")
        assert mirror.asked == list(mirror.files)
        again = data.load(name, "test")
        assert mirror.asked == list(mirror.files)
        assert torch.equal(first.images, again.images)
        folder = cache / "relucert" / "data" / name
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == mirror.files


def test_the_cache_serves_without_a_network(mnist: Mirror, cache: Path) -> None:
    mnist.fault = "500"
    store(cache / "relucert" / "data" / "mnist", mnist.files)
    assert len(data.load("mnist", "test")) == 5
    assert mnist.asked == []


@pytest.mark.parametrize("harm", ["altered", "cut", "empty"])
def test_a_damaged_cache_is_mended(mnist: Mirror, cache: Path, harm: str) -> None:
    data.load("mnist", "test")
    place = cache / "relucert" / "data" / "mnist" / f"{IMAGE_FILE}.gz"
    whole = place.read_bytes()
    damaged = {"altered": whole[:-1] + b"?", "cut": whole[:-1], "empty": b""}[harm]
    place.write_bytes(damaged)
    mnist.fault = "503"
    with pytest.raises(LoadError, match=rf"{place} is damaged; can't download.* 503 .*; a folder .*--data-dir"):
        data.load("mnist", "test")
    assert place.read_bytes() == damaged
    mnist.fault = "none"
    mnist.asked.clear()
    assert len(data.load("mnist", "test")) == 5
    assert mnist.asked == [f"{IMAGE_FILE}.gz"]
    assert place.read_bytes() == whole


def test_the_official_sources() -> None:
    files = {o.name: o for known in catalogue.COLLECTIONS.values() for s in known.splits.values() for o in s.originals}
    assert len(files) == 5
    for original in files.values():
        assert len(bytes.fromhex(original.sha256)) == 32
        assert original.mirrors
        assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in original.mirrors)


def _shared(file: str) -> Path:
    if not (DATA / file).is_file():
        pytest.skip(f"{DATA / file} is not here")
    return DATA


def test_the_bundled_images_are_the_first_of_mnist() -> None:
    dataset, bundled = data.load("mnist", "test", _shared("mnist_test.npz")), data.bundled()
    assert dataset.images.shape == (10_000, 784)
    assert dataset.labels is not None
    assert bundled.labels is not None
    assert torch.equal(dataset.images[:100], bundled.images)
    assert torch.equal(dataset.labels[:100], bundled.labels)
    assert dataset.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_cifar10_is_the_original_file_to_the_byte() -> None:
    dataset = data.load("cifar10", "test", _shared("cifar10_test.npz"))
    assert dataset.labels is not None
    pixels = ((dataset.images + 0.5) * 255).round().to(torch.uint8).numpy()
    content = np.concatenate([dataset.labels.numpy()[:, None].astype(np.uint8), pixels], axis=1)
    assert hashlib.sha256(content.tobytes()).hexdigest() == TEST_BATCH
