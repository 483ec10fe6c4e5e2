"""Proofs of certificates as files: what is claimed, and the bounds that prove it."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import RECORDED
from relucert.bounding.record import Record, Recorder, RuleName, smooth_slopes
from relucert.checker.activations import FUNCTIONS
from relucert.checker.claim import NORMS, image_digest
from relucert.checker.document import FORMAT, Rejected
from relucert.checker.entries import UNREADABLE, document_of
from relucert.checker.trees import RULES
from relucert.errors import InputError
from relucert.inputs.storage import files
from relucert.methods.alpha import AlphaMethod
from relucert.methods.linear import LinearMethod
from relucert.methods.method import Method
from relucert.methods.programs import ProgramMethod
from relucert.methods.sdp import QuadraticMethod
from relucert.methods.table import check_rectifiers, find_method
from relucert.network import Network
from relucert.network.fingerprint import fingerprint
from relucert.network.rounded_activation import ACTIVATION_ULPS
from relucert.proofs.quadratic import quadratic_evidence
from relucert.proofs.record import relaxation_entry
from relucert.query.problem import Problem
from relucert.query.questions import Inquiry, Question
from relucert.search.end import SearchEnd
from relucert.search.portfolio import Evidence

LOST = "the bounds that prove the radius {!r} were not kept"
BY_LINES = ("crown", "fast-lin", "alpha")  # methods whose lines prove verdicts about networks with smooth activations
UNDECIDED_BY_LINES = "a proof about smooth activations is by lines alone, and these do not tell"
PROVABLE = (*RULES, "alpha", "lp", "lp-full", "sdp")  # methods that write proofs


@dataclass(frozen=True, eq=False)
class EvidenceKeeper:
    """Keeps what proves radii about one network, and puts it into the words of proof files."""

    network: Network

    def proves(self, method: str) -> bool:
        """Whether a method's radii have proof files; `exact` has them too."""
        try:
            check_provable(method, self.network)
        except InputError:
            return method == "exact"
        return True

    def recorded(self, method: Method) -> Method:
        """A method that keeps what proves its radii, and so do those that it starts from."""
        if method.weaker is not None:
            method = replace(method, weaker=self.recorded(method.weaker))  # type: ignore[type-var]
        if isinstance(method, (AlphaMethod, ProgramMethod)):
            return replace(method, recorder=Recorder())
        return method

    def evidence(self, method: Method, problem: Problem, end: SearchEnd) -> Evidence:
        """What proves the radius of a search by such a method for a problem, a batch of one."""
        assert end.radius is not None
        while method.name != end.method and method.weaker is not None:
            method = method.weaker
        radius = float(problem.region.whole) if math.isinf(end.radius) else end.radius
        if isinstance(method, QuadraticMethod):
            return self._quadratic(method, problem, radius)
        return relaxation_evidence(self._record(method, problem, radius), radius, self.network)

    def record_by_lines(self, problem: Problem, ends: float) -> tuple[str, Record] | None:
        """The record of a proof that a problem about this network, a batch of one, holds in its region, with the name
        of the method whose lines prove it: one of `BY_LINES`, which take any activation; None: nothing does.

        ends: By the monotonic clock, when the ascent stops.
        """
        network, region, prop = problem.exact, problem.region, problem.prop
        for name in filter(self.proves, BY_LINES):
            method = self.recorded(find_method(name))
            if isinstance(method, AlphaMethod):
                method = replace(method, ends=ends)
            hidden = method.hidden(network, region, RECORDED)
            if bool((method.margins(network, region, prop, hidden, RECORDED) > 0).all()):
                return name, self._record(method, problem, float(region.radius[0]))
        return None

    def _record(self, method: Method, problem: Problem, radius: float) -> Record:
        if not isinstance(method, (AlphaMethod, ProgramMethod)):
            slopes = self._smooth_slopes(method, problem.at(radius))
            return Record([RuleName.of(method.name, method.bounds_stable_neurons(self.network), slopes)])
        record = None if method.recorder is None else method.recorder.take(problem.centre, problem.prop, radius)
        if record is None:
            raise ArithmeticError(LOST.format(radius))
        return record

    def forget(self, method: Method | None) -> None:
        """Drops what such a method, and those that it starts from, have kept."""
        while method is not None:
            if isinstance(method, (AlphaMethod, ProgramMethod)) and method.recorder is not None:
                method.recorder.clear()
            method = method.weaker

    def _smooth_slopes(self, method: Method, problem: Problem) -> dict[int, tuple[Tensor, ...]]:
        """The slopes of the lines around smooth activations by which a method bounds a problem's region."""
        if not isinstance(method, LinearMethod) or self.network.rectifiers_only:
            return {}
        hidden = method.hidden(problem.exact, problem.region, RECORDED)
        return smooth_slopes(problem.exact, method.relaxer, hidden)

    def _quadratic(self, method: QuadraticMethod, problem: Problem, radius: float) -> Evidence:
        certificates = method.evidence(problem.centre, problem.prop)
        if certificates is None or certificates.radius < radius:
            raise ArithmeticError(LOST.format(radius))
        slopes = self._smooth_slopes(method.weaker, problem.at(radius))
        rule = RuleName.of("crown", method.bounds_stable_neurons(self.network), slopes)
        return {**_evaluation(self.network), **quadratic_evidence(certificates, radius, rule)}


@dataclass(frozen=True, eq=False)
class ProofWriter:
    """Writes one file per certified answer into a folder, which is checked when built."""

    folder: Path
    network: Network
    shape: RegionShape

    def __post_init__(self) -> None:
        if self.shape.norm.p not in NORMS.values():
            raise InputError(f"proofs need the norm 1, 2 or inf, not {self.shape.norm}")
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is no folder for proofs")

    def write(self, inquiry: Inquiry, question: Question, evidence: Evidence) -> Path:
        """Writes the proof of one answer; it replaces the file of an earlier run."""
        path, problem = self._path(question), inquiry.problem(self.network, self.shape, [question])
        self.folder.mkdir(parents=True, exist_ok=True)
        write_proof(path, claimed(problem, question.image), evidence)
        return path

    def has(self, inquiry: Inquiry, question: Question, radius: float) -> bool:
        """Whether the file of an answer is there, and about this question and radius."""
        try:
            content = self._path(question).read_bytes()
        except OSError:
            return False
        problem = inquiry.problem(self.network, self.shape, [question])
        if math.isinf(radius):
            radius = float(problem.region.whole)
        claim = {**claimed(problem, question.image), "radius": radius}
        return is_about(content, claim, self.network.inference.name)

    def _path(self, question: Question) -> Path:
        """Where the proof of the answer to a question is written."""
        rival, _ = question.named(None)
        against = "" if rival is None else f"-class-{rival}"
        return self.folder / f"image-{question.image}{against}.json.gz"


def check_provable(method: str, network: Network) -> None:
    """Refuses a method whose certificates have no proof files."""
    if method not in PROVABLE:
        raise InputError(f"the method {method!r} writes no proofs; {', '.join(PROVABLE)} do")
    if method not in (*RULES, "alpha", "sdp"):
        check_rectifiers(network, f"a proof by {method!r}")
    if method == "alpha":
        _check_single_activations(network)
    if unknown := sorted({activation.name for activation in network.activations.values()} - {"relu", *FUNCTIONS}):
        raise InputError(f"no proof can be checked for the operations {', '.join(unknown)}")


def _check_single_activations(network: Network) -> None:
    """Refuses a network in which a value feeds a smooth activation and another one: its neurons have one slope each in
    the files of optimised slopes."""
    fed = Counter(network.source(value) for value in network.activations)
    for value, activation in network.activations.items():
        if not activation.rectifier and fed[network.source(value)] > 1:
            raise InputError(
                f"a proof by 'alpha' needs one activation of a value, and value {network.source(value)} feeds "
                f"{activation.name} and another one; {', '.join(RULES)} write proofs for any"
            )


def relaxation_evidence(record: Record, radius: float, network: Network) -> Evidence:
    """The fields of a proof file besides its claim, where linear relaxations prove it of a network as it is
    evaluated."""
    return {"format": FORMAT, **_evaluation(network), "radius": radius, "relaxation": relaxation_entry(record)}


def _evaluation(network: Network) -> dict[str, Any]:
    """What a proof file says about the evaluation of a network, and what it assumes about that of activations."""
    inference = network.inference
    assumed = {} if network.rectifiers_only or not inference.rounds else {"activation_ulps": ACTIVATION_ULPS}
    return {"inference": inference.name, **assumed}


def claimed(problem: Problem, index: int) -> dict[str, Any]:
    """What the proof of a problem, a batch of one, about image number `index` claims, but for the radius."""
    network, region, prop = problem.network, problem.region, problem.prop
    values = problem.centre.tolist()
    return {
        "network": {"name": network.name, "sha256": fingerprint(network, network.inference.rounds)},
        "image": {"index": index, "sha256": image_digest(values), "values": values},
        "rows": prop.rows[0].tolist(),
        "offsets": prop.offsets[0].tolist(),
        "norm": "inf" if math.isinf(region.norm.p) else region.norm.p,
        "box": None if region.box is None else [_ends(end) for end in region.box],
        "scale": None if region.scale is None else region.scale.tolist(),
    }


def _ends(end: Tensor) -> list[float | None]:
    """One number per coordinate; None where there is no limit."""
    return [value if math.isfinite(value) else None for value in end.tolist()]


def is_about(content: bytes, claim: dict[str, Any], inference: str = "real") -> bool:
    """Whether a file's content is a proof of the same claim, whatever its radius."""
    try:
        document = document_of(content)
    except (*UNREADABLE, Rejected):
        return False
    if not isinstance(document, dict) or document.get("inference", "real") != inference:
        return False
    return all(document.get(name) == value for name, value in claim.items())


def write_proof(path: Path, claim: dict[str, Any], evidence: Evidence) -> None:
    """Writes the proof of a claim; compressed where the name ends in .gz."""
    content = json.dumps({**claim, **evidence}, allow_nan=False).encode()
    files.write(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
