"""Gradients inside calls, whatever PyTorch's mode is: that of the library, or that of whoever calls it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

import relucert
from relucert.experiments.comparison.order import STRONGER
from relucert.methods.solvers import proposer
from relucert.methods.table import METHODS
from tests.nets import centres, mlp

BOXES = (None, (-4.0, 4.0))


def _ask(what: str) -> list[Any]:
    """Everything is made here, in the mode of the caller."""
    network, generator = mlp(5, 7, 6, 3, seed=2), torch.Generator().manual_seed(0)
    images = torch.randn(1, 5, generator=generator)
    question: dict[str, Any] = {"norm": "2", "box": (-4.0, 4.0), "scale": torch.linspace(0.5, 1, 5)}
    if what in METHODS:
        return relucert.certify(network, images, method=what, tolerance=0.1, **question)
    few: dict[str, dict[str, Any]] = {
        "attack": {"steps": 10}, "estimate": {"batches": 12, "samples": 8}, "exact": {"tolerance": 0.1},
    }  # fmt: skip
    return getattr(relucert, what)(network, images, **question, **few[what])  # type: ignore[no-any-return]


@pytest.mark.parametrize("what", [*METHODS, "attack", "estimate", "exact"])
def test_the_caller_s_mode_changes_nothing(what: str) -> None:
    expected = _ask(what)
    with torch.inference_mode():
        answers = _ask(what)
    for answer, other in zip(answers, expected, strict=True):
        row, usual = answer.to_json(), other.to_json()
        assert "broke down" not in str(answer.reason)
        assert row | {"seconds": 0} == usual | {"seconds": 0}


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("norm", ["1", "2", "inf"])
@pytest.mark.sampled
def test_ascent_proves_every_layer(norm: str, box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What programs are on wide networks: the search of LP-Full starts from that of LP, which starts from Fast-Lin."""
    monkeypatch.setattr(proposer, "SOLVABLE", -1)
    monkeypatch.setattr(proposer, "EFFORT", replace(proposer.EFFORT, steps=8, decay=0.01 ** (1 / 9)))
    network = mlp(6, 12, 10, 4, seed=9)
    question: dict[str, Any] = {"norm": norm, "box": box, "tolerance": 3e-2}
    columns = [relucert.certify(network, centres(network, 1), method=method, **question) for method in STRONGER[0]]
    for answers in zip(*columns, strict=True):
        assert all(answer.proven and answer.reason is None for answer in answers)
        radii = [answer.radius or 0.0 for answer in answers]
        assert all(weaker <= stronger * (1 + 3e-2) for weaker, stronger in pairwise(radii))
        assert radii[0] < radii[-1]


def test_lp_full_on_layers_of_256() -> None:
    """Wide enough for ascent by itself; a short way, since nothing but its end is looked at."""
    network = mlp(784, 256, 256, 4, seed=1)
    image = centres(network, 1)
    (plain,) = relucert.certify(network, image, target="runner-up", tolerance=0.3)
    (full,) = relucert.certify(network, image, target="runner-up", tolerance=0.3, method="lp-full")
    assert full.proven
    assert full.reason is None
    assert (full.radius or 0.0) >= (plain.radius or 0.0) > 0


def test_a_cast_can_be_part_of_a_gradient() -> None:
    with torch.inference_mode():
        network = mlp(3, 4, 2).cast(torch.float64)
    point = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(network(point)[0, 0], point)
    assert bool(gradient.isfinite().all())
    assert all(not tensor.requires_grad for node in network.nodes for tensor in node.operation.tensors().values())
