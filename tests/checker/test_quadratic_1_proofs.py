"""Proofs by quadratic certificates of the first format: those of earlier releases pass, changed ones prove nothing.

Nothing writes that format any more. The files beside this one were written by the release before its prover went.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import relucert
from relucert.arithmetic.norm import Norm
from relucert.checker.certificate_feasible import Feasibility
from relucert.checker.certificate_margin import Margin
from relucert.checker.check import check
from relucert.checker.document import Rejected, read
from relucert.checker.quadratic import as_certificates
from relucert.checker.quadratic_document import ChainCertificate, QuadraticProof
from relucert.network import Network
from tests.checker.test_certificate_proofs import stored
from tests.checker.test_quadratic_proofs import linearise
from tests.nets import NETWORKS
from tests.smooth import smooth_network

Change = Callable[[dict[str, Any]], None]
FILES = Path(__file__).parent / "quadratic_1"
PROOFS = ("mlp-inf", "mlp-2-box", "conv-1")


def old(name: str) -> tuple[Network, Path, QuadraticProof]:
    """A network, and a proof about it."""
    path = FILES / f"{name}.json.gz"
    proof = read(path)
    assert isinstance(proof, QuadraticProof)
    return relucert.load(FILES / f"{name}.safetensors"), path, proof


@pytest.mark.parametrize("name", PROOFS)
def test_old_files_pass(name: str) -> None:
    network, path, proof = old(name)
    assert None not in proof.certificates
    claim = check(path, network)
    assert claim.radius == proof.radius
    assert claim.inference == "real"


def points_in(proof: QuadraticProof, count: int) -> Tensor:
    """Spread in the region of a proof without scale, corners among them."""
    generator, norm = torch.Generator().manual_seed(0), Norm(proof.norm)
    centre = torch.tensor(proof.image, dtype=torch.float64)
    inside = norm.sample(centre, proof.radius, count, generator)
    far = norm.project(9 * torch.randn(count, len(centre), generator=generator).double(), torch.tensor([proof.radius]))
    points = torch.cat([inside, centre + far, centre[None]])
    if proof.box is None:
        return points
    low, high = (torch.tensor(end, dtype=torch.float64) for end in proof.box)
    return points.clamp(low, high)  # which moves no point away from the centre, as that is in the box


def margins(network: Network, proof: QuadraticProof) -> list[float]:
    """What the certificates of a proof prove of its rows."""
    translated = as_certificates(network, proof)
    linearised = linearise(network, translated)
    feasibility, least = Feasibility(linearised), []
    for entry, row, offset in zip(translated.row_proofs, proof.rows, proof.offsets, strict=True):
        assert entry is not None
        certificate = translated.certificates[entry.certificate]
        margin = Margin(linearised, certificate, feasibility.input_weights(certificate), entry)
        least.append(float(margin.least(row, offset)))
    return least


@pytest.mark.parametrize(
    ("name", "margin"), [("mlp-inf", 0.0389615318606), ("mlp-2-box", 0.0657464), ("conv-1", 3.7258e-4)]
)
def test_margins_are_those_of_the_first_format_or_better(name: str, margin: float) -> None:
    """They were computed in its own terms, with sectors in the place of ReLUs, in exact fractions."""
    network, _, proof = old(name)
    (least,) = margins(network, proof)
    assert margin - 1e-12 <= least < 1.1 * margin


@pytest.mark.parametrize("name", ["mlp-inf", "mlp-2-box"])
def test_margins_hold_whatever_the_dual_variables_are(name: str) -> None:
    network, _, proof = old(name)
    (entry,) = proof.certificates
    assert entry is not None
    row = torch.tensor(proof.rows[0], dtype=torch.float64)
    values = network.cast(torch.float64)(points_in(proof, 500)) @ row
    draw = random.Random(0)
    assert 0 < margins(network, proof)[0] <= float(values.min())
    for size in (0.0, 1e-3, 0.1, 1.0, 1e3):

        def spoilt(lists: list[list[float]], size: float = size) -> list[list[float]]:
            return [[number + size * draw.gauss(0, 1) for number in part] for part in lists]

        changed = replace(
            entry, rate=entry.rate * draw.uniform(0.1, 10), links=spoilt(entry.links), tangent=spoilt(entry.tangent)
        )
        assert margins(network, replace(proof, certificates=[changed]))[0] <= float(values.min())


def _scaled(name: str, factor: float) -> Change:
    def change(document: dict[str, Any]) -> None:
        entry = document["certificates"][0]
        entry[name] = _times(entry[name], factor)

    return change


def _times(numbers: Any, factor: float) -> Any:
    return [_times(part, factor) for part in numbers] if isinstance(numbers, list) else numbers * factor


def _set(name: str, number: object) -> Change:
    """One number of a list of a certificate: the largest, so that it counts."""

    def change(document: dict[str, Any]) -> None:
        part = document["certificates"][0][name]
        while isinstance(part[0], list):
            part = part[0]
        part[part.index(max(part))] = number

    return change


def _raised(document: dict[str, Any]) -> None:
    document["radius"] *= 1.2


def _narrow(document: dict[str, Any]) -> None:
    for sector in document["sectors"]:
        sector["width"] = [0.5 * width for width in sector["width"]]


def _moved(document: dict[str, Any]) -> None:
    for sector in document["sectors"]:
        sector["slope"] = [slope + 0.1 for slope in sector["slope"]]


def _steep(document: dict[str, Any]) -> None:
    for sector in document["sectors"]:
        sector["slope"] = [1e300 for _ in sector["slope"]]


def _no_sectors(document: dict[str, Any]) -> None:
    document["sectors"] = []


def _no_certificate(document: dict[str, Any]) -> None:
    document["certificates"] = [None]


def _two_certificates(document: dict[str, Any]) -> None:
    document["certificates"] *= 2


def _turned(document: dict[str, Any]) -> None:
    document["rows"] = [[-number for number in row] for row in document["rows"]]


def _without(name: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        del (document if name in document else document["certificates"][0])[name]

    return change


def _shorter(name: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        part = document["certificates"][0][name]
        (part[0] if isinstance(part[0], list) else part).pop()

    return change


def _rate(number: float) -> Change:
    def change(document: dict[str, Any]) -> None:
        document["certificates"][0]["rate"] = number

    return change


CHANGES: dict[str, tuple[Change, str]] = {
    "radius": (_raised, "does not prove"),
    "ball a little smaller": (_scaled("ball", 0.97), "feasible"),
    "weights a little larger": (_scaled("weights", 1.03), "feasible"),
    "weights far smaller": (_scaled("weights", 0.2), "does not prove"),
    "ball of the wrong sign": (_set("ball", -1.0), "negative"),
    "sector multiplier of the wrong sign": (_set("sectors", -1e-9), "negative"),
    "weight of the wrong sign": (_set("weights", -1e-9), "negative"),
    "no ball": (_scaled("ball", 0.0), "not positive"),
    "no number": (_set("links", math.nan), "no number"),
    "infinite": (_set("tangent", math.inf), "no number"),
    "text": (_set("tangent", "1.0"), "wrong kind"),
    "true": (_set("weights", True), "wrong kind"),
    "links too large": (_scaled("links", 1e308), "does not prove"),
    "tangent too large": (_scaled("tangent", 1e308), "too large|too long"),
    "weights too large": (_scaled("weights", 1e308), "too large|no numbers"),
    "slopes too large": (_steep, "does not prove|feasible"),
    "rate 0": (_rate(0.0), "rate"),
    "rate below 0": (_rate(-1.0), "rate"),
    "rate too large": (_rate(1e6), "does not prove"),
    "links turned": (_scaled("links", -1.0), "does not prove"),
    "sector too narrow": (_narrow, "does not prove"),
    "sector elsewhere": (_moved, "does not prove|feasible"),
    "no sectors": (_no_sectors, "every hidden layer but the last"),
    "no certificate": (_no_certificate, "CROWN"),
    "two certificates": (_two_certificates, "one certificate for each row"),
    "label": (_turned, "does not prove"),
    **{f"without {field.name}": (_without(field.name), "entries") for field in fields(ChainCertificate)},
    "without by_intervals": (_without("by_intervals"), "entries"),
    **{f"{name} too short": (_shorter(name), name) for name in ("ball", "sectors", "weights", "links", "tangent")},
}


@pytest.fixture(scope="module")
def original() -> tuple[Network, dict[str, Any]]:
    network, path, _ = old("mlp-inf")
    return network, stored(path)


@pytest.mark.parametrize("name", CHANGES)
def test_changed_proofs_are_refused(name: str, original: tuple[Network, dict[str, Any]], tmp_path: Path) -> None:
    network, document = original
    change, reason = CHANGES[name]
    changed, path = json.loads(json.dumps(document)), tmp_path / "changed.json.gz"
    path.write_bytes(gzip.compress(json.dumps(changed).encode()))
    assert check(path, network).radius == document["radius"]
    change(changed)
    path.write_bytes(gzip.compress(json.dumps(changed).encode()))
    with pytest.raises(Rejected, match=reason):
        check(path, network)


@pytest.mark.parametrize("network", [NETWORKS["image residual"](), smooth_network()])
def test_networks_that_are_no_chains_are_refused(network: Network) -> None:
    _, _, proof = old("mlp-inf")
    with pytest.raises(Rejected, match="no chain"):
        as_certificates(network, proof)
