"""Proofs with cuts at inputs: what the search writes passes, and what was changed does not."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import relucert
from relucert.checker.check import check_property
from relucert.checker.document import Rejected
from relucert.network import Network
from tests.nets import mlp
from tests.verification.networks import VNNCOMP

Document = dict[str, Any]


def question(network: Network) -> relucert.Query:
    """A box of two inputs in which the first output stays above a number that takes some cuts to prove."""
    low, high = torch.tensor([-1.0, -0.5], dtype=torch.float64), torch.tensor([1.0, 1.25], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    points = low + (high - low) * torch.rand(20000, 2, generator=generator, dtype=torch.float64)
    outputs = network.cast(torch.float64)(points)
    least, spread = float(outputs[:, 0].min()), float(outputs[:, 0].max() - outputs[:, 0].min())
    rows = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    return relucert.Query.within(low, high, [(rows, [least - 0.02 * spread]), (-rows, [-least - 1.5 * spread])])


@pytest.fixture(scope="module")
def network() -> Network:
    return mlp(2, 12, 12, 2, seed=3)


@pytest.fixture(scope="module")
def document(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Document:
    path = tmp_path_factory.mktemp("proof") / "proof.json"
    verdict = relucert.verify(network, question(network), time_limit=60, proof=path)
    assert verdict.status == "holds"
    written: Document = json.loads(path.read_text())
    assert cut_nodes(written)
    return written


def cut_nodes(document: Document) -> list[dict[str, Any]]:
    return [node for part in document["parts"] for node in part["nodes"] if "cut" in node]


def checked(document: Document, network: Network, folder: Path) -> int:
    path = folder / "proof.json"
    path.write_text(json.dumps(document))
    return check_property(path, network).leaves


def test_what_was_written_passes(document: Document, network: Network, tmp_path: Path) -> None:
    assert checked(document, network, tmp_path) == len(cut_nodes(document)) + 2


def _another_place(document: Document) -> None:
    cut_nodes(document)[0]["cut"][1] = 40.0


def _another_input(document: Document) -> None:
    cut_nodes(document)[0]["cut"][0] = 2


def _one_half_twice(document: Document) -> None:
    node = cut_nodes(document)[0]
    node["halves"] = [node["halves"][0]] * 2


def _fewer_cuts(document: Document) -> None:
    """The root as a leaf of its own, with the slopes of a smaller box."""
    nodes = document["parts"][0]["nodes"]
    leaf = next(node for node in nodes if "slopes" in node)
    document["parts"][0]["nodes"] = [leaf, leaf]


def _another_way(document: Document) -> None:
    leaf = next(node for part in document["parts"] for node in part["nodes"] if "slopes" in node)
    leaf["hidden"] = "by magic"


def _moved(document: Document) -> None:
    """A cut that leaves one half nearly everything."""
    cut_nodes(document)[0]["cut"][1] = 0.999 if cut_nodes(document)[0]["cut"][0] == 0 else 1.249


CHANGES = [_another_place, _another_input, _one_half_twice, _fewer_cuts, _another_way, _moved]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_changed_is_rejected(
    change: Callable[[Document], None], document: Document, network: Network, tmp_path: Path
) -> None:
    changed = json.loads(json.dumps(document))
    change(changed)
    with pytest.raises(Rejected):
        checked(changed, network, tmp_path)


@pytest.mark.slow
def test_proofs_about_published_networks_pass(tmp_path: Path) -> None:
    if not VNNCOMP.exists():
        pytest.skip("the published instances are not beside the project (shared/vnncomp)")
    with (VNNCOMP / "expected.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["benchmark"] == "acasxu" and row["verdict"] == "unsat"]
    for number, row in enumerate(rows[:: len(rows) // 20][:20]):
        network, path = relucert.load(VNNCOMP / "acasxu" / row["onnx"]), tmp_path / f"{number}.json.gz"
        verdict = relucert.verify(network, VNNCOMP / "acasxu" / row["vnnlib"], time_limit=116, proof=path)
        assert verdict.status == "holds", row
        assert check_property(path, network).cases
