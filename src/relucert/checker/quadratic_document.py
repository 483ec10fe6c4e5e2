"""A proof file by quadratic certificates on chains of layers, read with suspicion."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from relucert.checker.claim import KEYS, RadiusClaim, claim_of
from relucert.checker.entries import as_list, as_number, as_numbers, require
from relucert.checker.trees import Scope, scope_of

QUADRATIC_FORMAT = "relucert quadratic proof 1"


@dataclass(frozen=True)
class SectorEntry:
    """One sector per ReLU of a hidden layer: `|relu(z) - relu(zc) - slope (z - zc)| <= width |z - zc|`."""

    slope: list[float]
    width: list[float]


@dataclass(frozen=True)
class ChainCertificate:
    """The multipliers for one row; every list has one number per input or neuron of its layer.

    ball: of the ball (kappa); sectors: of the sectors, for every hidden layer but the last (tau); weights: of squared
    deviations, for every hidden layer (pi); rate: of the inequality (rho); links: of the layers' equations, for every
    hidden layer (lambda); tangent: at the inputs and at the sector errors of every hidden layer but the last.
    """

    ball: list[float]
    sectors: list[list[float]]
    weights: list[list[float]]
    rate: float
    links: list[list[float]]
    tangent: list[list[float]]


@dataclass(frozen=True)
class QuadraticProof(RadiusClaim):
    """A claim with quadratic certificates that prove it, one per row; None: CROWN's lines prove the row.

    scope: the scope of CROWN's rule, which bounds the hidden neurons.
    """

    scope: Scope
    sectors: list[SectorEntry]
    certificates: list[ChainCertificate | None]


def quadratic_proof(document: dict[str, Any]) -> QuadraticProof:
    """A proof whose every entry is of the right kind."""
    require(set(document) == KEYS | {"by_intervals", "sectors", "certificates"}, "its entries are not those of a proof")
    claim = claim_of(document)
    sectors = [_sector(entry) for entry in as_list(document["sectors"])]
    certificates = [_certificate(entry) for entry in as_list(document["certificates"])]
    require(len(certificates) == len(claim["rows"]), "it has not one certificate for each row")
    return QuadraticProof(**claim, scope=scope_of(document), sectors=sectors, certificates=certificates)


def _sector(entry: Any) -> SectorEntry:
    require(set(entry) == {"slope", "width"}, "a sector has no slope and width")
    return SectorEntry(as_numbers(entry["slope"]), as_numbers(entry["width"]))


def _certificate(entry: Any) -> ChainCertificate | None:
    if entry is None:
        return None
    keys = [field.name for field in fields(ChainCertificate)]
    require(set(entry) == set(keys), f"a certificate does not have the entries {', '.join(keys)}")
    by_layer = {
        name: [as_numbers(numbers) for numbers in as_list(entry[name])]
        for name in ("sectors", "weights", "links", "tangent")
    }
    return ChainCertificate(ball=as_numbers(entry["ball"]), rate=as_number(entry["rate"]), **by_layer)
