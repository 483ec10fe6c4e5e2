"""A verdict in the format of the field's competition, VNN-COMP."""

from __future__ import annotations

from fractions import Fraction

from relucert.answers.verdicts import HOLDS, VIOLATED, Verdict
from relucert.common.numbers import as_decimal

WORDS = ("sat", "unsat", "unknown", "timeout")


def word(verdict: Verdict) -> str:
    """The verdict as one of the competition's words, which say whether a violation can be met."""
    if verdict.status == HOLDS:
        return "unsat"
    if verdict.status == VIOLATED:
        return "sat"
    return "timeout" if verdict.timed_out else "unknown"


def results(verdict: Verdict) -> str:
    """The text of a results file: the word and, after `sat`, the counterexample in exact decimals."""
    lines = [word(verdict)]
    if verdict.coordinates is not None and verdict.outputs is not None:
        outputs = [Fraction(number) for number in verdict.outputs.double().tolist()]
        pairs = [f"(X_{index} {as_decimal(number)})" for index, number in enumerate(verdict.coordinates)]
        pairs += [f"(Y_{index} {as_decimal(number)})" for index, number in enumerate(outputs)]
        lines.append("(" + "\n".join(pairs) + ")")
    return "\n".join(lines) + "\n"


def is_results(content: bytes) -> bool:
    """Whether a file's content may be replaced, being such a verdict."""
    return content.split(maxsplit=1)[:1] in [[name.encode()] for name in WORDS]
