"""Shared by all tests: one thread each, since they run side by side, reproducible random examples, and little effort
for quadratic certificates, which are proven whatever they are worth, and for fits of estimates, which prove nothing."""

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator

import hypothesis
import pytest
import torch

from relucert.estimates import weibull
from relucert.execution import execution, team
from relucert.methods.quadratic import solve
from relucert.methods.sdp import QuadraticMethod

COSTLY_METHODS = {"alpha", "lp-full", "sdp"}
# Of a sampled table one case in so many is among the quick tests; the others are slow ones. A prime that few parameters
# have as the number of their values: else all quick cases would have the same one.
SHARE = 7

hypothesis.settings.register_profile("relucert", deadline=None, derandomize=True, database=None, print_blob=False)


def pytest_configure() -> None:
    gc.disable()  # while tests are collected, nothing becomes garbage
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the commands that tests start
    hypothesis.settings.load_profile("relucert")
    # A shell has its background jobs ignore interruptions, and so would every command that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--first-cases", action="store_true", help="of every test only the first case, as `make quick` does"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks most cases of sampled tables as slow, so that the quick tests stay quick."""
    seen: Counter[str] = Counter()
    for item in items:
        if _is_sampled(item):
            test = item.nodeid.partition("[")[0]
            if seen[test] % SHARE:
                item.add_marker(pytest.mark.slow)
            seen[test] += 1
    if config.getoption("--first-cases"):
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
        config.hook.pytest_deselected(
            items=[item for item in items if first[item.nodeid.partition("[")[0]] is not item]
        )
        items[:] = [item for item in items if first[item.nodeid.partition("[")[0]] is item]


def pytest_collection_finish() -> None:
    """The collected tests stay to the end: no collection of garbage need look through them, nor often through what
    tests keep: collections were one twentieth of their time."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


def _is_sampled(item: pytest.Item) -> bool:
    if item.get_closest_marker("costly_methods_sampled") is not None:
        call = getattr(item, "callspec", None)
        return call is not None and call.params.get("method") in COSTLY_METHODS
    return item.get_closest_marker("sampled") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test and its fixtures: only who asks for workers gets some, and only who is marked the effort that users get.

    A hook, as fixtures that every test has take some of the time of the many small ones.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "WORTH", float("inf"))
        patch.setattr(team, "ALONE", float("inf"))
        if item.get_closest_marker("full_effort") is None:
            for name, steps in (("STEPS", 10), ("STEPS_OWN", 30), ("STEPS_AGAIN", 10)):
                patch.setattr(solve, name, steps)
            patch.setattr(QuadraticMethod, "resolution", 0.05)
            patch.setattr(weibull, "STARTS", (1.0, 10.0))
        result = yield
    torch.set_num_threads(1)  # a command that a test runs in this process may set those of all tests after it
    return result
