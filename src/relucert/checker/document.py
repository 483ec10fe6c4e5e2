"""The file of a proof, read with suspicion."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

from relucert.checker.certificate_document import CERTIFICATE_FORMAT, certificate_proof
from relucert.checker.claim import KEYS, RadiusClaim, claim_of
from relucert.checker.entries import (
    MOST_BYTES,
    as_list,
    as_number,
    as_numbers,
    as_text,
    as_whole,
    read_document,
    require,
)
from relucert.checker.entries import Rejected as Rejected
from relucert.checker.quadratic_document import QUADRATIC_FORMAT, quadratic_proof
from relucert.checker.trees import RelaxationEntry, read_relaxation

FORMAT = "relucert proof 4"  # what the file of a proof about an image says it is

QUERY_FORMAT = "relucert query proof 2"


@dataclass(frozen=True)
class CutNode:
    """An inner node: it cuts a box into two halves, where one coordinate of the input is at most and at least `at`."""

    coordinate: int
    at: float
    halves: tuple[int, int]


@dataclass(frozen=True)
class LeafNode:
    """A box in which a row is positive; slopes: those of lower lines, by the value of a ReLU."""

    slopes: dict[int, list[float]]


@dataclass(frozen=True)
class Proof(RadiusClaim):
    """A claim with the bounds that prove it."""

    relaxation: RelaxationEntry


@dataclass(frozen=True)
class Inequality:
    """The sum of `number * variable` is at most `bound`: whole numbers, by the variables' indices."""

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    bound: Fraction


@dataclass(frozen=True)
class BoxProof:
    """The proof that none of some cases is met in a box of inputs; a case is a conjunction of inequalities.

    proof: one tree of cuts for every case, the roots first; or how the rows of all cases are bounded in the whole box.
    """

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    cases: tuple[tuple[Inequality, ...], ...]
    proof: tuple[CutNode | LeafNode, ...] | RelaxationEntry


@dataclass(frozen=True)
class QueryProof:
    """The proof that a property, a text of VNN-LIB 1.0, holds: every case of a violation is refuted in its box."""

    inference: ClassVar = "real"

    name: str
    sha256: str
    text: str
    text_sha256: str
    boxes: tuple[BoxProof, ...]


def read(path: Path, most_bytes: int = MOST_BYTES) -> RadiusClaim | QueryProof:
    """A proof whose every entry is of the right kind; raises LoadError where there is no file to read.

    most_bytes: of the file, once it is unpacked; a larger one is rejected.
    """
    document = read_document(path, most_bytes)
    try:
        require(isinstance(document.get("format"), str), "it does not say of which format it is")
        return READERS.get(document["format"], _proof)(document)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError):
        raise Rejected("it is no proof file: an entry is missing or of the wrong kind") from None


def _query_proof(document: dict[str, Any]) -> QueryProof:
    require(set(document) == {"format", "network", "query", "parts"}, "its entries are not those of a proof")
    network, query = document["network"], document["query"]
    text = as_text(query["text"])
    named = hashlib.sha256(text.encode()).hexdigest() == as_text(query["sha256"])
    require(named, "its property is not that of the SHA-256 it names")
    boxes = tuple(_box_proof(box) for box in as_list(document["parts"]))
    return QueryProof(as_text(network["name"]), as_text(network["sha256"]), text, query["sha256"], boxes)


def _box_proof(entry: dict[str, Any]) -> BoxProof:
    (proof_key,) = set(entry) - {"low", "high", "cases"}
    low, high = (tuple(_fraction(number) for number in as_list(entry[end])) for end in ("low", "high"))
    cases = tuple(tuple(_inequality(inequality) for inequality in as_list(case)) for case in as_list(entry["cases"]))
    require(bool(cases), "a part has no cases")
    require(all(len(set(case)) == len(case) for case in cases), "an inequality stands twice in a case")
    if proof_key == "relaxation":
        return BoxProof(low, high, cases, read_relaxation(entry[proof_key]))
    require(proof_key == "nodes", "a part has neither nodes nor a relaxation")
    return BoxProof(low, high, cases, tuple(_node(node) for node in as_list(entry["nodes"])))


def _node(entry: dict[str, Any]) -> CutNode | LeafNode:
    if set(entry) == {"cut", "halves"}:
        coordinate, at = as_list(entry["cut"])
        first, second = (as_whole(number) for number in as_list(entry["halves"]))
        return CutNode(as_whole(coordinate), as_number(at), (first, second))
    require(set(entry) == {"slopes"}, "a node is neither a cut nor a leaf")
    return LeafNode({int(value): as_numbers(numbers) for value, numbers in entry["slopes"].items()})


def _inequality(entry: dict[str, Any]) -> Inequality:
    require(set(entry) == {"inputs", "outputs", "bound"}, "an inequality has no inputs, outputs and bound")
    inputs, outputs = (
        tuple((as_whole(variable), int(as_text(number))) for variable, number in as_list(entry[key]))
        for key in ("inputs", "outputs")
    )
    return Inequality(inputs, outputs, _fraction(entry["bound"]))


def _fraction(entry: Any) -> Fraction:
    numerator, _, denominator = as_text(entry).partition("/")
    return Fraction(int(numerator), int(denominator or "1"))


def _proof(document: dict[str, Any]) -> Proof:
    require(document["format"] == FORMAT, f"its format is {document['format']!r}, not {FORMAT!r}: write it anew")
    entries = set(document) - {"activation_ulps"}
    require(entries == KEYS | {"inference", "relaxation"}, "its entries are not those of a proof")
    return Proof(**claim_of(document), relaxation=read_relaxation(document["relaxation"]))


READERS: dict[str, Callable[[dict[str, Any]], RadiusClaim | QueryProof]] = {
    QUERY_FORMAT: _query_proof, CERTIFICATE_FORMAT: certificate_proof, QUADRATIC_FORMAT: quadratic_proof,
}  # fmt: skip
