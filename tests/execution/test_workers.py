"""Worker processes: the same answers in the same order, whatever happens to the workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import relucert
from relucert.common.progress import Report
from relucert.errors import BudgetError, InputError, MissingPackageError, StoreError
from relucert.execution import execution, processes, sharing
from relucert.execution.execution import Execution
from relucert.execution.run import start
from relucert.experiments.comparison.deadline import OutOfTime, Worker
from tests.execution.answering import Answering, job


@pytest.fixture(scope="module")
def pool() -> Iterator[Execution]:
    """Two processes for several tests."""
    with Execution(2) as execution:
        yield execution


def test_workers_give_the_answers_of_one_process_in_its_order(pool: Execution) -> None:
    """Of several methods, by the same two processes."""
    network, data = relucert.load("mnist-2x20"), relucert.data.bundled().first(12)
    for ask, options in (
        (relucert.certify_each, {"method": "crown", "target": "all", "memory": 2**20}),
        (relucert.estimate_each, {"batches": 4, "samples": 8, "norm": 2}),
        (relucert.attack_each, {"steps": 3, "memory": 2**22, "box": (-0.5, 0.5)}),
        (relucert.robust_at_each, {"radius": 0.01, "seed": 3}),
    ):
        call: Any = ask
        alone, shared = (list(call(network, data, workers=workers, **options)) for workers in (1, pool))
        assert [replace(answer, seconds=0.0).to_json() for answer in shared] == [
            replace(answer, seconds=0.0).to_json() for answer in alone
        ]
    (exact,) = relucert.exact(network, data.first(1), time_limit=1, workers=pool)  # in this process
    assert exact.lower


def test_a_worker_that_dies_costs_a_retry_and_one_that_kills_gets_a_reason(tmp_path: Path) -> None:
    work = job(Answering(tmp_path, once=(2,), always=(5,)), count=8, step=4)
    answers = list(start(work, 2, None, tmp_path / "a.answers"))
    assert [answer.image for answer in answers] == list(range(8))
    assert [answer.radius for answer in answers] == [1, 2, 3, 4, 5, None, 7, 8]
    assert answers[5].failed
    assert "killed by signal 9" in str(answers[5].reason)
    counts = [len((tmp_path / f"asked-{image}").read_text()) for image in range(8)]
    assert counts == [1, 1, 2, 1, 1, 3, 1, 1]  # what was answered before is not asked again; 5 also by itself
    resumed = list(start(job(Answering(tmp_path), 8, 4), 1, None, tmp_path / "a.answers"))
    assert [answer.radius for answer in resumed] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len((tmp_path / "asked-4").read_text()) == 1


def test_workers_serve_one_run_after_the_other(tmp_path: Path, pool: Execution) -> None:
    served = []
    for _ in range(3):
        assert len(list(start(job(Answering(tmp_path), 4, 1), pool, None, None))) == 4
        assert pool._processes is not None
        served.append({process.popen.pid for process in pool._processes._idle})
    assert served[0] == served[1] == served[2]
    assert len(served[0]) == 2


def test_a_run_that_is_given_up_does_not_disturb_the_next(tmp_path: Path) -> None:
    """As a method of a comparison that is out of time: its thread waits for processes that work on."""
    with Execution(2) as pool:
        stuck = start(job(Answering(tmp_path, pause=30.0), 4, 1), pool, None, None)

        def wait() -> None:
            with pytest.raises(OutOfTime), Worker() as worker:
                worker.call(lambda: next(stuck), 1.5)

        given_up = threading.Thread(target=wait)
        given_up.start()
        time.sleep(0.5)  # by then it waits
        answers = list(start(job(Answering(tmp_path), 6, 1), pool, None, None))
        given_up.join(20.0)
    assert [answer.radius for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert not given_up.is_alive()


def test_what_killed_runs_left_in_memory_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MEMORY", tmp_path)
    monkeypatch.setattr(sharing, "YOUNG", -1.0)
    left = tmp_path / f"{sharing.PREFIX}killed"
    left.write_bytes(b"a job")
    first, second = (sharing.SharedFile({"a": torch.ones(2)}) for _ in range(2))
    assert not left.exists()
    assert first.path.exists()  # its owner lives
    assert sharing.open_shared(str(first.path))["a"].tolist() == [1, 1]
    for file in (first, second):
        file.close()
    assert not list(tmp_path.iterdir())


def test_workers_import_what_their_parent_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    assert len(list(start(job(Answering(tmp_path), 2, 1), 2, None, None))) == 2


def test_what_a_worker_refuses_ends_the_run_and_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    process = processes._Process

    def start_one(events: Any) -> Any:
        started.append(process(events))
        return started[-1]

    monkeypatch.setattr(processes, "_Process", start_one)
    answers = start(job(Answering(tmp_path, refuse=(2,)), 6, 1), 2, None, None)
    with pytest.raises(BudgetError, match="image 2 needs too much"):
        list(answers)
    assert len(started) == 2
    assert all(one.popen.poll() is not None for one in started)


def test_more_processes_where_the_work_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(self: Execution, work: Any, items: Any, workers: int, report: Report) -> Any:
        asked.append(workers)
        return execution.here(work, items, report)

    monkeypatch.setattr(Execution, "run_with", counted)
    monkeypatch.setattr(execution, "_cores", lambda: 7)
    assert len(list(start(job(Answering(tmp_path), 6, 1), None, None, None))) == 6
    assert asked == []  # a handful
    monkeypatch.setattr(execution, "TRIAL", 0.0)
    monkeypatch.setattr(execution, "WORTH", 0.0)
    assert len(list(start(job(Answering(tmp_path), 6, 1), None, None, None))) == 6
    assert asked == [5]  # of seven cores, for what is left


def test_memory_limits_the_workers(tmp_path: Path) -> None:
    work = replace(job(Answering(tmp_path), 4, 1), most_workers=1)
    with Execution(4) as pool:
        assert len(list(pool.run(work, work.items, 4))) == 4
        assert pool._processes is None


@pytest.mark.parametrize("workers", [0, -1, 1.5, "two", True])
def test_wrong_numbers_of_workers(workers: Any) -> None:
    network, data = relucert.load("mnist-2x20"), relucert.data.bundled().first(1)
    with pytest.raises(InputError, match="number of workers"):
        relucert.certify(network, data, workers=workers)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"inference": "float32"}, "inference is real, not float32"),
        ({"arithmetic": "float"}, "arithmetic is rigorous, not float"),
        ({"method": "crown"}, "method is fast-lin, not crown"),
        ({"box": (-0.5, 0.5)}, "box is None, not"),
        ({"tolerance": 1e-3}, "tolerance is"),
    ],
)
def test_answers_to_another_question_are_never_taken(other: dict[str, Any], said: str, tmp_path: Path) -> None:
    network, data = relucert.load("mnist-2x20"), relucert.data.bundled().first(1)
    path = tmp_path / "a.answers"
    first = relucert.certify(network, data, store=path)
    assert relucert.certify(network, data, store=path) == first  # the seconds, too: nothing was computed
    with pytest.raises(StoreError, match=said):
        relucert.certify(network, data, store=path, **other)
    with pytest.raises(StoreError, match="network is"):
        relucert.certify(relucert.load("mnist-3x20"), data, store=path)


def test_networks_are_shared(tmp_path: Path) -> None:
    network = relucert.load("mnist-2x20")
    shared = sharing.SharedFile(network)
    try:
        twin = sharing.open_shared(str(shared.path))
        data = relucert.data.bundled().first(2).images
        assert (twin(data) == network(data)).all()
        assert os.path.getsize(shared.path) > 4 * network.parameters
        stream, buffers = sharing.dump(network)
        assert len(stream) < 4000
        assert sum(map(len, buffers)) == 4 * network.parameters
    finally:
        shared.close()
    assert not shared.path.exists()


def test_ray_and_workers_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="give one of them"):
        Execution(2, "auto")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"relucert\[ray\]"):
        Execution(None, "auto")
