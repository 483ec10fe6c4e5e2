"""Proofs about properties: whatever is changed in one, it is rejected, or what it then claims is still true."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from relucert import Query, verify
from relucert.checker.check import check_property
from relucert.checker.document import Rejected
from tests.checker.forests import Split, Tree, change_rows, grown, swapped, without_root
from tests.nets import mlp

NETWORK = mlp(3, 8, 6, 2, seed=11)
LOW, HIGH = [-1, -1, -1], [1, 1, 1]


def least() -> float:
    """About the lowest value of the first output, sampled."""
    points = 2 * torch.rand(20000, 3, generator=torch.Generator().manual_seed(0)) - 1
    return float(NETWORK(points)[:, 0].min())


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With two boxes, conjunctions, constraints on inputs, and splits."""
    path = tmp_path_factory.mktemp("proof") / "proof.json"
    bound = Fraction(round(1000 * least()) - 40, 1000)
    near = Query.within(LOW, HIGH, [([[1, 0]], [bound]), ([[1, 0], [0, 1]], [bound, 0], [[0, 0, 0], [1, 0, 0]])])
    far = Query.within([1, 0, 0], [2, 1, 1], [([[1, 0]], [-50])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relucert.branch_and_bound.prove.suits_cuts", lambda network, shape: False)
        assert verify(NETWORK, near | far, time_limit=120, proof=path).holds
    document: dict[str, Any] = json.loads(path.read_text())
    assert any(isinstance(tree, Split) for part in document["parts"] for tree in grown(part["relaxation"]["rows"]))
    return document


def checked(document: dict[str, Any], folder: Path) -> None:
    path = folder / "mutated.json"
    path.write_text(json.dumps(document))
    check_property(path, NETWORK)


def test_it_passes_as_it_is(proof: dict[str, Any], tmp_path: Path) -> None:
    checked(proof, tmp_path)


def _text(change: Callable[[str], str]) -> Callable[[dict[str, Any]], None]:
    """Another text, under its right SHA-256."""

    def mutate(document: dict[str, Any]) -> None:
        text = change(document["query"]["text"])
        document["query"] = {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}

    return mutate


def _rows(change: Callable[[list[Tree]], list[Tree]]) -> Callable[[dict[str, Any]], None]:
    """Other trees about the rows of the first part."""
    return lambda document: change_rows(document["parts"][0], change)


MUTATIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a wider box": _text(lambda text: text.replace("(<= X_0 1.0)", "(<= X_0 1.1)")),
    "a weaker bound": _text(lambda text: text.replace("-50.0", "-40.0")),
    "a further case": _text(lambda text: text + "\n(assert (or (<= Y_0 99) (<= Y_1 99)))"),
    "an operator that nobody knows": _text(lambda text: text + "(assert (not (<= Y_0 0)))"),
    "brackets that do not match": _text(lambda text: text + "("),
    "deep brackets": _text(lambda text: f"{text}(assert {'(and ' * 5000}(<= Y_0 0){')' * 5000})"),
    "another text": lambda document: document["query"].update(text=document["query"]["text"] + " "),
    "a part less": lambda document: document["parts"].pop(),
    "no parts": lambda document: document.update(parts=[]),
    "a case less": lambda document: document["parts"][0]["cases"].pop(),
    "a case without inequalities": lambda document: document["parts"][0]["cases"][0].clear(),
    "a smaller box": lambda document: document["parts"][0]["high"].__setitem__(0, "1/2"),
    "an empty box": lambda document: document["parts"][0]["high"].__setitem__(0, "-2"),
    "a bound of its own": lambda document: document["parts"][0]["cases"][0][0].update(bound="-99"),
    "a tree less": _rows(lambda trees: trees[:-1]),
    "a tree more": _rows(lambda trees: [*trees, trees[-1]]),
    "no trees": _rows(lambda trees: []),
    "one half alone": _rows(lambda trees: [without_root(tree) if isinstance(tree, Split) else tree for tree in trees]),
    "halves in each other's place": _rows(lambda trees: [swapped(tree) for tree in trees]),
    "a neuron that is not there": _rows(lambda trees: [Split(99, (trees[0], trees[0])), *trees[1:]]),
    "neurons of another value": lambda document: document["parts"][0]["relaxation"].update(neurons={"99": "AAAAAA=="}),
    "no relaxation": lambda document: document["parts"][0].pop("relaxation"),
    "nodes as well": lambda document: document["parts"][0].update(nodes=[]),
    "nodes in its place": lambda document: (
        document["parts"][0].pop("relaxation"),
        document["parts"][0].update(nodes=[{"slopes": {}}] * 2),
    ),
    "a number that is none": lambda document: document["parts"][0]["low"].__setitem__(0, "one"),
    "a division by zero": lambda document: document["parts"][0]["low"].__setitem__(0, "1/0"),
    "another network": lambda document: document["network"].update(sha256="0" * 64),
    "another format": lambda document: document.update(format="relucert query proof 1"),
    "an entry more": lambda document: document.update(more=1),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutated_proofs_are_rejected(name: str, proof: dict[str, Any], tmp_path: Path) -> None:
    document = copy.deepcopy(proof)
    MUTATIONS[name](document)
    assert document != proof
    with pytest.raises(Rejected):
        checked(document, tmp_path)


def test_a_property_without_cases_needs_no_parts(tmp_path: Path) -> None:
    empty = Query.within([1, 1, 1], [0, 0, 0], [([[1, 0]], [5])])
    path = tmp_path / "proof.json"
    assert verify(NETWORK, empty, proof=path).holds
    assert check_property(path, NETWORK).cases == 0


def test_what_does_not_hold_can_not_be_claimed(proof: dict[str, Any], tmp_path: Path) -> None:
    """Trees of a property that holds do not prove one that does not."""
    document = copy.deepcopy(proof)
    lifted = Query.within(LOW, HIGH, [([[1, 0]], [Fraction(round(1000 * least()) + 40, 1000)])])
    text = lifted.vnnlib()
    document["query"] = {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    document["parts"] = document["parts"][:1]
    (violation,) = lifted.violations
    part, case = document["parts"][0], document["parts"][0]["cases"][0]
    part["cases"] = [case]
    case[0]["bound"] = str(violation.constraints[0].bound)
    with pytest.raises(Rejected):
        checked(document, tmp_path)
