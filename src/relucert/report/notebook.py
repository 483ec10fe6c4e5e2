"""Answers in a notebook, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relucert.common.words import counted
from relucert.report import tables
from relucert.report.overview import overview
from relucert.report.reading import AnswerKind, Result, result
from relucert.report.series import Sandwich, sandwiches
from relucert.report.tables import NONE, REMARK, Cell

MOST = 100  # rows of a table
TITLES = {
    AnswerKind.CERTIFIED: "certified radius",
    AnswerKind.EXACT: "exact distance",
    AnswerKind.UNPROVEN: "radius (rounding ignored)",
    AnswerKind.ESTIMATE: "estimate (not certified)",
    AnswerKind.UPPER: "distance",
}

Rows = Sequence[Mapping[str, Any]]


def table(rows: Rows) -> str:
    """A table with one row per answer, given in its JSON form, and a caption about all of them."""
    shown = [result(row) for row in rows[:MOST]]
    kinds = {answer.kind for answer in shown}
    title = TITLES[kinds.pop()] if len(kinds) == 1 else "answer"
    headers = ("image", "label", "rival", title, "seconds", REMARK)
    return tables.table(_caption(rows), headers, [*map(_row, shown)], notes=_truncation_note(len(rows), "answers"))


def compared(rows: Rows, every_rival: bool, skipped: Mapping[str, str]) -> str:
    """A table with one row per question and one column per method; skipped: why methods are missing."""
    questions = sandwiches([result(row) for row in rows], every_rival)
    names = list(dict.fromkeys(answer.name for question in questions for answer in question.results))
    headers = ("image", "label", *(("rival",) if every_rival else ()), *names)
    cells = [_question(question, names, every_rival) for question in questions[:MOST]]
    reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped.items())
    notes = _truncation_note(len(questions), "questions")
    notes += [f"Left out, stopped or failed: {reasons}"] if reasons else []
    return tables.table(_caption(rows), headers, cells, notes=notes)


def verdicts(rows: Rows, caption: str) -> str:
    """A table with one row per verdict about an image, given in its JSON form."""
    headers = ("image", "label", "rival", "radius", "verdict", "by", "seconds", REMARK)
    cells = [
        [
            *_about(row["image"], row["label"], row["target"]),
            Cell(f"{row['radius']:g}"), Cell(row["status"]), Cell(row["method"] or NONE), Cell(f"{row['seconds']:.3g}"),
            Cell(row["reason"] or ""),
        ]
        for row in rows[:MOST]
    ]  # fmt: skip
    return tables.table(caption, headers, cells, notes=_truncation_note(len(rows), "verdicts"))


def _caption(rows: Rows) -> str:
    """How many answers, and each method in a line: its mean, rounded so that it holds, the norm, the valid inputs."""
    summed = overview(rows)
    return "; ".join([counted(summed.answers, "answer"), *map(str, summed.methods)])


def _truncation_note(count: int, noun: str) -> list[str]:
    """A note that a table shows the first rows only, where that is so; noun: what a row is, in the plural."""
    return [f"These are the first {MOST} of {count:,} {noun}."] if count > MOST else []


def _row(answer: Result) -> list[Cell]:
    """The cells of one answer, its remark last."""
    about = _about(answer.image, answer.label, answer.target)
    return [*about, _amount(answer), Cell(f"{answer.seconds:.3g}"), Cell(answer.reason or "")]


def _about(*numbers: int | None) -> list[Cell]:
    """The image, the label and the rival that an answer is about, as far as it has them."""
    return [Cell(NONE if number is None else number) for number in numbers]


def _question(question: Sandwich, names: Sequence[str], every_rival: bool) -> list[Cell]:
    """The cells of one question: its image and label, and the radius or distance of every method that answered."""
    first, answers = question.results[0], {answer.name: answer for answer in question.results}
    amounts = [_amount(answers[name]) if name in answers else Cell(NONE) for name in names]
    return [*_about(first.image, first.label, *([first.target] if every_rival else [])), *amounts]


def _amount(answer: Result) -> Cell:
    if answer.kind is AnswerKind.EXACT:
        return tables.ends(answer)
    return tables.bound(answer.kind, answer.amount)
