"""Which answers a call has to give: an image, its label and its rivals, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from relucert.property import rivals


@dataclass(frozen=True, eq=False)
class Question:
    """One answer to give: about an image, its label and some rivals, or the reason why there is none."""

    image: int
    label: int
    rivals: list[int]
    refusal: str | None


def plan(scores: Tensor, labels: Tensor, target: str | int, seed: int) -> list[Question]:
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
            refusal = "the target is the image's own label"
        questions += [Question(image, label, group, refusal) for group in groups]
    return questions
