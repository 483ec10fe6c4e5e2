"""What becomes of questions whose process died, on this machine and on clusters alike; what a cluster must have."""

from __future__ import annotations

import pytest
import torch

from relucert.branch_and_bound.stages import search_bytes
from relucert.errors import InputError
from relucert.execution import cluster
from relucert.execution.pending import Pending, Waiting
from relucert.network import Linear, Relu
from relucert.network.batching import PROCESS, fitting_workers
from tests.nets import chain, mlp


def test_questions_are_retried_together_then_each_by_itself_then_given_up() -> None:
    pending = Pending([(0, 1, 2), (3,)])
    assert pending.next() == Waiting((0, 1, 2))
    assert pending.died([1, 2], tried=False)  # the first one was answered
    assert pending.next() == Waiting((1, 2), tried=True)
    assert pending.died([1, 2], tried=True)
    assert [pending.next() for _ in range(3)] == [Waiting((1,), tried=True), Waiting((2,), tried=True), Waiting((3,))]
    assert pending.next() is None
    assert not pending.died([1], tried=True)
    assert pending.died([3], tried=False)
    assert pending.next() == Waiting((3,), tried=True)
    assert not pending.died([3], tried=True)
    assert pending.next() is None


def test_a_machine_with_another_program_is_refused() -> None:
    with pytest.raises(InputError, match="another version of relucert"):
        cluster._answered(("job", "another", b"", []), (0,))
    assert not cluster._jobs


def test_searches_have_as_many_workers_as_fit_the_machine() -> None:
    assert fitting_workers(2**60) == 1
    assert fitting_workers(0) >= fitting_workers(PROCESS) >= 1
    assert search_bytes(mlp(4, 8, 8, 3)) == 8 * (8 * 4 + 8 * 12)
    wide = Linear(torch.zeros(1, 1).expand(12_000, 12_000), torch.zeros(12_000))
    last = Linear(torch.zeros(3, 12_000), torch.zeros(3))
    assert search_bytes(chain((12_000,), wide, Relu(), last)) == search_bytes()
