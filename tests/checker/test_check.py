"""Proofs pass their check; mutated ones are rejected, or were mutated into something that is still true."""

import copy
import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert.checker.check import Claim, Rejected, check
from relucert.checker.claim import image_digest
from relucert.checker.document import FORMAT
from relucert.checker.packing import pack
from relucert.errors import InputError, LoadError, UnsupportedError
from relucert.network import Add, Layer, Linear, Network, Node, Relu
from tests.checker.forests import (
    Leaf,
    Split,
    grown,
    written,
)
from tests.checker.mutations import MUTATIONS, Mutation
from tests.nets import NETWORKS, centres, mlp, tiny_image

BOX = (-1.5, 1.5)
NETWORK = mlp(5, 8, 6, 4, seed=5)
IMAGES = tiny_image(seed=5)


def prove(network: Network, path: Path, **options: Any) -> relucert.Exact:
    image = centres(network, 1).clamp(*BOX)
    chosen: dict[str, Any] = {"box": BOX, "time_limit": 10, **options}
    (answer,) = relucert.exact(network, image, **chosen, proof=path)
    return answer


def proof_of(network: Network, path: Path) -> dict[str, Any]:
    """A proof with splits, multipliers and several rivals."""
    assert prove(network, path / "proof.json", time_limit=120).closed
    document: dict[str, Any] = json.loads((path / "proof.json").read_text())
    assert any(isinstance(tree, Split) for tree in grown(document["relaxation"]["rows"]))
    return document


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return proof_of(NETWORK, tmp_path_factory.mktemp("proof"))


@pytest.fixture(scope="module")
def proof_about_images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One that passes."""
    folder = tmp_path_factory.mktemp("proof")
    document = proof_of(IMAGES, folder)
    assert verify(document, folder, IMAGES).radius == document["radius"]
    return document


def verify(document: dict[str, Any], path: Path, network: Network = NETWORK) -> Claim:
    file = path / "mutated.json"
    file.write_text(json.dumps(document))
    return check(file, network)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("box", [BOX, None])
@pytest.mark.parametrize("name", ["three layers", "residual", "normalised", "tiny image"])
@pytest.mark.sampled
def test_what_the_search_proves_passes(name: str, norm: str, box: tuple[float, float] | None, tmp_path: Path) -> None:
    network = IMAGES if name == "tiny image" else NETWORKS[name]()
    path = tmp_path / "proof.json.gz"
    answer = prove(network, path, norm=norm, box=box, target="runner-up", tolerance=0.02)
    if not path.exists():
        assert not answer.lower
        return
    claim = check(path, network)
    assert claim.norm == float(norm)
    assert claim.box == (None if box is None else tuple([end] * network.sizes[0] for end in box))
    assert claim.margins == (answer.label, [answer.target])
    assert claim.radius == answer.lower or (answer.unreachable and claim.radius > 0)
    assert str(claim.radius) in str(claim)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("name", ["convolutional", "image residual"])
@pytest.mark.sampled
def test_what_is_proven_about_images_passes(name: str, norm: str, tmp_path: Path) -> None:
    """To a coarse tolerance, that is with few leaves."""
    network, path = NETWORKS[name](), tmp_path / "proof.json"
    answer = prove(network, path, norm=norm, box=None, target="runner-up", tolerance=0.5, time_limit=60)
    assert answer.lower
    assert check(path, network).radius == answer.lower


@pytest.mark.parametrize("name", ["three layers", "residual", "convolutional"])
def test_what_is_proven_of_a_network_as_it_runs_passes(name: str, tmp_path: Path) -> None:
    """A proof about real arithmetic is no proof of it, and is not replaced by one."""
    network, path = NETWORKS[name](), tmp_path / "proof.json"
    answer = prove(network, path, target="runner-up", inference="float32", tolerance=0.1)
    assert answer.lower
    claim = check(path, network)
    assert (claim.inference, claim.radius) == ("float32", answer.lower)
    with pytest.raises(InputError, match="overwrite"):
        prove(network, path, target="runner-up")
    verdict = relucert.robust_at(
        network, centres(network, 1).clamp(*BOX), radius=0.9 * answer.lower, target="runner-up", box=BOX,
        inference="float32", proof=path,
    )[0]  # fmt: skip
    assert verdict.holds
    claim = check(path, network)
    assert (claim.inference, claim.radius) == ("float32", 0.9 * answer.lower)


def test_an_unfinished_search_proves_what_it_says(tmp_path: Path) -> None:
    network, path = mlp(6, 40, 40, 40, 4, seed=8), tmp_path / "proof.json"
    answer = prove(network, path, time_limit=3.0)
    if path.exists():
        assert answer.lower is not None
        assert check(path, network).radius <= answer.lower


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.sampled
def test_mutations_are_rejected(mutate: Mutation, proof: dict[str, Any], tmp_path: Path) -> None:
    document = copy.deepcopy(proof)
    mutate(document)
    with pytest.raises(Rejected) as raised:
        verify(document, tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.sampled
def test_mutations_about_images_are_rejected(
    mutate: Mutation, proof_about_images: dict[str, Any], tmp_path: Path
) -> None:
    document = copy.deepcopy(proof_about_images)
    mutate(document)
    with pytest.raises(Rejected):
        verify(document, tmp_path, IMAGES)


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (1, {"weight": lambda weight: weight * 1.01}),
        (1, {"weight": lambda weight: weight.flip(-1)}),
        (1, {"bias": lambda bias: bias + 0.01}),
        (2, {"gain": lambda gain: gain * 1.01}),
        (2, {"variance": lambda variance: variance * 0.98}),
        (4, {"padding": (1, 0, 0, 0)}),
        (4, {"weight": lambda weight: weight.transpose(0, 1).contiguous()}),
        (5, {"indices": (3, 1, 0, 2)}),
        (5, {"indices": (1, 3, 0, 4)}),
    ],
)
def test_a_forged_fingerprint_of_images_does_not_help(
    value: int, change: dict[str, Any], proof_about_images: dict[str, Any], tmp_path: Path
) -> None:
    """The bounds are about the numbers, the padding and the indices of the network that is given.

    What it proves of another network is true of that one: its own exact answer says so.
    """
    from relucert.network.fingerprint import fingerprint

    node = IMAGES.nodes[value - 1]
    tensors, settings = node.operation.tensors(), node.operation.settings()
    for name, new in change.items():
        if name in tensors:
            tensors[name] = new(tensors[name])
        else:
            settings[name] = new
    nodes = list(IMAGES.nodes)
    nodes[value - 1] = Node(type(node.operation).restore(tensors, settings), node.inputs)
    other = Network(IMAGES.input_shape, tuple(nodes))
    document = copy.deepcopy(proof_about_images)
    document["network"]["sha256"] = fingerprint(other)
    image = torch.tensor([document["image"]["values"]], dtype=torch.float64)
    (label,) = {row.index(1.0) for row in document["rows"]}
    try:
        verify(document, tmp_path, other)
    except Rejected:
        return
    (answer,) = relucert.exact(other, image, [label], box=BOX, time_limit=60)
    assert answer.upper is not None
    assert answer.upper > document["radius"]


def test_harmless_mutations_claim_what_is_still_true(proof: dict[str, Any], tmp_path: Path) -> None:
    """None at all, a smaller radius: the same claim, or a weaker one."""
    document = copy.deepcopy(proof)
    assert verify(document, tmp_path).radius == proof["radius"]
    document["radius"] *= 0.5
    assert verify(document, tmp_path).radius == proof["radius"] * 0.5


def test_the_claim_names_the_image(proof: dict[str, Any], tmp_path: Path) -> None:
    values = torch.tensor(proof["image"]["values"], dtype=torch.float64)
    claim = verify(proof, tmp_path)
    assert claim.index == 0
    assert claim.image == hashlib.sha256(values.numpy().astype("<f8").tobytes()).hexdigest()
    assert "of image 0," in str(claim)


def test_the_image_is_that_of_its_number(tmp_path: Path) -> None:
    """Among the images that were asked about, each is told from the others."""
    images = centres(NETWORK, 3).clamp(*BOX)
    path = tmp_path / "proof.json"
    (answer,) = relucert.exact(NETWORK, images[:1], box=BOX, time_limit=0.5, target="runner-up", proof=path)
    document = json.loads(path.read_text())
    assert check(path, NETWORK, images=images).index == answer.image == 0
    for wrong, message in ((images[1:], "another one"), (images[:0], "none of 0 images")):
        with pytest.raises(Rejected, match=message):
            check(path, NETWORK, images=wrong)
    document["image"]["index"] = 2
    path.write_text(json.dumps(document))
    assert check(path, NETWORK).index == 2
    with pytest.raises(Rejected, match="image 2 of these is another one"):
        check(path, NETWORK, images=images)
    assert check(path, NETWORK, images=images[[1, 2, 0]]).index == 2


def test_a_proof_of_another_claim_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "proof.json.gz"
    question: dict[str, Any] = {"time_limit": 0.5, "target": "runner-up"}
    prove(NETWORK, path, **question)
    prove(NETWORK, path, **question)  # the same once more
    before = path.read_bytes()
    others: list[tuple[Network, dict[str, Any]]] = [
        (NETWORK, {"norm": "2"}),
        (NETWORK, {"box": (-1.5, 1.6)}),
        (mlp(5, 8, 6, 4, seed=6), {}),
    ]
    for network, change in others:
        with pytest.raises(InputError, match=r"proof\.json\.gz holds results of another question.*overwrite"):
            prove(network, path, **{**question, **change})
        assert path.read_bytes() == before
    prove(NETWORK, path, **{**question, "norm": "2"}, overwrite=True)
    assert check(path, NETWORK).norm == 2
    path.write_text("my notes")
    with pytest.raises(InputError, match="overwrite"):
        prove(NETWORK, path, **question)
    assert path.read_text() == "my notes"


def test_every_changed_weight_is_noticed(proof: dict[str, Any], tmp_path: Path) -> None:
    for value, node in NETWORK.steps():
        for name, tensor in node.operation.tensors().items():
            changed = tensor.clone()
            changed.view(-1)[-1] = torch.nextafter(changed.view(-1)[-1], torch.tensor(torch.inf))
            operation = type(node.operation).restore(
                {**node.operation.tensors(), name: changed}, node.operation.settings()
            )
            nodes = list(NETWORK.nodes)
            nodes[value - 1] = Node(operation, node.inputs)
            with pytest.raises(Rejected, match="another network"):
                verify(proof, tmp_path, Network(NETWORK.input_shape, tuple(nodes)))


def test_a_forged_fingerprint_does_not_help(proof: dict[str, Any], tmp_path: Path) -> None:
    """The bounds are about the network that is given: only its own margins count."""
    from relucert.network.fingerprint import fingerprint

    last = NETWORK.nodes[-1].operation
    assert isinstance(last, Linear)
    label = proof["rows"][0].index(1.0)
    bias = last.bias.clone()
    bias[label] -= 0.05
    nodes = (*NETWORK.nodes[:-1], Node(Linear(last.weight, bias), NETWORK.nodes[-1].inputs))
    weaker = Network(NETWORK.input_shape, nodes)
    document = copy.deepcopy(proof)
    document["network"]["sha256"] = fingerprint(weaker)
    with pytest.raises(Rejected, match="row"):
        verify(document, tmp_path, weaker)


def test_broken_files(proof: dict[str, Any], tmp_path: Path) -> None:
    whole = json.dumps(proof).encode()
    packed = gzip.compress(whole)
    broken = {
        "truncated": whole[: len(whole) // 2],
        "packed and truncated": packed[: len(packed) // 2],
        "empty": b"",
        "a list": b"[]",
        "a number": b"1",
        "deep": b"[" * 100_000,
        "twice": whole.replace(b'"scale":', b'"scale": null, "scale":', 1),
        "too large": whole.replace(b'"radius": ', b'"radius": 1e999, "was": ', 1),
        "not text": b"\xff\xfe",
    }
    for name, content in broken.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(Rejected) as raised:
            check(path, NETWORK)
        assert "\n" not in str(raised.value)
    with pytest.raises(LoadError, match="can't read"):
        check(tmp_path / "missing", NETWORK)


def test_unknown_operations_are_refused(proof: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Linear, "name", "pooling")
    from relucert.network.fingerprint import fingerprint

    document = copy.deepcopy(proof)
    document["network"]["sha256"] = fingerprint(NETWORK)
    with pytest.raises(UnsupportedError, match="pooling"):
        verify(document, tmp_path)


def test_the_check_shares_no_code_with_the_search() -> None:
    code = (
        "import sys, relucert.checker.check\n"
        "print([name for name in sys.modules if name.startswith(('relucert.bounding', 'relucert.arithmetic.region', "
        "'relucert.arithmetic.norm', 'relucert.arithmetic.rigor', 'relucert.methods', 'relucert.branch_and_bound'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("norm", [1, 2, "inf"])
def test_numbers_that_cancel_beyond_the_precision_prove_nothing(norm: object, tmp_path: Path) -> None:
    """Scores 0.5 and relu(x), by terms of 2^100 x that cancel: what a coefficient's ball leaves open is charged."""
    from relucert.network.fingerprint import fingerprint

    nodes: list[Node] = []

    def put(operation: Layer, *sources: int) -> int:
        nodes.append(Node(operation, sources))
        return len(nodes)

    def times(factor: float) -> Linear:
        return Linear(torch.tensor([[factor]], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))

    def cancelled(source: int, factor: float) -> int:
        parts = [put(times(coefficient), source) for coefficient in (2.0**100, factor, -(2.0**100))]
        return put(Add(), put(Add(), parts[0], parts[1]), parts[2])

    relu = put(Relu(), cancelled(0, 1.0))
    last = torch.tensor([[0.0], [-1.0]], dtype=torch.float64), torch.tensor([0.5, 0.0], dtype=torch.float64)
    put(Linear(*last), cancelled(relu, -1.0))
    network = Network((1,), tuple(nodes), "cancelling")
    source = str(nodes[relu - 1].inputs[0])
    document = {
        "format": FORMAT, "network": {"name": "cancelling", "sha256": fingerprint(network)},
        "image": {"index": 0, "sha256": image_digest([0.0]), "values": [0.0]},
        "rows": [[1.0, -1.0]], "offsets": [0.0], "norm": norm, "box": None, "scale": None,
        "radius": 10.0, "inference": "real",
        "relaxation": {
            "rules": [{"rule": "fast-lin", "scope": "all"}], "neurons": {source: pack(np.array([0]), 4)},
            "hidden": {}, "rows": written([Leaf([0], [], 0)]),
        },
    }  # fmt: skip
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(document))
    with pytest.raises(Rejected):
        check(path, network)
