"""The file of a proof, read with suspicion."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from relucert.errors import LoadError

FORMAT = "relucert proof 3"  # what a proof's file says it is

QUERY_FORMAT = "relucert query proof 1"

BOUND_FORMAT = "relucert bound proof 2"

BOUND_RULES = ("interval", "fast-lin", "crown")
INFERENCES = ("real", "float32", "float16", "bfloat16")
KEYS = {"format", "network", "image", "rows", "offsets", "norm", "box", "scale", "radius"}
UNREADABLE = (ValueError, EOFError, OSError, zlib.error, RecursionError)  # what content that is no JSON may raise
NORMS: dict[object, float] = {"inf": math.inf, 1.0: 1.0, 2.0: 2.0}


class Rejected(Exception):  # noqa: N818 - the answer to a question, and no error of the user's
    """A file that proves nothing; the message says why."""


@dataclass(frozen=True)
class Split:
    """Two halves by the sign of one neuron of a value: not negative, not positive."""

    value: int
    neuron: int
    halves: tuple[int, int]


@dataclass(frozen=True)
class Cut:
    """Two halves by one coordinate of the input: at most, at least a number."""

    coordinate: int
    at: float
    halves: tuple[int, int]


@dataclass(frozen=True)
class Leaf:
    """A part without violations up to a radius; slopes and multipliers by the value of a ReLU.

    adaptive: whether hidden neurons are bounded with CROWN's lower lines, and not with Fast-Lin's.
    """

    radius: float
    empty: bool
    slopes: dict[int, list[float]]
    multipliers: dict[int, list[float]]
    adaptive: bool = False


@dataclass(frozen=True)
class Certified:
    """That `rows @ outputs + offsets` stay positive at all valid x with `||(x - image) / scale||_p <= radius`.

    index: the image's number among those that were asked about.
    box: the lowest and the highest valid value of every coordinate, or None; infinite: no limit.
    """

    name: str
    sha256: str
    index: int
    image: list[float]
    rows: list[list[float]]
    offsets: list[float]
    norm: float
    box: tuple[list[float], list[float]] | None
    scale: list[float] | None
    radius: float


@dataclass(frozen=True)
class Proof(Certified):
    """The tree of a search that proves it."""

    nodes: list[Split | Leaf]


@dataclass(frozen=True)
class Inequality:
    """That the sum of `number * variable` is at most `bound`; the numbers are whole, by place."""

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    bound: Fraction


@dataclass(frozen=True)
class Part:
    """A box of inputs in which none of some cases is met, each some inequalities at once; one tree for every case."""

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    cases: tuple[tuple[Inequality, ...], ...]
    nodes: tuple[Split | Cut | Leaf, ...]


@dataclass(frozen=True)
class QueryProof:
    """That a property, a text of VNN-LIB 1.0, holds: every case of a violation is in one of the parts."""

    name: str
    sha256: str
    text: str
    text_sha256: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class BoundProof(Certified):
    """The bounds of a linear relaxation that prove it: how the slopes follow from them is a rule.

    rule: that of the lines of every ReLU, one of `BOUND_RULES`.
    by_intervals: whether a neuron after the first layer of ReLUs is bounded by intervals first, and by lines where that
    leaves its sign open.
    inference: what the network is evaluated in, one of `INFERENCES`.
    """

    rule: str
    by_intervals: bool
    inference: str = "real"


Reader = Callable[[dict[str, Any]], Certified]


def read(path: Path) -> Certified | QueryProof:
    """A proof whose every entry is of the right kind; raises LoadError where there is no file to read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LoadError(f"can't read {path}: {error.strerror}") from error
    try:
        document = json.loads(
            unpacked(content).decode(), object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite
        )
    except UNREADABLE as error:
        raise Rejected(f"it is no proof file: {' '.join(str(error).split()) or type(error).__name__}") from None
    try:
        _require(isinstance(document.get("format"), str), "it does not say of which format it is")
        if document["format"] == QUERY_FORMAT:
            return _query_proof(document)
        return _readers().get(document["format"], _proof)(document)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, ArithmeticError):
        raise Rejected("it is no proof file: an entry is missing or of the wrong kind") from None


def _readers() -> dict[str, Reader]:
    """By format, who reads a proof about an image."""
    from relucert.checker.quadratic_document import QUADRATIC_FORMAT, quadratic_proof

    return {BOUND_FORMAT: _bound_proof, QUADRATIC_FORMAT: quadratic_proof}


def _query_proof(document: dict[str, Any]) -> QueryProof:
    _require(set(document) == {"format", "network", "query", "parts"}, "its entries are not those of a proof")
    network, query = document["network"], document["query"]
    text = _text(query["text"])
    named = hashlib.sha256(text.encode()).hexdigest() == _text(query["sha256"])
    _require(named, "its property is not that of the SHA-256 it names")
    parts = tuple(_part(part) for part in _list(document["parts"]))
    return QueryProof(_text(network["name"]), _text(network["sha256"]), text, query["sha256"], parts)


def _part(entry: dict[str, Any]) -> Part:
    _require(set(entry) == {"low", "high", "cases", "nodes"}, "a part is no box with cases and nodes")
    low, high = (tuple(_fraction(number) for number in _list(entry[end])) for end in ("low", "high"))
    cases = tuple(tuple(_inequality(one) for one in _list(case)) for case in _list(entry["cases"]))
    _require(not any("radius" in node for node in _list(entry["nodes"])), "a node of a property has a radius")
    nodes = tuple(_part_node(node) for node in entry["nodes"])
    _require(bool(cases), "a part has no cases")
    return Part(low, high, cases, nodes)


def _part_node(entry: dict[str, Any]) -> Split | Cut | Leaf:
    if "split" in entry:
        return _node(entry)
    if set(entry) == {"cut", "halves"}:
        coordinate, at = _list(entry["cut"])
        first, second = (_whole(number) for number in _list(entry["halves"]))
        return Cut(_whole(coordinate), _number(at), (first, second))
    rest = {name: part for name, part in entry.items() if name != "hidden"}
    leaf = _node({**rest, "radius": 1.0})
    if "hidden" not in entry or not isinstance(leaf, Leaf):
        return leaf
    _require(entry["hidden"] == "crown", "a leaf's hidden neurons are bounded in an unknown way")
    return replace(leaf, adaptive=True)


def _inequality(entry: dict[str, Any]) -> Inequality:
    _require(set(entry) == {"inputs", "outputs", "bound"}, "an inequality has no inputs, outputs and bound")
    inputs, outputs = (
        tuple((_whole(place), int(_text(number))) for place, number in _list(entry[side]))
        for side in ("inputs", "outputs")
    )
    return Inequality(inputs, outputs, _fraction(entry["bound"]))


def _fraction(entry: Any) -> Fraction:
    numerator, _, denominator = _text(entry).partition("/")
    return Fraction(int(numerator), int(denominator or "1"))


def unpacked(content: bytes) -> bytes:
    """The content of a file, which may be compressed."""
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def image_digest(values: list[float]) -> str:
    """The SHA-256 of an image's numbers, as float64 in little-endian order."""
    return hashlib.sha256(struct.pack(f"<{len(values)}d", *values)).hexdigest()


def _proof(document: dict[str, Any]) -> Proof:
    _require(document["format"] == FORMAT, f"its format is {document['format']!r}, not {FORMAT!r}: write it anew")
    _require(set(document) == KEYS | {"nodes"}, "its entries are not those of a proof")
    return Proof(**claim_of(document), nodes=[_node(node) for node in _list(document["nodes"])])


def _bound_proof(document: dict[str, Any]) -> BoundProof:
    _require(set(document) == KEYS | {"rule", "by_intervals", "inference"}, "its entries are not those of a proof")
    _require(document["rule"] in BOUND_RULES, "its rule is none that is known")
    _require(type(document["by_intervals"]) is bool, "by_intervals is neither true nor false")
    inference = _text(document["inference"])
    _require(inference in INFERENCES, "its inference is none that is known")
    return BoundProof(
        **claim_of(document), rule=document["rule"], by_intervals=document["by_intervals"], inference=inference
    )


def claim_of(document: dict[str, Any]) -> dict[str, Any]:
    """What is claimed, by the names of a proof's fields."""
    index, image = _image(document["image"])
    rows = [numbers_of(row) for row in _list(document["rows"])]
    offsets = numbers_of(document["offsets"])
    _require(bool(rows) and len(rows) == len(offsets), "it has no rows, or not one offset for each")
    _require(document["norm"] in NORMS and document["norm"] is not True, "its norm is not 1, 2 or inf")
    scale = None if document["scale"] is None else numbers_of(document["scale"])
    _require(scale is None or (len(scale) == len(image) and min(scale) >= 0), "its scale is not one number >= 0 each")
    radius = _number(document["radius"])
    _require(radius > 0, "its radius is not positive")
    network = document["network"]
    return {
        "name": _text(network["name"]), "sha256": _text(network["sha256"]), "index": index, "image": image,
        "rows": rows, "offsets": offsets, "norm": NORMS[document["norm"]], "box": _box(document["box"], len(image)),
        "scale": scale, "radius": radius,
    }  # fmt: skip


def _image(entry: Any) -> tuple[int, list[float]]:
    """The image's number and its values, which have the SHA-256 that stands beside them."""
    _require(set(entry) == {"index", "sha256", "values"}, "its image has no index, SHA-256 and values")
    index, values = _whole(entry["index"]), numbers_of(entry["values"])
    _require(index >= 0, "its image has no number")
    _require(image_digest(values) == _text(entry["sha256"]), "its image is not that of the SHA-256 it names")
    return index, values


def _box(entry: Any, size: int) -> tuple[list[float], list[float]] | None:
    if entry is None:
        return None
    ends = _list(entry)
    _require(len(ends) == 2, "its box has no two ends")
    low, high = (
        [endless if number is None else _number(number) for number in _list(end)]
        for end, endless in zip(ends, (-math.inf, math.inf), strict=True)
    )
    ordered = len(low) == len(high) == size and all(one <= other for one, other in zip(low, high, strict=True))
    _require(ordered, "its box has no lowest and highest value for every coordinate")
    return low, high


def numbers_of(entry: Any) -> list[float]:
    return [_number(number) for number in _list(entry)]


def _node(entry: dict[str, Any]) -> Split | Leaf:
    if set(entry) == {"split", "halves"}:
        value, neuron = (_whole(number) for number in _list(entry["split"]))
        first, second = (_whole(number) for number in _list(entry["halves"]))
        return Split(value, neuron, (first, second))
    if set(entry) == {"radius", "empty"}:
        _require(entry["empty"] is True, "a leaf is neither empty nor proven")
        return Leaf(_number(entry["radius"]), True, {}, {})
    _require(set(entry) == {"radius", "slopes", "multipliers"}, "a node is neither split nor a leaf")
    return Leaf(_number(entry["radius"]), False, _table(entry["slopes"]), _table(entry["multipliers"]))


def _table(entry: dict[str, Any]) -> dict[int, list[float]]:
    return {int(value): numbers_of(numbers) for value, numbers in entry.items()}


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Rejected(otherwise)


def _kind(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def take(given: Any) -> Any:
        if not test(given):
            raise TypeError
        return given

    return take


_list = _kind(lambda given: isinstance(given, list))
_text = _kind(lambda given: isinstance(given, str))
_whole = _kind(lambda given: type(given) is int)


def _number(given: Any) -> float:
    if type(given) not in (int, float) or not math.isfinite(given):
        raise TypeError
    return float(given)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key stands twice")
    return entries


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value
