"""The items of a run that wait for a process, and what becomes of those whose process died."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relucert.execution.job import Item


@dataclass(frozen=True)
class Waiting:
    """An item, and whether a process has died of it."""

    item: Item
    tried: bool = False


class Pending:
    """Items in the order in which they are to be started: what a process died of comes before what nobody tried."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._coming = map(Waiting, items)
        self._again: deque[Waiting] = deque()

    def next(self) -> Waiting | None:
        """The next item to start; None where nothing is left."""
        return self._again.popleft() if self._again else next(self._coming, None)

    def died(self, left: Sequence[int], tried: bool) -> bool:
        """Takes back the questions that a dead process left; False where they are given up.

        The first time they are tried again together, so that their answers are the same as ever; after a second death
        each by itself, unless it was by itself.

        Args:
            left: The numbers of the questions.
            tried: Whether a process had died of them before.
        """
        if left and not tried:
            self._again.append(Waiting(tuple(left), tried=True))
            return True
        if len(left) > 1:
            self._again.extend(Waiting((number,), tried=True) for number in left)
            return True
        return False
