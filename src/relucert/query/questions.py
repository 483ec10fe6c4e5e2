"""The questions of a call: each about an image, its label and its rivals, or with a reason why it has no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relucert.answers.certificates import OWN_LABEL
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.common.checks import shown
from relucert.errors import InputError
from relucert.inputs.loading.runtime import Loaded, Source
from relucert.network import Network, Shape
from relucert.query.inputs import check_any, check_images, check_labels
from relucert.query.plausible import warn_of_accuracy, warn_of_range
from relucert.query.problem import Problem
from relucert.query.samples import read_samples
from relucert.query.shapes import load_fitting
from relucert.query.targets import Target, parse_target, rivals
from relucert.query.types import ImagesLike, LabelsLike, NetworkLike, TargetLike

SEED_STEP = 1_000_003  # between the seeds of two images: larger than the seeds that users choose
VIOLATED = "the property is violated at the image itself"


@dataclass(frozen=True, eq=False)
class Question:
    """A question about one image, which gets one answer.

    Attributes:
        image: The number of the image.
        label: Its class; None for a stated property.
        rivals: The classes that must stay below it, or the rows of a stated property.
        refusal: Why the question has no answer; None where it has one.
        misclassified: Whether the image itself violates the specification.
    """

    image: int
    label: int | None
    rivals: list[int]
    refusal: str | None
    misclassified: bool = False

    def named(self, index: int | None) -> tuple[int | None, int | None]:
        """The target and the row to name in an answer, of which one or both are None.

        index: That of the rival or the row; None: the only one, if there is only one.
        """
        if self.refusal is None and index is None and len(self.rivals) == 1:
            index = 0
        if self.refusal is not None or index is None:
            return None, None
        return (None, self.rivals[index]) if self.label is None else (self.rivals[index], None)

    def fields(self, shape: RegionShape, index: int | None) -> dict[str, Any]:
        """The fields of an answer that tell what was asked, with regions of a shape; index: as for `named`."""
        target, row = self.named(index)
        asked = {"image": self.image, "label": self.label, "target": target, "row": row}
        return asked | {"norm": shape.norm.p, "box": shape.given_box, "input_scale": shape.scale}

    def generator(self, seed: int) -> torch.Generator:
        """A random generator for this image, the same whatever the other questions are."""
        return torch.Generator().manual_seed((seed + SEED_STEP * self.image) % 2**63)


@dataclass(frozen=True, eq=False)
class Inquiry:
    """All questions of a call about images.

    Attributes:
        images: Checked, (batch, size), in float64.
        scores: The network's outputs there, (batch, classes), in float64.
        questions: In the order of their answers.
        stated: The property that is asked about in place of labels and rivals, one batch member per image.
    """

    images: Tensor
    scores: Tensor
    questions: list[Question]
    stated: Property | None = None

    def overtaken(self, question: Question) -> bool:
        """Whether a margin at the image itself, computed in float64, is not positive."""
        if question.misclassified or question.refusal is not None:
            return question.misclassified
        return bool((self.property([question]).values(self.scores[question.image][None]) <= 0).any())

    def property(self, questions: Sequence[Question]) -> Property:
        """The property of questions that all have the same number of rows: one batch member per question."""
        if self.stated is not None:
            return self.stated.select(torch.tensor([question.image for question in questions]))
        labels = torch.tensor([question.label for question in questions])
        rivals = torch.tensor([question.rivals for question in questions])
        return Property.margins(labels, rivals, self.scores.shape[1])

    def problem(self, network: Network, shape: RegionShape, questions: Sequence[Question]) -> Problem:
        """The problem of questions that all have the same number of rows, with regions of a shape: one batch member per
        question."""
        first, last = questions[0].image, questions[-1].image
        which = None if len(questions) == 1 else torch.tensor([question.image - first for question in questions])
        region = shape.around(self.images[first : last + 1], which=which)
        return Problem(network, region, self.property(questions))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A loaded network, its source, images (batch, size) in the order of its input, and labels as they were given."""

    network: Network
    images: Tensor
    labels: Any
    source: Source


def check_stated(stated: object, labels: object, target: object) -> None:
    """Refuses a property together with labels or a target, and what is no property."""
    if stated is None:
        return
    if not isinstance(stated, Property):
        raise InputError(f"a property is a relucert.Property, such as Property.outputs_within, not {shown(stated)}")
    if labels is not None or not (isinstance(target, str) and target == "untargeted"):
        raise InputError("a property takes the place of labels and targets: leave them out")


def prepare(
    network: NetworkLike, images: ImagesLike, labels: LabelsLike | None, input_shape: Shape | None = None
) -> Prepared:
    """Reads the images, and loads the network: they tell the shape of its input where it leaves that open."""
    samples = read_samples(images, labels)
    check_any(samples.images)
    loaded = load_fitting(network, tuple(samples.images.shape[1:]), input_shape)
    source = network.source if isinstance(network, Loaded) else network
    return Prepared(loaded, check_images(samples.images, loaded, samples.layout), samples.labels, source)


def pose(
    network: Network, images: Tensor, labels: LabelsLike | None, target: TargetLike, seed: int,
    stated: Property | None = None,
) -> Inquiry:  # fmt: skip
    """Checks images (batch, size or any shape that fits) and labels, and plans the questions; a stated property takes
    the place of labels and target."""
    if stated is not None:
        return pose_stated(network, images, stated)
    parsed = parse_target(target, network.classes)
    rows = check_images(images, network)
    scores = _scores(network, rows)
    checked = check_labels(labels, scores)
    questions = plan(scores, checked, parsed, seed)
    if not warn_of_range(network, rows):
        with torch.inference_mode():
            warn_of_accuracy(network, rows, scores, checked)
    return Inquiry(rows, scores, questions)


def pose_stated(network: Network, images: Tensor, stated: Property) -> Inquiry:
    """Checks images and a property, with one batch member for all images or one per image, and plans the questions."""
    rows = check_images(images, network)
    scores = _scores(network, rows)
    if stated.rows.shape[2] != scores.shape[1]:
        raise InputError(f"the property is about {stated.rows.shape[2]} outputs, the network has {scores.shape[1]}")
    if not stated.rows.shape[1]:
        raise InputError("the property has no rows: there is nothing to prove")
    if len(stated) not in (1, len(rows)):
        raise InputError(f"give one property for all images, or one per image, {len(rows)} in all, not {len(stated)}")
    if not bool(stated.rows.isfinite().all() & stated.offsets.isfinite().all()):
        raise InputError("a property's rows and offsets must be finite numbers")
    stated = stated.cast(torch.float64)
    if len(stated) < len(rows):
        stated = stated.repeat(len(rows))
    wrong = (stated.values(scores) < 0).any(1).tolist()
    numbers = list(range(stated.rows.shape[1]))
    questions = [
        Question(image, None, numbers, VIOLATED if fails else None, fails) for image, fails in enumerate(wrong)
    ]
    warn_of_range(network, rows)
    return Inquiry(rows, scores, questions, stated)


def _scores(network: Network, rows: Tensor) -> Tensor:
    with torch.inference_mode():
        scores = network.cast(torch.float64)(rows)
    if not bool(torch.isfinite(scores).all()):
        raise InputError("the network's scores overflow at these images")
    return scores.clone()


def plan(scores: Tensor, labels: Tensor, target: Target, seed: int) -> list[Question]:
    """All questions about images with these scores (batch, classes) and labels (batch,), in order."""
    questions = []
    against = rivals(target, scores, labels, seed).tolist()
    columns = zip(labels.tolist(), scores.argmax(1).tolist(), against, strict=True)
    for image, (label, predicted, classes) in enumerate(columns):
        groups = [[rival] for rival in classes] if target == "all" else [classes]
        refusal = None
        if predicted != label:
            groups, refusal = groups[:1], f"misclassified: the network takes it for class {predicted}"
        elif -1 in classes:
            refusal = OWN_LABEL
        questions += [Question(image, label, group, refusal, predicted != label) for group in groups]
    return questions
