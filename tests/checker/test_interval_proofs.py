"""Bounds of neurons by quadratic certificates in proof files: they hold, and changed ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from relucert.checker.certificate import IntervalCheck
from relucert.checker.certificate_document import CertificateProof
from relucert.checker.check import check
from relucert.checker.document import Rejected, read
from relucert.checker.linearised_network import CheckedNetwork
from relucert.checker.lines import BOUND_BITS
from relucert.checker.packing import pack, pack_floats, unpack, unpack_floats
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import by_rule
from relucert.network import Network
from tests.checker.certificates import points_in, proven, write
from tests.nets import NETWORKS

Document = dict[str, Any]
Change = Callable[[Document], None]
DEEP = "five layers"
GRAPHS = ("residual", "rectified input", "image residual")


def tightened_bounds(network: Network, path: Path) -> tuple[IntervalCheck, TreeCheck]:
    proof = read(path)
    assert isinstance(proof, CertificateProof)
    bounded = TreeCheck.of(network, proof, by_rule(proof.rule))
    bounded.margins()
    intervals = IntervalCheck(proof, bounded)
    CheckedNetwork.of(proof, bounded, intervals)
    return intervals, bounded


def assert_enclosed(network: Network, document: Document, intervals: IntervalCheck) -> None:
    """No point of the region has pre-activations beyond their bounds."""
    values = network.cast(torch.float64).values(points_in(document, 400).unflatten(1, network.input_shape))
    for value, interval in intervals.bounds.items():
        sides = (torch.tensor(side, dtype=torch.float64) for side in (interval.lower, interval.upper))
        lower, upper = (side * 2.0**-BOUND_BITS for side in sides)
        assert bool(((values[value] >= lower - 1e-12) & (values[value] <= upper + 1e-12)).all())


@pytest.mark.parametrize("region", ["inf", "2", "2 in a box", "1", "scale"])
@pytest.mark.sampled
def test_proofs_of_deep_chains_pass(region: str, tmp_path: Path) -> None:
    document = proven(DEEP, "tightened", region)
    assert document["intervals"]
    assert check(write(document, tmp_path), NETWORKS[DEEP]()).radius == document["radius"]


def test_a_layer_with_one_certificate_may_have_it_without_a_list(tmp_path: Path) -> None:
    """As files of earlier versions have it."""
    document: Document = json.loads(json.dumps(proven(DEEP, "tightened", "inf")))
    for value, entries in document["intervals"].items():
        document["intervals"][value] = entries[0]
    path = write(document, tmp_path)
    try:
        assert_enclosed(NETWORKS[DEEP](), document, tightened_bounds(NETWORKS[DEEP](), path)[0])
    except Rejected as refused:
        assert "not proven stable" in str(refused)  # noqa: PT017 - the other certificates may be needed


@pytest.mark.parametrize("inference", ["real", "float32"])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.sampled
def test_proofs_of_graphs_pass(name: str, inference: str, tmp_path: Path) -> None:
    document = proven(name, "tightened", "inf", inference)
    assert check(write(document, tmp_path), NETWORKS[name]()).radius == document["radius"]


@pytest.mark.parametrize("name", [DEEP, *GRAPHS])
def test_bounds_enclose_every_point_and_are_tighter(name: str, tmp_path: Path) -> None:
    network, document = NETWORKS[name](), proven(name, "tightened", "inf")
    intervals, bounded = tightened_bounds(network, write(document, tmp_path))
    values = network.cast(torch.float64).values(points_in(document, 400).unflatten(1, network.input_shape))
    narrower = 0
    for value, interval in intervals.bounds.items():
        lower, upper = (
            torch.tensor(side, dtype=torch.float64) * 2.0**-BOUND_BITS for side in (interval.lower, interval.upper)
        )
        assert bool(((values[value] >= lower - 1e-12) & (values[value] <= upper + 1e-12)).all())
        plain = bounded.bounds[value]
        assert all(one >= two for one, two in zip(interval.lower, plain.lower, strict=True))
        assert all(one <= two for one, two in zip(interval.upper, plain.upper, strict=True))
        narrower += sum(one > two for one, two in zip(interval.lower, plain.lower, strict=True))
        narrower += sum(one < two for one, two in zip(interval.upper, plain.upper, strict=True))
    assert narrower


def _entries(document: Document) -> list[Document]:
    """One for each certificate about neurons."""
    return [entry for entries in document["intervals"].values() for entry in entries]


def _times(entry: Any, factor: float) -> Any:
    if isinstance(entry, dict):
        return {value: _times(part, factor) for value, part in entry.items()}
    return pack_floats([factor * one for one in unpack_floats(entry)])


def _weights(place: str, factor: float) -> Change:
    """All weights of one kind, of the certificates for neurons, times a factor."""

    def change(document: Document) -> None:
        for entry in _entries(document):
            entry["certificate"][place] = _times(entry["certificate"][place], factor)

    return change


def _numbers(place: str, factor: float) -> Change:
    def change(document: Document) -> None:
        for entry in _entries(document):
            entry[place] = _times(entry[place], factor)

    return change


def _first(place: str, number: float) -> Change:
    def change(document: Document) -> None:
        entry = _entries(document)[0]
        entry[place] = pack_floats([number, *unpack_floats(entry[place])[1:]])

    return change


def _signs(document: Document) -> None:
    for entry in _entries(document):
        entry["uppers"] = len(unpack(entry["neurons"], 4)) - entry["uppers"]


def _too_many_uppers(document: Document) -> None:
    _entries(document)[0]["uppers"] = 10**6


def _another_neuron(document: Document) -> None:
    entry = _entries(document)[0]
    neurons = unpack(entry["neurons"], 4)
    neurons[-1] = 10**6
    entry["neurons"] = pack(neurons, 4)


def _permuted(document: Document) -> None:
    """The dual variables of other neurons."""
    for entry in _entries(document):
        entry["neurons"] = pack(unpack(entry["neurons"], 4)[::-1], 4)


def _own_weights(document: Document) -> None:
    """Too small weights of the last certificate alone, which some neuron has for itself."""
    certificate = _entries(document)[-1]["certificate"]
    certificate["errors"] = _times(certificate["errors"], 0.999)
    certificate["inputs"] = _times(certificate["inputs"], 0.999)


def _no_certificates(document: Document) -> None:
    value = next(iter(document["intervals"]))
    document["intervals"][value] = []


def _no_intervals(document: Document) -> None:
    del document["intervals"]


def _another_value(document: Document) -> None:
    document["intervals"]["2"] = document["intervals"].pop(next(iter(document["intervals"])))


def _shorter(place: str) -> Change:
    def change(document: Document) -> None:
        entry = _entries(document)[0]
        entry[place] = pack_floats(unpack_floats(entry[place])[:-1])

    return change


def _composed(document: Document) -> None:
    entry = _entries(document)[0]["certificate"]
    entry["kind"], entry["norms"] = "composed", []


def _without(place: str) -> Change:
    def change(document: Document) -> None:
        del _entries(document)[0][place]

    return change


CHANGES: dict[str, Change] = {
    "weights of errors too small": _weights("errors", 0.999),
    "weights of inputs too small": _weights("inputs", 0.999),
    "weights of deviations too large": _weights("deviations", 1.001),
    "weights of one neuron's own too small": _own_weights,
    "no certificates": _no_certificates,
    "negative weights": _weights("deviations", -1.0),
    "no number as a factor": _first("factors", float("nan")),
    "a negative factor": _first("factors", -1.0),
    "no number as a centre": _first("inputs", float("inf")),
    "more upper bounds than bounds": _too_many_uppers,
    "another neuron": _another_neuron,
    "a value that is no pre-activation": _another_value,
    "a missing centre": _shorter("inputs"),
    "a missing factor": _shorter("factors"),
    "a composed certificate": _composed,
    "no links": _without("links"),
    "no neurons": _without("neurons"),
}

WEAKER: dict[str, Change] = {
    "links of the wrong sign": _numbers("links", -1.0),
    "other factors": _numbers("factors", 3.0),
    "other centres": _numbers("inputs", -2.0),
    "lower bounds as upper ones": _signs,
    "neurons of others": _permuted,
    "no bounds": _no_intervals,
}


@pytest.mark.parametrize("name", WEAKER)
def test_other_dual_variables_bound_less_and_are_bounds(name: str, tmp_path: Path) -> None:
    document: Document = json.loads(json.dumps(proven(DEEP, "tightened", "inf")))
    WEAKER[name](document)
    try:
        intervals, _ = tightened_bounds(NETWORKS[DEEP](), write(document, tmp_path))
    except Rejected as refused:
        assert "not proven stable" in str(refused)  # noqa: PT017 - both ends are right
        return
    assert_enclosed(NETWORKS[DEEP](), document, intervals)


@pytest.mark.parametrize("name", CHANGES)
def test_changed_proofs_are_refused(name: str, tmp_path: Path) -> None:
    document: Document = json.loads(json.dumps(proven(DEEP, "tightened", "inf")))
    CHANGES[name](document)
    with pytest.raises(Rejected):
        check(write(document, tmp_path), NETWORKS[DEEP]())
