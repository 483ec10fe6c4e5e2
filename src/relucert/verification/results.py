"""A verdict in the format of the field's competition, VNN-COMP."""

from __future__ import annotations

from relucert.answers.verdicts import HOLDS, VIOLATED, Verdict
from relucert.common.numbers import as_decimal

WORDS = ("sat", "unsat", "unknown", "timeout")


def word(verdict: Verdict) -> str:
    """The verdict as one of the competition's words, which say whether a violation can be met."""
    words = {HOLDS: "unsat", VIOLATED: "sat"}
    return words.get(verdict.status, "timeout" if verdict.timed_out else "unknown")


def results(verdict: Verdict) -> str:
    """The text of a results file: the word and, after `sat`, the inputs of the counterexample in exact decimals.

    The rules of 2026 ask for inputs alone: the competition computes the outputs itself.
    """
    lines = [word(verdict)]
    if verdict.coordinates is not None:
        pairs = [f"(X_{index} {as_decimal(number)})" for index, number in enumerate(verdict.coordinates)]
        lines.append("(" + "\n".join(pairs) + ")")
    return "\n".join(lines) + "\n"


def is_results(content: bytes) -> bool:
    """Whether a file's content may be replaced, being such a verdict."""
    return content.split(maxsplit=1)[:1] in [[name.encode()] for name in WORDS]
