"""How the methods of a comparison stand: means, and how far each is from the best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from relucert.experiments.comparison.methods import Entry
from relucert.experiments.comparison.order import Key
from relucert.report.reading import Kind


@dataclass(frozen=True)
class Ranking:
    """One method over its images: how many have an answer, their mean, and the mean time.

    Where every rival of an image has a question of its own, the image's answer is the least over its rivals, its time
    is the sum, and it counts only if every rival has an answer. A misclassified image counts nowhere.
    to_best, to_witness: by how much, on average and relatively, its answers differ from the largest proven lower
    bound and from the smallest distance of a witness for the same image.
    closed: of how many images exact's intervals are closed; fitted: of how many CLEVER's values come from a fit.
    """

    method: str
    kind: Kind
    count: int
    mean: float | None
    to_best: float | None
    to_witness: float | None
    seconds: float | None
    closed: int | None
    fitted: int | None


@dataclass(frozen=True)
class _Stand:
    """The figure of a method for one image, and the best of any method; None where there is none."""

    entries: list[Entry]
    figure: float | None
    best: float | None
    witness: float | None

    def all_are(self, name: str) -> bool:
        return all(getattr(entry.answer, name) for entry in self.entries)


def rankings(entries: Mapping[Key, Mapping[str, Entry]], rivals: int = 1) -> list[Ranking]:
    """One per method, in the order of their first answers.

    Args:
        entries: As of an `AnswerRecord`.
        rivals: How many questions there are about an image.
    """
    by_image: dict[int, list[Mapping[str, Entry]]] = {}
    for (image, _), answers in entries.items():
        by_image.setdefault(image, []).append(answers)
    grouped: dict[str, list[_Stand]] = {}
    for questions in by_image.values():
        bests = [max((entry.lower for entry in asked.values() if entry.lower), default=None) for asked in questions]
        best = _least(bests, rivals)
        witness = min((entry.upper for asked in questions for entry in asked.values() if entry.upper), default=None)
        for name in dict.fromkeys(name for asked in questions for name in asked):
            given = [asked[name] for asked in questions if name in asked]
            figure = _least([_figure(entry) for entry in given], rivals)
            grouped.setdefault(name, []).append(_Stand(given, figure, best, witness))
    return [_ranking(name, stands) for name, stands in grouped.items()]


def _figure(entry: Entry) -> float | None:
    """The number that an answer is ranked by; a rival that is proven to be out of reach is at no distance."""
    return math.inf if entry.kind is Kind.EXACT and entry.answer.unreachable else entry.figure


def _least(numbers: list[float | None], rivals: int) -> float | None:
    """The least number over all rivals; None unless each rival has one above 0."""
    ranked = [number for number in numbers if number]
    return min(ranked) if ranked and len(ranked) == rivals else None


def _ranking(name: str, stands: list[_Stand]) -> Ranking:
    kind = stands[0].entries[0].kind
    ranked = [(stand, stand.figure) for stand in stands if stand.figure and not _is_out_of_reach(stand)]
    spent = (sum(entry.answer.seconds for entry in stand.entries) for stand in stands)
    return Ranking(
        method=name,
        kind=kind,
        count=len(ranked),
        mean=_mean(figure for _, figure in ranked),
        to_best=_mean(figure / stand.best - 1 for stand, figure in ranked if stand.best),
        to_witness=_mean(figure / stand.witness - 1 for stand, figure in ranked if stand.witness),
        seconds=_mean(seconds for seconds in spent if seconds),
        closed=sum(stand.all_are("closed") for stand, _ in ranked) if kind is Kind.EXACT else None,
        fitted=sum(stand.all_are("fitted") for stand, _ in ranked) if kind is Kind.ESTIMATE else None,
    )


def _is_out_of_reach(stand: _Stand) -> bool:
    """Whether exact proves that no rival can be reached: then there is no distance to count."""
    return stand.entries[0].kind is Kind.EXACT and stand.figure == math.inf


def _mean(numbers: Iterable[float]) -> float | None:
    """The mean of the finite numbers; None where there is none."""
    listed = [number for number in numbers if math.isfinite(number)]
    return fmean(listed) if listed else None
