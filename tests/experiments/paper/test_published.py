"""The published numbers, and whose network is whose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import relucert
from relucert.errors import InputError, LoadError
from relucert.experiments.comparison.methods import CONTENDERS
from relucert.experiments.paper.networks import Subject, from_file
from relucert.experiments.paper.published import TABLE_METHODS, TABLES, lines
from relucert.inputs.recipes.plans import PLANS
from tests.shared import SHARED

MODEL = SHARED / "models" / "paper-mnist-2x20.npz"


@pytest.mark.parametrize("table", TABLES)
def test_every_line_can_be_asked(table: str) -> None:
    table_lines = lines(table, None, None, None)
    assert len({(line.network, line.norm, line.target) for line in table_lines}) == len(table_lines)
    assert {line.network for line in table_lines} <= set(PLANS)
    for line in table_lines:
        assert set(line.seconds) <= set(line.radii) <= set(TABLE_METHODS[table]) <= set(CONTENDERS)
        assert all(float(radius) >= 0 for radius in line.radii.values())
    assert len(table_lines) == {"toy": 2 * 9, "large": 6 * 9 + 2 * 3, "defences": 6 * 3}[table]


def test_numbers_as_printed() -> None:
    def one(table: str, network: str, norm: str, target: str) -> dict[str, str]:
        (line,) = lines(table, [network], [norm], [target])
        return line.radii

    assert one("toy", "mnist-2x20", "inf", "runner-up")["exact"] == "0.04145"
    assert one("toy", "mnist-3x20", "1", "least-likely")["lp-full"] == "4.6967"
    assert one("large", "mnist-2x1024", "inf", "least-likely")["attack"] == "0.1731"
    assert one("large", "cifar-7x1024", "2", "random")["fast-lip"] == "0.00407"
    assert one("large", "mnist-3x1024", "1", "untargeted")["fast-lin"] == "2.05645"
    assert one("defences", "mnist-4x1024-adversarial", "inf", "random")["fast-lin"] == "0.11209"


def test_the_programs_for_other_norms_are_marked() -> None:
    for line in lines("toy", None, None, None):
        assert line.sound("fast-lin")
        assert line.sound("lp") == line.sound("lp-full") == (line.norm == "inf")


def test_only_the_authors_weights_are_the_authors() -> None:
    assert not Subject.of("mnist-2x20", relucert.load("mnist-2x20")).authors
    if not MODEL.exists():
        pytest.skip("the paper's 2x[20] network is not beside the project (shared/models/paper-mnist-2x20.npz)")
    subject = from_file(MODEL)
    assert (subject.name, subject.authors) == ("mnist-2x20", True)


def test_a_weight_more_or_less_is_another_network(tmp_path: Path) -> None:
    if not MODEL.exists():
        pytest.skip("the paper's 2x[20] network is not beside the project (shared/models/paper-mnist-2x20.npz)")
    with np.load(MODEL) as file:
        arrays = {name: file[name].copy() for name in file.files}
    arrays["b2"][3] = np.nextafter(arrays["b2"][3], np.float32(1))
    np.savez(tmp_path / "other.npz", **arrays)
    assert not from_file(tmp_path / "other.npz").authors


def test_arrays_mean_the_network_they_describe(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    arrays = {"W1": draw.normal(size=(20, 784)), "b1": draw.normal(size=20)}
    arrays |= {"W2": draw.normal(size=(10, 20)), "b2": draw.normal(size=10)}
    np.savez(tmp_path / "ours.npz", **arrays)  # type: ignore[arg-type]
    subject = from_file(tmp_path / "ours.npz")
    point = draw.normal(size=784)
    expected = arrays["W2"] @ np.maximum(arrays["W1"] @ point + arrays["b1"], 0) + arrays["b2"]
    assert subject.network(torch.from_numpy(point)[None])[0].numpy() == pytest.approx(expected)
    assert subject.name == "mnist-2x20"


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"W1": np.zeros((2, 3))},
        {"W1": np.zeros((2, 3)), "c1": np.zeros(2)},
        {"W1": np.zeros((2, 3), dtype=int), "b1": np.zeros(2)},
        {"W1": np.zeros(3), "b1": np.zeros(2)},
        {"W1": np.array([{}]), "b1": np.zeros(2)},
    ],
)
def test_other_arrays_are_refused(arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(LoadError, match=r"odd\.npz"):
        from_file(tmp_path / "odd.npz")


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 cut off"])
def test_files_that_are_none_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.npz"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=r"odd\.npz"):
        from_file(path)
    with pytest.raises(LoadError, match="nowhere"):
        from_file(tmp_path / "nowhere.npz")


def test_unknown_parts_are_refused() -> None:
    with pytest.raises(InputError, match="no norm '3'"):
        lines("toy", None, ["3"], None)
    with pytest.raises(InputError, match="no network 'mnist-2x1024'"):
        lines("toy", ["mnist-2x1024"], None, None)
