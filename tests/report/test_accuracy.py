from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from relucert.errors import InputError
from relucert.report import accuracy
from relucert.report.summary import Summary

SUMMARY = Summary(10, 10, 9, (0.01, 0.02, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07), True)
HEADERS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF", "PNG": b"\x89PNG"}


@pytest.mark.parametrize("suffix", HEADERS)
def test_kinds_of_picture(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"curve.{suffix}"
    accuracy.draw(path, SUMMARY, "name with $odd$ signs_", "norm inf", "inf", "untargeted")
    assert path.read_bytes().startswith(HEADERS[suffix])
    first = path.read_bytes()
    accuracy.draw(path, SUMMARY, "name with $odd$ signs_", "norm inf", "inf", "untargeted")
    assert path.read_bytes() == first


def test_the_curve_is_in_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "curve.png"
    accuracy.draw(path, SUMMARY, "toy", "norm inf", "inf", "untargeted")
    pixels = np.asarray(matplotlib.image.imread(path))[..., :3]
    assert pixels.shape[0] > 400
    assert pixels.shape[1] > 700
    assert len(np.unique((pixels.reshape(-1, 3) * 255).astype(np.uint8), axis=0)) > 50
    curve = np.array([0x1F, 0x5F, 0xA8]) / 255
    columns = (np.abs(pixels - curve).max(2) < 0.02).any(0)
    assert columns.mean() > 0.5  # the step curve crosses most of the width


def _words(path: Path, summary: Summary, target: str | int = "untargeted") -> str:
    accuracy.draw(path, summary, "toy", "norm inf", "inf", target)
    return path.read_text()


def test_words(tmp_path: Path) -> None:
    proven = _words(tmp_path / "a.svg", SUMMARY)
    assert "<!-- certified accuracy -->" in proven
    assert "<!-- radius, p = inf -->" in proven
    assert "<!-- median 0.035 -->" in proven
    assert "<!-- clean accuracy 90.0% -->" in proven
    ignored = _words(tmp_path / "b.svg", Summary(10, 10, None, SUMMARY.radii, False))
    assert "<!-- radius, p = inf (rounding ignored) -->" in ignored
    assert "<!-- accuracy, not certified -->" in ignored
    assert "certified accuracy" not in ignored
    assert "clean" not in ignored
    assert "<!-- certified accuracy, against target 3 alone -->" in _words(tmp_path / "c.svg", SUMMARY, 3)


def test_no_radius_at_all(tmp_path: Path) -> None:
    accuracy.draw(tmp_path / "a.png", Summary(3, 3, 0, (), True), "toy", "norm inf", "inf", "untargeted")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"end in \.png, \.svg, \.pdf"):
        accuracy.draw(tmp_path / "a.gif", SUMMARY, "toy", "norm inf", "inf", "untargeted")
