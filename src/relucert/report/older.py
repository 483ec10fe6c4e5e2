"""Answers as versions before this one wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def upgraded(row: Mapping[str, Any]) -> dict[str, Any]:
    """An answer's row with the keys and names that this version writes.

    Before, the method of exact answers was "branch-and-bound"; CLEVER's `value` was missing where no distribution
    could be fitted, and the radius of its samples was called `radius`, as a certified one is.
    """
    current = dict(row)
    if "upper" in row and row.get("method") == "branch-and-bound":
        current["method"] = "exact"
    if "sampled" in row and "fitted" not in row:
        current["fitted"] = row.get("value") is not None
        current["value"] = row["sampled"] if row.get("value") is None else row["value"]
        if "radius" in row:
            current["sampling_radius"] = current.pop("radius")
    return current
