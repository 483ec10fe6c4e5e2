"""Proof files of quadratic certificates about smooth activations: what is written passes, what is spoilt does not."""

import copy
import gzip
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

import relucert
from relucert.checker.certificate_document import CERTIFICATE_FORMAT
from relucert.checker.check import Rejected, check
from relucert.checker.packing import pack, pack_floats, unpack, unpack_floats
from relucert.network import Linear, Network
from tests.nets import chain
from tests.smooth import SMOOTH

IMAGE = torch.randn(1, 6, generator=torch.Generator().manual_seed(1))
CASES = {
    "sigmoid": ("sigmoid", "2", "real"),
    "gelu": ("gelu", "inf", "real"),
    "sigmoid in float32": ("sigmoid", "2", "float32"),
}


def network_of(case: str) -> Network:
    draw, layers = torch.Generator().manual_seed(3), list[Any]()
    for before, after in ((6, 8), (8, 8), (8, 3)):
        weight = 2 * torch.randn(after, before, generator=draw) / before**0.5
        layers += [Linear(weight, torch.randn(after, generator=draw)), SMOOTH[CASES[case][0]]]
    return chain((6,), *layers[:-1])


@cache
def stored(name: str) -> str:
    _, norm, inference = CASES[name]
    options: dict[str, Any] = {"norm": norm, "inference": inference, "tolerance": 0.02, "target": "runner-up"}
    with TemporaryDirectory() as folder:
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


def test_other_breakpoints_are_sound(tmp_path: Path) -> None:
    """Moved by little they cost little; all at one point, they leave two intervals and no proof."""
    document = json.loads(stored("sigmoid"))
    layer = document["layers"][max(document["layers"], key=int)]
    repacked(layer, "breakpoints", lambda numbers: [number + 1e-9 for number in numbers])
    verify(document, tmp_path, "sigmoid")
    repacked(layer, "breakpoints", lambda numbers: [1e6] * len(numbers))
    with pytest.raises(Rejected, match="does not prove"):
        verify(document, tmp_path, "sigmoid")
