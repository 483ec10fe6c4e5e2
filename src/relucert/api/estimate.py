"""`relucert.estimate`: CLEVER, from "Evaluating the Robustness of Neural Networks: An Extreme Value Theory Approach".

Gradients are sampled in a ball; the largest of each of many batches follow a reverse Weibull distribution, whose end
estimates the margin's Lipschitz constant there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from relucert.answers.certificates import Estimate
from relucert.api.arguments import Arguments, one_by_one
from relucert.arithmetic.norm import NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.common.checks import check_positive, check_seed, check_whole
from relucert.common.numbers import NumberLike, number_above
from relucert.common.progress import Progress, ProgressLike, Report
from relucert.errors import FAULTS, in_one_line
from relucert.estimates.gradients import largest_gradients
from relucert.estimates.weibull import FitError, WeibullFit, fit
from relucert.execution.execution import Execution
from relucert.execution.job import by_images
from relucert.inputs.storage.store import StoreLike
from relucert.network import Network
from relucert.query.questions import Inquiry, Question
from relucert.query.types import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike
from relucert.report.answer_list import Answers

METHOD = "clever"
RADII = (30.0, 3.0, 0.1)  # of the sampled ball for p = 1, 2 and inf, as in the original
ALIKE = "every batch found the same largest gradient, which is taken for the distribution's end"
UNFITTED = "the largest sampled gradient counts instead"


def estimate(
    network: NetworkLike,
    images: ImagesLike,
    labels: LabelsLike | None = None,
    *,
    norm: NormLike = "inf",
    target: TargetLike = "untargeted",
    property: Property | None = None,
    radius: NumberLike | None = None,
    batches: int = 500,
    samples: int = 1024,
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    seed: int = 0,
    input_shape: tuple[int, ...] | None = None,
    workers: int | Execution | None = None,
    ray: str | None = None,
    store: StoreLike | None = None,
    progress: ProgressLike = None,
) -> Answers[Estimate]:
    """CLEVER's estimate for every image, in the images' order (with target "all": an image's rivals in turn).

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name.
        images: An array or a tensor, one row per image, in the network's own input range, or a data set: relucert's, or
            a torch Dataset or DataLoader of image and label. A row has the input's shape, or is flat, or differs by
            axes of length one.
        labels: One class per image; by default those of the data set, else the network's predictions.
        norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1.
        target: As for `certify`.
        property: As for `certify`, in place of labels and targets.
        box: The valid inputs, as for `certify`; samples are clipped to it.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        radius: Of the region that is sampled; by default 30 for p = 1, 3 for p = 2, 0.1 for p = inf, and between them.
        batches: How many batches are sampled; the distribution is fitted to the largest gradient of each.
        samples: How many samples each batch has.
        seed: The same seed gives the same estimates, whatever other images are asked about.
        input_shape: Of one image, where neither the network nor the images tell it.
        workers: As for `certify`.
        ray: As for `certify`.
        store: A file that keeps the answers, as for `certify`.
        progress: As for `certify`.
    """
    return Answers(estimate_each(**locals()))


@one_by_one(estimate)
def estimate_each(arguments: Arguments, radius: NumberLike | None, batches: int, samples: int) -> Iterator[Estimate]:
    """The estimates of `estimate`, one by one as they are found.

    Everything is checked at the call; the work is done as answers are asked for.
    """
    posed = arguments.pose()
    if radius is None:
        sampled = posed.shape.norm.between(*RADII)
    else:
        sampled = number_above(radius, "the radius of the sampled region")
    options = _EstimateOptions(posed.shape, sampled, batches, samples, arguments.seed)
    estimator = _Estimator(posed.network.cast(torch.float32), options)
    return posed.start("estimate", estimator, by_images(posed.inquiry, 1), options)


@dataclass(frozen=True)
class _EstimateOptions:
    """The options of sampling, checked when built."""

    shape: RegionShape
    radius: float
    batches: int
    samples: int
    seed: int

    def __post_init__(self) -> None:
        check_positive("radius of the sampled region", self.radius)
        check_seed(self.seed)
        for name, count in (("batches", self.batches), ("samples", self.samples)):
            check_whole(f"number of {name}", count, 1, 10**9)


@dataclass(frozen=True)
class _Rival:
    """The samples of one rival: its margin at the centre, the largest gradient, and the fit or why it failed."""

    margin: float
    largest: float
    fit: WeibullFit | str

    @property
    def steepest(self) -> float:
        """The distribution's end; where none could be fitted, the largest gradient sampled."""
        return self.fit.location if isinstance(self.fit, WeibullFit) else self.largest


@dataclass(frozen=True, eq=False)
class _Estimator:
    """Answers questions about one network, those about one image at a time."""

    network: Network
    options: _EstimateOptions

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[Estimate]]:
        """Yields the answers, which are about one image, all at once."""
        if inquiry.questions[0].refusal is not None:
            yield [self._answer(question, question.refusal, 0.0) for question in inquiry.questions]
        else:
            yield self._image(inquiry, report)

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Estimate:
        """The answer to a question whose worker process died."""
        return self._answer(question, reason, 0.0, failed=True)

    def _image(self, inquiry: Inquiry, report: Report) -> list[Estimate]:
        """The answers about all rivals of the image, in one pass over the samples."""
        started, questions = time.perf_counter(), inquiry.questions
        image = questions[0].image
        against = [rival for question in questions for rival in question.rivals]
        prop = inquiry.property([replace(questions[0], rivals=against)])
        rows = prop.rows[0]
        margins = dict(zip(against, prop.values(inquiry.scores[image][None])[0].tolist(), strict=True))
        try:
            with torch.inference_mode():
                maxima = self._sample(inquiry.images[image], rows.float(), questions[0], report).double().numpy()
            rivals = {
                rival: _Rival(margins[rival], float(column.max()), _fitted(column))
                for rival, column in zip(against, maxima.T, strict=True)
            }
        except FAULTS as error:
            seconds = (time.perf_counter() - started) / len(questions)
            reason = f"the sampling broke down: {in_one_line(error)}"
            return [self._answer(question, reason, seconds, failed=True) for question in questions]
        seconds = (time.perf_counter() - started) / len(questions)
        return [self._conclude(question, rivals, seconds) for question in questions]

    def _sample(self, centre: Tensor, rows: Tensor, question: Question, report: Report) -> Tensor:
        """The largest dual norm of every row's gradient in every batch: (batches, rows)."""
        options, point = self.options, centre.float()
        shape, generator = options.shape, question.generator(options.seed)
        box = None if shape.box is None else shape.box.cast(torch.float32)
        scale = None if shape.scale is None else shape.scale.float()

        def draw(count: int) -> Tensor:
            offsets = shape.norm.scattered(count, len(point), generator, torch.float32)
            points = point + options.radius * (offsets if scale is None else scale * offsets)
            return points if box is None else torch.clamp(points, *box)

        maxima = []
        for batch in range(options.batches):
            report(Progress(image=question.image, stage="samples", part="batches", step=batch, steps=options.batches))
            maxima.append(largest_gradients(self.network, draw, rows, shape.norm, scale, options.samples))
        return torch.stack(maxima)

    def _conclude(self, question: Question, rivals: dict[int, _Rival], seconds: float) -> Estimate:
        """The least value over the question's rivals; none where a gradient is no finite number."""
        selected = {number: rivals[number] for number in question.rivals}
        for number, rival in selected.items():
            if not math.isfinite(rival.largest):
                reason = f"no estimate {_against(question, [number])}: {rival.fit}"
                return self._answer(question, reason, seconds)
        sampled = min(self._distance(rival.margin, rival.largest) for rival in selected.values())
        values = {number: self._distance(rival.margin, rival.steepest) for number, rival in selected.items()}
        weakest = min(values, key=lambda number: values[number])
        weibull = selected[weakest].fit
        fitted = asdict(weibull) if isinstance(weibull, WeibullFit) else {}
        remark, index = _remark(question, selected, weakest), question.rivals.index(weakest)
        return self._answer(question, remark, seconds, index, value=values[weakest], sampled=sampled, **fitted)

    def _distance(self, margin: float, steepest: float) -> float:
        """The distance over which a margin with this Lipschitz constant stays positive, at most the sampled radius."""
        return min(margin / steepest, self.options.radius) if steepest > 0 else self.options.radius

    def _answer(
        self, question: Question, reason: str | None, seconds: float, weakest: int | None = None, **fields: Any
    ) -> Estimate:
        absent = dict.fromkeys(("value", "sampled", *WeibullFit.__dataclass_fields__))
        options = self.options
        return Estimate(
            **question.fields(options.shape, weakest), **{**absent, **fields}, method=METHOD, reason=reason,
            seconds=seconds, sampling_radius=options.radius, batches=options.batches, samples=options.samples,
        )  # fmt: skip


def _remark(question: Question, rivals: dict[int, _Rival], weakest: int) -> str | None:
    """The remark which rivals have no fit, or that the weakest rival's distribution is a point; else None."""
    weibull = rivals[weakest].fit
    if isinstance(weibull, str):
        return f"no fit {_against(question, [weakest])}: {weibull}; {UNFITTED}"
    unfitted = [number for number, rival in rivals.items() if isinstance(rival.fit, str)]
    if unfitted:
        return f"no fit {_against(question, unfitted)}: there {UNFITTED}"
    return ALIKE if weibull.shape is None else None


def _against(question: Question, numbers: list[int]) -> str:
    """These rivals, or rows of a stated property, in words."""
    return f"{'of row' if question.label is None else 'against class'} {', '.join(map(str, numbers))}"


def _fitted(maxima: Any) -> WeibullFit | str:
    """The fit, or why it failed."""
    try:
        return fit(maxima)
    except FitError as error:
        return str(error)
