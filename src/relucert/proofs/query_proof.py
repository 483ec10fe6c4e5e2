"""The file that proves that a property holds: for each of its boxes, why none of its violations can happen there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relucert.branch_and_bound.prove import Outcome
from relucert.checker.document import QUERY_FORMAT
from relucert.network import Network
from relucert.network.fingerprint import fingerprint
from relucert.proofs.files import write_proof
from relucert.proofs.record import relaxation_entry
from relucert.verification.problem import BoxViolations
from relucert.verification.specification.query import Query
from relucert.verification.specification.violations import Violation


def claimed(network: Network, query: Query) -> dict[str, Any]:
    """The claim of a proof: the network and the property, each with its SHA-256."""
    text = query.vnnlib()
    return {
        "format": QUERY_FORMAT,
        "network": {"name": network.name, "sha256": fingerprint(network)},
        "query": {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()},
    }


def write(path: Path, claim: dict[str, Any], proven: Sequence[tuple[BoxViolations, Outcome]]) -> None:
    """Writes the proof that no violation is possible; compressed where the name ends in .gz."""
    write_proof(path, claim, {"parts": [_box_proof(box.violations, outcome) for box, outcome in proven]})


def _box_proof(violations: Sequence[Violation], outcome: Outcome) -> dict[str, Any]:
    first = violations[0]
    if outcome.record is not None:
        proof: dict[str, Any] = {"relaxation": relaxation_entry(outcome.record)}
    else:
        assert outcome.cuts is not None
        proof = {"nodes": outcome.cuts.rows()}
    return {
        "low": [str(number) for number in first.low],
        "high": [str(number) for number in first.high],
        "cases": [_case(violation) for violation in violations],
        **proof,
    }


def _case(violation: Violation) -> list[dict[str, Any]]:
    return [
        {
            "inputs": [[index, str(number)] for index, number in constraint.inputs],
            "outputs": [[index, str(number)] for index, number in constraint.outputs],
            "bound": str(constraint.bound),
        }
        for constraint in violation.constraints
    ]
