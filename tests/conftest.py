"""Shared by all tests: one thread each, since they run side by side, reproducible random examples, and little effort
for quadratic certificates, which are proven whatever they are worth."""

import os
import zlib

import hypothesis
import pytest
import torch

from relucert.execution import execution
from relucert.methods.quadratic import solve
from relucert.methods.sdp import QuadraticMethod

COSTLY_METHODS = {"alpha", "lp-full", "sdp"}
COSTLY_TESTS = {
    "test_what_is_proven_about_images_passes",
    "test_mutations_about_images_are_rejected",
    "test_mutations_are_rejected",
    "test_time_limits",
    "test_bounds_enclose_the_region_and_lie_within_those_of_the_ball",
    "test_every_answer_is_the_library_s_own",
    "test_every_defence_trains_convolutional_networks_to_one_file",
    "test_every_method_finds_what_it_says",
    "test_lies_between_certificates_and_attacks",
    "test_margins_hold_at_samples",
    "test_no_evaluation_breaks_a_certificate",
    "test_no_witness_is_inside_a_certified_radius",
    "test_the_order",
    "test_the_order_for_every_target",
    "test_the_radius_passes_and_a_slightly_larger_one_fails",
    "test_verdicts_agree_with_exact_answers",
}
SHARE = 5  # one in so many cases of a costly table is among the quick tests, chosen by its name; all are slow ones

hypothesis.settings.register_profile("relucert", deadline=None, derandomize=True, database=None, print_blob=False)


def pytest_configure() -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the commands that tests start
    hypothesis.settings.load_profile("relucert")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks most cases of costly tables as slow, so that the quick tests stay quick."""
    for item in items:
        call = getattr(item, "callspec", None)
        name = getattr(item, "originalname", item.name)
        if call is None or not (call.params.get("method") in COSTLY_METHODS or name in COSTLY_TESTS):
            continue
        if zlib.crc32(item.nodeid.encode()) % SHARE:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who asks for workers gets some."""
    monkeypatch.setattr(execution, "WORTH", float("inf"))


@pytest.fixture(autouse=True)
def little_effort(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "full_effort" not in request.keywords:
        monkeypatch.setattr(solve, "EFFORT", solve.Effort(repeats=1, power_rounds=10, steps=20))
        monkeypatch.setattr(QuadraticMethod, "resolution", 0.05)
