"""The file that proves that a property holds: for each of its boxes, why none of its violations can happen there."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relucert.branch_and_bound.prove import Outcome
from relucert.checker.document import QUERY_FORMAT, UNREADABLE, unpacked
from relucert.network import Network
from relucert.network.fingerprint import fingerprint
from relucert.specification.query import Query, Violation
from relucert.storage import files
from relucert.verification.problem import Problem


def claimed(network: Network, query: Query) -> dict[str, Any]:
    """What a proof is about."""
    text = query.vnnlib()
    return {
        "format": QUERY_FORMAT,
        "network": {"name": network.name, "sha256": fingerprint(network)},
        "query": {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()},
    }


def is_about(content: bytes, claim: dict[str, Any]) -> bool:
    """Whether a file's content is a proof of the same claim."""
    try:
        document = json.loads(unpacked(content))
    except UNREADABLE:
        return False
    return isinstance(document, dict) and all(document.get(name) == value for name, value in claim.items())


def write(path: Path, claim: dict[str, Any], proven: Sequence[tuple[Problem, Outcome]]) -> None:
    """Writes the proof that every row of some problems stays positive; compressed where the name ends in .gz."""
    document = {**claim, "parts": [_part(problem, outcome) for problem, outcome in proven]}
    content = json.dumps(document, allow_nan=False).encode()
    files.write(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _part(problem: Problem, outcome: Outcome) -> dict[str, Any]:
    assert outcome.tree is not None
    first = problem.violations[0]
    rows = outcome.tree.rows(outcome.bounder, problem.radius)
    return {
        "low": [str(number) for number in first.low],
        "high": [str(number) for number in first.high],
        "cases": [_case(violation) for violation in problem.violations],
        "nodes": [{name: entry for name, entry in row.items() if name != "radius"} for row in rows],
    }


def _case(violation: Violation) -> list[dict[str, Any]]:
    return [
        {
            "inputs": [[place, str(number)] for place, number in constraint.inputs],
            "outputs": [[place, str(number)] for place, number in constraint.outputs],
            "bound": str(constraint.bound),
        }
        for constraint in violation.constraints
    ]
