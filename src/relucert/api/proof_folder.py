"""The check of proof files against a network, images and a property, by several processes where it takes long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch

from relucert.checker.check import Claim, QueryClaim, check_claim, network_of
from relucert.checker.claim import RadiusClaim
from relucert.checker.document import QueryProof, Rejected, read
from relucert.checker.entries import MOST_BYTES
from relucert.checker.query_check import check_query
from relucert.common.progress import Report, silent
from relucert.errors import FAULTS, RelucertError, in_one_line
from relucert.execution.execution import Execution
from relucert.inputs.loading import zoo
from relucert.network import Network
from relucert.query.inputs import check_images
from relucert.query.samples import Samples


@dataclass(frozen=True)
class Checked:
    """The result of checking one proof file.

    Attributes:
        claim: The claim that the file proves; None where it proves nothing.
        reason: Why it proves nothing; else empty.
        seconds: Processor time of the check.
    """

    path: Path
    claim: Claim | QueryClaim | None
    reason: str
    seconds: float


@dataclass(frozen=True, eq=False)
class ProofSubject:
    """The subject that proofs must have; fields that are None are not compared.

    Attributes:
        network: The network; None: the bundled or built one of the name that a proof gives.
        samples: The images, in any shape that fits the network.
        layout: The order of the images' axes, as for `check_images`.
        text: A property, in VNN-LIB 1.0.
        most_bytes: How large a file may be once it is unpacked.
    """

    network: Network | None = None
    samples: Samples | None = None
    layout: str | None = None
    text: str | None = None
    most_bytes: int = MOST_BYTES
    _rows: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    def check(self, path: Path, progress: Callable[[int, int], None] | None = None) -> Checked:
        """Checks one file; where it is wrong or can't be read, the result says why."""
        started = time.process_time()
        claim, reason = None, ""
        try:
            claim = self._claim(read(path, self.most_bytes), progress)
        except Rejected as error:
            reason = f"rejected: {error}"
        except RelucertError as error:
            reason = f"not checked: {error}"
        except FAULTS as error:
            reason = f"not checked: {in_one_line(error)}"
        return Checked(path, claim, reason, time.process_time() - started)

    def _claim(
        self, proof: RadiusClaim | QueryProof, progress: Callable[[int, int], None] | None
    ) -> Claim | QueryClaim:
        network = network_of(proof, self.network or _zoo_network(proof.name))
        if isinstance(proof, QueryProof):
            if self.text is None and self.samples is not None:
                raise Rejected("it is about a property, and not about an image")
            if self.text is not None and proof.text != self.text:
                raise Rejected("it is about another property")
            return check_query(proof, network, progress)
        if self.samples is None and self.text is not None:
            raise Rejected("it is about an image, and not about a property")
        return check_claim(proof, network, progress, self._images(proof.sha256, network))

    def _images(self, sha256: str, network: Network) -> torch.Tensor | None:
        """The images as rows in the order of a network's input; None where there are none."""
        if self.samples is not None and sha256 not in self._rows:
            self._rows[sha256] = check_images(self.samples.images, network, self.layout or self.samples.layout)
        return self._rows.get(sha256)


def proof_paths(folder: Path) -> list[Path]:
    """The files of a folder that are named like proofs, by name."""
    return sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")) and path.is_file())


@dataclass(frozen=True)
class _Files:
    """The work of checking files, whichever process does it."""

    paths: Sequence[Path]
    subject: ProofSubject
    most_workers: None = None
    divisible: bool = False

    def answer(self, numbers: Sequence[int], report: Report = silent) -> Iterator[Sequence[Checked]]:
        for number in numbers:
            yield [self.subject.check(self.paths[number])]

    def lost(self, number: int, reason: str) -> Checked:
        return Checked(self.paths[number], None, f"not checked: {reason}", 0.0)


def check_all(paths: Sequence[Path], subject: ProofSubject, workers: int | None = None) -> Iterator[Checked]:
    """Yields the result of each file, in no order.

    workers: how many processes; 1: this one. None: this one at first, then one process per core if that would take
    long.
    """
    with Execution(workers) as execution:
        for results in execution.run(_Files(paths, subject), [(number,) for number in range(len(paths))], len(paths)):
            yield from (checked for _, checked in results)


@lru_cache(maxsize=4)
def _zoo_network(name: str) -> Network | None:
    """The bundled or built network of a name, None where there is none; loaded once for many proofs."""
    return zoo.load(name) if name in zoo.names() else None
