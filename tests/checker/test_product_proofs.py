"""Proofs about networks with products of computed values: what methods write passes, several images at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import relucert
from relucert.checker.check import check
from relucert.common.names import MethodName
from tests.transformers import attention_network

METHODS: tuple[MethodName, ...] = ("interval", "fast-lin", "crown", "alpha", "best")


@pytest.mark.parametrize("method", METHODS)
def test_what_methods_prove_about_attention_passes(method: MethodName, tmp_path: Path) -> None:
    """Files have the lines of both squares: without planes, and with no bounds of factors that nobody recorded."""
    network = attention_network()
    images = 0.4 * torch.randn(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    budget = 5.0 if method == "best" else None
    answers = relucert.certify(network, images, method=method, tolerance=0.02, proofs=tmp_path, budget=budget)
    files = sorted(tmp_path.iterdir())
    assert len(files) == len(answers) == 2
    for answer, file in zip(answers, files, strict=True):
        assert answer.radius
        assert check(file, network).radius == answer.radius
