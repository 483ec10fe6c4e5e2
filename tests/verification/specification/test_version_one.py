"""VNN-LIB 1.0: what files mean, and what is wrong with those that mean nothing."""

import gzip
import re
from fractions import Fraction
from pathlib import Path

import pytest

from relucert import Query
from relucert.checker.document import Rejected
from relucert.checker.specification import read_cases
from relucert.errors import RelucertError
from relucert.verification.specification import version_one
from relucert.verification.specification.violations import Constraint

HEAD = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (>= X_0 -1)) (assert (<= X_0 0.1)) (assert (>= X_1 0)) (assert (<= X_1 2e-1))\n"


def parse(text: str) -> Query:
    return Query.of(version_one.parse(text))


def bounds(query: Query) -> set[tuple[Constraint, ...]]:
    return {violation.constraints for violation in query.violations}


def only(text: str) -> Constraint:
    ((constraint,),) = bounds(parse(HEAD + BOX + f"(assert {text})"))
    return constraint


def test_boxes_are_decimals() -> None:
    (violation,) = parse(HEAD + BOX + "(assert (<= Y_0 0))").violations
    assert violation.low == (Fraction(-1), Fraction(0))
    assert violation.high == (Fraction(1, 10), Fraction(1, 5))


@pytest.mark.parametrize(
    ("text", "inputs", "outputs", "bound"),
    [
        ("(<= Y_0 0.5)", (), ((0, 1),), Fraction(1, 2)),
        ("(>= Y_0 0.5)", (), ((0, -1),), Fraction(-1, 2)),
        ("(< 3 Y_1)", (), ((1, -1),), -3),
        ("(<= Y_0 Y_1)", (), ((0, 1), (1, -1)), 0),
        ("(<= (* 0.1 Y_0) 0.35)", (), ((0, 1),), Fraction(7, 2)),
        ("(<= (+ Y_0 (* -2 Y_1) X_1 1) (- X_0))", ((0, 1), (1, 1)), ((0, 1), (1, -2)), -1),
        ("(>= (- 1 Y_0 Y_1) (* 2 (* Y_0 3)))", (), ((0, 7), (1, 1)), 1),
        ("(<= (* 4 Y_0) (* 6 Y_1))", (), ((0, 2), (1, -3)), 0),
        ("(<= (+ X_0 X_1) 0)", ((0, 1), (1, 1)), (), 0),
        ("(<= Y_0 (+ X_0 1e-3))", ((0, -1),), ((0, 1),), Fraction(1, 1000)),
    ],
)
def test_terms(text: str, inputs: object, outputs: object, bound: object) -> None:
    if "Y" not in text:
        text = f"(and (<= Y_0 9) {text})"
        ((_, constraint),) = bounds(parse(HEAD + BOX + f"(assert {text})"))
    else:
        constraint = only(text)
    assert (constraint.inputs, constraint.outputs, constraint.bound) == (inputs, outputs, bound)


def test_nested_connectives_multiply_out() -> None:
    text = "(assert (or (and (<= Y_0 1) (or (<= Y_1 2) (<= Y_1 3))) (and (<= Y_0 4)) (<= Y_0 5)))"
    found = {tuple(int(one.bound) for one in constraints) for constraints in bounds(parse(HEAD + BOX + text))}
    assert found == {(1, 2), (1, 3), (4,), (5,)}


def test_disjunctions_over_boxes() -> None:
    text = "(assert (or (and (<= X_0 -0.5) (<= Y_0 0)) (and (>= X_0 0.05) (>= Y_0 1)) (and (>= X_0 3) (<= Y_0 9))))"
    boxes = [(one.low[0], one.high[0]) for one in parse(HEAD + BOX + text).violations]
    assert boxes == [(-1, Fraction(-1, 2)), (Fraction(1, 20), Fraction(1, 10))]  # the third is empty


def test_equality_is_two_bounds() -> None:
    ((one, other),) = bounds(parse(HEAD + BOX + "(assert (= Y_0 2))"))
    assert (one.bound, other.bound) == (Fraction(2), Fraction(-2))


@pytest.mark.parametrize("text", ["(assert (>= X_0 0.2))", "(assert (>= X_0 0.1)) (assert (< X_0 0.1))"])
def test_contradictory_bounds_leave_nothing(text: str) -> None:
    assert parse(HEAD + BOX + text + "(assert (<= Y_0 0))").violations == ()


@pytest.mark.parametrize(("relation", "strict"), [("<", True), (">", True), ("<=", False), (">=", False), ("=", False)])
def test_strict_relations_stay_strict(relation: str, strict: bool) -> None:
    """Of outputs, of inputs and of both, and in what is written."""
    text = f"(assert ({relation} Y_0 (+ X_1 2))) (assert ({relation} X_0 0))"
    query = parse(HEAD + BOX + text)
    for asked in (query, parse((query | query).vnnlib())):
        (violation,) = set(asked.violations)
        assert {constraint.strict for constraint in violation.constraints} == {strict}
        assert violation.open_low == (frozenset({0}) if relation == ">" else frozenset())
        assert violation.open_high == (frozenset({0}) if relation == "<" else frozenset())


def test_the_tighter_of_two_bounds_counts() -> None:
    for bounds, strict in (("(<= X_0 0) (< X_0 0)", True), ("(< X_0 0) (<= X_0 -0.1)", False)):
        for order in (bounds.split(") "), bounds.split(") ")[::-1]):
            text = " ".join(f"(assert {part.rstrip(')')}))" for part in order)
            (violation,) = parse(HEAD + BOX + text + "(assert (<= Y_0 0))").violations
            assert (violation.open_high == {0}) == strict


@pytest.mark.parametrize(
    ("text", "contradictory"),
    [
        ("(< Y_0 Y_1) (< Y_1 Y_0)", True),
        ("(< Y_0 Y_1) (<= (* 2 Y_1) (* 2 Y_0))", True),
        ("(<= Y_0 Y_1) (<= Y_1 Y_0)", False),
        ("(< Y_0 0.1) (> Y_0 0.1)", True),
        ("(= Y_0 0.1) (< Y_0 0.1)", True),
        ("(= Y_0 0.1) (= Y_0 0.2)", True),
        ("(< Y_0 0.2) (> Y_0 0.1)", False),
        ("(< (+ X_0 X_1) Y_0) (<= Y_0 (+ X_1 X_0))", True),
        ("(<= (* 0 Y_0) -1)", True),
        ("(< (- Y_0 Y_0) 0)", True),
        ("(<= (- Y_0 Y_0) 0)", False),
    ],
)
def test_conditions_that_contradict_each_other(text: str, contradictory: bool) -> None:
    """The checker leaves them out, too, and no others."""
    query = parse(HEAD + BOX + f"(assert (and {text}))")
    assert [violation.contradictory for violation in query.violations] == [contradictory]
    assert len(query.possible) == len(read_cases(query.vnnlib(), 2, 2)) == 1 - contradictory


@pytest.mark.parametrize("last", ["(check-sat)", "(exit)", "(check-sat)\n(get-model)"])
def test_nothing_is_asserted_after_the_end(last: str) -> None:
    text = HEAD + BOX + "(assert (<= Y_0 0))\n" + last
    for allowed in (text, text + "(exit)"):
        assert parse(allowed).violations
        assert read_cases(allowed, 2, 2)
    for further in ("(assert (<= Y_1 -9))", "(declare-const X_2 Real)"):
        with pytest.raises(RelucertError, match=r"stands after \((check-sat|exit)\)"):
            parse(text + further)
        with pytest.raises(Rejected, match="goes on after"):
            read_cases(text + further, 2, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(assert (<= Y_0 0))", "unbounded: X_0, X_1 has no lower bound"),
        (BOX, "no assertion is about an output"),
        (BOX + "(assert (<= Y_2 0))", "Y_2 is used before it is declared"),
        (BOX + "(assert (<= (* Y_0 Y_1) 0))", "not linear"),
        (BOX + "(assert (<= (/ Y_0 2) 0))", "unknown operator '/'"),
        (BOX + "(assert (not (<= Y_0 0)))", "unknown operator 'not'"),
        (BOX + "(assert (<= Y_0))", "compares two terms, not 1"),
        (BOX + "(assert (<= Y_0 zero))", "neither a number nor a variable"),
        (BOX + "(assert Y_0)", "no formula"),
        (BOX + "(assert (and))", "has no parts"),
        (BOX + "(assert (<= (+) Y_0))", "has no terms"),
        (BOX + "(assert (<= Y_0 0)", "never closed"),
        (BOX + "(assert (<= Y_0 0)))", "no opening one"),
        (BOX + "(prove (<= Y_0 0))", "unknown command 'prove'"),
        (BOX + "(declare-const X_0 Real)", "declared twice"),
        (BOX + "(declare-const X_9 Real) (assert (<= Y_0 0))", "X_2 is not declared"),
        (BOX + "(declare-const X_2 Int)", "a declaration is"),
        (BOX + "(declare-const Z_0 Real)", "a declaration is"),
        (BOX + "(assert (<= Y_0 1e9999))", "exponent"),
        (BOX + "(assert (<= Y_0 1e399))", "beyond the numbers of float64"),
        (BOX + "(assert (>= Y_0 1e399))", "beyond the numbers of float64"),
        (BOX + "hello (assert (<= Y_0 0))", "outside of brackets"),
        (BOX + "()", "begin with"),
        ("(" * 200 + ")" * 200, "nested deeper"),
        (BOX + "(assert (<= Y_0 (* " + "1e400 " * 20_000 + ")))", "bits"),
        ("(assert (<= X_0 1e350)) (assert (>= X_0 0)) (assert (>= X_1 0)) (assert (<= X_1 1)) (assert (<= Y_0 0))",
         "beyond the numbers of float64"),
        (BOX + "(assert (or " + "(<= Y_0 0) " * 400 + "))" + "(assert (or " + "(<= Y_1 0) " * 400 + "))", "cases"),
    ],
)  # fmt: skip
def test_bad_files_say_what_is_wrong_in_one_line(text: str, said: str) -> None:
    with pytest.raises(RelucertError) as caught:
        parse(HEAD + text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files(tmp_path: Path) -> None:
    text = "; a comment ( that opens\n" + HEAD + BOX + "(assert (<= Y_0 0))"
    plain, packed = tmp_path / "a.vnnlib", tmp_path / "a.vnnlib.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert Query.read(plain) == Query.read(packed)
    assert Query.read(plain).vnnlib() == text
    for name, content in (("b", b"\x1f\x8b broken"), ("c", b"\xff\xfe\x00"), ("d", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RelucertError):
            Query.read(tmp_path / name)
    with pytest.raises(RelucertError, match="can't read"):
        Query.read(tmp_path / "nowhere.vnnlib")
    plain.unlink()
    with pytest.raises(RelucertError, match=r"a\.vnnlib\.gz is there"):
        Query.read(plain)


@pytest.mark.parametrize(
    "text",
    [
        "(assert (<= Y_0 0))",
        "(assert (or (and (<= X_0 -0.5) (<= (* 3 Y_0) 1)) (and (>= X_0 0.05) (>= Y_0 (+ X_1 Y_1)))))",
        "(assert (or (<= (* 3 X_0) -1) (<= Y_1 2))) (assert (>= Y_0 1e-3))",
        "(assert (>= X_0 7)) (assert (<= Y_0 0))",
        "(assert (or (and (< X_0 -0.5) (< Y_0 0)) (and (> X_0 0) (> Y_0 Y_1) (<= Y_0 Y_1)) (> Y_1 9)))",
    ],
)
def test_what_is_written_says_the_same_and_the_checker_reads_it_alike(text: str) -> None:
    query = parse(HEAD + BOX + text)
    written = (query | query).vnnlib()
    assert set(parse(written).violations) == set(query.violations)
    for source in (query.vnnlib(), written):
        cases = read_cases(source, 2, 2)
        assert {(case.low, case.high, _plain(case.inequalities)) for case in cases} == {
            (one.low, one.high, _plain(one.constraints)) for one in query.possible
        }


def _plain(constraints: object) -> frozenset[object]:
    return frozenset((one.inputs, one.outputs, one.bound) for one in constraints)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "(assert (not (<= Y_0 0)))",
        "(prove Y_0)",
        "(assert (<= Y_5 0))",
        "(",
        "(assert 1)",
        f"(assert (<= Y_0 {'9' * 100_000}))",
        f"(assert (<= Y_0 (* {'1e400 ' * 20_000})))",
    ],
)
def test_the_checker_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(Rejected):
        read_cases(HEAD + BOX + text, 2, 2)


REGULAR = [
    "(assert (>= X_0 -1))\n(assert (<= X_0 0.1)) ; in between\n(assert (> X_1 0))\n(assert (<= X_1 2e-1))",
    "(assert (or (and (>= X_0 0) (<= X_0 0.5) (<= Y_0 3) (>= X_0 .25))\n (and (<= X_0 .5) (>= X_0 -1.) (> Y_1 1e-3))))",
    "(assert (<= X_0 0.05)) (assert (<= X_0 0.04)) (assert (< X_0 0.04))",
    "(assert (or (and (>= X_0 7) (<= Y_0 0)) (and (<= Y_0 0) (<= X_1 0.1) (<= Y_1 1))))",
    "(assert (and (<= Y_0 1) (<= Y_1 Y_0) (>= Y_0 0)))",
    "(assert (and (<= X_0 0) (and (<= X_1 0) (>= Y_0 2)) (or (<= Y_0 3) (<= Y_1 4))))",
]


@pytest.mark.parametrize("text", REGULAR)
def test_comparisons_in_a_row_mean_what_each_of_them_means(text: str) -> None:
    together = parse(HEAD + BOX + text + "(assert (<= Y_0 9))")
    apart = parse(HEAD + BOX + re.sub(r"(\([<>]=?) (\w+) (\S+)\)", r"\1 (+ \2) \3)", text) + "(assert (<= Y_0 9))")
    assert together.violations == apart.violations


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(assert (<= Y_0 0))\n(assert (<= Y_0 1e))", "line 7: '1e' is neither"),
        ("(assert (<= Y_0 0))\n(assert (<= Y_0 1.2.3))", "line 7: '1.2.3' is neither"),
        ("(assert (<= Y_0 0))\n\n(assert (<= X_00 1))", "line 8: 'X_00' is neither"),
        ("(assert (and (<= Y_0 0)\n (<= X_7 1) (<= Y_1 2)))", "line 7: X_7 is used before"),
        ("(assert (<= Y_0 0) (<= Y_1 0))", "line 6: an assertion has one formula, not 2"),
        ("(assert (or (<= Y_0 0)\n(assert (<= Y_1 0))))", "line 7: unknown operator 'assert'"),
        ("(<= Y_0 0)", "line 6: unknown command '<='"),
        ("(assert (<= Y_0 (<= Y_0 1)))", "line 6: unknown operator '<='; terms"),
        ("(declare-const X_2 Real)\n(declare-const Y_2 Real)\n(declare-const X_2 Real)", "line 8: X_2 is declared"),
        ("(assert " + "(and " * 99 + "(<= Y_0 0)" + ")" * 100, "nested deeper"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_row_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(RelucertError) as caught:
        parse(HEAD + BOX + text)
    assert said in str(caught.value)
