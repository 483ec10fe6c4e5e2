"""Proofs about networks with smooth activations: those that methods write pass, altered ones claim nothing false."""

import contextlib
import copy
import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import relucert
from relucert.checker.check import Claim, Rejected, check, check_property
from relucert.checker.packing import pack, pack_floats, unpack, unpack_floats
from relucert.common.names import InferenceName, MethodName
from relucert.errors import InputError
from relucert.network import Network, Sigmoid, Tanh
from relucert.network.fingerprint import fingerprint
from tests.inputs.loading.image_models import Function
from tests.smooth import SMOOTH, smooth_network

RULES: tuple[MethodName, ...] = ("interval", "fast-lin", "crown")
NORMS = ("inf", "2", "1")
IMAGE = 0.3 * torch.randn(1, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def proven(network: Network, images: torch.Tensor, folder: Path, **options: Any) -> tuple[float, dict[str, Any]]:
    """The radius of the only image and the document that proves it."""
    chosen = {"tolerance": 0.01, **options}
    (answer,) = relucert.certify(network, images, proofs=folder, **chosen)
    assert answer.radius
    (file,) = sorted(folder.iterdir())
    claim = check(file, network)
    assert claim.radius == answer.radius or (math.isinf(answer.radius) and claim.radius > 0)
    return claim.radius, json.loads(gzip.decompress(file.read_bytes()))


def verify(document: dict[str, Any], path: Path, network: Network) -> Claim:
    file = path / "mutated.json"
    file.write_text(json.dumps(document))
    return check(file, network)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.sampled
def test_what_rules_prove_passes(name: str, tmp_path: Path) -> None:
    """Every rule in one norm, and in the others for other activations; with a box for every other activation.

    Where an attack succeeds, nothing does.
    """
    network, number = smooth_network(activation=SMOOTH[name]), list(SMOOTH).index(name)
    for place, method in enumerate(RULES):
        norm, box = NORMS[(place + number) % len(NORMS)], (-1, 1) if (place + number) % 2 else None
        folder = tmp_path / method
        _, document = proven(network, IMAGE, folder, method=method, norm=norm, box=box)
        (rule,) = document["relaxation"]["rules"]
        assert ("slopes" in rule) == (method != "interval")
    distance = relucert.attack(network, IMAGE, norm=norm, box=box, steps=20)[0].distance
    if distance is not None:
        with pytest.raises(Rejected):
            verify({**document, "radius": 1.01 * distance}, tmp_path, network)


NETWORKS: dict[str, nn.Module] = {
    "mixed": nn.Sequential(
        nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
    ),
    "product": nn.Sequential(nn.Linear(5, 6), Function(lambda x: x[:, :3] * torch.tanh(x[:, 3:])), nn.Linear(3, 3)),
    "layer norm": nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 3)),
    "softmax": nn.Sequential(
        nn.Linear(5, 4), Function(lambda x: x.exp() / x.exp().sum(1, keepdim=True)), nn.Linear(4, 3)
    ),
    "two of one value": nn.Sequential(
        nn.Linear(5, 6), Function(lambda x: torch.tanh(x) + torch.relu(x) + torch.sigmoid(2 * x)), nn.Linear(6, 3)
    ),
    "images": nn.Sequential(
        nn.Unflatten(1, (1, 6, 6)), nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(3, 4, 2), nn.Tanh(),
        nn.Flatten(), nn.Linear(16, 3),
    ),
}  # fmt: skip


def drawn(name: str) -> tuple[Network, torch.Tensor]:
    """A network of random numbers, and an image."""
    draw, module = torch.Generator().manual_seed(3), copy.deepcopy(NETWORKS[name])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) / max(1, parameter[0].numel()) ** 0.5)
    inputs = 36 if name == "images" else 5
    image = 0.3 * torch.randn(1, inputs, generator=draw)
    return relucert.load(module, input_shape=(inputs,)), image


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled
def test_what_rules_prove_of_compositions_passes(name: str, tmp_path: Path) -> None:
    network, image = drawn(name)
    for place, method in enumerate(RULES):
        proven(network, image, tmp_path / method, method=method, norm=NORMS[place])


@pytest.mark.parametrize("name", ["silu", "elu with a kink above", "square", "sine"])
@pytest.mark.sampled
def test_what_optimised_slopes_prove_passes(name: str, tmp_path: Path) -> None:
    network, number = smooth_network(activation=SMOOTH[name]), list(SMOOTH).index(name)
    proven(network, IMAGE, tmp_path, method="alpha", norm=NORMS[number % 3], box=(-1, 1) if number % 2 else None)


@pytest.fixture(scope="module")
def optimised(tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, torch.Tensor, dict[str, Any]]:
    """A proof by optimised slopes about a network of ReLUs and a sigmoid."""
    network, image = drawn("mixed")
    _, document = proven(network, image, tmp_path_factory.mktemp("alpha"), method="alpha", norm="2")
    assert document["relaxation"]["ranges"]
    return network, image, document


def test_any_shares_are_sound(optimised: tuple[Network, torch.Tensor, dict[str, Any]], tmp_path: Path) -> None:
    """Altered slopes of single rows and neurons, and altered ranges, never prove what an attack refutes."""
    network, image, document = optimised
    distance = relucert.attack(network, image, norm="2", steps=40)[0].distance
    assert distance is not None
    draw, accepted = random.Random(1), 0
    for trial in range(24):
        mutated = copy.deepcopy(document)
        relaxation = mutated["relaxation"]
        if trial % 2:
            (value,) = relaxation["ranges"]
            sides = [unpack_floats(side) for side in relaxation["ranges"][value]]
            sides[draw.randrange(2)][draw.randrange(len(sides[0]))] += draw.gauss(0, 1)
            relaxation["ranges"][value] = [pack_floats(side) for side in sides]
        else:
            trees = draw.choice([relaxation["rows"], *relaxation["hidden"].values()])
            shares = unpack(trees["slopes"], 3)
            shares[draw.randrange(len(shares))] = draw.randrange(2**20)
            trees["slopes"] = pack(shares, 3)
        mutated["radius"] = draw.choice([0.5, 0.9, 1.0, 1.2]) * document["radius"]
        with contextlib.suppress(Rejected):
            assert verify(mutated, tmp_path, network).radius < distance
            accepted += 1
    assert accepted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda relaxation: relaxation.pop("ranges"), "no ranges"),
        (lambda relaxation: relaxation["ranges"].update({"2": relaxation["ranges"]["4"]}), "no ranges"),
        (lambda relaxation: relaxation["ranges"].update({"4": [pack_floats([0.5])] * 2}), "another number"),
        (lambda relaxation: relaxation["ranges"].update({"4": [pack_floats([math.nan] * 8)] * 2}), "no number"),
        (lambda relaxation: relaxation["ranges"].update({"4": [pack_floats([0.5] * 8)]}), "wrong kind"),
        (lambda relaxation: relaxation["rules"][1]["slopes"].pop("4"), "no slopes"),
        (lambda relaxation: relaxation["neurons"].update({"3": pack(np.arange(7), 4)}), "slope"),
    ],
)
def test_shares_that_are_none_are_refused(
    change: Any, message: str, optimised: tuple[Network, torch.Tensor, dict[str, Any]], tmp_path: Path
) -> None:
    network, _, document = optimised
    mutated = copy.deepcopy(document)
    change(mutated["relaxation"])
    with pytest.raises(Rejected, match=message):
        verify(mutated, tmp_path, network)


def test_two_activations_of_a_value_have_no_proof_by_optimised_slopes(tmp_path: Path) -> None:
    network, image = drawn("two of one value")
    with pytest.raises(InputError, match="needs one activation of a value"):
        relucert.certify(network, image, method="alpha", proofs=tmp_path)


def test_a_proof_is_about_one_activation(tmp_path: Path) -> None:
    """The same weights with another function are another network."""
    sigmoid, tanh = (smooth_network(activation=activation) for activation in (Sigmoid(), Tanh()))
    _, document = proven(sigmoid, IMAGE, tmp_path / "proofs", method="crown", box=(-1, 1))
    with pytest.raises(Rejected, match="another network"):
        verify(document, tmp_path, tanh)
    document["network"]["sha256"] = fingerprint(tanh)
    distance = relucert.attack(tanh, IMAGE, box=(-1, 1), steps=20)[0].distance
    with contextlib.suppress(Rejected):
        assert distance is None or verify(document, tmp_path, tanh).radius < distance


def crown_document(tmp_path: Path) -> tuple[Network, dict[str, Any]]:
    network = smooth_network(activation=SMOOTH["silu"])
    _, document = proven(network, IMAGE, tmp_path / "proofs", method="crown", norm="2")
    return network, document


def test_any_slopes_are_sound(tmp_path: Path) -> None:
    """Altered slopes prove less, of a smaller region or nothing, and never of one in which an attack succeeds."""
    network, document = crown_document(tmp_path)
    distance = relucert.attack(network, IMAGE, norm="2", steps=40)[0].distance
    assert distance is not None
    draw, accepted = random.Random(0), 0
    tables = document["relaxation"]["rules"][0]["slopes"]
    for _ in range(30):
        mutated = copy.deepcopy(document)
        value, side = draw.choice(list(tables)), draw.randrange(2)
        slopes = unpack_floats(tables[value][side])
        for _ in range(draw.randrange(1, 4)):
            slopes[draw.randrange(len(slopes))] += draw.gauss(0, 1) * 10.0 ** draw.uniform(-4, 2)
        mutated["relaxation"]["rules"][0]["slopes"][value][side] = pack_floats(slopes)
        mutated["radius"] = draw.choice([0.3, 0.8, 1.0, 1.0 + 1e-3, 1.5]) * document["radius"]
        try:
            assert verify(mutated, tmp_path, network).radius < distance
            accepted += 1
        except Rejected:
            pass
    assert accepted
    with pytest.raises(Rejected, match="not proven"):
        verify({**document, "radius": 1.02 * distance}, tmp_path, network)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda slopes: slopes.pop("2"), "no slopes of the activation at value 2"),
        (lambda slopes: slopes.update({"1": slopes["2"]}), "that need none"),
        (lambda slopes: slopes.update({"2": [pack_floats([0.5])] * 2}), "another number of neurons"),
        (lambda slopes: slopes.update({"2": [pack_floats([math.nan] * 8)] * 2}), "no number"),
        (lambda slopes: slopes.update({"2": [pack_floats([math.inf] * 8)]}), "no number"),
        (lambda slopes: slopes.update({"2": []}), "neither one nor two"),
        (lambda slopes: slopes.update({"2": [[0.5] * 8]}), "wrong kind"),
        (lambda slopes: slopes.update({"2": [pack_floats([1e300] * 8)]}), "not proven|too large|no numbers"),
    ],
)  # fmt: skip
def test_slopes_that_are_none_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    network, document = crown_document(tmp_path)
    change(document["relaxation"]["rules"][0]["slopes"])
    with pytest.raises(Rejected, match=message):
        verify(document, tmp_path, network)


def test_offsets_and_rows_count(tmp_path: Path) -> None:
    """A margin that is lowered by more than the proof has to spare is not proven."""
    network, document = crown_document(tmp_path)
    with pytest.raises(Rejected, match="not proven"):
        verify({**document, "offsets": [-1.0] * len(document["offsets"])}, tmp_path, network)


def test_a_domain_that_is_left_is_no_proof(tmp_path: Path) -> None:
    network = smooth_network(activation=SMOOTH["logarithm"])
    radius, document = proven(network, IMAGE, tmp_path / "proofs", method="crown")
    document["offsets"] = [1e6] * len(document["offsets"])
    assert verify(document, tmp_path, network).radius == radius
    with pytest.raises(Rejected, match="domain of log"):
        verify({**document, "radius": 100.0}, tmp_path, network)


@pytest.mark.parametrize("method", ["lp", "lp-full"])
def test_methods_for_relu_refuse_by_name(method: MethodName, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tanh"):
        relucert.certify(smooth_network(activation=Tanh()), IMAGE, method=method, proofs=tmp_path)


@pytest.mark.parametrize("inference", ["real", "float32"])
def test_verdicts_have_proofs_by_lines(inference: InferenceName, tmp_path: Path) -> None:
    """A radius that lines prove has one; for one that only a search decides there is none, and so no verdict."""
    network, path = smooth_network(activation=SMOOTH["silu"]), tmp_path / "proof.json.gz"
    image = IMAGE.float()
    crown, alpha = (
        relucert.certify(network, image, method=method, norm="2", inference=inference, tolerance=0.01)[0].radius
        for method in ("crown", "alpha")
    )
    assert crown is not None
    assert alpha is not None
    for radius in (0.9 * crown, 0.95 * alpha):
        (verdict,) = relucert.robust_at(
            network, image, radius=radius, norm="2", inference=inference, proof=path, overwrite=True
        )
        assert verdict.holds
        claim = check(path, network)
        assert (claim.radius, claim.inference) == (radius, inference)
    path.unlink()
    (verdict,) = relucert.robust_at(
        network, image, radius=1.1 * alpha, norm="2", inference=inference, proof=path, time_limit=20
    )
    assert not verdict.holds
    assert not path.exists()


def test_properties_have_proofs_by_lines(tmp_path: Path) -> None:
    """Two violations on one box; a larger box, in which one is met, has no proof."""
    network, path = smooth_network(activation=SMOOTH["silu"]), tmp_path / "proof.json"
    scores = network(IMAGE.float())[0].double()
    label = int(scores.argmax())
    margins = [
        ([[float(one == label) - float(one == rival) for one in range(3)]], [0.0])
        for rival in range(3)
        if rival != label
    ]
    for radius, expected in ((0.01, True), (30.0, False)):
        low, high = ((IMAGE[0] + sign * radius).tolist() for sign in (-1, 1))
        query = relucert.Query.within(low, high, margins)
        verdict = relucert.verify(network, query, proof=path, overwrite=True, time_limit=20)
        assert verdict.holds == expected
        assert path.exists() == expected
        if expected:
            assert check_property(path, network).cases == len(query.violations)
            document = json.loads(path.read_text())
            for part in document["parts"]:
                part["relaxation"]["rules"][0].pop("slopes")
            path.write_text(json.dumps(document))
            with pytest.raises(Rejected, match="no slopes"):
                check_property(path, network)
            path.unlink()
