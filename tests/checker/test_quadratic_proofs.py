"""Proofs by quadratic certificates: all of them hold in exact numbers, and changed ones prove nothing."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert.checker.certificate import IntervalCheck
from relucert.checker.certificate_document import CertificateEntry, CertificateProof, RowEntry
from relucert.checker.certificate_feasible import Feasibility
from relucert.checker.certificate_margin import Margin
from relucert.checker.check import check
from relucert.checker.document import Rejected, read
from relucert.checker.linearised_network import CheckedNetwork
from relucert.checker.packing import pack, pack_floats, unpack, unpack_floats
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import by_rule
from relucert.methods.quadratic import solve
from relucert.methods.quadratic.composed import SURPLUSES
from relucert.methods.sdp import QuadraticMethod
from relucert.network import Network
from tests.checker.certificates import EFFORT, as_joint, points_in, proven, write
from tests.checker.test_certificate_proofs import REGIONS
from tests.nets import NETWORKS, centres, mlp

Document = dict[str, Any]
Change = Callable[[Document], None]
GRAPHS = ("residual", "skipping", "normalised", "rectified input", "convolutional", "image residual")


def linearise(network: Network, proof: CertificateProof) -> CheckedNetwork:
    bounded = TreeCheck.of(network, proof, by_rule(proof.rule))
    bounded.margins()
    return CheckedNetwork.of(proof, bounded, IntervalCheck(proof, bounded))


def as_read(document: Document, folder: Path) -> CertificateProof:
    proof = read(write(document, folder))
    assert isinstance(proof, CertificateProof)
    return proof


@pytest.mark.parametrize("kind", ["composed", "layered", "joint"])
@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.sampled
def test_certificates_of_chains_pass(kind: Any, region: str, tmp_path: Path) -> None:
    network = NETWORKS["three layers"]()
    document = proven("three layers", kind, region)
    kinds = {"layered" if entry.get("profiles") else entry["kind"] for entry in document["certificates"]}
    assert kind in kinds
    assert check(write(document, tmp_path), network).radius == document["radius"]
    assert check(write(as_joint(document), tmp_path), network).radius == document["radius"]


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(
    ("kind", "region"), [("composed", "inf"), ("composed", "2 in a box"), ("composed", "1"), ("layered", "2 in a box")]
)
@pytest.mark.sampled
def test_certificates_of_graphs_pass(name: str, kind: Any, region: str, tmp_path: Path) -> None:
    """Weights that are proven layer by layer are proven at once, too."""
    network = NETWORKS[name]()
    document = proven(name, kind, region)
    assert check(write(document, tmp_path), network).radius == document["radius"]
    assert check(write(as_joint(document), tmp_path), network).radius == document["radius"]


@pytest.mark.parametrize("name", ["three layers", *GRAPHS])
@pytest.mark.sampled
def test_networks_as_they_run_pass(name: str, tmp_path: Path) -> None:
    """The noise of float32 leaves less of a margin, and the file of real arithmetic is about another claim."""
    network = NETWORKS[name]()
    document = proven(name, "composed", inference="float32")
    claim = check(write(document, tmp_path), network)
    assert claim.inference == "float32"
    proof = as_read(document, tmp_path)
    real = {**document, "inference": "real"}
    least = {
        inference: _margins(linearise(network, as_read(changed, tmp_path)), proof)
        for inference, changed in (("float32", document), ("real", real))
    }
    assert all(0 < noisy < exact for noisy, exact in zip(least["float32"], least["real"], strict=True))


def _margins(linearised: CheckedNetwork, proof: CertificateProof) -> list[float]:
    """What the certificates prove of all rows."""
    found, feasibility = [], Feasibility(linearised)
    for entry, row, offset in zip(proof.row_proofs, proof.rows, proof.offsets, strict=True):
        assert entry is not None
        certificate = proof.certificates[entry.certificate]
        margin = Margin(linearised, certificate, feasibility.input_weights(certificate), entry)
        found.append(float(margin.least(row, offset)))
    return found


@pytest.mark.parametrize("region", ["inf", "2", "1", "box", "1 in a box, scaled"])
@pytest.mark.sampled
def test_proofs_are_written_and_pass(region: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, steps in EFFORT.items():
        monkeypatch.setattr(solve, name, steps)
    monkeypatch.setattr(QuadraticMethod, "resolution", 0.03)
    network = mlp(6, 8, 8, 8, 8, 4, seed=2)
    images = centres(network, 2)[1:].float().double().clamp(-1.5, 1.25)
    answers = relucert.certify(network, images, method="sdp", proofs=tmp_path, **REGIONS[region])
    paths, by_certificates = sorted(tmp_path.iterdir()), 0
    assert len(paths) == len([answer for answer in answers if answer.radius is not None]) > 0
    for path in paths:
        claim = check(path, network)
        answer = answers[claim.index]
        assert claim.radius == answer.radius
        assert isinstance(read(path), CertificateProof) == (answer.due_to == "sdp")
        by_certificates += answer.due_to == "sdp"
    assert by_certificates


@pytest.mark.parametrize("region", ["inf", "2 in a box", "1"])
@pytest.mark.parametrize("name", ["three layers", "residual", "image residual"])
def test_margins_hold_whatever_the_dual_variables_are(name: str, region: str, tmp_path: Path) -> None:
    _hold(name, region, tmp_path)


@pytest.mark.parametrize("region", ["scale", "1 in a box, scaled"])
def test_margins_hold_in_scaled_regions(region: str, tmp_path: Path) -> None:
    _hold("residual", region, tmp_path)


def _hold(name: str, region: str, folder: Path) -> None:
    """Asserts that no point of the region has less than any dual variables prove."""
    network = NETWORKS[name]()
    document = proven(name, "composed", region)
    proof = as_read(document, folder)
    linearised, draw = linearise(network, proof), random.Random(0)
    feasibility = Feasibility(linearised)
    outputs = network.cast(torch.float64)(points_in(document, 400).unflatten(1, network.input_shape))
    for entry, row, offset in zip(proof.row_proofs, proof.rows, proof.offsets, strict=True):
        assert entry is not None
        certificate = proof.certificates[entry.certificate]
        inputs = feasibility.input_weights(certificate)
        least = float((outputs @ torch.tensor(row, dtype=torch.float64)).min()) + offset
        assert 0 < float(Margin(linearised, certificate, inputs, entry).least(row, offset)) <= least
        for size in (1e-3, 0.1, 1.0, 1e3):

            def spoilt(numbers: list[float], size: float = size) -> list[float]:
                return [number + size * draw.gauss(0, 1) for number in numbers]

            changed = RowEntry(
                entry.certificate, entry.factor * draw.uniform(0.1, 10),
                {value: spoilt(part) for value, part in entry.links.items()}, spoilt(entry.inputs),
                {value: spoilt(part) for value, part in entry.errors.items()},
            )  # fmt: skip
            assert float(Margin(linearised, certificate, inputs, changed).least(row, offset)) <= least


@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional", "image residual"])
def test_no_point_violates_a_feasible_certificate(name: str, tmp_path: Path) -> None:
    """The weighted squares of deviations are at most those of inputs and errors, for the network's own deviations."""
    network = NETWORKS[name]()
    document = proven(name, "composed")
    proof = as_read(document, tmp_path)
    linearised = linearise(network, proof)
    exact, points = network.cast(torch.float64), points_in(document, 400)
    centre = torch.tensor(document["image"]["values"], dtype=torch.float64)
    images = torch.cat([points, centre[None]]).unflatten(1, network.input_shape)
    values = [value.flatten(1) for value in exact.values(images)]
    for certificate in proof.certificates:
        Feasibility(linearised).check(certificate)
        squares = ((points - centre) / document["radius"]).square()
        right = (squares * torch.tensor(certificate.inputs, dtype=torch.float64)).sum(1)
        left = torch.zeros_like(right)
        for value, neurons in linearised.neurons.items():
            moved = (values[value] - values[value][-1])[:-1, neurons.index]
            left += moved.square() @ torch.tensor(certificate.deviations[value], dtype=torch.float64)
            if neurons.followed:
                outputs = values[value].clamp(min=0)
                slopes = torch.tensor([float(slope) for slope in neurons.slope], dtype=torch.float64)
                errors = (outputs - outputs[-1])[:-1, neurons.index] - slopes * moved
                right += errors.square() @ torch.tensor(certificate.errors[value], dtype=torch.float64)
        assert bool((left <= right + 1e-9).all())
        assert float((left / right.clamp(min=1e-9)).max()) > 0.02  # it says something


def deviations(network: Network, linearised: CheckedNetwork, vectors: torch.Tensor) -> torch.Tensor:
    """`A v` in float64, (batch, open neurons), of vectors of inputs y and errors e, layer by layer."""
    exact, sizes = network.cast(torch.float64), [network.sizes[0]]
    followed = [value for value, neurons in linearised.neurons.items() if neurons.followed]
    inputs, *errors = vectors.split(sizes + [len(linearised.neurons[value]) for value in followed], 1)
    by_layer = dict(zip(followed, errors, strict=True))
    moved = {0: inputs * torch.tensor([float(radius) for radius in linearised.region.radii], dtype=torch.float64)}
    for value, node in exact.steps():
        source = node.inputs[0]
        if node.operation.name == "relu":
            moved[value] = moved[source] * linearised.slopes[source].units.double() * 2.0**-20
            if source in by_layer:
                moved[value][:, linearised.neurons[source].index] += by_layer[source]
        else:
            parts = [moved[source].unflatten(1, network.shapes[source]) for source in node.inputs]
            moved[value] = exact.affine(value).linear(*parts).flatten(1)
    return torch.cat([moved[value][:, neurons.index] for value, neurons in linearised.neurons.items()], 1)


@pytest.mark.parametrize("name", ["three layers", *GRAPHS])
def test_weights_are_feasible_up_to_the_largest_eigenvalue(name: str, tmp_path: Path) -> None:
    """Weights whose largest eigenvalue is a millionth below 1 pass as joint ones, those a millionth above not."""
    network = NETWORKS[name]()
    document = as_joint(proven(name, "composed"))
    proof = as_read(document, tmp_path)
    linearised, chance = linearise(network, proof), torch.Generator().manual_seed(0)
    count = network.sizes[0] + sum(len(neurons) for neurons in linearised.neurons.values() if neurons.followed)
    matrix = deviations(network, linearised, torch.eye(count, dtype=torch.float64)).T
    for _ in range(3):
        outer, inner = (torch.exp(torch.randn(size, generator=chance)).double() for size in matrix.shape)
        top = float(torch.linalg.matrix_norm(outer.sqrt()[:, None] * matrix / inner.sqrt(), 2)) ** 2
        for excess, passes in ((-1e-6, True), (1e-6, False)):
            weights = (outer * (1 + excess) / top).split([len(neurons) for neurons in linearised.neurons.values()])
            followed = [value for value, neurons in linearised.neurons.items() if neurons.followed]
            first, *rest = inner.split([network.sizes[0], *(len(linearised.neurons[value]) for value in followed)])
            entry = CertificateEntry(
                {value: part.tolist() for value, part in zip(linearised.neurons, weights, strict=True)},
                {value: part.tolist() for value, part in zip(followed, rest, strict=True)}, first.tolist(), None,
            )  # fmt: skip
            if passes:
                Feasibility(linearised).check(entry)
            else:
                with pytest.raises(Rejected, match="not proven to be feasible"):
                    Feasibility(linearised).check(entry)


def _scaled(place: str, factor: float) -> Change:
    """All numbers of one entry of the certificates, or of the proofs of rows, times a factor."""

    def change(document: Document) -> None:
        for entry in document["certificates" if place in ("deviations", "errors", "inputs") else "row_proofs"]:
            entry[place] = _times(entry[place], factor)

    return change


def _times(entry: Any, factor: float) -> Any:
    if isinstance(entry, dict):
        return {value: _times(part, factor) for value, part in entry.items()}
    return entry * factor if isinstance(entry, float) else pack_floats([factor * one for one in unpack_floats(entry)])


def _norm(factor: float, last: bool = True) -> Change:
    """The squared norms of the last layer that has open neurons, or of the first, times a factor."""

    def change(document: Document) -> None:
        norms = document["certificates"][0]["norms"]
        layers = [row[0] for row in norms if document["layers"][str(row[0])]["neurons"]]
        value = max(layers) if last else min(layers)
        for row in norms:
            row[2] *= factor if row[0] == value else 1

    return change


def _number(place: str, number: float) -> Change:
    """The first number of an entry of the first certificate, or of the first row's proof."""

    def change(document: Document) -> None:
        entry = document["certificates" if place in ("deviations", "inputs") else "row_proofs"][0][place]
        if isinstance(entry, dict):
            value = next(value for value, part in entry.items() if part)
            entry[value] = pack_floats([number, *unpack_floats(entry[value])[1:]])
        else:
            document["certificates"][0][place] = pack_floats([number, *unpack_floats(entry)[1:]])

    return change


def _set(place: str, key: str, number: object) -> Change:
    def change(document: Document) -> None:
        document[place][0][key] = number

    return change


def _radius(document: Document) -> None:
    document["radius"] *= 1.5


def _left_out(document: Document) -> None:
    """An open neuron of the first layer, and all that is said about it."""
    value = next(value for value, entry in document["layers"].items() if entry["neurons"])
    layer = document["layers"][value]
    layer["neurons"], layer["slopes"] = (
        pack(unpack(layer["neurons"], 4)[1:], 4),
        pack(unpack(layer["slopes"], 3)[1:], 3),
    )
    for entry in (*document["certificates"], *document["row_proofs"]):
        for part in entry.values():
            if isinstance(part, dict) and value in part:
                part[value] = pack_floats(unpack_floats(part[value])[1:])


def _slopes(change_of: Callable[[np.ndarray[Any, Any]], Any]) -> Change:
    def change(document: Document) -> None:
        for layer in document["layers"].values():
            layer["slopes"] = pack(change_of(unpack(layer["slopes"], 3)), 3)

    return change


def _backwards(document: Document) -> None:
    layer = next(entry for entry in document["layers"].values() if len(entry["neurons"]) > 8)
    layer["neurons"] = pack(unpack(layer["neurons"], 4)[::-1], 4)


def _another_neuron(document: Document) -> None:
    layer = document["layers"]["1"]
    layer["neurons"] = pack(np.append(unpack(layer["neurons"], 4)[:-1], 10**6), 4)


def _shares(document: Document) -> None:
    for row in document["certificates"][0]["norms"]:
        row[3] *= 1.0001


def _norm_twice(document: Document) -> None:
    document["certificates"][0]["norms"].append(document["certificates"][0]["norms"][0])


def _norm_missing(document: Document) -> None:
    document["certificates"][0]["norms"].pop()


def _without(place: str, key: str | None = None) -> Change:
    def change(document: Document) -> None:
        del (document if key is None else document[place][0])[key or place]

    return change


def _shorter(place: str, key: str) -> Change:
    def change(document: Document) -> None:
        entry = document[place][0][key]
        if isinstance(entry, dict):
            value = next(value for value, part in entry.items() if part)
            entry[value] = pack_floats(unpack_floats(entry[value])[1:])
        else:
            document[place][0][key] = pack_floats(unpack_floats(entry)[1:])

    return change


def _rows_swapped(document: Document) -> None:
    document["row_proofs"] = document["row_proofs"][1:] + document["row_proofs"][:1]


def _no_row_proof(document: Document) -> None:
    document["row_proofs"].pop()


def _by_lines(document: Document) -> None:
    document["row_proofs"], document["certificates"] = [None] * len(document["rows"]), []


def _turned(document: Document) -> None:
    document["rows"] = [[-number for number in row] for row in document["rows"]]


def _unused(document: Document) -> None:
    document["certificates"].append(document["certificates"][0])


CHANGES: dict[str, tuple[Change, str]] = {
    "radius": (_radius, "not proven|does not prove"),
    "norm 0.1 % too small": (_norm(0.999 / SURPLUSES[0]), "norm of the map .* not proven"),
    "first norm 1 % too small": (_norm(0.99 / SURPLUSES[0], last=False), "norm of the map .* not proven"),
    "norm larger than inputs pay for": (_norm(1.001, last=False), "weights of inputs"),
    "P 1 % larger": (_scaled("deviations", 1.01), "not proven"),
    "D smaller": (_scaled("errors", 0.3), "less than the norms ask for|does not prove"),
    "D of inputs smaller": (_scaled("inputs", 1 - 1e-6), "weights of inputs"),
    "P negative": (_number("deviations", -1e-300), "negative"),
    "D of inputs negative": (_number("inputs", -1.0), "negative"),
    "P no number": (_number("deviations", math.nan), "a number is none"),
    "link no number": (_number("links", math.nan), "a number is none"),
    "link infinite": (_number("links", math.inf), "a number is none"),
    "links turned": (_scaled("links", -1.0), "does not prove"),
    "links doubled": (_scaled("links", 2.0), "does not prove"),
    "factor 0": (_set("row_proofs", "factor", 0.0), "factor"),
    "factor negative": (_set("row_proofs", "factor", -1.0), "factor"),
    "factor far too large": (_scaled("factor", 1e4), "does not prove"),
    "factor true": (_set("row_proofs", "factor", True), "wrong kind"),
    "unknown certificate": (_set("row_proofs", "certificate", 7), "certificates"),
    "unused certificate": (_unused, "certificates"),
    "unknown kind": (_set("certificates", "kind", "other"), "neither composed nor joint"),
    "neuron left out": (_left_out, "leaves out neuron"),
    "neurons backwards": (_backwards, "ascending"),
    "neuron that there is not": (_another_neuron, "does not have"),
    "slopes 1": (_slopes(lambda slopes: np.full_like(slopes, 1 << 20)), "not proven|ask for|does not prove"),
    "slopes above 1": (_slopes(lambda slopes: slopes + (1 << 20) + 1), "above 1"),
    "shares above 1": (_shares, "exceed 1"),
    "norm twice": (_norm_twice, "twice"),
    "norm missing": (_norm_missing, "one norm for each"),
    "norm negative": (_norm(-1.0), "not positive"),
    "rows' proofs swapped": (_rows_swapped, "does not prove"),
    "a row without proof": (_no_row_proof, "one proof for each row"),
    "by lines alone": (_by_lines, "CROWN"),
    "label": (_turned, "does not prove"),
    **{
        f"without {name}": (_without(name), "entries")
        for name in ("inference", "scope", "layers", "certificates", "row_proofs")
    },
    **{f"row without {name}": (_without("row_proofs", name), "entries") for name in ("factor", "links", "errors")},
    **{f"without {name}": (_without("certificates", name), "entries") for name in ("deviations", "errors", "norms")},
    **{f"{name} too short": (_shorter("certificates", name), "each") for name in ("deviations", "errors", "inputs")},
    **{f"{name} of a row too short": (_shorter("row_proofs", name), "each") for name in ("links", "errors", "inputs")},
}


@pytest.fixture(scope="module")
def original() -> tuple[Network, Document]:
    """A composed proof in a region that CROWN's lines do not prove."""
    return NETWORKS["five layers"](), proven("five layers", "composed")


@pytest.mark.parametrize("name", CHANGES)
def test_changed_proofs_are_refused(name: str, original: tuple[Network, Document], tmp_path: Path) -> None:
    network, document = original
    change, reason = CHANGES[name]
    changed = json.loads(json.dumps(document))
    change(changed)
    with pytest.raises(Rejected, match=reason):
        check(write(changed, tmp_path), network)


def _profiles(change_of: Callable[[Any], Any]) -> Change:
    """All profiles of the first certificate that has some."""

    def change(document: Document) -> None:
        entry = next(entry for entry in document["certificates"] if entry.get("profiles"))
        for source, part in entry["profiles"].items():
            entry["profiles"][source] = pack_floats(change_of(np.array(unpack_floats(part))))

    return change


def _renamed_profile(document: Document) -> None:
    for entry in document["certificates"]:
        entry["profiles"] = {str(int(source) + 1): part for source, part in entry["profiles"].items()}


def _profiles_of_joint(document: Document) -> None:
    for entry in document["certificates"]:
        entry["kind"] = "joint"
        del entry["norms"]


LAYERED_CHANGES: dict[str, tuple[Change, str]] = {
    "profiles smaller": (_profiles(lambda part: 0.99 * part), "norm of the map .* not proven"),
    "profiles larger": (_profiles(lambda part: 1.01 * part), "not proven|ask for"),
    "profiles 1": (_profiles(np.ones_like), "not proven|ask for"),
    "profiles 0": (_profiles(np.zeros_like), "not positive"),
    "profiles negative": (_profiles(lambda part: -part), "not positive"),
    "profiles no numbers": (_profiles(lambda part: math.nan * part), "a number is none"),
    "profiles too short": (_profiles(lambda part: part[1:]), "one number for each neuron of a source"),
    "profiles of other sources": (_renamed_profile, "one number for each neuron of a source"),
    "profiles of a joint certificate": (_profiles_of_joint, "other entries"),
}


@pytest.mark.parametrize("name", LAYERED_CHANGES)
def test_changed_layered_proofs_are_refused(name: str, tmp_path: Path) -> None:
    network, document = NETWORKS["five layers"](), proven("five layers", "layered")
    check(write(document, tmp_path), network)
    change, reason = LAYERED_CHANGES[name]
    change(document)
    with pytest.raises(Rejected, match=reason):
        check(write(document, tmp_path), network)


@pytest.mark.parametrize("name", ["five layers", "residual", "convolutional", "image residual"])
def test_norms_are_proven_to_little(name: str, tmp_path: Path) -> None:
    """0.1 % below their true values they are refused, 0.1 % above them they pass."""
    network = NETWORKS[name]()
    document = proven(name, "composed")
    for factor, passes in ((0.999, False), (1.001, True)):
        changed = json.loads(json.dumps(document))
        _norm(factor / SURPLUSES[0])(changed)
        if passes:
            assert check(write(changed, tmp_path), network).radius == document["radius"]
        else:
            with pytest.raises(Rejected, match=r"norm of the map .* not proven"):
                check(write(changed, tmp_path), network)


JOINT: dict[str, tuple[Change, str]] = {
    "P 1 % larger": (_scaled("deviations", 1.01), "not proven to be feasible"),
    "D of errors smaller": (_scaled("errors", 0.9), "not proven to be feasible"),
    "D of inputs 3 % smaller": (_scaled("inputs", 0.97), "not proven to be feasible"),
    "no D of inputs": (_scaled("inputs", 0.0), "not positive"),
    "slopes 1": (_slopes(lambda slopes: np.full_like(slopes, 1 << 20)), "not proven|does not prove"),
    "links turned": (_scaled("links", -1.0), "does not prove"),
    "radius": (_radius, "not proven|does not prove"),
}


@pytest.fixture(scope="module")
def joint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, Document]:
    """A proof, which passes, of the rows that have certificates with weights of their own."""
    network = NETWORKS["three layers"]()
    document = proven("three layers", "joint")
    kept = [
        row for row, entry in enumerate(document["row_proofs"])
        if document["certificates"][entry["certificate"]]["kind"] == "joint"
    ]  # fmt: skip
    for name in ("rows", "offsets", "row_proofs"):
        document[name] = [document[name][row] for row in kept]
    document["certificates"] = [document["certificates"][entry["certificate"]] for entry in document["row_proofs"]]
    for number, entry in enumerate(document["row_proofs"]):
        entry["certificate"] = number
    assert check(write(document, tmp_path_factory.mktemp("joint")), network).radius == document["radius"]
    return network, document


@pytest.mark.parametrize("name", JOINT)
def test_changed_joint_proofs_are_refused(name: str, joint: tuple[Network, Document], tmp_path: Path) -> None:
    network, document = joint
    changed = json.loads(json.dumps(document))
    JOINT[name][0](changed)
    with pytest.raises(Rejected, match=JOINT[name][1]):
        check(write(changed, tmp_path), network)


def test_a_wide_network_s_proof_passes(tmp_path: Path) -> None:
    """Of the bundled network, with every rival at once."""
    images = relucert.data.bundled().first(1)
    answers = relucert.certify("mnist-2x20", images.images, images.labels, method="sdp", proofs=tmp_path)
    (path,) = tmp_path.iterdir()
    assert check(path).radius == answers[0].radius
