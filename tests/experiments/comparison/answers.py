"""Answers made by hand."""

from __future__ import annotations

from typing import Any

from relucert.answers.certificates import Certificate, Estimate, Exact, Rounding, UpperBound
from relucert.experiments.comparison.methods import Entry
from relucert.report.reading import AnswerKind

INF = float("inf")


def certified(
    method: str, radius: float | None, image: int = 0, target: int | None = 3, proven: bool = True,
    reason: str | None = None,
) -> Entry:  # fmt: skip
    arithmetic = Rounding.RIGOROUS if proven else Rounding.FLOAT
    answer = Certificate(image, 7, target, INF, method, arithmetic, radius, reason, 0.5, 2)
    return Entry(method, AnswerKind.CERTIFIED, answer)


def attacked(distance: float | None, image: int = 0, target: int | None = 3) -> Entry:
    answer = UpperBound(image, 7, target, INF, "best", distance, None, None, None, None, 0.25)
    return Entry("attack", AnswerKind.UPPER, answer)


def estimated(value: float | None, image: int = 0) -> Entry:
    absent: dict[str, Any] = dict.fromkeys(("reason", "shape", "location", "scale", "statistic", "p_value"))
    answer = Estimate(
        image=image, label=7, target=3, norm=INF, method="clever", value=value, sampled=value, seconds=1.0,
        sampling_radius=0.1, batches=20, samples=10, **absent,
    )  # fmt: skip
    return Entry("clever", AnswerKind.ESTIMATE, answer)


def exact(lower: float | None, upper: float | None, closed: bool, image: int = 0, target: int | None = 3) -> Entry:
    answer = Exact(image, 7, target, INF, "exact", lower, upper, closed, None, None, None, 1.0, 3)
    return Entry("exact", AnswerKind.EXACT, answer)
