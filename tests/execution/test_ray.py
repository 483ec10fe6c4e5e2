"""Work on Ray clusters, in processes of their own; `make test-ray` installs Ray and runs all of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: make test-ray")


def _run(*arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    command = [sys.executable, "-m", "tests.execution.on_ray", *arguments]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert "all is well" in outcome.stdout, outcome.stderr[-4000:]


def test_a_cluster_gives_the_answers_of_one_process_though_it_loses_a_node(tmp_path: Path) -> None:
    _run("short", str(tmp_path))


@pytest.mark.slow
def test_a_real_run_that_loses_a_node() -> None:
    _run("real")
