"""Robustness at a radius: as exact answers have it, for every norm, box, scale and target."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from matplotlib.patches import Rectangle

import relucert
from relucert import data, robust_at
from relucert.checker.check import check
from relucert.common.valid import valid_inputs
from relucert.errors import InputError
from relucert.network import Convolution, Layer, Linear, Relu, Reshape
from relucert.verification import search
from tests.nets import NETWORKS, centres, chain, mlp
from tests.verification.networks import as_onnx

NETWORK = mlp(4, 6, 6, 3, seed=4)
IMAGES = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
BOX = (-3.0, 3.0)


@pytest.mark.parametrize(("norm", "target"), [("inf", "untargeted"), ("2", "runner-up"), ("1", "untargeted")])
@pytest.mark.sampled
def test_verdicts_agree_with_exact_answers(norm: str, target: str) -> None:
    images = IMAGES[:2]
    intervals = relucert.exact(NETWORK, images, norm=norm, target=target, box=BOX, tolerance=0.01, time_limit=30)
    radii = sorted(answer.upper for answer in intervals if answer.upper)
    for radius in (0.95 * radii[0], 1.05 * radii[-1]):
        verdicts = robust_at(NETWORK, images, radius=radius, norm=norm, target=target, box=BOX, time_limit=60)
        for verdict, answer in zip(verdicts, intervals, strict=True):
            assert answer.lower is not None
            assert answer.upper is not None
            if radius <= answer.lower:
                assert verdict.status == "holds"
            elif radius >= answer.upper:
                assert verdict.status == "violated"
            if verdict.witness is not None:
                offset = verdict.witness.flatten() - IMAGES[verdict.image].double()
                assert float(offset.norm(p=float(norm))) <= radius * (1 + 1e-12)
                assert float(verdict.witness.min()) >= BOX[0]
                assert float(verdict.witness.max()) <= BOX[1]
        summary = verdicts.summary()
        assert summary.robust + summary.violated + summary.unknown == len(verdicts) == summary.clean
        assert summary.misclassified == 0


def test_misclassified_images_are_their_own_witnesses() -> None:
    labels = (NETWORK(IMAGES).argmax(1) + torch.tensor([1, 0, 0])) % 3
    verdicts = robust_at(NETWORK, IMAGES, labels, radius=1e-6)
    assert [verdict.status for verdict in verdicts] == ["violated"] + ["holds"] * 2
    summary = verdicts.summary()
    assert (summary.clean, summary.robust, summary.violated, summary.misclassified) == (2, 2, 0, 1)
    assert "0 violated, 1 misclassified" in str(summary)
    assert "misclassified" in str(verdicts[0].reason)
    assert verdicts[0].witness is not None
    assert torch.equal(verdicts[0].witness, IMAGES[0].double())


def test_every_rival_in_turn_and_tables(tmp_path: Path) -> None:
    verdicts = robust_at(NETWORK, IMAGES, radius=0.01, target="all")
    assert len(verdicts) == 6
    assert [verdict.image for verdict in verdicts] == [number // 2 for number in range(6)]
    assert isinstance(verdicts[:2], relucert.Verdicts)
    verdicts.to_csv(tmp_path / "table.csv")
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 7
    assert verdicts.rows()[0]["status"] == verdicts[0].status


def test_scales_and_other_norms() -> None:
    scale = torch.tensor([1.0, 1.0, 0.0, 0.0])
    wide = robust_at(NETWORK, IMAGES, radius=0.2, scale=scale, time_limit=10)
    for verdict in wide:
        if verdict.witness is not None:
            assert torch.equal(verdict.witness[2:], IMAGES[verdict.image, 2:].double())
    for verdict in robust_at(NETWORK, IMAGES, radius=0.1, norm=3, time_limit=10):
        assert verdict.status != "unknown" or "norm" in str(verdict.reason)


def test_witnesses_of_onnx_files_are_replayed(tmp_path: Path) -> None:
    path = as_onnx(NETWORK, tmp_path / "network.onnx")
    verdicts = robust_at(path, IMAGES, radius=2.0)
    assert {verdict.status for verdict in verdicts} == {"violated"}
    assert all("onnxruntime" in str(verdict.reason) for verdict in verdicts)


@pytest.mark.parametrize("name", ["residual", "convolutional"])
def test_proofs_pass_their_check(name: str, tmp_path: Path) -> None:
    network, path = NETWORKS[name](), tmp_path / "proof.json"
    (verdict,) = robust_at(network, centres(network, 1), radius=1e-3, proof=path)
    assert verdict.holds
    assert check(path, network).radius == 1e-3
    with pytest.raises(InputError, match="one question"):
        robust_at(network, centres(network, 2), radius=1e-3, proof=path)


@pytest.mark.slow
def test_hundred_images_of_a_bundled_network() -> None:
    """At a radius that is in the middle of the exact answers: every verdict agrees with the interval."""
    images = data.bundled().first(100)
    intervals = relucert.exact("mnist-2x20", images.images, images.labels, time_limit=60)
    verdicts = robust_at("mnist-2x20", images.images, images.labels, radius=0.025, time_limit=60)
    assert len(verdicts) == len(intervals) > 0
    for verdict, answer in zip(verdicts, intervals, strict=True):
        if answer.lower is not None and answer.upper is not None:
            assert verdict.status != "unknown"
            assert verdict.holds == (answer.lower >= 0.025) or answer.lower < 0.025 < answer.upper


def test_verdicts_are_shown_drawn_and_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = (NETWORK(IMAGES).argmax(1) + torch.tensor([1, 0, 0])) % 3
    verdicts = robust_at(NETWORK, IMAGES, labels, radius=1e-6, box=BOX)
    shown = verdicts._repr_html_()
    assert shown.count("<tr>") == 1 + len(verdicts)
    assert "2 of 3 clean, 2 robust, 0 violated, 1 misclassified, 0 unknown" in shown
    assert "misclassified: the network takes it for class" in shown
    axes = verdicts.plot()
    assert [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)] == [2, 0, 1, 0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["robust", "violated", "misclassified", "unknown"]
    robust_at(NETWORK, IMAGES, radius=2e-6, box=BOX).plot(axes, label="own labels")
    assert [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)] == [2, 0, 1, 0, 3, 0, 0, 0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["radius 1e-06", "own labels"]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert [row["status"] for row in verdicts.to_frame()] == ["violated", "holds", "holds"]


def test_a_verdict_says_what_it_is_about() -> None:
    (verdict,) = robust_at(NETWORK, IMAGES[1:2], radius=1e-6, box=BOX)
    about = f"image 0, radius 1e-06, p = inf, {valid_inputs(BOX)}"
    assert repr(verdict).startswith(f"RobustnessVerdict({about}: 'holds' by ")


@pytest.mark.parametrize("norm", ["3", "2", "1", "inf"])
def test_cheap_bounds_decide_for_every_norm_where_few_inputs_move(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator of images: back-substitution is left to cuts of boxes, which only p = inf and large networks have."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(36, 3, generator=generator) / 2
    kernels = [torch.randn(3, channels, 3, 3, generator=generator) / (3 * channels**0.5) for channels in (1, 3)]
    steps: list[Layer] = [Linear(first, torch.zeros(36)), Reshape((36,), (1, 6, 6)), Relu()]
    for kernel in kernels:
        steps += [Convolution(kernel, torch.zeros(3), (6, 6), (1, 1), (1, 1, 1, 1), (1, 1), 1), Relu()]
    steps += [Reshape((3, 6, 6), (108,)), Linear(torch.randn(2, 108, generator=generator) / 10, torch.zeros(2))]
    network = chain((3,), *steps)
    assert not network.suits_forward
    image = torch.randn(1, 3, generator=generator)
    (answer,) = relucert.certify(network, image, norm=norm, method="crown")
    assert answer.radius
    (verdict,) = robust_at(network, image, radius=answer.radius / 2, norm=norm, time_limit=60)
    assert verdict.holds
    assert verdict.method in ("interval", "fast-lin", "crown")
    monkeypatch.setattr(search, "MOST_WORK", 0)
    (verdict,) = robust_at(network, image, radius=answer.radius / 2, norm=norm, time_limit=60)
    assert verdict.holds
    assert (verdict.method == "branch and bound") == (norm == "inf")
