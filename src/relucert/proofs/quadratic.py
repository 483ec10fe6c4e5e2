"""The evidence of quadratic certificates as the fields of a proof file: its numbers packed."""

from __future__ import annotations

from typing import Any

import numpy as np

from relucert.bounding.record import RuleName
from relucert.checker.certificate_document import CERTIFICATE_FORMAT, SLOPE_BITS
from relucert.checker.packing import pack, pack_floats
from relucert.methods.quadratic.evidence import Evidence
from relucert.proofs.record import rule_entry


def quadratic_evidence(certificates: Evidence, radius: float, rule: RuleName) -> dict[str, Any]:
    """The fields of a proof file besides its claim and its inference, where quadratic certificates prove a radius.

    Args:
        certificates: The certificates, for a radius that is no smaller.
        rule: CROWN's, which bounds hidden neurons.
    """
    document = certificates.document
    intervals = {value: list(map(_interval, entries)) for value, entries in document["intervals"].items()}
    return {
        "format": CERTIFICATE_FORMAT,
        "radius": radius,
        **{name: part for name, part in rule_entry(rule).items() if name != "rule"},
        "layers": {value: _layer(entry) for value, entry in document["layers"].items()},
        "certificates": [_certificate(entry) for entry in document["certificates"]],
        "row_proofs": [None if entry is None else _packed(entry, ("links", "errors")) for entry in document["rows"]],
        **({"intervals": intervals} if intervals else {}),
    }


def _layer(entry: dict[str, Any]) -> dict[str, str]:
    if "breakpoints" in entry:
        tables = {name: pack_floats(entry[name]) for name in ("slopes", "breakpoints", "below", "above")}
        return {"neurons": pack(np.asarray(entry["neurons"], dtype=np.int64), 4), **tables}
    slopes = np.rint(np.asarray(entry["slopes"]) * 2.0**SLOPE_BITS).astype(np.int64)
    return {"neurons": pack(np.asarray(entry["neurons"], dtype=np.int64), 4), "slopes": pack(slopes, 3)}


def _interval(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        **_packed(entry, ("links", "errors")),
        "neurons": pack(np.asarray(entry["neurons"], dtype=np.int64), 4),
        "certificate": _certificate(entry["certificate"]),
        "factors": pack_floats(entry["factors"]),
    }


def _certificate(entry: dict[str, Any]) -> dict[str, Any]:
    return _packed(entry, tuple(name for name in ("deviations", "errors", "profiles") if name in entry))


def _packed(entry: dict[str, Any], by_layer: tuple[str, ...]) -> dict[str, Any]:
    """An entry whose lists of numbers are text, of which some are by layer."""
    lists = {name: {value: pack_floats(numbers) for value, numbers in entry[name].items()} for name in by_layer}
    return {**entry, **lists, "inputs": pack_floats(entry["inputs"])}
