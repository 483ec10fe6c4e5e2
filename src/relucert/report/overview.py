"""The answers of one call, summed up method by method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from relucert.common.words import counted
from relucert.report import tables
from relucert.report.domain import in_words
from relucert.report.reading import AnswerKind, Result, result
from relucert.report.series import Series, group_by, series

GIVES = {
    AnswerKind.CERTIFIED: "certified radius",
    AnswerKind.EXACT: "proven lower end of the exact distance",
    AnswerKind.UNPROVEN: "radius (not certified: rounding ignored)",
    AnswerKind.ESTIMATE: "estimate (not certified)",
    AnswerKind.UPPER: "distance of adversarial examples",
}


@dataclass(frozen=True)
class MethodSummary:
    """One method's answers in one norm.

    Attributes:
        gives: What its numbers are, in words.
        images: How many images it was asked about; where several rivals of an image were, the least radius counts.
        answered: How many of them have a finite radius, distance or estimate above 0: those of the mean.
        unlimited: How many keep their class at any distance, as proven, or as far as attacks found.
        mean, median: The mean, and the largest radius that half of the images asked about reach; None where there is
            none.
        seconds: The mean time per answer.
        failed: How many answers an error inside the method spoilt.
        remark: How many intervals are closed, or how many estimates fitted.
    """

    method: str
    gives: str
    norm: str
    valid_inputs: str
    images: int
    answered: int
    unlimited: int
    mean: float | None
    median: float | None
    seconds: float
    failed: int
    remark: str | None
    answer_kind: AnswerKind

    def __str__(self) -> str:
        """The summary in one line, rounded so that what is proven holds as printed."""
        words = [f"{self.method}: {self.gives}"]
        if self.mean is not None:
            half = "" if self.median is None else f", median {self._rounded(self.median)}"
            words.append(f"mean {self._rounded(self.mean)}{half}")
        words.append(f"over {self.answered:,} of {counted(self.images, 'image')}")
        words += [f"{self.unlimited} at any distance"] if self.unlimited else []
        words += [f"{counted(self.failed, 'answer')} failed"] if self.failed else []
        words += [self.remark] if self.remark else []
        described = ", ".join(words)
        return f"{described}, {self.seconds:.3g} s per answer; p = {self.norm}; {self.valid_inputs}"

    def _rounded(self, amount: float) -> str:
        return str(tables.bound(self.answer_kind, amount).shown)


@dataclass(frozen=True, repr=False)
class Overview:
    """All methods of a list of answers, or of a comparison; printed, one line per method."""

    answers: int
    methods: tuple[MethodSummary, ...]

    def __str__(self) -> str:
        return "\n".join([counted(self.answers, "answer"), *map(str, self.methods)])

    __repr__ = __str__


def overview(rows: Iterable[Mapping[str, Any]]) -> Overview:
    """The overview of answers in their JSON form."""
    results = [result(row) for row in rows]
    norms = group_by(results, lambda answer: answer.norm)
    summaries = [_summary(curve, norm, group) for norm, group in norms.items() for curve in series(group, None)]
    return Overview(len(results), tuple(summaries))


def _summary(curve: Series, norm: str, results: list[Result]) -> MethodSummary:
    return MethodSummary(
        method=curve.name,
        gives=GIVES[curve.kind],
        norm=norm,
        valid_inputs=in_words(answer.domain for answer in results if answer.name == curve.name),
        images=curve.images,
        answered=len(curve.finite),
        unlimited=len(curve.radii) - len(curve.finite),
        mean=curve.mean,
        median=curve.median,
        seconds=curve.seconds,
        failed=sum(answer.failed for answer in results if answer.name == curve.name),
        remark=curve.remark,
        answer_kind=curve.kind,
    )
