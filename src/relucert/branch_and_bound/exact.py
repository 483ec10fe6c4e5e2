"""`relucert.exact`: the minimum distortion of every image, as an interval with a proven and a witnessed end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relucert.answers import Exact
from relucert.api import certify
from relucert.attacks.attack import FAULTS, at_image, attack, check_inside, overtaken
from relucert.attacks.witness import Judge, Witness
from relucert.branch_and_bound import proof as proofs
from relucert.branch_and_bound.nodes import Region
from relucert.branch_and_bound.search import Search
from relucert.checks import check_number, check_whole
from relucert.errors import InputError
from relucert.loading import load
from relucert.network import Network
from relucert.norm import Norm
from relucert.query.inputs import check_box
from relucert.query.property import Property, parse_target
from relucert.query.questions import Question, pose
from relucert.report.answer_list import Answers
from relucert.rigor import check_subnormals
from relucert.storage import files

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METHOD = "branch-and-bound"
ATTACK_STEPS = 40
ATTACK_SHARE = 0.3  # of the time limit, for the attack
UNREACHABLE = "no valid input at all is adversarial"
UNKNOWN = "no adversarial example is known"
Box = tuple[float, float]


@dataclass(frozen=True)
class Progress:
    """How far the search for one image is: its interval so far, the nodes bounded, how many a second."""

    image: int
    lower: float
    upper: float | None
    nodes: int
    rate: float


def exact(
    network: Network | torch.nn.Module | str,
    images: ArrayLike | Tensor,
    labels: Sequence[int] | ArrayLike | Tensor | None = None,
    **options: Any,
) -> Answers[Exact]:
    """The minimum distortion of every image, in the images' order; the options are those of `exact_each`."""
    return Answers(exact_each(network, images, labels, **options))


def exact_each(
    network: Network | torch.nn.Module | str,
    images: ArrayLike | Tensor,
    labels: Sequence[int] | ArrayLike | Tensor | None = None,
    *,
    norm: str | float | Norm = "inf",
    target: str | int = "untargeted",
    box: Box | None = (-0.5, 0.5),
    tolerance: float = 1e-3,
    time_limit: float | None = 60.0,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
    proof: str | Path | None = None,
) -> Iterator[Exact]:
    """Intervals one by one, in the images' order (with target "all": an image's rivals in turn).

    network, images, labels, target: as for `certify_each`; norm: "inf", "2" or "1".
    box: the least and the largest valid pixel; None: every input is valid.
    tolerance: how wide, relatively, an interval may be that counts as closed.
    time_limit: seconds an answer; None: as long as it takes. What was proven by then is returned.
    seed: of random targets and of the attack's random starts.
    progress: called now and then while a search goes on.
    proof: a file for the proof of the lower end, which `relucert check` verifies; for one question only.

    Everything is checked at the call; the work is done as answers are asked for.
    """
    known = load(network)
    options = _Options(
        Norm.parse(norm), box, tolerance, time_limit, seed, None if proof is None else Path(proof)
    )  # fmt: skip
    asked = pose(known, images, labels, parse_target(target, known.classes), seed)
    check_inside(asked.images, box)
    if options.proof is not None:
        if len(asked.questions) != 1:
            raise InputError(f"a proof is about one question, and these are {len(asked.questions)}")
        files.check_writable(options.proof)
    check_subnormals()
    return (
        _Answering(known, options, progress, asked.images[own.image], asked.scores[own.image], own).run()
        for own in asked.questions
    )


@dataclass(frozen=True)
class _Options:
    """How to search, checked when built; the meanings stand at `exact_each`."""

    norm: Norm
    box: Box | None
    tolerance: float
    time_limit: float | None
    seed: int
    proof: Path | None

    def __post_init__(self) -> None:
        if self.norm.body is None:
            raise InputError(
                f"an exact answer needs the norm 1, 2 or inf, not {self.norm}; with another, `certify` and `attack` "
                "bound it from both sides"
            )
        check_box(self.box)
        check_number("tolerance", self.tolerance, 1e-6, 0.5)
        if self.time_limit is not None:
            check_number("time limit", self.time_limit, 0, 1e9)
        check_whole("seed", self.seed, 0, 2**63 - 1)


class _Answering:
    """One question on its way to an answer. Whatever fails, the interval so far stands."""

    def __init__(
        self, network: Network, options: _Options, progress: Callable[[Progress], None] | None,
        image: Tensor, scores: Tensor, question: Question,
    ) -> None:  # fmt: skip
        self.network, self.options, self.progress = network, options, progress
        self.image, self.scores, self.question = image, scores, question

    def run(self) -> Exact:
        self.started = time.monotonic()
        self.ends = self.started + (math.inf if self.options.time_limit is None else self.options.time_limit)
        question = self.question
        if overtaken(self.scores, question):
            judge = Judge(self.network, self.options.norm, self.options.box)
            witness, reason = at_image(judge, self.image, self.scores, question)
            if witness is not None or question.misclassified:
                return self._answer(0.0, witness, witness is not None, reason, 0)
        if question.refusal is not None:
            return self._answer(None, None, False, question.refusal, 0)
        search, failure = None, None
        lower, witness = self._certified(), None
        try:
            witness = self._attacked()
            search = self._search(lower, witness)
            with torch.inference_mode():
                search.run()
        except FAULTS as error:
            failure = " ".join(f"the search broke down: {type(error).__name__}: {error}".split())
        if search is None:
            return self._answer(lower, witness, False, failure, 0)
        return self._conclude(search, lower, failure or search.failure)

    def _conclude(self, search: Search, lower: float, failure: str | None) -> Exact:
        if search.tree is not None and search.lower > 0:
            assert self.options.proof is not None
            proofs.write(
                self.options.proof, self.network, search.region, search.tree, self.question.label,
                self.question.rivals, search.lower,
            )  # fmt: skip
        lower, witness = max(lower, search.lower), search.witness
        if witness is None and lower >= search.whole:
            return self._answer(None, None, True, UNREACHABLE, search.nodes)
        closed = witness is not None and lower >= witness.distance * (1 - self.options.tolerance)
        reason = None if closed else failure or UNKNOWN
        return self._answer(lower, witness, closed, reason, search.nodes)

    def _certified(self) -> float:
        """Fast-Lin's radius: proven at once, and without the box."""
        (found,) = certify(self.network, self.image[None], [self.question.label], **self._asked())
        return found.radius or 0.0

    def _attacked(self) -> Witness | None:
        left = self.ends - time.monotonic()
        if left <= 0:
            return None
        (found,) = attack(
            self.network, self.image[None], [self.question.label], **self._asked(), box=self.options.box,
            seed=self.options.seed, steps=ATTACK_STEPS, time_limit=None if math.isinf(left) else left * ATTACK_SHARE,
        )  # fmt: skip
        if found.witness is None or found.distance is None:
            return None
        return Witness(found.witness.flatten(), found.distance)

    def _asked(self) -> dict[str, Any]:
        rivals = self.question.rivals
        return {"norm": self.options.norm, "target": rivals[0] if len(rivals) == 1 else "untargeted"}

    def _search(self, lower: float, witness: Witness | None) -> Search:
        options, question = self.options, self.question
        prop = Property(torch.tensor([question.label]), torch.tensor([question.rivals]))
        margins = prop.rows(self.network.classes, torch.float64)[0]
        region = Region(self.network, self.image, options.norm, options.box, margins)
        tree = None if options.proof is None else proofs.Tree(len(margins))
        return Search(
            region, Judge(self.network, options.norm, options.box), question.label, question.rivals,
            options.tolerance, self.ends, lower, witness, self._report, tree,
        )  # fmt: skip

    def _report(self, nodes: int, lower: float, upper: float | None) -> None:
        if self.progress is not None:
            rate = nodes / max(1e-9, time.monotonic() - self.started)
            self.progress(Progress(self.question.image, lower, upper, nodes, rate))

    def _answer(
        self, lower: float | None, witness: Witness | None, closed: bool, reason: str | None, nodes: int
    ) -> Exact:
        question, options = self.question, self.options
        target = question.rivals[0] if len(question.rivals) == 1 and question.refusal is None else None
        example = upper = None
        if witness is not None:
            example, upper = witness.point.reshape(self.network.input_shape).clone(), witness.distance
            if question.refusal is None:
                scores = self.network.cast(torch.float64)(witness.point.double()[None])[0]
                target = max(question.rivals, key=lambda rival: float(scores[rival]))
        return Exact(
            question.image, question.label, target, options.norm.p, METHOD, lower, upper, closed, example, options.box,
            reason, time.monotonic() - self.started, nodes,
        )  # fmt: skip
