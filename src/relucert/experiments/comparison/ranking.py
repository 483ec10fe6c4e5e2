"""The ranking of the methods of a comparison: means, and how far each is from the best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from relucert.experiments.comparison.methods import Entry
from relucert.experiments.comparison.order import Key
from relucert.report.reading import AnswerKind


@dataclass(frozen=True)
class Ranking:
    """The results of one method over all images: how many have an answer, their mean, and the mean time.

    Where every rival of an image has a question of its own, the image's answer is the least over its rivals, its time
    is the sum, and it counts only if every rival has an answer. A misclassified image counts nowhere.
    to_best, to_witness: by how much, on average and relatively, its answers differ from the largest proven lower
    bound and from the smallest distance of a witness for the same image.
    closed: of how many images exact's intervals are closed; fitted: of how many CLEVER's values come from a fit.
    """

    method: str
    kind: AnswerKind
    count: int = 0
    mean: float | None = None
    to_best: float | None = None
    to_witness: float | None = None
    seconds: float | None = None
    closed: int | None = None
    fitted: int | None = None


@dataclass(frozen=True)
class _ImageFigure:
    """The figure of a method for one image, and the best of any method; None where there is none."""

    entries: list[Entry]
    figure: float | None
    best: float | None
    witness: float | None

    def all_are(self, name: str) -> bool:
        return all(getattr(entry.answer, name) for entry in self.entries)


def rankings(entries: Mapping[Key, Mapping[str, Entry]], rivals: int = 1) -> list[Ranking]:
    """The rankings of all methods, in the order of their first answers.

    Args:
        entries: As of an `AnswerRecord`.
        rivals: How many questions there are about an image.
    """
    by_image: dict[int, list[Mapping[str, Entry]]] = {}
    for (image, _), answers in entries.items():
        by_image.setdefault(image, []).append(answers)
    grouped: dict[str, list[_ImageFigure]] = {}
    for questions in by_image.values():
        bests = [max((entry.lower for entry in row.values() if entry.lower), default=None) for row in questions]
        best = _least(bests, rivals)
        witness = min((entry.upper for row in questions for entry in row.values() if entry.upper), default=None)
        for name in dict.fromkeys(name for row in questions for name in row):
            listed = [row[name] for row in questions if name in row]
            figure = _least([_figure(entry) for entry in listed], rivals)
            grouped.setdefault(name, []).append(_ImageFigure(listed, figure, best, witness))
    return [_ranking(name, images) for name, images in grouped.items()]


def _figure(entry: Entry) -> float | None:
    """The number that an answer is ranked by; a rival that is proven to be out of reach is at no distance."""
    return math.inf if entry.kind is AnswerKind.EXACT and entry.answer.unreachable else entry.figure


def _least(numbers: list[float | None], rivals: int) -> float | None:
    """The least number over all rivals; None unless each rival has one above 0."""
    ranked = [number for number in numbers if number]
    return min(ranked) if ranked and len(ranked) == rivals else None


def _ranking(name: str, images: list[_ImageFigure]) -> Ranking:
    kind = images[0].entries[0].kind
    unreachable = math.inf if kind is AnswerKind.EXACT else None  # no rival can be reached: no distance to count
    ranked = [(image, image.figure) for image in images if image.figure and image.figure != unreachable]
    spent = (sum(entry.answer.seconds for entry in image.entries) for image in images)
    return Ranking(
        method=name,
        kind=kind,
        count=len(ranked),
        mean=_mean(figure for _, figure in ranked),
        to_best=_mean(figure / image.best - 1 for image, figure in ranked if image.best),
        to_witness=_mean(figure / image.witness - 1 for image, figure in ranked if image.witness),
        seconds=_mean(seconds for seconds in spent if seconds),
        closed=sum(image.all_are("closed") for image, _ in ranked) if kind is AnswerKind.EXACT else None,
        fitted=sum(image.all_are("fitted") for image, _ in ranked) if kind is AnswerKind.ESTIMATE else None,
    )


def _mean(numbers: Iterable[float]) -> float | None:
    """The mean of the finite numbers; None where there is none."""
    listed = [number for number in numbers if math.isfinite(number)]
    return fmean(listed) if listed else None
