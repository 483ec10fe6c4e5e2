"""Which answers a call has to give: an image, its label and its rivals, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relucert.answers import OWN_LABEL
from relucert.errors import InputError
from relucert.loading.runtime import Loaded, Source
from relucert.network import Network, Shape
from relucert.query.fitting import load_fitting
from relucert.query.given import ImagesLike, LabelsLike, NetworkLike, TargetLike
from relucert.query.inputs import check_any, check_images, check_labels
from relucert.query.plausible import warn_of_accuracy, warn_of_range
from relucert.query.property import Property
from relucert.query.samples import read_samples
from relucert.query.targets import Target, parse_target, rivals

SEED_STEP = 1_000_003


@dataclass(frozen=True, eq=False)
class Question:
    """One answer to give: about an image, its label and some rivals, or the reason why there is none."""

    image: int
    label: int
    rivals: list[int]
    refusal: str | None
    misclassified: bool = False

    def generator(self, seed: int) -> torch.Generator:
        """Random numbers of the image's own, whatever else is asked about."""
        return torch.Generator().manual_seed((seed + SEED_STEP * self.image) % 2**63)


@dataclass(frozen=True, eq=False)
class Inquiry:
    """Checked images (batch, size) and their scores (batch, classes), in float64, and the answers to give, in order."""

    images: Tensor
    scores: Tensor
    questions: list[Question]

    def property(self, questions: Sequence[Question]) -> Property:
        """The margins that these questions, all with as many rivals, are about: one batch member for each."""
        labels = torch.tensor([question.label for question in questions])
        rivals = torch.tensor([question.rivals for question in questions])
        return Property.margins(labels, rivals, self.scores.shape[1])


@dataclass(frozen=True, eq=False)
class Prepared:
    """A loaded network and what it was loaded from, images (batch, size) in the order of its input, and what there is
    of labels."""

    network: Network
    images: Tensor
    labels: Any
    source: Source


def prepare(
    network: NetworkLike, images: ImagesLike, labels: LabelsLike | None, input_shape: Shape | None = None
) -> Prepared:
    """Reads the images, and loads the network: they tell the shape of its input where it leaves that open."""
    samples = read_samples(images, labels)
    check_any(samples.images)
    known = load_fitting(network, tuple(samples.images.shape[1:]), input_shape)
    source = network.source if isinstance(network, Loaded) else network
    return Prepared(known, check_images(samples.images, known, samples.layout), samples.labels, source)


def pose(network: Network, images: Tensor, labels: LabelsLike | None, target: TargetLike, seed: int) -> Inquiry:
    """Checks images (batch, size or any shape that fits) and labels, and plans the answers."""
    parsed = parse_target(target, network.classes)
    rows = check_images(images, network)
    with torch.inference_mode():
        scores = network.cast(torch.float64)(rows)
    if not bool(torch.isfinite(scores).all()):
        raise InputError("the network's scores overflow at these images")
    checked = check_labels(labels, scores)
    questions = plan(scores, checked, parsed, seed)
    if not warn_of_range(network, rows):
        with torch.inference_mode():
            warn_of_accuracy(network, rows, scores, checked)
    return Inquiry(rows, scores, questions)


def plan(scores: Tensor, labels: Tensor, target: Target, seed: int) -> list[Question]:
    """Every answer to give, in order."""
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
