"""Proofs by quadratic certificates of the first format: those of earlier releases pass, changed ones prove nothing.

Nothing writes that format any more. The files beside this one were written by the release before its prover went.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from flint import fmpq
from torch import Tensor

import relucert
from relucert.arithmetic.norm import Norm
from relucert.checker.check import check
from relucert.checker.document import Rejected, read
from relucert.checker.linearised_chain import Chain, CheckedChain, is_chain, linearise
from relucert.checker.quadratic import least_margin
from relucert.checker.quadratic_document import ChainCertificate, QuadraticProof
from relucert.checker.quadratic_matrix import FORM_BITS, QuadraticInequality, inequality
from relucert.network import IndexMap, Linear, Network
from tests.checker.test_certificate_proofs import stored
from tests.nets import NETWORKS, centres, chain

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


def parts(network: Network, proof: QuadraticProof) -> tuple[CheckedChain, ChainCertificate, QuadraticInequality]:
    linearised, _ = linearise(network, proof)
    (entry,) = proof.certificates
    assert entry is not None
    return linearised, entry, inequality(linearised, entry)


@pytest.mark.parametrize("name", ["mlp-inf", "mlp-2-box"])
def test_no_point_violates_the_inequality(name: str) -> None:
    network, _, proof = old(name)
    linearised, entry, proven = parts(network, proof)
    points = points_in(proof, 300)
    left, columns = torch.zeros(len(points), dtype=torch.float64), [_numbers_over(points, linearised)]
    outputs, linear = points, [node.operation.tensors() for node in network.nodes if node.operation.name == "linear"]
    for layer, tensors, weights in zip(linearised.layers, linear, entry.weights, strict=False):
        before = outputs @ tensors["weight"].double().T + tensors["bias"].double()
        away = before - _floats(layer.centre)
        left += away.square() @ torch.tensor(weights, dtype=torch.float64)
        outputs = before.clamp(min=0)
        if layer.slope is not None:
            errors = outputs - _floats(layer.centre).clamp(min=0) - _floats(layer.slope) * away
            columns.append(errors[:, layer.loose])
    vectors = torch.cat(columns, 1) * 2.0 ** -torch.tensor(proven.powers, dtype=torch.float64)
    matrix = torch.tensor([[float(fmpq(one, 1 << 2 * FORM_BITS)) for one in row] for row in proven.matrix.tolist()])
    left += ((vectors @ matrix.double()) * vectors).sum(1)
    assert float(left.max()) <= float(proven.right) + 1e-6
    assert float(left.max()) > 0.05 * float(proven.right)  # it says something


def _floats(numbers: list[fmpq]) -> Tensor:
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64)


def _numbers_over(points: Tensor, linearised: CheckedChain) -> Tensor:
    """The points in units of the ball."""
    moving = linearised.moving
    return ((points - _floats(linearised.region.centre)) / _floats(linearised.region.radii))[:, moving]


@pytest.mark.parametrize("name", ["mlp-inf", "mlp-2-box"])
def test_margins_hold_whatever_the_dual_variables_are(name: str) -> None:
    network, _, proof = old(name)
    linearised, entry, proven = parts(network, proof)
    row, offset = proof.rows[0], proof.offsets[0]
    values = network.cast(torch.float64)(points_in(proof, 500)) @ torch.tensor(row, dtype=torch.float64)
    draw = random.Random(0)
    assert 0 < float(least_margin(linearised, entry, proven, row, offset)) <= float(values.min())
    for size in (0.0, 1e-3, 0.1, 1.0, 1e3):

        def spoilt(lists: list[list[float]], size: float = size) -> list[list[float]]:
            return [[number + size * draw.gauss(0, 1) for number in part] for part in lists]

        changed = ChainCertificate(
            entry.ball, entry.sectors, entry.weights, entry.rate * draw.uniform(0.1, 10), spoilt(entry.links),
            spoilt(entry.tangent),
        )  # fmt: skip
        assert float(least_margin(linearised, changed, proven, row, offset)) <= float(values.min())


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
    document["radius"] *= 1.01


def _narrow(document: dict[str, Any]) -> None:
    for sector in document["sectors"]:
        sector["width"] = [0.999 * width for width in sector["width"]]


def _moved(document: dict[str, Any]) -> None:
    for sector in document["sectors"]:
        sector["slope"] = [slope + 1e-3 for slope in sector["slope"]]


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
    "radius": (_raised, "too narrow|does not prove"),
    "ball a little smaller": (_scaled("ball", 0.97), "semidefinite"),
    "weights a little larger": (_scaled("weights", 1.03), "semidefinite"),
    "weights far smaller": (_scaled("weights", 0.2), "does not prove"),
    "ball of the wrong sign": (_set("ball", -1.0), "negative"),
    "sector multiplier of the wrong sign": (_set("sectors", -1e-9), "negative"),
    "weight of the wrong sign": (_set("weights", -1e-9), "negative"),
    "no ball": (_scaled("ball", 0.0), "not positive"),
    "no number": (_set("links", math.nan), "no number"),
    "infinite": (_set("tangent", math.inf), "no number"),
    "text": (_set("tangent", "1.0"), "wrong kind"),
    "true": (_set("weights", True), "wrong kind"),
    "rate 0": (_rate(0.0), "rate"),
    "rate below 0": (_rate(-1.0), "rate"),
    "rate too large": (_rate(1e6), "does not prove"),
    "links turned": (_scaled("links", -1.0), "does not prove"),
    "sector too narrow": (_narrow, "too narrow"),
    "sector elsewhere": (_moved, "too narrow"),
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


@pytest.mark.parametrize("name", NETWORKS)
def test_chains_compute_what_their_networks_do(name: str) -> None:
    network = NETWORKS[name]().cast(torch.float64)
    if not is_chain(network):
        with pytest.raises(Rejected, match="no chain"):
            Chain.of(network)
        return
    exact, points = Chain.of(network), centres(network, 3).double().flatten(1)
    outputs = points
    for number, (weight, bias) in enumerate(zip(exact.weights, exact.biases, strict=True)):
        matrix = torch.tensor([[float(fmpq(one, 1 << weight.bits)) for one in row] for row in weight.rows]).double()
        outputs = (outputs if number == 0 else outputs.clamp(min=0)) @ matrix.T + _floats(bias)
    torch.testing.assert_close(outputs, network(points.unflatten(1, network.input_shape)), rtol=1e-9, atol=1e-9)


def test_an_index_map_that_takes_a_coordinate_twice_is_no_chain() -> None:
    """Sums of weights would have to be rounded."""
    linear = Linear(torch.ones(2, 4), torch.zeros(2))
    once, twice = (IndexMap.of(torch.tensor(places), (3,)) for places in ([2, 0, -1, 1], [2, 0, 0, 1]))
    assert is_chain(chain((3,), once, linear))
    assert not is_chain(chain((3,), twice, linear))
