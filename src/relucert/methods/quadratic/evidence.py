"""The evidence of an answer by quadratic certificates, for a proof file: exactly the numbers that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from relucert.methods.quadratic.dual import Weights
    from relucert.methods.quadratic.rows import RegionRows, RowProof

ByLayer = dict[str, list[float]]


@dataclass(frozen=True, eq=False)
class Evidence:
    """What proves a radius.

    Attributes:
        radius: The radius.
        document: The fields of a proof file besides its claim; docs/proofs.md describes them.
    """

    radius: float
    document: dict[str, Any]

    @classmethod
    def of(cls, rows: RegionRows, linear: Tensor) -> Evidence:
        """From rows that are proven; linear: those that the linear relaxation proves, (rows,)."""
        layers = {
            str(value): {"neurons": neurons.index.tolist(), "slopes": neurons.slope.tolist()}
            for value, neurons in rows.scene.neurons.items()
        }
        certificates: list[dict[str, Any]] = []
        entries: list[dict[str, Any] | None] = []
        composed = None
        for row in range(len(rows.forms)):
            proof = None if bool(linear[row]) else rows.proofs[row]
            if proof is None:
                entries.append(None)
            elif proof.weights is not None:
                certificates.append({"kind": "joint", **_weights(proof.weights)})
                entries.append(_entry(proof, len(certificates) - 1, 1.0))
            else:
                if composed is None:
                    composed = len(certificates)
                    found = rows.composed
                    assert found is not None
                    certificates.append({
                        "kind": "composed", **_weights(found.weights),
                        "norms": [[*pair, norm, found.shares[pair]] for pair, norm in found.norms.items()],
                    })  # fmt: skip
                entries.append(_entry(proof, composed, proof.factor))
        document = {"layers": layers, "certificates": certificates, "rows": entries}
        return cls(float(rows.region.radius[0]), document)


def _weights(weights: Weights) -> dict[str, Any]:
    return {
        "deviations": _by_layer(weights.deviations),
        "errors": _by_layer(weights.errors),
        "inputs": weights.inputs[0].tolist(),
    }


def _entry(proof: RowProof, certificate: int, factor: float) -> dict[str, Any]:
    point = proof.point
    return {
        "certificate": certificate,
        "factor": factor,
        "links": _by_layer(proof.links),
        "inputs": point.inputs[0].tolist(),
        "errors": _by_layer(point.errors),
    }


def _by_layer(numbers: dict[int, Tensor]) -> ByLayer:
    return {str(value): part[0].tolist() for value, part in numbers.items()}
