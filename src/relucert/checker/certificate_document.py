"""A proof file by quadratic certificates on graphs, read with suspicion."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from relucert.checker.claim import KEYS, RadiusClaim, claim_of
from relucert.checker.entries import as_list, as_number, as_text, as_whole, require
from relucert.checker.packing import unpack, unpack_floats
from relucert.checker.trees import BoundingRule, scope_of, smooth_slopes_of

CERTIFICATE_FORMAT = "relucert quadratic proof 2"
SLOPE_BITS = 20
Entry = TypeVar("Entry")
ByLayer = dict[int, list[float]]


@dataclass(frozen=True)
class GraphEntry:
    """What a smooth activation lies between: lines on a few intervals of every neuron, one row of numbers for each.

    Attributes:
        breakpoints: Where intervals meet, in ascending order.
        below, above: The slopes of lines on each interval, one more than there are breakpoints.
    """

    breakpoints: list[list[float]]
    below: list[list[float]]
    above: list[list[float]]


@dataclass(frozen=True)
class LayerEntry:
    """The neurons of a pre-activation that are treated as unstable, and one slope for each, over 2**slope_bits.

    graphs: Of a smooth activation.
    """

    neurons: list[int]
    slopes: list[int]
    graphs: GraphEntry | None = None
    slope_bits: int = SLOPE_BITS


@dataclass(frozen=True)
class NormEntry:
    """A bound of the squared norm of the map from a source, -1 for the input, to a layer, and the source's share."""

    square: float
    share: float


@dataclass(frozen=True)
class CertificateEntry:
    """The weights of a certificate: of squared deviations (P), of squared errors and of squared inputs (D).

    Attributes:
        inputs: One weight for all inputs, or one for each.
        norms: Of a composed certificate, by layer and source; None for a joint one.
        profiles: Of a composed certificate, by source, one number > 0 for each of its neurons; ones by default.
    """

    deviations: ByLayer
    errors: ByLayer
    inputs: list[float]
    norms: dict[tuple[int, int], NormEntry] | None
    profiles: ByLayer = field(default_factory=dict)


@dataclass(frozen=True)
class RowEntry:
    """The proof of a row: the number of a certificate, a factor on its weights, and the dual variables.

    Attributes:
        links: By layer, the multipliers lambda.
        inputs, errors: The centre t of y, and by layer that of e.
    """

    certificate: int
    factor: float
    links: ByLayer
    inputs: list[float]
    errors: ByLayer


@dataclass(frozen=True)
class IntervalEntry:
    """What proves bounds of neurons of a pre-activation: one joint certificate, and one proof for each bound.

    signs: 1 for a lower bound, -1 for an upper one.
    """

    neurons: list[int]
    signs: list[int]
    certificate: CertificateEntry
    proofs: list[RowEntry]


@dataclass(frozen=True)
class CertificateProof(RadiusClaim):
    """Quadratic certificates, and how they prove each row; None: CROWN's lines prove it.

    rule: CROWN's, by which the bounds of pre-activations follow; layers: by pre-activation; intervals: by
    pre-activation, what bounds its neurons better than that.
    """

    rule: BoundingRule
    layers: dict[int, LayerEntry]
    certificates: list[CertificateEntry]
    row_proofs: list[RowEntry | None]
    intervals: dict[int, list[IntervalEntry]]


def certificate_proof(document: dict[str, Any]) -> CertificateProof:
    """A proof whose every entry is of the right kind."""
    entries = KEYS | {"inference", "layers", "certificates", "row_proofs"}
    optional = {"intervals", "slopes", "activation_ulps"}
    complete = set(document) - optional in (entries | {"scope"}, entries | {"by_intervals"})
    require(complete, "its entries are not those of a proof")
    claim = claim_of(document)
    layers = _by_layer(document["layers"], _layer)
    certificates = [_certificate(entry) for entry in as_list(document["certificates"])]
    rows = [None if entry is None else _row(entry) for entry in as_list(document["row_proofs"])]
    require(len(rows) == len(claim["rows"]), "it has not one proof for each row")
    used = {row.certificate for row in rows if row is not None}
    require(used == set(range(len(certificates))), "its rows do not name each of its certificates, and no other")
    intervals = _by_layer(document.get("intervals", {}), _intervals)
    rule = BoundingRule("crown", scope_of(document), smooth_slopes_of(document))
    return CertificateProof(
        **claim, rule=rule, layers=layers, certificates=certificates, row_proofs=rows, intervals=intervals
    )


def _layer(entry: Any) -> LayerEntry:
    if "breakpoints" in entry:
        return _smooth_layer(entry)
    require(set(entry) == {"neurons", "slopes"}, "a layer has no neurons and slopes")
    neurons, slopes = unpack(as_text(entry["neurons"]), 4), unpack(as_text(entry["slopes"]), 3)
    require(len(neurons) == len(slopes), "a layer has not one slope for each neuron")
    require(bool((np.diff(neurons) > 0).all()), "the neurons of a layer are not in ascending order")
    require(bool((slopes <= 1 << SLOPE_BITS).all()), "a slope is above 1")
    return LayerEntry(neurons.tolist(), slopes.tolist())


def _smooth_layer(entry: Any) -> LayerEntry:
    keys = {"neurons", "slopes", "breakpoints", "below", "above"}
    require(set(entry) == keys, f"a layer of a smooth activation does not have the entries {', '.join(sorted(keys))}")
    neurons = unpack(as_text(entry["neurons"]), 4)
    count = len(neurons)
    require(bool(count) and bool((np.diff(neurons) > 0).all()), "the neurons of a layer are not in ascending order")
    slopes = np.asarray(_floats(entry["slopes"]))
    require(bool((np.abs(slopes) < 2.0 ** (50 - SLOPE_BITS)).all()), "a slope of a layer is too steep")
    slopes = slopes * 2.0**SLOPE_BITS
    fits = len(slopes) == count and bool((slopes == np.rint(slopes)).all())
    require(fits, "a layer has not one slope for each neuron, in units of 2**-20")
    breakpoints, below, above = (_rows(entry[name], count) for name in ("breakpoints", "below", "above"))
    fits = len(below[0]) == len(above[0]) == len(breakpoints[0]) + 1
    require(fits, "a layer has not two lines for each interval")
    ascending = all(bool((np.diff(row) >= 0).all()) for row in breakpoints)
    require(ascending, "the breakpoints of a neuron are not in ascending order")
    return LayerEntry(neurons.tolist(), slopes.astype(np.int64).tolist(), GraphEntry(breakpoints, below, above))


def _certificate(entry: Any) -> CertificateEntry:
    composed = entry["kind"] == "composed"
    require(composed or entry["kind"] == "joint", "a certificate is neither composed nor joint")
    keys = {"kind", "deviations", "errors", "inputs"} | ({"norms"} if composed else set())
    more: set[str] = {"profiles"} if composed else set()
    require(keys <= set(entry) <= keys | more, "a certificate has other entries than those of its kind")
    deviations, errors = (_by_layer(entry[name], _floats) for name in ("deviations", "errors"))
    inputs = _floats(entry["inputs"])
    weights = [*deviations.values(), *errors.values(), inputs]
    require(all(number >= 0 for numbers in weights for number in numbers), "a weight is negative")
    norms = None
    if composed:
        norms = {}
        for layer, source, square, share in map(as_list, as_list(entry["norms"])):
            pair = (as_whole(layer), as_whole(source))
            require(pair not in norms, "a norm stands twice")
            norms[pair] = NormEntry(as_number(square), as_number(share))
        positive = all(norm.square > 0 and norm.share > 0 for norm in norms.values())
        require(positive, "a norm or a share is not positive")
    profiles = _by_layer(entry.get("profiles", {}), _floats)
    require(all(number > 0 for numbers in profiles.values() for number in numbers), "a profile is not positive")
    return CertificateEntry(deviations, errors, inputs, norms, profiles)


def _row(entry: Any) -> RowEntry:
    keys = {"certificate", "factor", "links", "inputs", "errors"}
    require(set(entry) == keys, f"a row's proof does not have the entries {', '.join(sorted(keys))}")
    factor = as_number(entry["factor"])
    require(factor > 0, "a factor is not positive")
    links, errors = (_by_layer(entry[name], _floats) for name in ("links", "errors"))
    return RowEntry(as_whole(entry["certificate"]), factor, links, _floats(entry["inputs"]), errors)


def _intervals(entries: Any) -> list[IntervalEntry]:
    """Bounds by several certificates; a file of an earlier version has one, which is not in a list."""
    intervals = [_interval(entry) for entry in ([entries] if isinstance(entries, dict) else as_list(entries))]
    require(bool(intervals), "there are no bounds of neurons where there should be")
    return intervals


def _interval(entry: Any) -> IntervalEntry:
    keys = {"neurons", "uppers", "certificate", "factors", "links", "inputs", "errors"}
    require(set(entry) == keys, f"bounds of neurons do not have the entries {', '.join(sorted(keys))}")
    certificate = _certificate(entry["certificate"])
    require(certificate.norms is None, "the certificate for neurons is not a joint one")
    neurons = unpack(as_text(entry["neurons"]), 4).tolist()
    uppers, count = as_whole(entry["uppers"]), len(neurons)
    require(0 <= uppers <= count, "there are more upper bounds than bounds")
    factors = _floats(entry["factors"])
    require(len(factors) == count and all(factor > 0 for factor in factors), "a bound has no positive factor")
    links, errors = (_by_layer(entry[name], lambda numbers: _rows(numbers, count)) for name in ("links", "errors"))
    inputs = _rows(entry["inputs"], count)
    proofs = [
        RowEntry(0, factors[row], {value: numbers[row] for value, numbers in links.items()}, inputs[row],
                 {value: numbers[row] for value, numbers in errors.items()})
        for row in range(count)
    ]  # fmt: skip
    return IntervalEntry(neurons, [1] * (count - uppers) + [-1] * uppers, certificate, proofs)


def _rows(entry: Any, count: int) -> list[list[float]]:
    """Numbers as `count` rows of one length."""
    numbers = _floats(entry)
    require(bool(count) and len(numbers) % count == 0, "bounds have not the same number of numbers each")
    width = len(numbers) // count
    return [numbers[width * row : width * (row + 1)] for row in range(count)]


def _by_layer(entry: Any, read: Callable[[Any], Entry]) -> dict[int, Entry]:
    if not isinstance(entry, dict):
        raise TypeError
    require(all(str(int(value)) == value for value in entry), "a layer is not named by its number")
    return {int(value): read(numbers) for value, numbers in entry.items()}


def _floats(entry: Any) -> list[float]:
    numbers = unpack_floats(as_text(entry))
    require(all(map(math.isfinite, numbers)), "a number is none")
    return numbers
