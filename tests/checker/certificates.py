"""Proofs by quadratic certificates about small networks, found with little effort; every row has one.

Of joint and layered proofs at least one row has weights that climbed; of tightened ones some neurons are bounded by
certificates.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.record import RuleName
from relucert.methods.quadratic import intervals, solve
from relucert.methods.quadratic.composed import Composed
from relucert.methods.quadratic.evidence import Evidence
from relucert.methods.quadratic.rows import RegionRows
from relucert.methods.table import METHODS
from relucert.network.inference import find_inference
from relucert.proofs.files import claimed
from relucert.proofs.quadratic import quadratic_evidence
from relucert.query.problem import Problem
from tests.checker.test_certificate_proofs import REGIONS
from tests.nets import NETWORKS, centres

Kind = Literal["composed", "layered", "joint", "tightened"]
EFFORT = {"STEPS": 10, "STEPS_OWN": 40, "STEPS_AGAIN": 20}  # of the ascents
RADII = [0.7**power for power in range(2, 16)]  # that are tried
GAIN = 1.2  # on the radius of CROWN: what these certificates hardly ever reach


def proven(name: str, kind: Kind, region: str = "2", inference: str = "real") -> dict[str, Any]:
    """The document of a proof about an image, in nearly the largest region in which all rows are proven.

    name: of the network in NETWORKS; region: of the norm, box and scale in REGIONS.
    """
    document: dict[str, Any] = json.loads(_stored(name, kind, region, inference))
    return document


@cache
def _stored(name: str, kind: Kind, region: str, inference: str) -> str:
    network = NETWORKS[name]().evaluated_in(find_inference(inference))
    image = centres(network, 1).float().double().clamp(-1.5, 1.25)
    label = int(network.cast(torch.float64)(image.unflatten(1, network.input_shape)).argmax())
    rivals = torch.tensor([[rival for rival in range(network.classes) if rival != label]])
    prop = Property.margins(torch.tensor([label]), rivals, network.classes)
    for radius in RADII:
        smaller, problem = (
            Problem(network, Region.around(image, size, **{"norm": "inf", **REGIONS[region]}), prop)
            for size in (radius / GAIN, radius)
        )
        found = _evidence(problem, kind) if _is_proven_by_lines(smaller) else None
        if found is not None:
            method = METHODS["sdp"]()
            rule = RuleName.of("crown", method.bounds_stable_neurons(network))
            fields = {"inference": inference, **quadratic_evidence(found, radius, rule)}
            return json.dumps({**claimed(problem, 0), **fields})
    raise AssertionError("no radius is proven")


def _is_proven_by_lines(problem: Problem) -> bool:
    crown = METHODS["crown"]()
    bounds = crown.hidden(problem.exact, problem.region, RIGOROUS)
    return bool((crown.margins(problem.exact, problem.region, problem.prop, bounds, RIGOROUS) > 0).all())


def _evidence(problem: Problem, kind: Kind) -> Evidence | None:
    method = METHODS["sdp"]()
    bounds = method.hidden(problem.exact, problem.region, RIGOROUS)
    with pytest.MonkeyPatch.context() as patch:
        for name, steps in EFFORT.items():
            patch.setattr(solve, name, steps)
        rows = RegionRows.of(problem.exact, problem.region, problem.prop, bounds)
        if not rows.relaxed or not bool((rows.heights > 0).all()):
            return None
        if kind == "tightened":
            patch.setattr(intervals, "STEPS", EFFORT["STEPS_AGAIN"])
            patch.setattr(intervals, "STEPS_OWN", EFFORT["STEPS_AGAIN"])
            rows = rows.tightened(bounds, {})
            if rows.tight is None or not rows.tight.proofs or not rows.relaxed:
                return None
        every, endless = torch.arange(len(rows.forms)), torch.full_like(rows.solver.bounds, torch.inf)
        rows.solver.start()
        if kind == "composed":
            rows.solver.ascend(every, endless)
        elif kind == "layered":
            rows.solver.ascend_layered(every, endless)
        else:
            rows.solver.ascend_jointly(every, endless, [None] * len(every))
        if not bool((rows.prove() > 0).all()):
            return None
    certificates = [proof.certificate for proof in rows.proofs.values()]
    if kind == "joint" and all(isinstance(certificate, Composed) for certificate in certificates):
        return None
    if kind == "layered" and all(certificate is rows.solver.composed for certificate in certificates):
        return None
    return Evidence.of(rows, torch.zeros(len(every), dtype=torch.bool))


def as_joint(document: dict[str, Any]) -> dict[str, Any]:
    """The same weights, to be proven at once and not layer by layer, which takes less of them."""
    changed: dict[str, Any] = json.loads(json.dumps(document))
    for certificate in changed["certificates"]:
        certificate["kind"] = "joint"
        certificate.pop("norms", None)
        certificate.pop("profiles", None)
    return changed


def write(document: dict[str, Any], folder: Path) -> Path:
    path = folder / "proof.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def points_in(document: dict[str, Any], count: int, seed: int = 0) -> Tensor:
    """Inputs spread in the region of a proof, many at its boundary: (2 count, inputs)."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.tensor(document["image"]["values"], dtype=torch.float64)
    scale = torch.ones_like(centre) if document["scale"] is None else torch.tensor(document["scale"]).double()
    radius, norm = document["radius"], document["norm"]
    away = torch.randn(2 * count, len(centre), generator=generator, dtype=torch.float64)
    away[: count // 2] *= torch.rand(count // 2, len(centre), generator=generator) < 0.3
    away = away.sign() if norm == "inf" else away / away.norm(p=norm, dim=1, keepdim=True).clamp(min=1e-12)
    away[count:] *= torch.rand(count, 1, generator=generator)
    points: Tensor = centre + 0.999999 * radius * scale * away
    if document["box"] is None:
        return points
    low, high = (torch.tensor(end, dtype=torch.float64) for end in document["box"])
    return points.clamp(low, high)
