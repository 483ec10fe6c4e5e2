"""One search by several workers: the same verdicts and proofs as by one, whatever becomes of a worker."""

import io
import math
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import Buffer

import relucert
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.branch_and_bound import subtrees
from relucert.branch_and_bound.box_tree import BoxProver, BoxTree
from relucert.branch_and_bound.boxes import Boxes
from relucert.branch_and_bound.interval_tree import IntervalProver
from relucert.branch_and_bound.pool import Pool, StorageError
from relucert.branch_and_bound.tree import NeuronProver
from relucert.checker.check import check, check_property
from relucert.errors import RelucertError
from relucert.execution import team
from relucert.execution.execution import Execution, Worked, here
from relucert.execution.job import Item, Work
from relucert.execution.processes import Processes, _Process
from relucert.execution.sharing import dump, load
from relucert.network import Network
from relucert.query.problem import Problem
from tests.milp import nearest
from tests.nets import centres, mlp, residual

CASES = {"three": mlp(6, 10, 10, 4, seed=0), "skips": residual(0), "few inputs": mlp(3, 8, 8, 3, seed=1)}


class Apart(Execution):
    """Workers that are this process; what goes to them and comes back is pickled."""

    def is_ready(self, workers: int) -> bool:
        return True

    def run_with(self, job: Work[Any], items: Iterable[Item], workers: int, report: Any) -> Worked:
        travelled = load(*dump(job))
        for item in items:
            yield from load(*dump(list(here(travelled, [load(*dump(item))], report))))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers help from the start, and share out what is open after every visit."""
    monkeypatch.setattr(team, "ALONE", 0.0)
    monkeypatch.setattr(subtrees, "SLICE", 0.0)
    monkeypatch.setattr(subtrees, "FIRST_SLICE", 0.0)
    with team.offering(Apart(2), 2):
        yield


@cache
def question(network: Network) -> tuple[Tensor, Property, float]:
    """A centre, its label's margin over the runner-up, and the distance of the nearest violation."""
    centre = centres(network, 1)[0].double()
    order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
    answer = nearest(network, centre, order[0], order[1], math.inf, 5.0)
    assert answer is not None
    return centre, Property.margins(torch.tensor(order[:1]), torch.tensor([order[1:2]]), network.classes), answer[0]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("prover_type", [NeuronProver, BoxProver])
@pytest.mark.parametrize("network", CASES.values(), ids=CASES)
def test_agrees_with_a_mixed_integer_program(network: Network, prover_type: type[NeuronProver | BoxProver]) -> None:
    centre, prop, distance = question(network)
    violations: list[Tensor] = []

    def violates(point: Tensor) -> bool:
        inside = float((point - centre).abs().max()) <= 1.02 * distance * (1 + 1e-12)
        if inside and float(prop.values(network.cast(torch.float64)(point[None])).min()) <= 0:
            violations.append(point)
        return bool(violations)

    for share, holds in ((0.98, True), (1.02, False)):
        problem = Problem(network, Region.around(centre[None], share * distance, "inf"), prop)
        prover = prover_type(problem, violates, time.monotonic() + 30)
        with torch.no_grad():
            assert prover.run() == (holds, None)
        assert prover.nodes
    assert violations


@pytest.mark.usefixtures("at_once")
def test_smooth_networks_are_shared_too() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3)
    network = relucert.load(nn.Sequential(*layers).double())
    (attack,) = relucert.attack(network, torch.zeros(1, 6, dtype=torch.float64))
    assert attack.distance is not None
    prop = Property.margins(torch.tensor([attack.label]), torch.tensor([[attack.target]]), network.classes)
    centre = torch.zeros(1, 6, dtype=torch.float64)
    for share, holds in ((0.9, True), (1.05, False)):
        problem = Problem(network, Region.around(centre, share * attack.distance, "inf"), prop)
        prover = IntervalProver(problem, lambda point: True, time.monotonic() + 60)
        with torch.no_grad():
            assert prover.run() == (holds, None)
        assert prover.nodes > 1  # the root alone proves nothing


@pytest.mark.usefixtures("at_once")
def test_points_that_are_refused_do_not_end_the_search() -> None:
    network = CASES["few inputs"]
    centre, prop, distance = question(network)
    problem = Problem(network, Region.around(centre[None], 1.02 * distance, "inf"), prop)
    prover = BoxProver(problem, lambda point: False, time.monotonic() + 1.0)
    with torch.no_grad():
        proven, failure = prover.run()
    assert not proven
    assert failure is not None


class Dying(Apart):
    """Workers that die of everything."""

    def run_with(self, job: Work[Any], items: Iterable[Item], workers: int, report: Any) -> Worked:
        for item in items:
            yield [(share, job.lost(share, "they died")) for share in item]


@pytest.mark.parametrize("prover_type", [NeuronProver, BoxProver])
def test_nodes_that_kill_workers_are_not_proven(
    prover_type: type[NeuronProver | BoxProver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team, "ALONE", 0.0)
    network = CASES["skips"]
    centre, prop, distance = question(network)
    problem = Problem(network, Region.around(centre[None], 0.98 * distance, "inf"), prop)
    with team.offering(Dying(2), 2), torch.no_grad():
        assert prover_type(problem, lambda point: False, time.monotonic() + 30).run() == (False, "they died")


@pytest.mark.usefixtures("at_once")
def test_workers_that_flush_subnormal_numbers_prove_nothing() -> None:
    network = CASES["few inputs"]
    centre, prop, distance = question(network)
    problem = Problem(network, Region.around(centre[None], 0.5 * distance, "inf"), prop)
    work = subtrees.SubtreeWork(BoxTree(problem))
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor can't flush subnormal numbers")
    try:
        with pytest.raises(RelucertError, match="subnormal"):
            list(work.answer([]))
    finally:
        torch.set_flush_denormal(False)


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes, whose start the search waits for."""
    plain = Processes.is_ready

    def is_ready(self: Processes, count: int) -> bool:
        ends = time.monotonic() + 120
        while not plain(self, count) and time.monotonic() < ends:
            time.sleep(0.05)
        return plain(self, count)

    monkeypatch.setattr(team, "ALONE", 0.0)
    monkeypatch.setattr(Processes, "is_ready", is_ready)


@pytest.mark.usefixtures("waited_for")
def test_proofs_of_several_processes_hold_though_one_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = CASES["skips"]
    centre, _, distance = question(network)
    plain, killed = _Process.ask, list[_Process]()

    def ask(self: _Process, *given: Any) -> None:
        plain(self, *given)
        if not killed:
            killed.append(self)
            self.popen.kill()

    monkeypatch.setattr(_Process, "ask", ask)
    order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
    (verdict,) = relucert.robust_at(
        network, centre[None].numpy(), order[:1], radius=0.97 * distance, target=order[1],
        proof=tmp_path / "proof.json", workers=2,
    )  # fmt: skip
    assert verdict.holds, verdict.reason
    assert killed
    assert check(tmp_path / "proof.json", network).radius == 0.97 * distance


@pytest.mark.usefixtures("at_once")
def test_cuts_of_several_workers_join_in_one_proof(tmp_path: Path) -> None:
    network = CASES["few inputs"]
    centre, _, distance = question(network)
    order = network.cast(torch.float64)(centre[None])[0].argsort(descending=True).tolist()
    low, high = centre - 0.97 * distance, centre + 0.97 * distance
    lines = [f"(declare-const X_{i} Real)" for i in range(3)] + [f"(declare-const Y_{i} Real)" for i in range(3)]
    for i in range(3):
        lines += [f"(assert (>= X_{i} {float(low[i]):.17f}))", f"(assert (<= X_{i} {float(high[i]):.17f}))"]
    lines.append(f"(assert (<= Y_{order[0]} Y_{order[1]}))")
    (tmp_path / "property.vnnlib").write_text("\n".join(lines))
    with Apart(2) as execution:
        verdict = relucert.verify(
            network, tmp_path / "property.vnnlib", proof=tmp_path / "proof.json", workers=execution
        )
    assert verdict.holds, verdict.reason
    assert check_property(tmp_path / "proof.json", network).leaves > 1


def numbered(first: int, count: int) -> Boxes:
    names = torch.arange(first, first + count)
    return Boxes(names[:, None].double(), names[:, None].double(), torch.ones(count, 1, dtype=torch.bool), names)


class SmallDisk(io.BytesIO):
    """A file that takes some kilobytes, and of each writing at most a hundred bytes at once."""

    def write(self, content: Buffer) -> int:
        if self.tell() > 4000:
            raise OSError(28, "No space left on device")
        return super().write(memoryview(content)[:100])


def test_a_disk_that_becomes_full_loses_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relucert.branch_and_bound.pool.MOST_BYTES", 0)
    monkeypatch.setattr("relucert.branch_and_bound.pool.tempfile.TemporaryFile", lambda **_: SmallDisk())
    pool = Pool(numbered(0, 5))

    def fill() -> None:
        for first in range(5, 1000, 5):
            pool.add(numbered(first, 5))

    with pytest.raises(StorageError):
        fill()
    count = pool.size
    assert 10 < count < 1000
    assert pool.all().names.sort().values.tolist() == list(range(count))


def test_nodes_beyond_the_memory_wait_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relucert.branch_and_bound.pool.MOST_BYTES", 200)
    pool = Pool(numbered(0, 5))
    for first in range(5, 50, 5):
        pool.add(numbered(first, 5))
    assert pool.size == 50
    assert len(pool.in_memory) < 5
    taken: list[int] = []
    while pool.size:
        taken += reversed(pool.take(7).names.tolist())
    assert taken == list(range(49, -1, -1))
    assert not pool.take(3).size


def test_a_full_disk_leaves_the_question_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict says why, and nothing is raised."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("relucert.branch_and_bound.pool.MOST_BYTES", 0)
    monkeypatch.setattr("relucert.branch_and_bound.pool.tempfile.TemporaryFile", full)
    monkeypatch.setattr("relucert.bounding.boxes.MOST_BOXES", 1)  # so that nodes wait
    network = mlp(4, 30, 30, 2, seed=5)
    points = 2 * torch.rand(20_000, 4, generator=torch.Generator().manual_seed(0)) - 1
    near = float(network(points)[:, 0].min()) - 0.1
    verdict = relucert.verify(network, relucert.Query.within([-1] * 4, [1] * 4, [([[1, 0]], [near])]), workers=1)
    assert verdict.status == "unknown"
    assert "No space left on device" in str(verdict.reason)


@pytest.mark.parametrize(("fitting", "there"), [(1, None), (2, 2), (5, 3)])
def test_a_team_has_no_more_workers_than_fit_the_memory(fitting: int, there: int | None) -> None:
    with Execution(3) as execution, team.offering(execution, 3), team.at_most(fitting):
        offered = team.current_team()
        assert (None if offered is None else offered.size) == there
