"""VNN-LIB 2.0, which the package vnnlib parses."""

import sys
from fractions import Fraction

import pytest

from relucert.errors import MissingPackageError, RelucertError
from relucert.verification.specification import version_one, version_two
from tests.shared import SHARED

pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 needs the package vnnlib")

ACASXU = SHARED / "vnncomp" / "acasxu"
HEAD = """(vnnlib-version <2.0>)
(declare-network N (declare-input X {0} [1, 2]) (declare-output Y {0} [2]))
"""
BOX = "(assert (and (>= X[0,0] -1.0) (<= X[0,0] 0.1) (== X[0,1] 0.5)))"


def test_tensors_are_counted_flat_and_decimals_are_exact() -> None:
    text = BOX + "(assert (or (<= (+ Y[0] (* 2.0 Y[1]) (- X[0,1])) 1.0) (< Y[1] (- Y[0] 0.1))))"
    query = version_two.parse(HEAD.format("real") + text)
    one, other = query.violations
    assert one.low == (Fraction(-1), Fraction(1, 2))
    assert one.high == (Fraction(1, 10), Fraction(1, 2))
    assert (one.constraints[0].inputs, one.constraints[0].outputs) == (((1, -1),), ((0, 1), (1, 2)))
    assert other.constraints[0].bound == Fraction(-1, 10)
    assert query.remarks == ()


@pytest.mark.parametrize(("relation", "strict"), [("<", True), (">", True), ("<=", False), (">=", False)])
def test_strict_relations_stay_strict(relation: str, strict: bool) -> None:
    text = f"(assert (and ({relation} Y[0] Y[1]) ({relation} X[0,0] 0.0)))"
    (violation,) = version_two.parse(HEAD.format("real") + BOX + text).violations
    assert {constraint.strict for constraint in violation.constraints} == {strict}
    assert bool(violation.open_low | violation.open_high) == strict


@pytest.mark.parametrize("relation", ["<", ">", "<=", ">=", "=="])
def test_operators_between_their_terms_are_read_as_if_they_came_first(relation: str) -> None:
    """As files of the competition have them; the verdict says so. Comments are left alone."""
    start = HEAD.format("real") + BOX
    expected = version_two.parse(f"{start}(assert (or ({relation} Y[0] Y[1]) ({relation} X[0,0] -0.5)))")
    infix = f"; as in (Y[1] < 0)\n(assert (or (Y[0] {relation} Y[1]) ( X[0,0] {relation} -0.5 ) ))"
    query = version_two.parse(f"{start}{infix}")
    assert query.violations == expected.violations
    (remark,) = query.remarks
    assert f"(Y[0] {relation} Y[1])" in remark
    assert f"({relation} Y[0] Y[1])" in remark
    assert version_two.parse(f"{start}; (Y[1] < 0)\n(assert (< Y[0] Y[1]))").remarks == ()


def test_types_are_said() -> None:
    (remark,) = version_two.parse(HEAD.format("float32") + BOX + "(assert (<= Y[0] 0.0))").remarks
    assert "float32" in remark
    assert "`inference`" in remark


def test_several_inputs_are_counted_in_turn() -> None:
    text = """(vnnlib-version <2.0>)
    (declare-network N (declare-input A real [2]) (declare-input B real []) (declare-output Y real [1]))
    (assert (and (>= A[0] 0.0) (<= A[0] 1.0) (>= A[1] 0.0) (<= A[1] 1.0) (>= B 2.0) (<= B 3.0) (<= Y[0] 0.0)))"""
    query = version_two.parse(text)
    assert query.violations[0].low == (Fraction(0), Fraction(0), Fraction(2))
    assert [tensor.name for tensor in query.declared] == ["A", "B", "Y"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD.format("real") + BOX, "no assertion is about an output"),
        (HEAD.format("real") + "(assert (<= Y[0] 1.0))", "no lower bound"),
        (HEAD.format("real") + BOX + "(assert (<= Y[7] 1.0))", "out of bounds"),
        (HEAD.format("real") + BOX + "(assert (<= (* Y[0] Y[1]) 1.0))", "not linear"),
        (HEAD.format("real") + BOX + "(assert (!= Y[0] 1.0))", "not supported"),
        (HEAD.format("int8") + "(assert (<= Y[0] 1))", "of type"),
        (HEAD.format("real") + "(assert (<= Y[0] 1.0)", "never closed"),
        (HEAD.format("real") + "(assert (what Y[0] 1.0))", "syntax"),
        (HEAD.format("real") + BOX + "(assert (<= Y[0] " + "9" * 10_000 + ".0))", "can't read a number"),
        (HEAD.format("real") + BOX + "(assert (<= Y[0] (* " + f"{10**300}.0 " * 20_000 + ")))", "bits"),
        ("(vnnlib-version <2.0>)(declare-network N (declare-input X real [1000000000, 1000]) "
         "(declare-output Y real [1]))(assert (<= Y[0] 0.0))", "more than 16,777,216 variables"),
        ("(vnnlib-version <2.0>)(declare-network N (declare-input X real [1]) (declare-hidden H real [1] \"h\") "
         "(declare-output Y real [1]))(assert (<= H[0] 0.0))", "hidden values (H)"),
    ],
)  # fmt: skip
def test_bad_files_say_what_is_wrong_in_one_line(text: str, said: str) -> None:
    with pytest.raises(RelucertError) as caught:
        version_two.parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vnnlib", None)
    with pytest.raises(MissingPackageError, match="vnnlib"):
        version_two.parse(HEAD.format("real") + BOX)


@pytest.mark.parametrize("number", range(1, 11))
def test_both_versions_of_a_published_property_agree(number: int) -> None:
    one, two = (ACASXU / folder / f"prop_{number}.vnnlib" for folder in ("vnnlib", "vnnlib-2.0"))
    if not one.exists():
        pytest.skip("ACAS Xu's properties are not beside the project (shared/vnncomp/acasxu)")
    assert version_two.parse(two.read_text()).violations == version_one.parse(one.read_text()).violations
