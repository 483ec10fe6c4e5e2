"""How the methods of a comparison stand: means, and how far each is from the best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from relucert.comparison.methods import Entry, Kind


@dataclass(frozen=True)
class Ranking:
    """One method over its answers: how many it gave, their mean, and the mean time.

    to_best, to_witness: by how much, on average and relatively, its answers differ from the largest proven lower
    bound and from the smallest distance of a witness for the same question. A misclassified image counts nowhere.
    closed: how many of exact's intervals are closed; fitted: how many of CLEVER's values come from a fit.
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


def rankings(questions: Iterable[Mapping[str, Entry]]) -> list[Ranking]:
    """One per method, in the order of their first answers."""
    grouped: dict[str, list[tuple[Entry, float | None, float | None]]] = {}
    for answers in questions:
        best = max((entry.lower for entry in answers.values() if entry.lower), default=None)
        witness = min((entry.upper for entry in answers.values() if entry.upper), default=None)
        for name, entry in answers.items():
            grouped.setdefault(name, []).append((entry, best, witness))
    return [_ranking(name, entries) for name, entries in grouped.items()]


def _ranking(name: str, entries: list[tuple[Entry, float | None, float | None]]) -> Ranking:
    known = [(entry.figure, best, witness) for entry, best, witness in entries if entry.figure]
    first = entries[0][0]
    answers = [entry.answer for entry, _, _ in entries if entry.figure]
    return Ranking(
        method=name,
        kind=first.kind,
        count=len(known),
        mean=_mean(figure for figure, _, _ in known),
        to_best=_mean(figure / best - 1 for figure, best, _ in known if best),
        to_witness=_mean(figure / witness - 1 for figure, _, witness in known if witness),
        seconds=_mean(entry.answer.seconds for entry, _, _ in entries if entry.answer.seconds),
        closed=sum(answer.closed for answer in answers) if first.kind is Kind.EXACT else None,
        fitted=sum(answer.fitted for answer in answers) if first.kind is Kind.ESTIMATE else None,
    )


def _mean(numbers: Iterable[float]) -> float | None:
    """Over the finite ones."""
    listed = [number for number in numbers if math.isfinite(number)]
    return fmean(listed) if listed else None
