"""The provable order of answers: where two contradict it, one of them is wrong, and the comparison stops."""

from __future__ import annotations

from collections import defaultdict

from relucert.api.best import BEST
from relucert.common.names import MethodName
from relucert.errors import ContradictionError
from relucert.experiments.comparison.methods import Entry
from relucert.report.reading import AnswerKind

STRONGER: tuple[tuple[MethodName, ...], ...] = (
    ("fast-lin", "lp", "lp-full"), ("fast-lin", "alpha", "lp-full"), ("crown", "alpha", "lp-full"),
    ("fast-lin", "alpha", "best"), ("crown", "alpha", "best"), ("crown", "sdp"),
)  # fmt: skip
"""Rows of methods, each of which proves whatever those before it in its row do."""
SLACK = 2e-3  # relative: each radius is searched up to a tolerance, and exact intervals are closed up to one

FIRST = "fast-lin"  # the method that "best" always begins with

Key = tuple[int, int | None]  # a question: an image, and a rival where each rival has a question of its own


class AnswerRecord:
    """All answers so far, by their question; every new one is checked for contradictions with the earlier ones.

    each_rival: whether every rival has a question of its own; otherwise there is one per image.
    """

    def __init__(self, each_rival: bool) -> None:
        self.entries: defaultdict[Key, dict[str, Entry]] = defaultdict(dict)
        self.each_rival = each_rival

    def add(self, entry: Entry) -> None:
        """Raises ContradictionError where the answer can't be true together with an earlier one."""
        answer = entry.answer
        answers = self.entries[answer.image, answer.target if self.each_rival else None]
        for earlier in answers.values():
            _compare(entry, earlier)
            _compare(earlier, entry)
        answers[entry.method] = entry


def _compare(below: Entry, above: Entry) -> None:
    """Checks that the lower bound of one answer does not exceed what another answer shows."""
    lower, upper = below.lower, above.upper
    if lower is not None and upper is not None and not lower <= upper:
        _contradict(below, lower, above, upper, "is proven beyond the adversarial example at")
    if below.kind is AnswerKind.EXACT and below.answer.unreachable and above.upper:
        _contradict(below, None, above, above.upper, "is proven to have no adversarial example, and there is one at")
    if lower is None or above.lower is None or above.lower >= lower * (1 - SLACK):
        return
    if _is_stronger(above, below):
        _contradict(below, lower, above, above.lower, "exceeds the stronger")
    if above.kind is AnswerKind.EXACT and above.answer.closed:
        _contradict(below, lower, above, above.lower, "exceeds the closed")


def _is_stronger(above: Entry, below: Entry) -> bool:
    """Whether the first method proves whatever the second does; "best" may prove less where it gives a reason."""
    if above.method == BEST and above.reason is not None and below.method != FIRST:
        return False
    return any(
        above.method in row and below.method in row and row.index(below.method) < row.index(above.method)
        for row in STRONGER
    )


def _contradict(first: Entry, lower: float | None, second: Entry, number: float, how: str) -> None:
    rival = "" if first.answer.target is None else f", rival {first.answer.target}"
    value = "" if lower is None else f" {lower!r}"
    raise ContradictionError(
        f"image {first.answer.image}{rival}: {first.method}{value} {how} {second.method} {number!r}"
    )
