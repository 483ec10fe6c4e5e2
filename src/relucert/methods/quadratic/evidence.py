"""The evidence of an answer by quadratic certificates, for a proof file: multipliers and sectors, in full size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from relucert.methods.quadratic.certificate import Certificate
from relucert.methods.quadratic.problem import Problem
from relucert.methods.quadratic.proof import ProposedDual


@dataclass(frozen=True, eq=False)
class RowEvidence:
    """The multipliers that prove one row."""

    certificate: Certificate
    dual: ProposedDual


@dataclass(frozen=True, eq=False)
class Evidence:
    """What proves a radius.

    Attributes:
        radius: The radius.
        sectors: Slopes and widths of every hidden layer but the last, (size,) each.
        rows: The entries of every row; None: the bounds of the linear relaxation prove it.
    """

    radius: float
    sectors: tuple[tuple[Tensor, Tensor], ...]
    rows: tuple[dict[str, Any] | None, ...]

    @classmethod
    def of(cls, problem: Problem, rows: Sequence[RowEvidence | None]) -> Evidence:
        sectors = tuple((layer.slope, layer.width) for layer in problem.layers[:-1])
        entries = tuple(None if row is None else _entries(problem, row) for row in rows)
        return cls(float(problem.region.radius[0]), sectors, entries)

    def document(self) -> dict[str, Any]:
        """The entries of a proof file that are its own."""
        return {
            "sectors": [{"slope": slope.tolist(), "width": width.tolist()} for slope, width in self.sectors],
            "certificates": [
                None if row is None else {name: _listed(part) for name, part in row.items()} for row in self.rows
            ],
        }


def _entries(problem: Problem, row: RowEvidence) -> dict[str, Any]:
    """By the names of a proof file, tensors with one number per input or neuron."""
    certificate, dual = row.certificate, row.dual
    inputs, *errors = dual.tangent.split(problem.sizes)
    size, hidden = len(problem.centre), problem.layers[:-1]
    return {
        "ball": _placed(certificate.inputs, problem.moving, size),
        "sectors": [
            _placed(part, layer.loose, len(layer.bias)) for part, layer in zip(certificate.sectors, hidden, strict=True)
        ],
        "weights": list(certificate.weights),
        "rate": float(dual.rate),
        "links": list(dual.links),
        "tangent": [
            _placed(inputs, problem.moving, size),
            *(_placed(part, layer.loose, len(layer.bias)) for part, layer in zip(errors, hidden, strict=True)),
        ],
    }


def _placed(numbers: Tensor, places: Tensor, size: int) -> Tensor:
    return numbers.new_zeros(size).index_copy(0, places, numbers)


def _listed(part: Any) -> Any:
    if isinstance(part, Tensor):
        return part.tolist()
    return [_listed(one) for one in part] if isinstance(part, list) else part
