"""A dual ascent that lies: it claims that every node is proven, with dual variables that are noise."""

from __future__ import annotations

import pytest
import torch

from relucert.branch_and_bound.dual_ascent import AscentResult, DualAscent, Nodes
from relucert.branch_and_bound.node_tree import NodeVisitor

LIES = ("random", "wrong signs", "no numbers")


def let_ascents_lie(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on ascents lie, and points that they come upon are no violations."""
    honest, generator = DualAscent.run, torch.Generator().manual_seed(0)

    def faulty(
        dual_ascent: DualAscent, nodes: Nodes, steps: int, ends: float, *others: float, **named: float
    ) -> AscentResult:
        result = honest(dual_ascent, nodes, 0, ends)
        noise = 4 * torch.rand(result.nodes.duals.shape, generator=generator) - 2
        if lie == "wrong signs":
            noise = -noise.abs()
        if lie == "no numbers":
            noise[:, ::2] = torch.nan
        lower = torch.full_like(result.lower, torch.inf)
        return AscentResult(lower, result.nodes._replace(duals=noise), result.scores, result.points)

    monkeypatch.setattr(DualAscent, "run", faulty)
    monkeypatch.setattr(NodeVisitor, "_offer", lambda visitor, points: torch.zeros(len(points)))
