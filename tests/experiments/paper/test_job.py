"""The questions of a table: what gives a method up, what does not, and what later runs know of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from relucert import Network, data
from relucert.arithmetic.norm import Norm
from relucert.execution.execution import Execution
from relucert.execution.run import start
from relucert.experiments.comparison.deadline import OutOfTime
from relucert.experiments.comparison.methods import Setting, find_contenders
from relucert.experiments.paper import job as jobs
from relucert.experiments.paper.job import Omitted, TableJob
from relucert.experiments.paper.networks import Subject, digest
from relucert.experiments.paper.published import lines
from relucert.experiments.paper.rerun import Rerun
from relucert.inputs.loading import zoo
from relucert.network import Node, Relu

METHODS = ["fast-lin", "op-norm"]


def _job(budget: float = 60.0, network: Network | None = None) -> TableJob:
    asked = lines("toy", ["mnist-2x20"], ["inf", "2"], ["random", "least-likely"])
    subjects = {"mnist-2x20": Subject.of("mnist-2x20", network or zoo.load("mnist-2x20"))}
    images = {"mnist-2x20": data.bundled().first(3)}
    setting = Setting(Norm.parse("inf"), budget=budget)
    return Rerun(asked, subjects, images, find_contenders(METHODS), setting, {"table": "toy"}, protocol=True).job


def test_questions_are_in_the_order_of_the_table() -> None:
    job = _job()
    order = [(one.row, one.question.image, one.method) for one in job.questions]
    assert order == [(row, image, method) for row in range(4) for image in range(3) for method in METHODS]
    abouts = [json.dumps(about) for about in job.about()]
    assert len(set(abouts)) == len(abouts)


def test_a_slow_method_is_given_up_for_its_network_and_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "limited", _out_of_time_at("op-norm", image=1))
    job = _job()
    with Execution(1) as here:
        replies = list(start(job, here, None, None))
    given_up = [isinstance(reply, Omitted) for reply in replies]
    tried = [one.method == "fast-lin" or (one.question.image == 0 and one.row in (0, 2)) for one in job.questions]
    assert given_up == [not answered for answered in tried]  # the second target of a norm is not tried at all
    assert sorted(job.skipped) == ["op-norm on mnist-2x20, p = 2", "op-norm on mnist-2x20, p = inf"]


def _out_of_time_at(method: str, image: int) -> Any:
    def limited(work: Any, seconds: float) -> Any:
        answer = work()
        if answer.method == method and answer.image == image:
            raise OutOfTime
        return answer

    return limited


def test_later_runs_know_what_was_too_slow() -> None:
    notes = _job(budget=2.0).came(1, Omitted("image 0 took more than the budget of 2 s", slow=True))
    for budget, known in ((1.0, True), (2.0, True), (3.0, False)):
        job = _job(budget)
        job.recall(notes, again=False)
        assert (job.settled(1) is not None) == known
        assert job.settled(0) is None


def test_what_is_no_longer_too_slow_is_noted() -> None:
    notes = dict(_job(budget=2.0).came(1, Omitted("image 0 took more than the budget of 2 s", slow=True)))
    job = _job(budget=2.0)
    job.recall(notes, again=True)
    assert job.settled(1) is None
    (answer,) = next(iter(job.answer([1])))
    notes |= job.came(1, answer)
    later = _job(budget=2.0)
    later.recall(notes, again=False)
    assert later.settled(1) is None


def test_networks_are_told_apart_by_their_structure() -> None:
    network = zoo.load("mnist-2x20")
    first, *rest = network.nodes
    others = (first, Node(Relu(), (1,)), *(replace(node, inputs=(node.inputs[0] + 1,)) for node in rest))
    other = Network(network.input_shape, others, network.name)
    assert digest(network) == digest(other)  # the same weights
    one, two = (_job(network=given).about()[0] for given in (network, other))
    assert one["network"] != two["network"]


def test_a_question_that_is_lost_gives_nothing_up() -> None:
    job = _job()
    lost = job.lost(0, "its processes died")
    assert lost.failed
    assert job.came(0, lost) == {}
    assert job.settled(2) is None
    assert job.came(0, Omitted("failed: no luck", error="no luck")) == {}
    assert job.settled(2) is not None


def test_workers_share_a_table() -> None:
    job = _job()
    with Execution(1) as here, Execution(2) as pool:
        alone, shared = (list(start(job, place, None, None)) for place in (here, pool))
    assert [{**one.to_json(), "seconds": 0} for one in shared] == [{**one.to_json(), "seconds": 0} for one in alone]
