"""What identifies a run: whatever an answer may depend on, and nothing that changes no answer."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from relucert.arithmetic.norm import Norm
from relucert.arithmetic.region import RegionShape
from relucert.execution.identity import UNTOLD, identity
from relucert.experiments.comparison.methods import Setting
from tests.nets import NETWORKS

NETWORK = next(iter(NETWORKS.values()))()
SHAPE = RegionShape(Norm.parse("inf"))


@dataclass(frozen=True)
class Options:
    shape: RegionShape = SHAPE
    method: str = "crown"
    a_new_option: int = 0
    memory: int = 0
    proof: str | None = None


@pytest.mark.parametrize("change", [{"method": "alpha"}, {"a_new_option": 1}])
def test_an_option_counts_unless_it_is_known_to_change_no_answer(change: dict[str, object]) -> None:
    before = identity("certify", NETWORK, SHAPE, "untargeted", Options())
    assert before != identity("certify", NETWORK, SHAPE, "untargeted", replace(Options(), **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"memory": 1}, {"proof": "here.json"}])
def test_what_changes_no_answer_does_not_count(change: dict[str, object]) -> None:
    before = identity("certify", NETWORK, SHAPE, "untargeted", Options())
    assert before == identity("certify", NETWORK, SHAPE, "untargeted", replace(Options(), **change))  # type: ignore[arg-type]


def test_a_comparison_is_identified_by_its_effort() -> None:
    told = identity("compare", NETWORK, SHAPE, "untargeted", Setting(Norm.parse("inf")))
    assert {field.name for field in fields(Setting)} - UNTOLD == {"steps", "batches", "samples", "budget", "seed"}
    assert {"network", "inference", "norm", "box", "scale", "target", "budget"} < told.keys()
