"""Verdicts: right where the answer is known, never "holds" where a violation can be sampled, exact at the edges."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import relucert
from relucert import Query, verify
from relucert.branch_and_bound import tree
from relucert.checker.check import Rejected, check, check_property
from relucert.errors import InputError, LoadError
from relucert.inputs.loading.runtime import Runtime
from relucert.network import BatchScale, Linear, Network, Relu, Shift, Sigmoid
from relucert.verification import search, sources
from tests.nets import NETWORKS, chain, mlp
from tests.verification.networks import absolute, as_onnx

TENTH = Fraction(1, 10)
LOW, HIGH = [-1], [Fraction(1, 2)]


@pytest.mark.parametrize(
    ("violations", "status"),
    [
        ([([[1, 0]], [-TENTH])], "holds"),  # |x| <= -1/10
        ([([[-1, 0]], [-1])], "violated"),  # |x| >= 1, at one point only
        ([([[-1, 0]], [-1 - Fraction(1, 10**9)])], "holds"),
        ([([[1, 0]], [0])], "violated"),  # |x| <= 0, where rounding can't decide
        ([([[-1, 0], [0, -1]], [Fraction(-1, 2), 0])], "violated"),  # |x| >= 1/2 and x >= 0: the corner 1/2
        ([([[-1, 0], [0, -1]], [Fraction(-3, 5), 0])], "holds"),
        ([([[-1, 0], [0, -1], [0, 1]], [0, Fraction(-1, 4), Fraction(1, 4)])], "violated"),  # x = 1/4
        ([([[1, 0]], [-1]), ([[0, 1]], [-2]), ([[0, -1]], [-2])], "holds"),
        ([([[1, 0]], [-1]), ([[0, 1]], [-1])], "violated"),
        ([([[1, 0]], [0], [[-1]])], "violated"),  # |x| <= x
        ([([[1, 0]], [-TENTH], [[-1]])], "holds"),  # |x| - x <= -1/10
        ([([[0, 0]], [0])], "violated"),  # always met
        ([([[0, 0]], [-1])], "holds"),  # never met
    ],
)
def test_known_answers(violations: list[tuple[Any, ...]], status: str, tmp_path: Path) -> None:
    network, query = absolute(), Query.within(LOW, HIGH, violations)
    verdict = verify(network, query, time_limit=30, proof=tmp_path / "proof.json")
    assert verdict.status == status, verdict
    assert verify(network, query, time_limit=30).status == status
    assert (verdict.witness is None) == (verdict.coordinates is None) == (status != "violated")
    if verdict.coordinates is None:
        assert check_property(tmp_path / "proof.json", network).cases <= len(violations)
        return
    (x,) = verdict.coordinates
    assert LOW[0] <= x <= HIGH[0]
    assert any(_met(x, *violation) for violation in violations)


def _met(x: Fraction, rows: Any, bounds: Any, input_rows: Any = None) -> bool:
    inputs = input_rows or [[0]] * len(rows)
    return all(
        row[0] * abs(x) + row[1] * x + extra[0] * x <= bound
        for row, bound, extra in zip(rows, bounds, inputs, strict=True)
    )


@pytest.mark.parametrize(
    ("violation", "status"),
    [
        (([[1, 0]], [0]), "holds"),  # |x| < 0: touched at 0
        (([[-1, 0]], [-1]), "holds"),  # |x| > 1: touched at -1
        (([[-1, 0]], [Fraction(-9, 10)]), "violated"),
        (([[1, -1]], [0]), "holds"),  # |x| < x: touched on a third of the box
        (([[0, 1], [0, -1]], [Fraction(1, 4), Fraction(-1, 4)]), "holds"),  # x < 1/4 and x > 1/4
    ],
)
def test_ties_are_no_strict_violations(violation: tuple[Any, ...], status: str) -> None:
    """They are violations of what is not strict; where the network rounds, nothing is exact."""
    for inference in ("real", "float32"):
        strict = Query.within(LOW, HIGH, [violation], strict=True)
        verdict = verify(absolute(), strict, time_limit=10, inference=inference)
        assert verdict.status == status or (inference != "real" and verdict.status == "unknown" != status)
    assert verify(absolute(), Query.within(LOW, HIGH, [violation]), time_limit=10).status == "violated"


IDENTITY = chain((1,), Linear(torch.eye(1), torch.zeros(1)))
ONE = "(declare-const X_0 Real)(declare-const Y_0 Real)"
ONE_OF_TWO = """(vnnlib-version <2.0>)
(declare-network N (declare-input X real [1]) (declare-output Y real [1]))
"""


@pytest.mark.parametrize(
    "text",
    [
        ONE + "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (< Y_0 0.0))",
        ONE + "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (> Y_0 1))",
        ONE + "(assert (> X_0 0)) (assert (<= X_0 1)) (assert (<= Y_0 0))",
        ONE + "(assert (>= X_0 0)) (assert (< X_0 1)) (assert (>= Y_0 1))",
        ONE + "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (or (< Y_0 0) (and (> Y_0 0.5) (= X_0 0.5))))",
        ONE_OF_TWO + "(assert (and (>= X[0] 0.0) (<= X[0] 1.0) (< Y[0] 0.0)))",
        ONE_OF_TWO + "(assert (and (> X[0] 0.0) (<= X[0] 1.0) (<= Y[0] 0.0)))",
    ],
)
def test_files_with_strict_relations_hold_where_ties_are_all_there_is(text: str, tmp_path: Path) -> None:
    """The identity reaches all of these with equality, and none of them."""
    path = tmp_path / "property.vnnlib"
    path.write_text(text)
    if "vnnlib-version" in text:
        pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 needs the package vnnlib")
    assert verify(IDENTITY, path, time_limit=5).status == "holds"
    assert verify(IDENTITY, path, time_limit=5, inference="float32").status != "violated"
    path.write_text(text.replace("(< ", "(<= ").replace("(> ", "(>= "))
    assert verify(IDENTITY, path, time_limit=5).status == "violated"


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 1 + Fraction(1, 2**20)), (TENTH, TENTH + Fraction(1, 10**12))])
def test_witnesses_stay_off_open_ends(low: Fraction, high: Fraction, tmp_path: Path) -> None:
    path = tmp_path / "property.vnnlib"
    ends = f"(assert (> (* {Fraction(low).denominator} X_0) {Fraction(low).numerator}))"
    ends += f"(assert (< (* {Fraction(high).denominator} X_0) {Fraction(high).numerator}))"
    for anything in ("(<= Y_0 9)", "(>= Y_0 -9)"):
        path.write_text(ONE + ends + f"(assert {anything})")
        verdict = verify(IDENTITY, path, time_limit=5)
        assert verdict.coordinates is not None
        assert low < verdict.coordinates[0] < high


def random_query(network: Network, generator: torch.Generator, disjuncts: int, conjuncts: int) -> Query:
    """Random rows whose bounds are near what samples reach, so that both verdicts happen."""
    size, outputs = network.sizes[0], network.classes
    low = torch.rand(size, generator=generator, dtype=torch.float64) - 1
    high = low + torch.rand(size, generator=generator, dtype=torch.float64)
    points = low + (high - low) * torch.rand(500, size, generator=generator, dtype=torch.float64)
    scores = network.cast(torch.float64)(points)
    violations = []
    for _ in range(disjuncts):
        rows = torch.randn(conjuncts, outputs, generator=generator, dtype=torch.float64)
        input_rows = torch.randn(conjuncts, size, generator=generator, dtype=torch.float64)
        reached = (scores @ rows.T + points @ input_rows.T).amin(0)
        slack = (torch.rand(conjuncts, generator=generator, dtype=torch.float64) - 0.8) * reached.abs()
        violations.append((rows, reached + slack, input_rows))
    return Query.within(low, high, violations)


def sampled(network: Network, query: Query, count: int = 2000) -> bool:
    """Whether one of many points is a violation, as float64 has it and by more than its rounding."""
    generator = torch.Generator().manual_seed(7)
    for violation in query.violations:
        low, high = (
            torch.tensor([float(end) for end in ends], dtype=torch.float64) for ends in (violation.low, violation.high)
        )
        share = (1.5 * torch.rand(count, len(low), generator=generator, dtype=torch.float64) - 0.25).clamp(0, 1)
        points = low + (high - low) * share
        scores = network.cast(torch.float64)(points)
        met = torch.ones(count, dtype=torch.bool)
        for constraint in violation.constraints:
            total = torch.full((count,), -float(constraint.scale * constraint.bound), dtype=torch.float64)
            for table, terms in ((scores, constraint.outputs), (points, constraint.inputs)):
                for index, number in terms:
                    total = total + float(constraint.scale * number) * table[:, index]
            met &= total < -1e-9
        if bool(met.any()):
            return True
    return False


@pytest.mark.parametrize("name", [*NETWORKS])
def test_verdicts_agree_with_samples_and_proofs_with_verdicts(name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]()
    generator = torch.Generator().manual_seed(len(name))
    for number, (disjuncts, conjuncts) in enumerate(((1, 1), (2, 3))):
        query = random_query(network, generator, disjuncts, conjuncts)
        proof = tmp_path / f"{number}.json"
        verdict = verify(network, query, time_limit=1, proof=proof)
        if sampled(network, query):
            assert verdict.status != "holds"
        if verdict.holds:
            assert check_property(proof, network).leaves >= disjuncts


def test_a_proof_about_what_is_rectified_twice_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such neurons are never negative, which the search's rounding does not show, and the check's does."""
    monkeypatch.setattr(tree, "BEFORE_REFINING", 60.0)  # a slow machine would refine the root, and split no neuron
    network = NETWORKS["normalised"]()
    for seed in (16, 32):  # which take few nodes, and have slopes of such neurons
        query, proof = random_query(network, torch.Generator().manual_seed(seed), 1, 2), tmp_path / f"{seed}.json"
        assert verify(network, query, time_limit=60, proof=proof).holds
        assert check_property(proof, network).leaves > 2


def test_verdicts_of_a_small_network_are_all_found() -> None:
    network = mlp(2, 6, 2, seed=3)
    generator = torch.Generator().manual_seed(1)
    verdicts = []
    for _ in range(12):
        query = random_query(network, generator, 1, 2)
        verdict = verify(network, query, time_limit=60)
        verdicts.append(verdict.status)
        assert not (verdict.holds and sampled(network, query))
    assert set(verdicts) == {"holds", "violated"}


def test_points_that_no_float_can_be() -> None:
    """X_0 = 0.1 is no float32; the violation there is proven at 0.1 itself."""
    network = absolute()
    query = Query.within([TENTH], [TENTH], [([[1, 0]], [TENTH])])
    verdict = verify(network, query)
    assert verdict.status == "unknown"  # float32's 0.1 is larger, so that the runtime does not show it
    assert "real arithmetic" in str(verdict.reason)
    query = Query.within([TENTH], [TENTH], [([[1, 0]], [TENTH + Fraction(1, 10**6)])])
    verdict = verify(network, query)
    assert verdict.status == "violated"
    assert verdict.coordinates == (TENTH,)
    assert "rigorous" in str(verdict.reason)
    below = Query.within([TENTH], [TENTH], [([[1, 0]], [TENTH - Fraction(1, 10**20)])])
    assert verify(network, below, time_limit=1).status != "violated"


def test_violations_are_missed_by_no_hair() -> None:
    """Nothing but exact arithmetic tells these from violations."""
    for bound in (-1 - Fraction(1, 10**30), -1 - Fraction(1, 10**300)):
        assert verify(absolute(), Query.within(LOW, HIGH, [([[-1, 0]], [bound])]), time_limit=1).status == "unknown"


def test_a_runtime_that_differs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the runtime does not show is no violation, and the verdict says that they differ."""
    liar = Runtime(lambda point: torch.full((2,), 9.0), "a liar", torch.float32)
    monkeypatch.setattr(sources, "runtime_of", lambda *_: liar)
    verdict = verify(absolute(), Query.within([-1], [1], [([[1, 0]], [TENTH])]), time_limit=2)
    assert verdict.status == "unknown"
    assert "a liar does not show" in str(verdict.reason)


def test_witnesses_of_onnx_files_are_replayed_by_onnxruntime(tmp_path: Path) -> None:
    path = as_onnx(mlp(3, 8, 2, seed=2), tmp_path / "network.onnx")
    verdict = verify(path, Query.within([-1] * 3, [1] * 3, [([[1, -1]], [0]), ([[-1, 1]], [0])]))
    assert verdict.status == "violated"
    assert "onnxruntime" in str(verdict.reason)
    assert verdict.outputs is not None
    assert verdict.outputs.shape == (2,)


def test_a_region_without_inputs_holds_and_says_why() -> None:
    verdict = verify(absolute(), Query.within([1], [0], [([[1, 0]], [5])]))
    assert verdict.holds
    assert "region is empty" in str(verdict.reason)


@pytest.mark.parametrize("violation", [([[0, 0]], [-1]), ([[1, 0], [-1, 0]], [0, -1])])
def test_outputs_that_can_not_be_are_no_empty_region(violation: tuple[Any, ...], tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    for proof in (None, path):
        verdict = verify(absolute(), Query.within([0], [1], [violation]), proof=proof)
        assert (verdict.status, verdict.method) == ("holds", "conditions")
        assert "contradict each other" in str(verdict.reason)
        assert "region" not in str(verdict.reason)
    assert check_property(path, absolute()).cases == 0


def test_what_breaks_down_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ValueError("no such luck")

    monkeypatch.setattr(search, "find_method", broken)
    verdict = verify(absolute(), Query.within([-1], [1], [([[1, 0]], [-1])]))
    assert verdict.status == "unknown"
    assert verdict.failed
    assert "no such luck" in str(verdict.reason)


def test_time_ends_the_search() -> None:
    network = mlp(30, 200, 200, 200, 2, seed=1)
    verdict = verify(network, Query.within([-3] * 30, [3] * 30, [([[1.0, 0.0]], [-60.0])]), time_limit=0.1)
    assert verdict.status == "unknown"
    assert verdict.timed_out
    assert verdict.seconds < 30


def test_smooth_networks_are_violated_at_points_that_no_float_can_be() -> None:
    """No rational arithmetic evaluates a sigmoid, at 0.1 or anywhere."""
    network = chain((2,), Linear(torch.ones(2, 2), torch.zeros(2)), Sigmoid(), Linear(torch.eye(2), torch.zeros(2)))
    query = Query.within([TENTH, 0], [TENTH, 1], [([[1, 0]], [0.6])])
    verdict = verify(network, query, time_limit=5)
    assert verdict.status == "violated"
    assert verdict.coordinates is not None
    assert verdict.coordinates[0] == TENTH


def test_networks_with_square_roots_are_not_rational() -> None:
    scale = BatchScale(torch.tensor([1.0, 1.0]), torch.tensor([2.0, 3.0]), 0.0)
    network = chain((2,), scale, Relu(), Shift(torch.tensor([0.0, 0.0])))
    query = Query.within([1, 1], [1, 1], [([[1, 0]], [Fraction(7071, 10**4)])])
    assert verify(network, query, time_limit=2).status == "holds"
    query = Query.within([1, 1], [1, 1], [([[1, 0]], [Fraction(7072, 10**4)])])
    assert verify(network, query, time_limit=2).status == "violated"


@pytest.mark.parametrize(
    ("low", "high", "violations", "said"),
    [
        ([0, 0], [1, 1], [([[1, 0]], [0])], "about 2 inputs"),
        ([0], [1], [([[1, 0, 0]], [0])], "about 3 outputs"),
    ],
)
def test_queries_about_other_networks(low: object, high: object, violations: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        verify(absolute(), Query.within(low, high, violations))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "violations", "said"),
    [
        ([0], [1, 1], [([[1]], [0])], "two ends"),
        ([0], [1], [], "needs violations"),
        ([0], [1], [([[1]], [0]), ([[1, 1]], [0])], "needs violations"),
        ([0], [1], [([[1]],)], "a violation is"),
        ([0], [1], [([1], [0])], "rows have the shape"),
        ([0], [1], [([[1]], [0], [[1, 2]])], "the box has 1 input"),
        ([float("nan")], [1], [([[1]], [0])], "finite number"),
        (["a"], [1], [([[1]], [0])], "finite number"),
    ],
)
def test_bad_queries(low: object, high: object, violations: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Query.within(low, high, violations)  # type: ignore[arg-type]


def test_a_last_layer_that_was_left_out_is_remembered(tmp_path: Path) -> None:
    """Softmax keeps the order of outputs, no more: Y_0 <= Y_1 can be asked, Y_0 <= 0.5 can't."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2), torch.nn.Softmax(1))
    with pytest.warns(relucert.RemarkWarning):
        network = relucert.load(module)
    verify(network, Query.within([0, 0], [1, 1], [([[1, -1]], [0])]), time_limit=5)
    with pytest.raises(InputError, match="last layer"):
        verify(network, Query.within([0, 0], [1, 1], [([[1, 0]], [0.5])]))


def test_an_arg_max_of_an_onnx_file_is_replayed_by_its_scores(tmp_path: Path) -> None:
    """The file gives a class, the property is about scores."""
    path = as_onnx(mlp(3, 8, 3, seed=2), tmp_path / "network.onnx")
    model = onnx.load(path)
    model.graph.node.append(onnx.helper.make_node("ArgMax", ["y"], ["class"], axis=1))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("class", onnx.TensorProto.INT64, (1, 1)))
    onnx.save(model, path)
    query = Query.within([-1] * 3, [1] * 3, [([[1, -1, 0]], [0]), ([[-1, 1, 0]], [0])])
    with pytest.warns(relucert.RemarkWarning):
        verdict = verify(path, query)
    assert verdict.status == "violated"
    assert verdict.outputs is not None
    assert verdict.outputs.shape == (3,)
    assert "an evaluation in float32" in str(verdict.reason)


def test_proofs_are_about_their_property(tmp_path: Path) -> None:
    network, path = mlp(2, 6, 2, seed=3), tmp_path / "proof.json"
    query = Query.within([0, 0], [1, 1], [([[1, 0], [0, 1]], [-9, -9])])
    assert verify(network, query, proof=path).holds
    check_property(path, network)
    with pytest.raises(Rejected, match="about a property"):
        check(path, network)
    with pytest.raises(Rejected, match="another network"):
        check_property(path, mlp(2, 6, 2, seed=4))
    other = Query.within([0, 0], [1, 1], [([[1, 0], [0, 1]], [-8, -9])])
    with pytest.raises(InputError, match="overwrite"):
        verify(network, other, proof=path)
    assert verify(network, other, proof=path, overwrite=True).holds


def test_coefficients_of_many_digits() -> None:
    """Whole multiples beyond float64 are rounded, and the margin pays for it."""
    number = Fraction(12345678901234567890123, 10**22)  # no float64
    network = absolute()
    query = Query.within([-1], [1], [([[-number, Fraction(1, 3)]], [-number - Fraction(1, 3) - Fraction(1, 10**6)])])
    assert verify(network, query, time_limit=20).holds
    query = Query.within([-1], [1], [([[-number, Fraction(1, 3)]], [-number - Fraction(1, 3)])])
    assert verify(network, query, time_limit=20).status == "violated"  # at -1, exactly


def test_several_boxes_all_count() -> None:
    network = absolute()
    far, near = (Query.within([low], [low + 1], [([[1, 0]], [TENTH])]) for low in (1, -1))
    assert verify(network, far).holds
    assert verify(network, near | far).status == verify(network, far | near).status == "violated"
    with pytest.raises(InputError, match="different networks"):
        far | Query.within([0], [1], [([[1]], [0])])


def test_linear_alone() -> None:
    network = chain((2,), Linear(torch.tensor([[1.0, 1.0]]), torch.tensor([0.5])))
    assert verify(network, Query.within([0, 0], [1, 1], [([[1]], [0.25])])).holds
    assert verify(network, Query.within([0, 0], [1, 1], [([[1]], [0.5])])).status == "violated"


def test_networks_of_half_precision_are_replayed_at_their_own_numbers(tmp_path: Path) -> None:
    """onnxruntime takes float16: the witness is such a number, and lies in the box all the same."""
    path = as_onnx(absolute(), tmp_path / "half.onnx", half=True)
    verdict = verify(path, Query.within([TENTH], [2 * TENTH], [([[-1, 0]], [-TENTH])]), time_limit=30)
    assert verdict.status == "violated"
    assert verdict.coordinates is not None
    (x,) = verdict.coordinates
    assert TENTH <= x <= 2 * TENTH
    assert Fraction(float(torch.tensor(float(x)).half())) == x


def test_a_network_is_refused_before_its_property_is_read(tmp_path: Path) -> None:
    path = tmp_path / "property.vnnlib"
    path.write_text("(declare-const Y_0 Real) (assert (<= Y_0 nothing))")
    with pytest.raises(LoadError, match=r"there is no file .*missing"):
        verify(tmp_path / "missing.onnx", path)
    with pytest.raises(LoadError, match="nothing"):
        verify(IDENTITY, path)


def test_reading_is_within_the_time_limit(tmp_path: Path) -> None:
    """What is not read by then is not asked: the verdict says so."""
    network = as_onnx(mlp(2, 4, 2), tmp_path / "network.onnx")
    boxes = "".join(
        f"(and (>= X_0 {low}) (<= X_0 {low + 1}) (>= X_1 0) (<= X_1 1) (<= Y_0 -99))\n" for low in range(2000)
    )
    declared = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    path = tmp_path / "property.vnnlib"
    path.write_text(f"{declared}(assert (or {boxes}))")
    verdict = verify(network, path, time_limit=0)
    assert verdict.status == "unknown"
    assert verdict.timed_out
    assert "before network and property were read" in str(verdict.reason)
