"""Shared by all tests: one thread each, since they run side by side, reproducible random examples, and little effort
for quadratic certificates, which are proven whatever they are worth."""

import os

import hypothesis
import pytest
import torch

from relucert.execution import execution
from relucert.methods.sdp import QuadraticMethod
from relucert.quadratic import solve

hypothesis.settings.register_profile("relucert", deadline=None, derandomize=True, database=None, print_blob=False)


def pytest_configure() -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the commands that tests start
    hypothesis.settings.load_profile("relucert")


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who asks for workers gets some."""
    monkeypatch.setattr(execution, "WORTH", float("inf"))


@pytest.fixture(autouse=True)
def little_effort(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "full_effort" not in request.keywords:
        monkeypatch.setattr(solve, "EFFORT", solve.Effort(repeats=1, power_rounds=10, steps=20))
        monkeypatch.setattr(QuadraticMethod, "resolution", 0.05)
