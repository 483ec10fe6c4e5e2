"""`relucert.estimate`: CLEVER, from "Evaluating the Robustness of Neural Networks: An Extreme Value Theory Approach".

Gradients are sampled in a ball; the largest of each of many batches follow a reverse Weibull distribution, whose end
estimates the margin's Lipschitz constant there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relucert.answers import Estimate
from relucert.checks import check_positive, check_whole
from relucert.clever.gradients import largest_gradients
from relucert.clever.weibull import FitError, WeibullFit, fit
from relucert.errors import InputError
from relucert.loading import load
from relucert.network import Network
from relucert.norm import Norm
from relucert.query.inputs import check_box
from relucert.query.property import Property, parse_target
from relucert.query.questions import Question, pose
from relucert.report.answer_list import Answers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

METHOD = "clever"
RADII = (30.0, 3.0, 0.1)  # of the sampled ball for p = 1, 2 and inf, as in the original
ALIKE = "every batch found the same largest gradient, which is taken for the distribution's end"
Progress = Callable[[int, int], None]


def estimate(
    network: Network | torch.nn.Module | str,
    images: ArrayLike | Tensor,
    labels: Sequence[int] | ArrayLike | Tensor | None = None,
    **options: Any,
) -> Answers[Estimate]:
    """CLEVER's estimate for every image, in the images' order; the options are those of `estimate_each`."""
    return Answers(estimate_each(network, images, labels, **options))


def estimate_each(
    network: Network | torch.nn.Module | str,
    images: ArrayLike | Tensor,
    labels: Sequence[int] | ArrayLike | Tensor | None = None,
    *,
    norm: str | float | Norm = "inf",
    target: str | int = "untargeted",
    radius: float | None = None,
    batches: int = 500,
    samples: int = 1024,
    box: tuple[float, float] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Estimate]:
    """Estimates one by one, in the images' order (with target "all": an image's rivals in turn).

    network, images, labels, norm, target: as for `certify_each`.
    radius: of the ball that is sampled; by default 30 for p = 1, 3 for p = 2, 0.1 for p = inf, and between them.
    batches, samples: how many batches of how many samples; the distribution is fitted to the batches' largest.
    box: the least and the largest valid pixel, to which samples are clipped; None: they are not.
    seed: the same seed gives the same estimates, whatever other images are asked about.
    progress: called with how many batches are done, and how many there are.
    """
    known = load(network)
    parsed = Norm.parse(norm)
    options = _Options(parsed, parsed.between(*RADII) if radius is None else radius, batches, samples, box, seed)
    goal = parse_target(target, known.classes)
    asked = pose(known, images, labels, goal, seed)
    return _Estimator(known.cast(torch.float32), options, progress).run(asked.images, asked.scores, asked.questions)


@dataclass(frozen=True)
class _Options:
    """How to sample, checked when built."""

    norm: Norm
    radius: float
    batches: int
    samples: int
    box: tuple[float, float] | None
    seed: int

    def __post_init__(self) -> None:
        check_positive("radius of the sampled ball", self.radius)
        check_whole("seed", self.seed, 0, 2**63 - 1)
        for name, count in (("batches", self.batches), ("samples", self.samples)):
            if type(count) is not int or count < 1:
                raise InputError(f"the number of {name} must be a whole number >= 1, not {count!r}")
        check_box(self.box)


@dataclass(frozen=True)
class _Rival:
    """One rival: its margin at the centre, the largest gradient sampled, and the fit or why there is none."""

    margin: float
    largest: float
    fit: WeibullFit | str


class _Estimator:
    """Answers questions about one network, image by image."""

    def __init__(self, network: Network, options: _Options, progress: Progress | None) -> None:
        self.network, self.options, self.progress = network, options, progress
        self.done = self.total = 0

    def run(self, images: Tensor, scores: Tensor, questions: list[Question]) -> Iterator[Estimate]:
        self.total = self.options.batches * len({question.image for question in questions if not question.refusal})
        for image, group in groupby(questions, key=lambda question: question.image):
            own = list(group)
            if own[0].refusal is not None:
                yield from (self._answer(question, question.refusal, 0.0) for question in own)
            else:
                yield from self._image(images[image], scores[image], own)

    def _image(self, centre: Tensor, scores: Tensor, questions: list[Question]) -> list[Estimate]:
        """All rivals of one image, in one pass over the samples."""
        started = time.perf_counter()
        against = [rival for question in questions for rival in question.rivals]
        prop = Property(torch.tensor([questions[0].label]), torch.tensor([against]))
        rows = prop.rows(self.network.classes, torch.float64)[0]
        margins = dict(zip(against, (rows @ scores).tolist(), strict=True))
        with torch.inference_mode():
            maxima = self._sample(centre, rows.float(), questions[0]).double().numpy()
        rivals = {
            rival: _Rival(margins[rival], float(column.max()), _fitted(column))
            for rival, column in zip(against, maxima.T, strict=True)
        }
        seconds = (time.perf_counter() - started) / len(questions)
        return [self._conclude(question, rivals, seconds) for question in questions]

    def _sample(self, centre: Tensor, rows: Tensor, question: Question) -> Tensor:
        """The largest gradients of every batch: (batches, rows)."""
        options, point = self.options, centre.float()
        generator = question.generator(options.seed)

        def draw(count: int) -> Tensor:
            offsets = options.norm.scattered(count, len(point), generator, torch.float32)
            points = point + options.radius * offsets
            return points if options.box is None else points.clamp(*options.box)

        found = []
        for _ in range(options.batches):
            found.append(largest_gradients(self.network, draw, rows, options.norm, options.samples))
            self.done += 1
            if self.progress is not None:
                self.progress(self.done, self.total)
        return torch.stack(found)

    def _conclude(self, question: Question, rivals: dict[int, _Rival], seconds: float) -> Estimate:
        """The least value over the rivals, if all of them have one."""
        own = {rival: rivals[rival] for rival in question.rivals}
        reaches = [self._reach(rival.margin, rival.largest) for rival in own.values() if math.isfinite(rival.largest)]
        sampled = min(reaches) if len(reaches) == len(own) else None
        values: dict[int, float] = {}
        for number, rival in own.items():
            if isinstance(rival.fit, str):
                reason = f"no fit against class {number}: {rival.fit}"
                reason += "" if sampled is None else f"; unfitted, the samples say {sampled:.4g}"
                return self._answer(question, reason, seconds, sampled=sampled)
            values[number] = self._reach(rival.margin, rival.fit.location)
        weakest = min(values, key=lambda number: values[number])
        best = own[weakest].fit
        assert isinstance(best, WeibullFit)
        found = {"target": weakest, "value": values[weakest], "sampled": sampled, **asdict(best)}
        return self._answer(question, ALIKE if best.shape is None else None, seconds, **found)

    def _reach(self, margin: float, steepest: float) -> float:
        """How far the margin lasts, within the ball that was sampled."""
        return min(margin / steepest, self.options.radius) if steepest > 0 else self.options.radius

    def _answer(self, question: Question, reason: str | None, seconds: float, **found: Any) -> Estimate:
        single = len(question.rivals) == 1 and question.refusal is None
        absent = dict.fromkeys(("value", "sampled", *WeibullFit.__dataclass_fields__))
        options = self.options
        return Estimate(
            image=question.image, label=question.label, norm=options.norm.p, method=METHOD, reason=reason,
            seconds=seconds, radius=options.radius, batches=options.batches, samples=options.samples,
            **{**absent, "target": question.rivals[0] if single else None, **found},
        )  # fmt: skip


def _fitted(maxima: Any) -> WeibullFit | str:
    """The fit, or why there is none."""
    try:
        return fit(maxima)
    except FitError as error:
        return str(error)
