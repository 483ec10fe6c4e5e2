"""Programs that work on Ray clusters of their own, each in its process; run by the tests."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

import relucert
from relucert.branch_and_bound import subtrees
from relucert.cli.main import main
from relucert.execution import team
from relucert.execution.execution import Execution
from relucert.execution.run import start
from tests.execution.answering import Answering, job
from tests.execution.instances import write_instances
from tests.nets import centres, mlp

MEMORY = 80 * 2**20  # of a node's object store


def plain(answers: Any) -> list[Any]:
    return [replace(answer, seconds=0.0).to_json() for answer in answers]


def short(folder: Path) -> None:
    """Two nodes: the answers of one process, a connection of the caller's stays open; then one of them is lost."""
    cluster: Any = Cluster(initialize_head=True, head_node_args=node())
    second = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    network, data = relucert.load("mnist-2x20"), relucert.data.bundled().first(6)
    options: dict[str, Any] = {"target": "all", "memory": 2**20}
    assert plain(relucert.certify(network, data, ray=cluster.address, **options)) == plain(
        relucert.certify(network, data, workers=1, **options)
    )
    assert not ray.is_initialized()
    ray.init(address=cluster.address, log_to_driver=False)
    assert plain(relucert.robust_at(network, data, radius=0.01, ray="auto")) == plain(
        relucert.robust_at(network, data, radius=0.01, workers=1)
    )
    assert ray.is_initialized()
    commands()
    ray.shutdown()
    share(cluster)
    lose(cluster, second, folder)
    cluster.shutdown()


def commands() -> None:
    """Tables of the paper and lists of instances, whose questions are not about images alone."""
    part = ("--images", "1", "--networks", "mnist-2x20", "--norms", "inf,2", "--methods", "fast-lin,op-norm")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        write_instances(Path(folder), 4)
        for given in (("paper", "toy", *part), ("verify", "--instances", f"{folder}/list.csv")):
            records = []
            for place in (("--ray", "auto"), ("--workers", "1")):
                path = Path(folder) / f"{given[0]}{place[0]}.json"
                assert main([*given, *place, "--json", str(path), "--quiet"]) == 0
                records.append(json.loads(path.read_text()))
                for store in Path(folder).rglob("*.answers"):
                    store.unlink()
            one, other = (record.get("cells") or record["results"] for record in records)
            assert [{**row, "seconds": 0} for row in one] == [{**row, "seconds": 0} for row in other]


def share(cluster: Any) -> None:
    """One question is shared by all nodes, and one of them is lost meanwhile: the verdict comes."""
    network = mlp(16, 20, 20, 20, 4, seed=2)
    image = centres(network, 1)
    (exact,) = relucert.exact(network, image, workers=1)
    assert exact.lower is not None
    further, lost = cluster.add_node(num_cpus=1, object_store_memory=MEMORY), list[int]()

    def lose_one(state: relucert.Progress) -> None:
        if state.stage == "tree" and state.nodes and not lost:
            lost.append(state.nodes)
            cluster.remove_node(further, allow_graceful=False)

    team.ALONE = subtrees.SLICE = subtrees.FIRST_SLICE = 0.0  # shares of one visit each, from the start
    question: dict[str, Any] = {"radius": 0.97 * exact.lower, "ray": cluster.address, "progress": lose_one}
    question["time_limit"] = 300  # on a busy machine a minute is not enough
    (verdict,) = relucert.robust_at(network, image, **question)
    team.ALONE = math.inf
    assert verdict.holds, verdict.reason
    assert lost[0] < verdict.nodes


def node() -> dict[str, Any]:
    return {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}


def lose(cluster: Any, second: Any, folder: Path) -> None:
    """A node is removed in the middle of a run with a question that kills whoever works on it; then resumed."""
    work = job(Answering(folder, always=(29,), pause=0.2), count=30, step=2)
    answers = []
    for place, answer in enumerate(start(work, None, cluster.address, folder / "a.answers")):
        answers.append(answer)
        if place == 9:
            cluster.remove_node(second, allow_graceful=False)
    assert [answer.image for answer in answers] == list(range(30))
    assert [answer.radius for answer in answers] == [*map(float, range(1, 30)), None]
    assert "lost" in str(answers[-1].reason)
    with Execution(1) as here:
        resumed = list(start(job(Answering(folder), 30, 2), here, None, folder / "a.answers"))
    assert [answer.radius for answer in resumed] == list(map(float, range(1, 31)))


def real() -> None:
    """A node that is removed while radii are searched for: the answers are those of one process."""
    network, data = relucert.load("mnist-3x20"), relucert.data.bundled().first(60)
    alone = relucert.certify(network, data, method="lp", workers=1)
    cluster: Any = Cluster(initialize_head=True, head_node_args=node())
    second = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)
    shared = []
    for place, answer in enumerate(relucert.certify_each(network, data, method="lp", ray=cluster.address)):
        shared.append(answer)
        if place == 16:
            cluster.remove_node(second, allow_graceful=False)
    assert plain(shared) == plain(alone)
    cluster.shutdown()


if __name__ == "__main__":
    short(Path(sys.argv[2])) if sys.argv[1] == "short" else real()
    print("all is well")
