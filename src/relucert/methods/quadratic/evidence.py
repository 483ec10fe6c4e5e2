"""The evidence of an answer by quadratic certificates, for a proof file: exactly the numbers that prove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relucert.methods.quadratic.composed import Composed
from relucert.methods.quadratic.dual import DualPoint, Weights
from relucert.methods.quadratic.intervals import LayerProof
from relucert.methods.quadratic.linearised_network import Neurons
from relucert.methods.quadratic.rows import RegionRows
from relucert.methods.quadratic.solve import Joint


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
        layers = {str(value): _layer(neurons) for value, neurons in rows.linearised.neurons.items()}
        numbers: dict[Composed | Joint, int] = {}
        entries: list[dict[str, Any] | None] = []
        for row in range(len(rows.forms)):
            if bool(linear[row]):
                entries.append(None)
                continue
            proof = rows.proofs[row]
            number = numbers.setdefault(proof.certificate, len(numbers))
            entries.append({"certificate": number, "factor": proof.factor, **_dual_point(proof.point, proof.links)})
        tight = {} if rows.tight is None else rows.tight.proofs
        intervals = {str(value): list(map(_interval, proofs)) for value, proofs in tight.items()}
        certificates = list(map(_certificate, numbers))
        document = {"layers": layers, "certificates": certificates, "rows": entries, "intervals": intervals}
        return cls(float(rows.region.radius[0]), document)


def _layer(neurons: Neurons) -> dict[str, list[float]]:
    """The neurons of a layer; of another activation than ReLU with the ends of intervals and the slopes of lines, one
    neuron after the other."""
    entry = {"neurons": neurons.index.tolist(), "slopes": neurons.slope.tolist()}
    if neurons.ends is None:
        return entry
    rises = [torch.as_tensor(piece.rise) for piece in neurons.pieces]
    graphs = {
        "breakpoints": neurons.ends[1:-1].cummax(0).values,
        "below": torch.stack(rises[::2]),
        "above": torch.stack(rises[1::2]),
    }
    return {**entry, **{name: table.T.flatten().tolist() for name, table in graphs.items()}}


def _certificate(certificate: Composed | Joint) -> dict[str, Any]:
    if not isinstance(certificate, Composed):
        return {"kind": "joint", **_weights(certificate.weights)}
    norms = [[*pair, norm, certificate.shares[pair]] for pair, norm in certificate.norms.items()]
    profiles = {str(source): numbers.tolist() for source, numbers in certificate.plan.profiles.items()}
    return {"kind": "composed", **_weights(certificate.weights), "norms": norms, "profiles": profiles}


def _weights(weights: Weights) -> dict[str, Any]:
    return {
        "deviations": _by_layer(weights.deviations),
        "errors": _by_layer(weights.errors),
        "inputs": weights.inputs.flatten().tolist(),
    }


def _dual_point(point: DualPoint, links: dict[int, Tensor]) -> dict[str, Any]:
    return {
        "links": _by_layer(links),
        "inputs": point.inputs.flatten().tolist(),
        "errors": _by_layer(point.errors),
    }


def _interval(proof: LayerProof) -> dict[str, Any]:
    """The proofs of bounds of a layer by one certificate, lower ones first."""
    return {
        "neurons": proof.neurons.tolist(),
        "uppers": int((proof.signs < 0).sum()),
        "certificate": {"kind": "joint", **_weights(proof.weights)},
        "factors": proof.factors.tolist(),
        **_dual_point(proof.point, proof.links),
    }


def _by_layer(tables: dict[int, Tensor]) -> dict[str, list[float]]:
    """The numbers of each layer, form after form."""
    return {str(value): table.flatten().tolist() for value, table in tables.items()}
