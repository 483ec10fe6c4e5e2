"""A team: the workers of a run that help with one question, where there are more of them than questions.

Whoever runs a question offers it (`offering`); a search that lasts longer than `ALONE` asks for it (`current_team`).
No answer depends on it, only how soon it comes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from relucert.common.closing import setting
from relucert.common.progress import silent

if TYPE_CHECKING:
    from relucert.execution.execution import Execution, Worked
    from relucert.execution.job import Item, Work

ALONE = 2.0  # seconds of work on a question before others help: starting them takes about as long

_TEAM: ContextVar[Team | None] = ContextVar("team", default=None)


@dataclass(frozen=True, eq=False)
class Team:
    """Workers that help with one question.

    Attributes:
        execution: Who has them.
        size: How many there are, at least two.
        since: When they were offered, on the monotonic clock.
    """

    execution: Execution
    size: int
    since: float

    def limited(self, most: int) -> Team:
        """The same team with so many workers at the most."""
        return replace(self, size=min(self.size, most))

    def is_there(self) -> bool:
        """Whether they can begin at once; they are called, and not waited for, once the question takes long."""
        if time.monotonic() - self.since < ALONE:
            return False
        return self.execution.is_ready(self.size)

    def run(self, job: Work[Any], items: Iterable[Item]) -> Worked:
        """The results of all items, as they come; `items` may have more of them after some came."""
        return self.execution.run_with(job, items, self.size, silent)


def current_team() -> Team | None:
    """The team that is offered for the question at hand."""
    return _TEAM.get()


def workers_there() -> int:
    """How many workers can work on the question at hand: those of a team that can begin, or this process."""
    team = current_team()
    return team.size if team is not None and team.is_there() else 1


def at_most(workers: int) -> AbstractContextManager[None]:
    """Limits the team that is offered for what is done within: to so many workers as fit the memory."""
    team = _TEAM.get()
    return setting(_TEAM, None if team is None or workers < 2 else team.limited(workers))


def offering(execution: Execution | None, size: int) -> AbstractContextManager[None]:
    """Offers the workers of an execution for what is done within; never to be opened around a `yield` of an answer."""
    return setting(_TEAM, None if execution is None or size < 2 else Team(execution, size, time.monotonic()))
