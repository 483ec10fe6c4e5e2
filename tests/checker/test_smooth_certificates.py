"""Proof files of quadratic certificates about smooth activations: what is written passes, what is spoilt does not."""

import copy
import gzip
import json
import math
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert.checker.certificate_document import CERTIFICATE_FORMAT
from relucert.checker.check import Rejected, check
from relucert.checker.claim import image_digest
from relucert.checker.packing import pack, pack_floats, unpack, unpack_floats
from relucert.methods.quadratic import solve
from relucert.methods.sdp import QuadraticMethod
from relucert.network import Linear, Network
from relucert.network.fingerprint import fingerprint
from tests.nets import chain
from tests.smooth import SMOOTH

IMAGE = torch.randn(1, 6, generator=torch.Generator().manual_seed(1))
EFFORT = {"STEPS": 20, "STEPS_OWN": 60, "STEPS_AGAIN": 20}  # of the ascents
CASES = {
    "sigmoid": ("sigmoid", "2", "real"),
    "gelu": ("gelu", "inf", "real"),
    "sigmoid in float32": ("sigmoid", "2", "float32"),
    "elu": ("elu", "2", "real"),
    "hard swish": ("hard swish", "2", "real"),
}


def network_of(case: str) -> Network:
    draw, layers = torch.Generator().manual_seed(3), list[Any]()
    width = 5 if case == "hard swish" else 8  # wide, that one takes much effort to gain on CROWN
    for before, after in ((6, width), (width, width), (width, 3)):
        weight = 2 * torch.randn(after, before, generator=draw) / before**0.5
        layers += [Linear(weight, torch.randn(after, generator=draw)), SMOOTH[CASES[case][0]]]
    return chain((6,), *layers[:-1])


@cache
def stored(name: str) -> str:
    _, norm, inference = CASES[name]
    options: dict[str, Any] = {"norm": norm, "inference": inference, "tolerance": 0.02, "target": "runner-up"}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for constant, steps in EFFORT.items():
            patch.setattr(solve, constant, steps)
        patch.setattr(QuadraticMethod, "resolution", 0.05)
        (answer,) = relucert.certify(network_of(name), IMAGE, method="sdp", proofs=folder, **options)
        assert answer.due_to == "sdp"
        (file,) = Path(folder).iterdir()
        assert check(file, network_of(name)).radius == answer.radius
        return gzip.decompress(file.read_bytes()).decode()


def verify(document: dict[str, Any], folder: Path, name: str) -> None:
    file = folder / "proof.json"
    file.write_text(json.dumps(document))
    check(file, network_of(name))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled
def test_what_is_written_passes(name: str, tmp_path: Path) -> None:
    document = json.loads(stored(name))
    assert document["format"] == CERTIFICATE_FORMAT
    verify(document, tmp_path, name)


def repacked(entry: dict[str, Any], key: str, change: Any) -> None:
    entry[key] = pack_floats(change(unpack_floats(entry[key])))


def spoilt(document: dict[str, Any], how: str) -> None:
    layer = document["layers"][min(document["layers"], key=int)]
    if how == "a radius beyond":
        document["radius"] *= 3
    elif how == "a lower offset":
        document["offsets"] = [offset - 100 for offset in document["offsets"]]
    elif how == "a neuron left out":
        layer["neurons"] = pack(unpack(layer["neurons"], 4)[:-1], 4)
    elif how == "no lines":
        for key in ("breakpoints", "below", "above"):
            del layer[key]
    elif how == "breakpoints that fall":
        repacked(layer, "breakpoints", lambda numbers: numbers[::-1])
    elif how == "slopes of errors beside their grid":
        repacked(layer, "slopes", lambda numbers: [number + 1e-9 for number in numbers])
    elif how == "steep lines":
        repacked(layer, "below", lambda numbers: [number + 1e3 for number in numbers])
    elif how == "no rule for hidden bounds":
        del document["slopes"]
    elif how == "small weights of errors":
        for certificate in document["certificates"]:
            for value in certificate["errors"]:
                repacked(certificate["errors"], value, lambda numbers: [number * 1e-3 for number in numbers])


@pytest.mark.parametrize(
    "how",
    [
        "a radius beyond", "a lower offset", "a neuron left out", "no lines", "breakpoints that fall",
        "slopes of errors beside their grid", "steep lines", "no rule for hidden bounds", "small weights of errors",
    ],
)  # fmt: skip
def test_what_is_spoilt_is_rejected(how: str, tmp_path: Path) -> None:
    document = copy.deepcopy(json.loads(stored("sigmoid")))
    spoilt(document, how)
    with pytest.raises(Rejected):
        verify(document, tmp_path, "sigmoid")


@pytest.mark.parametrize("ulps", [-3000000, -1, 0, 2**16])
def test_units_in_the_last_place_are_a_small_positive_number(ulps: int, tmp_path: Path) -> None:
    document = json.loads(stored("sigmoid in float32"))
    document["activation_ulps"] = ulps
    with pytest.raises(Rejected, match="units in the last place"):
        verify(document, tmp_path, "sigmoid in float32")


@pytest.mark.parametrize("exponent", [10.0, 64.5, 66.5, 68.5])
@pytest.mark.parametrize("share", [0.3, 0.85])
def test_references_beside_far_larger_ones_are_no_others(share: float, exponent: float, tmp_path: Path) -> None:
    """An activation of an activation: at the centre itself the row of this file is negative."""
    unit = 2.0**10
    weight = torch.tensor([[0.0, 0.0], [1.0, 0.5], [0.5, -1.0]], dtype=torch.float64)
    bias = torch.tensor([math.log(2) * exponent, math.log(0.9 * unit), 0.0], dtype=torch.float64)
    last = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    output = Linear(last, torch.tensor([share * unit, 0.0], dtype=torch.float64))
    network = chain((2,), Linear(weight, bias), SMOOTH["exp"], SMOOTH["hard swish"], output)
    assert float(network(torch.zeros(1, 2, dtype=torch.float64)) @ torch.tensor([1.0, -1.0]).double()) < 0
    floats, still = pack_floats, pack_floats([0.0] * 3)

    def lines(slopes: list[float]) -> dict[str, str]:
        numbers, packed = pack(np.arange(3), 4), floats(slopes)
        return {"neurons": numbers, "slopes": still, "breakpoints": floats([]), "below": packed, "above": packed}

    steep = [0.0, 0.9 * unit, 1.0]
    certificate = {
        "kind": "joint", "deviations": {"1": still, "2": still}, "errors": {"1": floats([1e-40] * 3)},
        "inputs": floats([1e-20]),
    }  # fmt: skip
    row = {
        "certificate": 0, "factor": 1.0, "inputs": floats([0.0, 0.0]), "errors": {"1": still},
        "links": {"1": floats([0.0, -0.9 * unit, 0.0]), "2": floats([0.0, -1.0, 0.0])},
    }  # fmt: skip
    document = {
        "format": CERTIFICATE_FORMAT, "network": {"name": "n", "sha256": fingerprint(network)},
        "image": {"index": 0, "values": [0.0, 0.0], "sha256": image_digest([0.0, 0.0])}, "rows": [[1.0, -1.0]],
        "offsets": [0.0], "norm": "inf", "box": None, "scale": None, "radius": 1e-9, "inference": "real",
        "scope": "all", "slopes": {"2": [floats(steep)], "3": [floats([1.0] * 3)]},
        "layers": {"1": lines(steep), "2": lines([1.0] * 3)}, "certificates": [certificate], "row_proofs": [row],
    }  # fmt: skip
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(document))
    with pytest.raises(Rejected, match="does not prove"):
        check(file, network)


def test_other_breakpoints_are_sound(tmp_path: Path) -> None:
    """Moved by little they cost little; all at one point, they leave two intervals and no proof."""
    document = json.loads(stored("sigmoid"))
    layer = document["layers"][max(document["layers"], key=int)]
    repacked(layer, "breakpoints", lambda numbers: [number + 1e-9 for number in numbers])
    verify(document, tmp_path, "sigmoid")
    repacked(layer, "breakpoints", lambda numbers: [1e6] * len(numbers))
    with pytest.raises(Rejected, match="does not prove"):
        verify(document, tmp_path, "sigmoid")
