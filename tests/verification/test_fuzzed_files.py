"""Generated and mutated VNN-LIB files: a verdict or one clear line, never a traceback, never a wrong "holds"."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from relucert import Query, verify
from relucert.checker.document import Rejected
from relucert.checker.specification import read_cases
from relucert.errors import RelucertError
from relucert.network import Network
from relucert.verification.specification import version_one
from tests.nets import mlp
from tests.verification.test_verify import sampled

NETWORK = mlp(3, 6, 2, seed=8)
WORDS = ["(", ")", "and", "or", "<=", ">=", "+", "-", "*", "X_0", "X_2", "X_7", "Y_0", "Y_1", "Y_9", "0", "1e-3",
         "-2.5", "assert", "declare-const", "Real", "not", ";", "nan", "1e99999", "1e300", "é", "="]  # fmt: skip


def parse(text: str) -> Query:
    return Query.of(version_one.parse(text))


def number(source: random.Random) -> str:
    value = source.uniform(-2, 2)
    return source.choice([f"{value:.3f}", f"{value:.2e}", f"{value:.20f}", str(round(value)), f"{value!r}"])


def term(source: random.Random, depth: int = 0) -> str:
    draw = source.random()
    if draw < 0.4 or depth > 2:
        return source.choice(["Y_0", "Y_1", "X_0", "X_1", "X_2", number(source)])
    if draw < 0.6:
        return f"(* {number(source)} {source.choice(['Y_0', 'Y_1', 'X_2'])})"
    return f"({source.choice('+-')} {term(source, depth + 1)} {term(source, depth + 1)})"


def formula(source: random.Random, depth: int = 0) -> str:
    if depth < 2 and source.random() < 0.4:
        parts = " ".join(formula(source, depth + 1) for _ in range(source.randint(1, 3)))
        return f"({source.choice(['and', 'or'])} {parts})"
    return f"({source.choice(['<=', '>=', '<', '>'])} {term(source)} {term(source)})"


def generated(source: random.Random) -> str:
    lines = [f"(declare-const {name} Real)" for name in ("X_0", "X_1", "X_2", "Y_0", "Y_1")]
    for place in range(3):
        low = source.uniform(-1, 1)
        lines += [f"(assert (>= X_{place} {low:.4f}))", f"(assert (<= X_{place} {low + source.uniform(-0.05, 1):.4f}))"]
    lines += [f"(assert {formula(source)})" for _ in range(source.randint(1, 2))]
    return "\n".join([*lines, f"(assert (<= Y_0 (+ Y_1 {number(source)})))"])


def mutated(source: random.Random) -> str:
    text = generated(source)
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(text))
        change = source.random()
        if change < 0.3:
            text = text[:place] + text[place + source.randint(1, 8) :]
        elif change < 0.8:
            text = f"{text[:place]} {source.choice(WORDS)} {text[place:]}"
        else:
            text = text[:place] + text[source.randrange(len(text)) :]
        text = text or " "
    return text


def outcome(text: str, network: Network) -> str:
    """What comes of a file; anything but a verdict or one line raises."""
    try:
        query = parse(text)
        verdict = verify(network, query, time_limit=2)
    except RelucertError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert "\n" not in said
        return "refused"
    assert not verdict.failed, verdict
    assert not (verdict.holds and sampled(network, query, 500)), text
    if verdict.coordinates is not None:
        assert any(one.has_inputs(verdict.coordinates) for one in query.possible)
    same_cases(query, text)
    return verdict.status


def same_cases(query: Query, text: str) -> None:
    """The checker's own reader finds the same violations, but for what is strict about them."""
    cases = {(case.low, case.high, len(case.inequalities)) for case in read_cases(text, query.inputs, query.outputs)}
    assert cases == {
        (one.low, one.high, len({replace(constraint, strict=False) for constraint in one.constraints}))
        for one in query.possible
    }


def fuzz(seeds: range) -> Counter[str]:
    torch.manual_seed(0)
    counts: Counter[str] = Counter()
    for seed in seeds:
        source = random.Random(seed)
        counts[outcome(generated(source) if seed % 2 else mutated(source), NETWORK)] += 1
    return counts


def test_a_hundred_fuzzed_files() -> None:
    counts = fuzz(range(100))
    assert min(counts["holds"], counts["violated"], counts["refused"]) >= 5, counts


@pytest.mark.slow
def test_two_thousand_fuzzed_files() -> None:
    counts = fuzz(range(2000))
    assert sum(counts.values()) == 2000
    assert min(counts["holds"], counts["violated"], counts["refused"]) >= 100, counts


def test_the_checker_reads_fuzzed_files_or_refuses_them() -> None:
    for seed in range(300):
        text = mutated(random.Random(seed))
        with suppress(Rejected):  # and nothing else
            read_cases(text, 3, 2)
