from __future__ import annotations

import hashlib
import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relucert import data
from relucert.errors import InputError, LoadError, RelucertError

FLOATS = np.linspace(-0.5, 0.5, 24, dtype=np.float32).reshape(4, 2, 3)
LABELS = np.array([1, 0, 2, 1], dtype=np.uint8)


def test_bundled_images() -> None:
    bundled = data.bundled()
    assert bundled.images.shape == (100, 784)
    assert bundled.images.dtype == torch.float32
    assert (bundled.images.min().item(), bundled.images.max().item()) == (-0.5, 0.5)
    assert bundled.labels is not None
    assert bundled.labels.dtype == torch.int64
    assert bundled.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    pixels = ((bundled.images + 0.5) * 255).round().to(torch.uint8)
    assert torch.equal(pixels.float() / 255 - 0.5, bundled.images)
    digest = hashlib.sha256(pixels.numpy().tobytes()).hexdigest()
    assert digest.startswith("8a004a2f81a80f48")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npz_keeps_every_value(tmp_path: Path, dtype: type[np.floating[Any]]) -> None:
    images = FLOATS.astype(dtype)
    np.savez(tmp_path / "user.npz", images=images, labels=LABELS)
    dataset = data.read(tmp_path / "user.npz")
    assert dataset.images.shape == (4, 2, 3)
    assert dataset.images.dtype == (torch.float64 if dtype is np.float64 else torch.float32)
    assert np.array_equal(dataset.images.numpy(), images)
    assert dataset.labels is not None
    assert dataset.labels.tolist() == LABELS.tolist()
    assert dataset.name == "user.npz"


def test_labels_may_be_absent(tmp_path: Path) -> None:
    np.save(tmp_path / "user.npy", FLOATS)
    np.savez(tmp_path / "user.npz", images=FLOATS)
    for name in ("user.npy", "user.npz"):
        dataset = data.read(tmp_path / name)
        assert dataset.labels is None
        assert dataset.first(2).labels is None
        assert dataset.first(2).images.shape == (2, 2, 3)


@pytest.mark.parametrize("count", [0, -1, 101])
def test_more_images_than_there_are(count: int) -> None:
    with pytest.raises(InputError, match="has 100 images"):
        data.bundled().first(count)


def _npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


TERABYTES = b"(4, 2, 3), }" + b" " * 12, b"(4, 2" + b"0" * 12 + b", 3), }"
GOOD = _npz(images=FLOATS, labels=LABELS)
BAD: dict[str, tuple[str, bytes, type[RelucertError], str]] = {
    "empty file": ("a.npz", b"", LoadError, "truncated"),
    "empty npy file": ("a.npy", b"", LoadError, "truncated"),
    "half a file": ("a.npz", GOOD[: len(GOOD) // 2], LoadError, "truncated"),
    "npy cut short": ("a.npy", _npy(FLOATS)[:-8], LoadError, "truncated"),
    "npy claiming terabytes": ("a.npy", _npy(FLOATS).replace(*TERABYTES), LoadError, "damaged"),
    "damaged": ("a.npz", GOOD[:100] + b"\xff" * 20 + GOOD[120:], LoadError, "damaged"),
    "text": ("a.npy", b"1,2,3\n4,5,6\n", LoadError, "not a NumPy array"),
    "text as an archive": ("a.npz", b"1,2,3\n4,5,6\n", LoadError, "not a NumPy archive"),
    "a pickle": ("a.npy", pickle.dumps([1.0]), LoadError, "pickle"),
    "objects": ("a.npy", _npy(np.array([[None]], dtype=object)), LoadError, "pickle"),
    "objects inside": ("a.npz", _npz(images=np.array([[None]], dtype=object)), LoadError, "pickle"),
    "another suffix": ("a.pt", GOOD, LoadError, "npz or .npy"),
    "no images": ("a.npz", _npz(pictures=FLOATS), LoadError, "`images`; the file has pictures"),
    "nothing": ("a.npz", _npz(), LoadError, "the file has nothing"),
    "whole numbers": ("a.npz", _npz(images=np.zeros((2, 3), np.uint8)), InputError, "scale the pixels"),
    "truth values": ("a.npz", _npz(images=np.zeros((2, 3), bool)), InputError, "scale the pixels"),
    "complex": ("a.npz", _npz(images=np.zeros((2, 3), complex)), InputError, "floating point"),
    "words": ("a.npz", _npz(images=np.array([["a"]])), InputError, "floating point"),
    "one flat row": ("a.npy", _npy(np.zeros(3)), InputError, "one row per image"),
    "a number": ("a.npy", _npy(np.float64(3)), InputError, "one row per image"),
    "no rows": ("a.npy", _npy(np.zeros((0, 3))), InputError, "no images"),
    "no pixels": ("a.npy", _npy(np.zeros((3, 0))), InputError, "no images"),
    "too few labels": ("a.npz", _npz(images=FLOATS, labels=LABELS[:3]), InputError, "4 images but 3 labels"),
    "float labels": ("a.npz", _npz(images=FLOATS, labels=LABELS * 1.0), InputError, "whole number"),
    "a label beyond": (
        "a.npz",
        _npz(images=FLOATS, labels=np.full(4, 2**63, np.uint64)),
        InputError,
        "label 9223372036854775808",
    ),
    "label rows": ("a.npz", _npz(images=FLOATS, labels=LABELS[:, None]), InputError, "whole number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str) -> None:
    name, content, error, words = BAD[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=words.replace("(", r"\(")) as caught:
        data.read(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(2, 2), (2, 3, 1, 2), "2x3", (2.0, 3.0), (-2, -3)])
def test_rows_that_are_no_such_pictures(shape: Any) -> None:
    with pytest.raises(InputError, match="no pictures"):
        data.Dataset(torch.zeros(4, 6), None, "own", shape)
    with pytest.raises(InputError, match="no pictures"):
        data.Dataset(torch.zeros(4, 2, 3), None, "own", (2, 3))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file"):
        data.read(tmp_path / "none.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(LoadError, match="no such file"):
        data.read(tmp_path / "folder.npz")


@pytest.mark.parametrize("ends", [(0, 1), (-1, 1), (0, 255), (-0.5, 0.5), (-2, 0.25)])
def test_pixels_go_from_black_to_white(ends: tuple[float, float]) -> None:
    stored = data.bundled(pixels=(0, 255)).images
    assert torch.equal(stored, stored.round())
    assert (float(stored.min()), float(stored.max())) == (0, 255)
    images = data.bundled(pixels=ends).images
    wanted = ends[0] + stored.double() * (ends[1] - ends[0]) / 255
    torch.testing.assert_close(images.double(), wanted, rtol=0, atol=2e-7 * max(map(abs, ends)))
    if ends == (-0.5, 0.5):
        assert torch.equal(images, data.bundled().images)
        assert torch.equal(images, stored / 255 - 0.5)


@pytest.mark.parametrize("ends", [(1, 0), (0, 0), (0,), None, "01", (0, math.nan), (0, math.inf), (False, True)])
def test_what_is_no_range_of_pixels(ends: Any) -> None:
    with pytest.raises(InputError, match="pixels go from one number to a larger one"):
        data.bundled(pixels=ends)
