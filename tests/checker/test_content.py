"""Files that are small, and would take hours or all memory, are refused in one line."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relucert
from relucert.checker.check import Rejected, check
from relucert.checker.entries import BYTES_PER_LIST, BYTES_PER_NUMBER, MOST_BYTES
from relucert.checker.packing import pack, unpack
from relucert.cli.main import build_parser
from tests.nets import mlp

NETWORK = mlp(4, 6, 5, 3, seed=2)
Document = dict[str, Any]


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Document:
    folder = tmp_path_factory.mktemp("proofs")
    relucert.certify(NETWORK, [[0.1, 0.2, 0.3, 0.4]], method="alpha", proofs=folder)
    (path,) = folder.iterdir()
    document: Document = json.loads(gzip.decompress(path.read_bytes()))
    assert document["relaxation"]["hidden"]
    return document


def repeat_rules(document: Document) -> None:
    document["relaxation"]["rules"] *= 10_000


def repeat_rows(document: Document) -> None:
    document["rows"] *= 10_000
    document["offsets"] *= 10_000


def repeat_sides(document: Document) -> None:
    for trees in document["relaxation"]["hidden"].values():
        for name, width in (("sides", 4), ("nodes", 4), ("slopes", 3), ("multipliers", 4), ("scales", 2)):
            numbers = unpack(trees[name], width).tolist()
            trees[name] = pack(np.array(numbers * 1000, dtype=np.int64), width)


REPEATED: dict[str, tuple[Callable[[Document], None], str]] = {
    "rules": (repeat_rules, "a rule stands twice"),
    "rows": (repeat_rows, "a row stands twice"),
    "sides": (repeat_sides, "more than 2 trees"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_is_repeated_is_refused(name: str, proof: Document, tmp_path: Path) -> None:
    """Each takes as long as the first, and next to nothing once it is compressed."""
    change, message = REPEATED[name]
    document = json.loads(json.dumps(proof))
    change(document)
    path = tmp_path / "proof.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    with pytest.raises(Rejected, match=message):
        check(path, NETWORK)


def bomb(size: int, byte: bytes = b" ") -> bytes:
    """That many bytes, compressed."""
    return gzip.compress(byte * size)


@pytest.mark.parametrize("packed", [True, False])
def test_no_more_is_unpacked_than_is_allowed(packed: bool, tmp_path: Path) -> None:
    size, most = 2**26, 2**20
    path = tmp_path / "proof.json"
    path.write_bytes(bomb(size) if packed else b" " * size)
    tracemalloc.start()
    try:
        with pytest.raises(Rejected, match="more than 1,048,576 bytes"):
            check(path, NETWORK, most_bytes=most)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 8


def test_a_second_member_counts(tmp_path: Path) -> None:
    path = tmp_path / "proof.json.gz"
    path.write_bytes(bomb(2**19) + bomb(2**19) + bomb(2**19))
    with pytest.raises(Rejected, match="more than 1,048,576 bytes once it is unpacked"):
        check(path, NETWORK, most_bytes=2**20)


@pytest.mark.parametrize(
    ("piece", "share", "message"), [("0,", BYTES_PER_NUMBER, "numbers"), ("[[]]", BYTES_PER_LIST, "objects and lists")]
)
def test_no_more_is_parsed_than_is_allowed(piece: str, share: int, message: str, tmp_path: Path) -> None:
    """A list takes 56 bytes, and its text two."""
    path = tmp_path / "proof.json"
    path.write_text("[" + piece * (2**16 // share + 1) + "0]")
    with pytest.raises(Rejected, match=f"{message}, more than {2**16 // share:,}"):
        check(path, NETWORK, most_bytes=2**16)


@pytest.mark.parametrize("number", ["1e10000000", "-1e999", "9" * 5000, "1" + "0" * 400, "NaN", "Infinity"])
def test_numbers_that_nobody_means(number: str, proof: Document, tmp_path: Path) -> None:
    text = json.dumps(proof)
    for key in ("radius", "norm"):
        path = tmp_path / "proof.json"
        path.write_text(text.replace(f'"{key}": ', f'"{key}": {number}, "was": ', 1))
        with pytest.raises(Rejected):
            check(path, NETWORK)


def test_the_command_has_the_same_limit() -> None:
    assert build_parser().parse_args(["check", "proof.json"]).largest == MOST_BYTES
