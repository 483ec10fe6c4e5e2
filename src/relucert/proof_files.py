"""Proofs of certificates as files: what is claimed, and the rule by which everything that proves it follows."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path

from relucert.branch_and_bound.proof import claimed
from relucert.checker.document import BOUND_FORMAT, BOUND_RULES, NORMS
from relucert.checker.quadratic_document import QUADRATIC_FORMAT
from relucert.errors import InputError
from relucert.methods.method import Method
from relucert.methods.sdp import QuadraticMethod
from relucert.network import Network
from relucert.query.questions import Inquiry, Question
from relucert.region import RegionShape
from relucert.storage import files

WRITERS = (*BOUND_RULES, "sdp")  # the methods whose certificates have proofs


@dataclass(frozen=True, eq=False)
class ProofWriter:
    """Writes one file per certified answer into a folder, which is checked when built."""

    folder: Path
    network: Network
    method: Method
    shape: RegionShape

    def __post_init__(self) -> None:
        from relucert.checker.integers import is_chain

        name = self.method.name
        if name not in WRITERS:
            raise InputError(f"the method {name!r} writes no proofs; {', '.join(WRITERS)} do")
        if self.shape.norm.p not in NORMS.values():
            raise InputError(f"proofs need the norm 1, 2 or inf, not {self.shape.norm}")
        if name == "sdp" and not is_chain(self.network):
            raise InputError("proofs of sdp need a chain of linear layers or convolutions and ReLUs")
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is no folder for proofs")

    def write(self, inquiry: Inquiry, question: Question, radius: float | None, due_to: str | None) -> Path | None:
        """Writes the proof of one answer, if there is a radius; it replaces the file of an earlier run.

        due_to: the method that proved it.
        """
        if radius is None:
            return None
        image = inquiry.images[question.image]
        if math.isinf(radius):
            radius = float(self.shape.around(image[None]).whole)
        claim = claimed(self.network, question.image, image, self.shape, inquiry.property([question]))
        document = {**claim, "radius": radius, "by_intervals": not self.method.bounds_stable_neurons(self.network)}
        evidence = None
        if isinstance(self.method, QuadraticMethod):
            evidence = self.method.evidence(image, inquiry.property([question]).rows[0])
        if evidence is not None and evidence.radius >= radius:
            document |= {"format": QUADRATIC_FORMAT, "radius": evidence.radius, **evidence.document()}
        else:
            document |= {"format": BOUND_FORMAT, "rule": due_to, "inference": self.network.inference.name}
        rival = f"-class-{question.rivals[0]}" if len(question.rivals) == 1 else ""
        path = self.folder / f"image-{question.image}{rival}.json.gz"
        self.folder.mkdir(parents=True, exist_ok=True)
        files.write(path, gzip.compress(json.dumps(document, allow_nan=False).encode(), mtime=0))
        return path
