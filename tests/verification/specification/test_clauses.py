"""Clauses in rows, which are read at once, mean what each of their comparisons means, and are refused as they are."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relucert import Query
from relucert.errors import RelucertError
from relucert.verification.specification import version_one
from relucert.verification.specification.syntax import MOST_CLAUSES, MOST_COMPARISONS
from relucert.verification.specification.violations import Constraint, Violation

HEAD = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 -1)) (assert (<= X_1 1))\n"
LINES = 2 * MOST_CLAUSES + 3


class Comparison(NamedTuple):
    relation: str
    name: str
    number: str


Clause = list[Comparison]

relations = st.sampled_from(["<=", ">=", "<", ">"])
CLOSE = ["0.30000000000000000001", "0.3", "0.30000000000000000002", "0.1", "0.1" + "0" * 120]
numbers = st.sampled_from(["-1", "0", "0.0", "-0", "+.5", "0.50", "5e-1", "2.", "1e-12", "-0.1", "3E1", *CLOSE])
comparisons = st.builds(Comparison, relations, st.sampled_from(["X_0", "X_1", "Y_0", "Y_1"]), numbers)
SPELLINGS = [
    "({relation} {name} {number})",
    "({relation}  {name}\t{number} )",
    "({relation} (+ {name}) {number})",
    "({relation} {name} (* 1 {number}))",
    "({opposite} {number} {name})",
    "({relation} {name} ; a (comment\n {number})",
]
OPPOSITES = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}
spellings = st.lists(st.sampled_from(SPELLINGS[1:]), min_size=1, max_size=8)


@st.composite
def clauses(draw: st.DrawFn) -> list[Clause]:
    """Clauses that mostly bound both inputs, and mostly are alike."""
    ends = st.sampled_from([">=", ">=", ">"]), st.sampled_from(["<=", "<=", "<"])
    shape = [Comparison(draw(relations), name, "") for name in ("X_0", "X_1") for relations in ends]
    shape += draw(st.lists(comparisons, min_size=1, max_size=3))
    shape = draw(st.permutations(shape))
    alike = st.tuples(*(st.builds(comparison._replace, number=numbers) for comparison in shape)).map(list)
    other = st.lists(comparisons, min_size=1, max_size=4)
    return draw(st.lists(st.one_of(alike, alike, alike, other), min_size=1, max_size=6))


def spelled(comparison: Comparison, spelling: str) -> str:
    return spelling.format(**comparison._asdict(), opposite=OPPOSITES[comparison.relation])


def text(listed: list[Clause], ways: list[str], box: str = BOX) -> str:
    """The clauses as a file, their comparisons spelled in these ways in turn."""
    lines = []
    for number, clause in enumerate(listed):
        words = " ".join(spelled(one, ways[(number + place) % len(ways)]) for place, one in enumerate(clause))
        lines.append(f"(and {words})")
    return HEAD + box + "(assert (or\n" + "\n".join(lines) + "\n))\n(assert (<= (+ Y_0 Y_1) 99))"


def literally(listed: list[Clause]) -> list[Violation]:
    """What they mean in the box, comparison by comparison."""
    box = [Comparison(relation, f"X_{index}", end) for index in (0, 1) for relation, end in ((">=", "-1"), ("<=", "1"))]
    last = Constraint((), ((0, 1), (1, 1)), Fraction(99))
    violations = list[Violation]()
    for clause in listed:
        ends = []
        for index in (0, 1):
            bounds = [(one.relation, Fraction(one.number)) for one in box + clause if one.name == f"X_{index}"]
            low = max((number, relation == ">") for relation, number in bounds if relation[0] == ">")
            high = min((number, relation != "<") for relation, number in bounds if relation[0] == "<")
            ends.append((low[0], high[0], low[1], not high[1]))
        if any(low > high or (low == high and (over or under)) for low, high, over, under in ends):
            continue
        constraints = dict.fromkeys([constraint(one) for one in clause if one.name[0] == "Y"])
        violations.append(
            Violation(
                (ends[0][0], ends[1][0]),
                (ends[0][1], ends[1][1]),
                (last, *constraints),
                frozenset(index for index in (0, 1) if ends[index][2]),
                frozenset(index for index in (0, 1) if ends[index][3]),
            )
        )
    return violations


def constraint(comparison: Comparison) -> Constraint:
    sign = 1 if comparison.relation[0] == "<" else -1
    terms = ((int(comparison.name[2:]), sign),)
    return Constraint((), terms, sign * Fraction(comparison.number), len(comparison.relation) == 1)


def parse(written: str) -> Query:
    return Query.of(version_one.parse(written))


def said(written: str) -> tuple[Violation, ...] | str:
    """The violations, or what is wrong."""
    try:
        return tuple(parse(written).violations)
    except RelucertError as error:
        return str(error)


def told(written: str) -> str:
    with pytest.raises(RelucertError) as caught:
        parse(written)
    return str(caught.value)


@given(clauses(), spellings)
def test_every_spelling_means_what_its_comparisons_mean(listed: list[Clause], ways: list[str]) -> None:
    """Without the box, too, and without the last assertion, where a clause is a violation as it is."""
    regular, awkward = text(listed, SPELLINGS[:1]), text(listed, ways)
    for query in (parse(regular), parse(awkward)):
        assert set(query.violations) == set(literally(listed))
    assert parse(regular).violations == parse(awkward).violations
    for cut in ("(assert (<= (+ Y_0 Y_1) 99))", BOX):
        regular, awkward = regular.replace(cut, ""), awkward.replace(cut, "")
        assert said(regular) == said(awkward)


def boxed(number: int, outputs: str) -> str:
    return f"(and (>= X_0 0.{number:03}) (<= X_0 0.9) (> X_1 -.5) (<= X_1 5e-1) {outputs})"


def listed(shapes: list[str]) -> str:
    """Many clauses, one per line, some about one output and some about the other."""
    lines = [boxed(number, shapes[number % len(shapes)]) for number in range(LINES)]
    return HEAD + "(assert (or\n" + "\n".join(lines) + "))"


def test_clauses_keep_their_order() -> None:
    query = parse(listed(["(<= Y_0 1)", "(> Y_1 2) (<= Y_0 1)"]))
    assert [one.low[0] for one in query.violations] == [Fraction(number, 1000) for number in range(LINES)]
    one, other = Constraint((), ((0, 1),), Fraction(1)), Constraint((), ((1, -1),), Fraction(-2), True)
    assert [one.constraints for one in query.violations[:3]] == [(one,), (other, one), (one,)]
    assert all(one.open_low == {1} and not one.open_high for one in query.violations)


@pytest.mark.parametrize(
    ("low", "high", "room"),
    [
        (">= 0.3", "<= 0.3", True),
        (">= 0.3", "<= 0.30", True),
        ("> 0.3", "<= 0.3", False),
        (">= 0.3", "< 0.3", False),
        (">= 0.30", "< 3e-1", False),
        (">= 0.30000000000000000001", "<= 0.30000000000000000002", True),
        ("> 0.30000000000000000001", "< 0.30000000000000000002", True),
        (">= 0.30000000000000000002", "<= 0.30000000000000000001", False),
        (">= 1", "<= .5", False),
    ],
)
def test_clauses_whose_bounds_contradict_each_other_are_left_out(low: str, high: str, room: bool) -> None:
    bounds = [f"({relation} X_0 {number})" for relation, number in (low.split(), high.split())]
    written = listed(["(<= Y_0 1)"]).replace("(>= X_0 0.007) (<= X_0 0.9)", " ".join(bounds))
    assert len(parse(written).violations) == LINES - 1 + room


def test_what_a_clause_says_twice_counts_once() -> None:
    query = parse(listed(["(<= Y_0 1) (<= Y_0 1.0) (< Y_0 1)"]))
    assert {len(one.constraints) for one in query.violations} == {2}
    assert len(query.violations) == LINES
    assert len(parse(listed(["(<= Y_0 1)"]).replace("0.001", "0.000")).violations) == LINES  # clauses stay apart


def test_the_tightest_of_several_bounds_in_a_clause_counts() -> None:
    for further, end, is_open in (("(<= X_0 .5)", Fraction(1, 2), False), ("(< X_0 0.90)", Fraction(9, 10), True)):
        violations = parse(listed([f"(<= Y_0 1) {further} (<= X_0 1)"])).violations
        assert {(one.high[0], 0 in one.open_high) for one in violations} == {(end, is_open)}
    assert not parse(listed(["(<= Y_0 1) (< X_0 0.000)"])).violations


def test_comparisons_of_a_conjunction_come_before_clauses_in_it() -> None:
    """As before other formulas, in an assertion, too."""
    for written in ("(assert (and (and (<= Y_0 2)) (<= Y_1 1)))", "(assert (and (<= Y_0 2))) (assert (<= Y_1 1))"):
        (violation,) = parse(HEAD + BOX + written).violations
        assert [int(one.bound) for one in violation.constraints] == [1, 2]


def test_clauses_of_many_comparisons() -> None:
    inputs = MOST_COMPARISONS // 2 + 1
    names = "".join(f"(declare-const X_{index} Real)" for index in range(inputs)) + "(declare-const Y_0 Real)"
    for count in (inputs - 2, inputs - 1, inputs):
        box = " ".join(f"(>= X_{index} 0.{index + 1}) (<= X_{index} 2)" for index in range(count))
        rest = "".join(f"(assert (>= X_{index} 0)) (assert (<= X_{index} 1))" for index in range(count, inputs))
        query = parse(f"{names} {rest} (assert (or (and {box} (<= Y_0 1)) (and {box} (>= Y_0 2))))")
        for violation in query.violations:
            assert violation.low[:count] == tuple(Fraction(f"0.{index + 1}") for index in range(count))
            assert violation.high == (2,) * count + (1,) * (inputs - count)


def test_violations_are_a_tuple_that_is_made_when_asked() -> None:
    written = listed(["(<= Y_0 1)", "(>= Y_0 2)"])
    query, other = parse(written), parse(written)
    assert len(query.violations) == LINES
    assert repr(query) == f"Query(2 inputs, 2 outputs, {LINES} violations)"
    assert query == other == pickle.loads(pickle.dumps(parse(written)))
    assert hash(query) == hash(other)
    violations = tuple(parse(written).violations)
    assert query.violations == violations
    assert violations == query.violations
    assert query.violations != violations[1:]
    assert query.violations[3] is query.violations[3]
    assert (query | other).violations == violations * 2
    assert pickle.loads(pickle.dumps(query)) == query


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("(<= Y_0 1e)", "'1e' is neither"),
        ("(<= Y_0 1-2)", "'1-2' is neither"),
        ("(<= Y_0 .)", "'.' is neither"),
        ("(<= Y_0 1e0000000001)", "'1e0000000001' is neither"),
        ("(<= Y_00 1)", "'Y_00' is neither"),
        ("(<= Y_2 1)", "Y_2 is used before it is declared"),
        ("(<= Y_0 1 2)", "<= compares two terms, not 3"),
        ("(=< Y_0 1)", "unknown operator '=<'"),
        ("Y_0", "'Y_0' is no formula"),
        ("(or)", "(or) has no parts"),
    ],
)
def test_what_is_wrong_among_clauses_is_told_with_its_line(wrong: str, message: str) -> None:
    for number in (0, MOST_CLAUSES + 1, LINES - 1):
        lines = listed(["(<= Y_0 1)", "(>= Y_0 2)"]).split("\n")
        line = len(HEAD.splitlines()) + 2 + number
        lines[line - 1] = lines[line - 1].replace("(<= Y_0 1)", wrong).replace("(>= Y_0 2)", wrong)
        assert told("\n".join(lines)).startswith(f"line {line}: {message}")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("(<= Y_0 1e401)", "exponent beyond"),
        (f"(<= Y_0 {'9' * 401})", "more than 400 digits"),
        ("(<= Y_0 1e309)", "a constraint has a bound beyond the numbers of float64"),
        ("(>= X_0 -1e309)", ""),  # no tighter than the other bound
        ("(and (<= Y_0 1)) (assert (<= Y_0 1))", "unknown operator 'assert'"),
    ],
)
def test_numbers_that_are_too_large_are_refused_among_clauses(wrong: str, message: str) -> None:
    written = listed(["(<= Y_0 1)"]).replace("(<= Y_0 1)", wrong, 3)
    if message:
        assert message in told(written)
    else:
        assert len(parse(written).violations) == LINES


def test_inputs_without_bounds_are_named() -> None:
    written = listed(["(<= Y_0 1)"])
    for bound, name, which in (("(>= X_0 0.007)", "X_0", "lower"), ("(<= X_1 5e-1)", "X_1", "upper")):
        assert told(written.replace(bound, "")).startswith(f"the region is unbounded: {name} has no {which} bound")


def test_clauses_nest_no_deeper_than_other_brackets() -> None:
    for ands, deep in ((98, None), (99, 6), (100, 5)):
        written = HEAD + "(assert " + "(and " * (ands - 1) + "(and\n(<= Y_0 0)" + ")" * (ands + 1)
        assert told(written).startswith("the region is" if deep is None else f"line {deep}: brackets are nested deeper")


def test_clauses_stand_only_where_formulas_do() -> None:
    assert told(HEAD + "(and (<= X_0 1) (<= Y_0 1))").startswith("line 5: unknown command 'and'")
    assert told(HEAD + "(assert (<= Y_0\n(and (<= X_0 1))))").startswith("line 6: unknown operator 'and'; terms")
    assert told(HEAD + "(assert\n(and (<= X_0 1)) (and (<= Y_0 1)))").startswith(
        "line 5: an assertion has one formula, not 2"
    )
