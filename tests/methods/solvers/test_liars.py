"""Solvers that lie, fail or never end: the radius stays proven, and the certificate says what happened."""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import highspy
import numpy as np
import pytest
import torch

import relucert
from relucert.answers.certificates import Certificate
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import FAST_LIN
from relucert.common.deadline import TimeUp, until
from relucert.common.names import MethodName
from relucert.errors import InputError
from relucert.methods.linear import LinearMethod
from relucert.methods.programs import ProgramMethod
from relucert.methods.solvers import proposer
from relucert.methods.solvers.conic import Conic
from relucert.methods.solvers.highs import Highs
from relucert.methods.solvers.program import Array, Program, RightHandSides, build
from relucert.methods.solvers.solver import DualSolution, Unsolved
from relucert.network import Network
from relucert.search.end import SearchEnd
from relucert.search.radius import Searcher
from tests.adversaries import nearest_distances
from tests.method_tables import PROGRAMS
from tests.nets import NETWORKS, centres

NORMS = (1.0, 2.0, float("inf"))
NAME = "half precision"  # a network on which LP and LP-Full gain a lot


class Liar:
    """Answers with multipliers of its own; `change` is ignored."""

    def __init__(self, lie: str, program: Program) -> None:
        self.lie, self.size, self.random = lie, len(program.after), np.random.default_rng(0)

    def change(self, sides: RightHandSides) -> None:
        if self.lie == "refuses changes":
            raise ValueError("no")

    def solve(self, cost: Array) -> DualSolution:
        one, draw = np.ones(self.size), self.random.random
        lies: dict[str, Callable[[], Any]] = {
            "random": lambda: DualSolution(draw(self.size), draw(self.size)),
            "huge": lambda: DualSolution(1e300 * draw(self.size), 1e300 * draw(self.size)),
            "negative": lambda: DualSolution(-draw(self.size), -draw(self.size)),
            "mixed signs": lambda: DualSolution(draw(self.size) - 0.5, 5 * one),
            "all slopes one": lambda: DualSolution(0 * one, one),
            "nan": lambda: DualSolution(one * np.nan, one),
            "infinite": lambda: DualSolution(one, one * np.inf),
            "short": lambda: DualSolution(one[1:], one),
            "nothing": lambda: None,
            "words": lambda: DualSolution(np.array(["a"] * self.size), one),
            "refuses changes": lambda: DualSolution(one, one),
        }
        return lies[self.lie]()  # type: ignore[no-any-return]


FAILING = ("nan", "infinite", "short", "nothing", "words", "refuses changes")
SOLVING = ("random", "huge", "negative", "mixed signs", "all slopes one")


def question() -> tuple[Network, torch.Tensor, Property]:
    """A network, points, and their labels' margins over all rivals."""
    network = NETWORKS[NAME]()
    points = centres(network, 3, seed=5)
    labels = network.cast(torch.float64)(points).argmax(1)
    others = torch.tensor([[rival for rival in range(network.classes) if rival != label] for label in labels.tolist()])
    return network, points, Property.margins(labels, others, network.classes)


def search(method: ProgramMethod | LinearMethod, norm: float) -> list[SearchEnd]:
    network, points, prop = question()
    searcher = Searcher(network, method, RIGOROUS, 1e-4)
    return sorted(searcher.run(Region.around(points, 0.0, norm), prop), key=lambda end: end.question)


@cache
def plain(norm: float) -> list[float]:
    return [end.radius or 0.0 for end in search(LinearMethod("fast-lin", FAST_LIN), norm)]


@cache
def honest(norm: float, full: bool) -> list[float]:
    return [end.radius or 0.0 for end in search(programs(full), norm)]


def programs(full: bool, make: proposer.MakeSolver = proposer.make_solver) -> ProgramMethod:
    lp = ProgramMethod("lp", LinearMethod("fast-lin", FAST_LIN), make=make)
    return ProgramMethod("lp-full", lp, full=True) if full else lp


@pytest.mark.parametrize("full", [False, True], ids=["lp", "lp-full"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("lie", [*SOLVING, *FAILING])
def test_no_lie_makes_a_radius_too_large(lie: str, norm: float, full: bool) -> None:
    method = programs(full, lambda program, norm, limit: Liar(lie, program))
    ends = search(method, norm)
    for end, least, most, distance in zip(
        ends, plain(norm), honest(norm, full), nearest_distances(NAME, norm), strict=True
    ):
        assert end.radius is not None
        assert least <= end.radius <= most * (1 + 2e-4)
        assert end.radius < distance
        if lie in FAILING and not full:  # LP-Full starts from bounds with optimised slopes
            assert end.radius <= least * (1 + 2e-4)
    _, points, prop = question()
    questions = [prop.select(torch.tensor([place])) for place in range(len(points))]
    remarks = [method.remark(*asked) for asked in zip(points, questions, strict=True)]
    assert all(("fell back" in str(remark)) == (lie in FAILING) for remark in remarks)


@pytest.mark.parametrize("full", [False, True], ids=["lp", "lp-full"])
@pytest.mark.parametrize("norm", NORMS)
def test_honest_solvers_gain(norm: float, full: bool) -> None:
    """Otherwise the tests above would compare nothing."""
    assert all(most > 1.005 * least for least, most in zip(plain(norm), honest(norm, full), strict=True))


def certify(norm: float, method: MethodName = "lp", **options: Any) -> list[Certificate]:
    network = NETWORKS[NAME]()
    return relucert.certify(network, centres(network, 3, seed=5), norm=norm, method=method, **options)


STATUSES = ("kInfeasible", "kUnbounded", "kTimeLimit", "kIterationLimit", "kMemoryLimit", "kUnknown", "kSolveError")


@pytest.mark.parametrize("status", STATUSES)
def test_any_status_but_optimal_is_a_failure(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = getattr(highspy.HighsModelStatus, status)
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda self: ended)
    for norm in (1.0, float("inf")):
        for answer, radius in zip(certify(norm), plain(norm), strict=True):
            assert answer.proven
            assert answer.radius == pytest.approx(radius, rel=2e-4)
            assert re.search("programs? fell back to cheaper bounds", str(answer.reason))
            words = {"kTimeLimit": "Time limit reached", "kInfeasible": "Infeasible", "kUnbounded": "Unbounded"}
            assert words.get(status, "") in str(answer.reason)


@pytest.mark.parametrize("status", ["AlmostSolved", "PrimalInfeasible", "MaxIterations", "MaxTime", "NumericalError"])
def test_any_conic_status_but_solved_is_a_failure(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def __init__(self, *_: object) -> None:
            self.status, self.z = status, np.zeros(9)

        def update(self, q: Array, settings: object) -> None: ...

        def solve(self) -> Model:
            return self

    import clarabel

    monkeypatch.setattr(clarabel, "DefaultSolver", Model)
    for answer, radius in zip(certify(2.0), plain(2.0), strict=True):
        assert answer.proven
        assert answer.radius == pytest.approx(radius, rel=2e-4)
        assert status in str(answer.reason)


class PanicException(BaseException):
    """What Clarabel raises where it panics."""


def test_a_panic_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object) -> None:
        raise PanicException

    import clarabel

    monkeypatch.setattr(clarabel, "DefaultSolver", panic)
    for answer in certify(2.0):
        assert answer.proven
        assert "Panic" in str(answer.reason)


@pytest.mark.parametrize("norm", NORMS)
def test_time_runs_out(norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    network = NETWORKS[NAME]().cast(torch.float64)
    program = build(network, Region.around(centres(network, 1), 0.0, norm), 0)
    solver = Conic(program, 0.0) if norm == 2 else Highs(program, norm == 1, 0.0)
    solver.change(program.right_hand_sides(0.5, {}, 0))
    with pytest.raises(Unsolved, match=r"(?i)time"):
        solver.solve(program.forms[network.output][0])
    monkeypatch.setattr(proposer, "SOLVABLE", -1)
    monkeypatch.setattr(ProgramMethod, "_proposer", proposer.Proposer(-1.0))
    for answer, radius in zip(certify(norm), plain(norm), strict=True):
        assert answer.radius == pytest.approx(radius, rel=2e-4)
        assert "Time limit reached" in str(answer.reason)


@pytest.mark.parametrize("norm", NORMS)
def test_solvers_mind_the_deadline_around_them(norm: float) -> None:
    """Whatever their own time limit."""
    network = NETWORKS[NAME]().cast(torch.float64)
    program = build(network, Region.around(centres(network, 1), 0.0, norm), 0)
    solver = Conic(program, 60.0) if norm == 2 else Highs(program, norm == 1, 60.0)
    bounds = hidden_bounds(network, Region.around(centres(network, 1), 0.5, norm), FAST_LIN, RIGOROUS)
    solver.change(program.right_hand_sides(0.5, bounds, 0))
    cost = program.forms[network.output][0]
    with until(time.monotonic() - 1), pytest.raises(Unsolved, match=r"(?i)time"):
        solver.solve(cost)
    assert solver.solve(cost) is not None


@pytest.mark.parametrize("threads", [1, 2])
def test_no_program_is_begun_once_time_is_over(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in other threads either; and no failure of a solver is made of it."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    solved: list[bool] = []
    solve = Highs.solve

    def late(solver: Highs, cost: Array) -> DualSolution:
        solved.append(True)
        monkeypatch.setattr(time, "monotonic", lambda: 1e12)
        return solve(solver, cost)

    monkeypatch.setattr(Highs, "solve", late)
    network, points, _ = question()
    region, method = Region.around(points, 0.5, 1.0), programs(full=True)
    with pytest.raises(TimeUp), until(1e11):
        method.hidden(network.cast(torch.float64), region.cast(torch.float64), RIGOROUS)
    assert len(solved) <= threads


@pytest.mark.parametrize("error", [RuntimeError("x"), ValueError("x"), ZeroDivisionError("x"), OSError("x")])
def test_exceptions_fall_back(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(Highs, "solve", broken)
    for answer, radius in zip(certify(1.0), plain(1.0), strict=True):
        assert answer.radius == pytest.approx(radius, rel=2e-4)
        assert type(error).__name__ in str(answer.reason)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", PROGRAMS)
def test_a_remark_counts_the_programs_of_its_own_question(
    method: MethodName, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every rival a question of its own, each program belongs to one of them."""
    rows: Counter[bytes] = Counter()

    def broken(self: Highs, cost: Array) -> None:
        rows[cost.tobytes()] += 1
        raise Unsolved("no")

    monkeypatch.setattr(Highs, "solve", broken)
    torch.set_num_threads(threads)
    try:
        answers = relucert.certify(
            NETWORKS[NAME](), centres(NETWORKS[NAME](), 1, seed=5), norm=1, method=method, target="all"
        )
    finally:
        torch.set_num_threads(1)
    counts = [re.match(r"(\d+) of (\d+) programs?", str(answer.reason)) for answer in answers]
    assert all(count is not None and count[1] == count[2] for count in counts)
    programs = [int(count[1]) for count in counts if count is not None]
    assert sum(programs) == rows.total()
    if method == "lp":  # one row a program: each question's own
        assert sorted(programs) == sorted(rows.values())


def test_an_interruption_stops_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the programs that are left."""
    solved = []

    def slow(self: Highs, cost: Array) -> None:
        solved.append(cost)
        if len(solved) == 4:
            raise_in_main()
        time.sleep(0.02)
        raise Unsolved("no")

    def raise_in_main() -> None:
        main = threading.main_thread().ident
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(KeyboardInterrupt))

    monkeypatch.setattr(Highs, "solve", slow)
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            certify(1.0, "lp-full", target="all")
        before = len(solved)
        time.sleep(0.3)
    finally:
        torch.set_num_threads(1)
    assert len(solved) <= before + 2  # those under way


def test_no_memory_is_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("full")

    monkeypatch.setattr(Highs, "solve", broken)
    for answer in certify(1.0):
        assert answer.radius is None
        assert answer.reason == "not certified: MemoryError: full"
        assert answer.failed


@pytest.mark.parametrize(("norm", "package"), [(1.0, "highspy"), (2.0, "clarabel"), (float("inf"), "highspy")])
def test_a_missing_package_is_named(norm: float, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"need the package {package}"):
        relucert.certify_each(NETWORKS[NAME](), centres(NETWORKS[NAME]()), norm=norm, method="lp-full")
