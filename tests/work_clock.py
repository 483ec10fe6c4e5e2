"""A clock that only PyTorch's work moves: tests of time limits with it come out the same on any machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::mv": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::addmv": 1}


class WorkClock(TorchDispatchMode):
    """Shows the seconds that all operations within it would take a machine of some speed, in multiplications a second.

    An operation is as many of them as its result has numbers, products as many as they have.
    """

    def __init__(self, speed: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.speed, self.seconds = speed, 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and what would keep the compiler out costs as much as a small operation."""
        return False

    def __call__(self) -> float:
        return self.seconds

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        work = result.numel() if isinstance(result, torch.Tensor) else 0
        factor = PRODUCTS.get(func._schema.name)
        if factor is not None:
            work *= args[factor].shape[-1]
        self.seconds += work / self.speed
        return result


@contextmanager
def work_clock(patch: pytest.MonkeyPatch, speed: float) -> Iterator[Callable[[], float]]:
    """Within, all time limits are by the work clock."""
    clock = WorkClock(speed)
    with patch.context() as context, clock:
        context.setattr(time, "monotonic", clock)
        yield clock
