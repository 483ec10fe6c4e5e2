"""The file of a proof, read with suspicion."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relucert.errors import LoadError

FORMAT = "relucert proof 1"  # what a proof's file says it is

KEYS = {"format", "network", "image", "label", "rivals", "norm", "box", "radius", "nodes"}
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
class Leaf:
    """A part without adversarial points up to a radius; slopes and multipliers by the value that a ReLU makes."""

    radius: float
    empty: bool
    slopes: dict[int, list[float]]
    multipliers: dict[int, list[float]]


@dataclass(frozen=True)
class Proof:
    name: str
    sha256: str
    image: list[float]
    label: int
    rivals: tuple[int, ...]
    norm: float
    box: tuple[float, float] | None
    radius: float
    nodes: list[Split | Leaf]


def read(path: Path) -> Proof:
    """A proof whose every entry is of the right kind; raises LoadError where there is no file to read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LoadError(f"can't read {path}: {error.strerror}") from error
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        document = json.loads(
            content.decode(), object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite
        )
    except (ValueError, EOFError, OSError, zlib.error, RecursionError) as error:
        raise Rejected(f"it is no proof file: {' '.join(str(error).split()) or type(error).__name__}") from None
    try:
        return _proof(document)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError):
        raise Rejected("it is no proof file: an entry is missing or of the wrong kind") from None


def _proof(document: dict[str, Any]) -> Proof:
    _require(set(document) == KEYS, "its entries are not those of a proof")
    _require(document["format"] == FORMAT, f"its format is not {FORMAT!r}")
    image = [_number(own) for own in _list(document["image"])]
    rivals, label = tuple(_whole(own) for own in _list(document["rivals"])), _whole(document["label"])
    _require(bool(rivals) and len({label, *rivals}) == len(rivals) + 1, "its rivals are not other classes, each once")
    _require(document["norm"] in NORMS and document["norm"] is not True, "its norm is not 1, 2 or inf")
    box = None if document["box"] is None else tuple(_number(own) for own in _list(document["box"]))
    _require(box is None or (len(box) == 2 and box[0] < box[1]), "its box is no least and larger largest number")
    radius = _number(document["radius"])
    _require(radius > 0, "its radius is not positive")
    nodes = [_node(own) for own in _list(document["nodes"])]
    return Proof(
        _text(document["network"]["name"]), _text(document["network"]["sha256"]), image, label, rivals,
        NORMS[document["norm"]], None if box is None else (box[0], box[1]), radius, nodes,
    )  # fmt: skip


def _node(entry: dict[str, Any]) -> Split | Leaf:
    if set(entry) == {"split", "halves"}:
        value, neuron = (_whole(own) for own in _list(entry["split"]))
        first, second = (_whole(own) for own in _list(entry["halves"]))
        return Split(value, neuron, (first, second))
    if set(entry) == {"radius", "empty"}:
        _require(entry["empty"] is True, "a leaf is neither empty nor proven")
        return Leaf(_number(entry["radius"]), True, {}, {})
    _require(set(entry) == {"radius", "slopes", "multipliers"}, "a node is neither split nor a leaf")
    return Leaf(_number(entry["radius"]), False, _table(entry["slopes"]), _table(entry["multipliers"]))


def _table(entry: dict[str, Any]) -> dict[int, list[float]]:
    return {int(made): [_number(own) for own in _list(numbers)] for made, numbers in entry.items()}


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
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value
