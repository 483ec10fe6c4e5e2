"""The loop of branch and bound: nodes are visited, newest first, until none is open; by a team where there is one.

In a team, worker processes search some open nodes each for a second or two and return what is left of them. The process
that asks keeps all open nodes and shares them out anew, so that nobody waits for long; it alone judges what violates
the property. A worker that dies costs its nodes another try.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

import torch
from torch import Tensor

from relucert.answers.verdicts import LATE
from relucert.arithmetic.rigor import check_subnormals
from relucert.bounding.hidden import TimedBounds
from relucert.branch_and_bound.pool import BatchType, Pool, StorageError
from relucert.common.deadline import TimeUp, until
from relucert.common.progress import Progress, Report, silent
from relucert.execution.team import Team, current_team
from relucert.query.problem import Problem

SLICE = 2.0  # seconds that a worker searches before what is left is shared out anew
FIRST_SLICE = 0.25  # while there are few nodes
LOST = "nodes that workers had were not returned"
BATCHES = 4  # times the nodes that are visited at once go to one worker, at most


class Ended(Exception):  # noqa: N818
    """The search is over: a violation ended it (no reason), or time or a leaf did."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason)
        self.reason = reason


def try_points(problem: Problem, points: Tensor, violates: Callable[[Tensor], bool]) -> None:
    """Checks the point (size,) of the least margin among some, (count, size), if it is not positive, as computed.

    Raises Ended where it violates the property.
    """
    margins = problem.prop.values(problem.exact(points)).amin(1)
    least = int(margins.nan_to_num(torch.inf).argmin())
    if bool(margins[least] <= 0) and violates(points[least]):
        raise Ended(None)


@dataclass(eq=False)
class Visitor(ABC, Generic[BatchType]):
    """Bounds nodes of one tree.

    Attributes:
        problem: A batch of one.
        violates: Checks a point (size,) that the search came upon; True ends the search.
        nodes: How many nodes were bounded.
        bound: The least bound of the last visit, as computed; None where several rows are bounded at once.
    """

    problem: Problem
    violates: Callable[[Tensor], bool]
    nodes: int = field(default=0, init=False)
    bound: float | None = field(default=None, init=False)

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """How many nodes are visited at once."""

    @abstractmethod
    def visit(self, nodes: BatchType) -> BatchType:
        """Closes the nodes that it can; returns the others, split. Raises Ended where the search is over."""

    def recorded(self) -> Any:
        """The record of the nodes that were closed, which can be pickled; None where none is kept."""

    def merge_record(self, nodes: BatchType, recorded: Any) -> BatchType:
        """Takes over what another visitor recorded; returns the nodes that it left open, as this one knows them."""
        return nodes


class Tree(Protocol[BatchType]):
    """The tree whose nodes are visited; it can be pickled."""

    @property
    def problem(self) -> Problem: ...

    def visitor(self, ends: float, violates: Callable[[Tensor], bool]) -> Visitor[BatchType]:
        """A visitor that keeps a record of its own."""


@dataclass(frozen=True, eq=False)
class Share(Generic[BatchType]):
    """Nodes for a worker.

    Attributes:
        nodes: The nodes.
        seconds: How long to search.
        left: The seconds until time is over.
        stops: Whether a point that seems to violate the property ends the search.
    """

    nodes: BatchType
    seconds: float
    left: float
    stops: bool


@dataclass(frozen=True, eq=False)
class ShareResult(Generic[BatchType]):
    """Result of a worker's share of the nodes.

    Attributes:
        open: The nodes that are left.
        visited: How many nodes were visited.
        points: Points that seem to violate the property, (size,) each.
        failure: Why the search can't succeed.
        recorded: What proves the nodes that were closed, where a record is kept.
    """

    open: BatchType
    visited: int
    points: list[Tensor]
    failure: str | None
    recorded: Any = None


@dataclass(frozen=True, eq=False)
class SubtreeWork(Generic[BatchType]):
    """The work of a team on one tree."""

    tree: Tree[BatchType]
    most_workers: int | None = None
    divisible: bool = False

    def answer(self, shares: Sequence[Any], report: Report = silent) -> Iterator[list[ShareResult[BatchType]]]:
        """Searches the shares, one after the other."""
        check_subnormals()  # in the process that proves it
        for share in shares:
            yield [self._search(share)]

    def lost(self, share: Any, reason: str) -> ShareResult[BatchType]:
        """The result where the processes that had the share died."""
        return ShareResult(share.nodes, 0, [], reason)

    def _search(self, share: Share[BatchType]) -> ShareResult[BatchType]:
        started, points, failure, problem = time.monotonic(), list[Tensor](), None, self.tree.problem

        def violates(point: Tensor) -> bool:
            points.append(point)
            return share.stops and bool((problem.prop.values(problem.exact(point[None])) <= 0).any())

        visitor = self.tree.visitor(started + share.left, violates)
        waiting = Pool(share.nodes)
        try:
            with until(started + share.left), torch.inference_mode(False), torch.no_grad():
                while waiting.size:
                    visit_newest(visitor, waiting)
                    if time.monotonic() > started + share.seconds:
                        break
        except TimeUp:
            pass
        except Ended as ended:
            failure = ended.reason
        except StorageError as error:
            failure = str(error)
        return ShareResult(waiting.all(), visitor.nodes, points, failure, visitor.recorded())


def visit_newest(visitor: Visitor[BatchType], waiting: Pool[BatchType]) -> None:
    """Visits the newest nodes of a pool; where the visit breaks off, they are in the pool again."""
    nodes = waiting.take(visitor.batch_size)
    try:
        left = visitor.visit(nodes)
    except BaseException:
        waiting.put_back(nodes)
        raise
    waiting.add(left)


@dataclass(eq=False)
class Prover(ABC):
    """Proves that the rows of a property stay positive in a region.

    Attributes:
        problem: A batch of one.
        violates: Checks a point (size,) that the search came upon; True ends the search.
        ends: When time is over, on the monotonic clock.
        report: Called now and then with how far the search is.
        hidden: Proven bounds of pre-activations to begin with, where there are such already.
        nodes: How many nodes were bounded.
        stage: What the search is doing or was doing last, in a word.
        bound: The least bound of the last visit of nodes, as computed.
    """

    problem: Problem
    violates: Callable[[Tensor], bool]
    ends: float
    report: Report = silent
    hidden: TimedBounds | None = None
    nodes: int = field(default=0, init=False)
    stage: str = field(default="root", init=False)
    bound: float | None = field(default=None, init=False)

    def run(self) -> tuple[bool, str | None]:
        """Whether it is proven, and why the search ended where it is not and no violation ended it."""
        try:
            proven = self._prove()
        except Ended as ended:
            return False, ended.reason
        return proven, None if proven else LATE

    @abstractmethod
    def _prove(self) -> bool:
        """Whether it is proven in time; raises Ended where something else ended the search."""

    @abstractmethod
    def _open_rows(self) -> int:
        """How many rows are not proven yet."""

    def _tell(self, open_nodes: int) -> None:
        rows = self._open_rows()
        self.report(Progress(stage=self.stage, nodes=self.nodes, open=open_nodes, rows=rows, bound=self.bound))

    def _searched(
        self, tree: Tree[BatchType], visitor: Visitor[BatchType], waiting: Pool[BatchType], stop: float
    ) -> bool:
        """Whether all nodes that wait are closed by the time `stop`; those that are not still wait. Raises Ended."""
        before = self.nodes - visitor.nodes

        def tell(open_nodes: int) -> None:
            self.nodes, self.bound = before + visitor.nodes, visitor.bound
            self._tell(open_nodes)

        try:
            while waiting.size:
                if time.monotonic() > stop:
                    return False
                team = current_team()
                if team is not None and team.is_there():
                    shares = _Shares(waiting, team.size, visitor.batch_size, stop, self.ends)
                    self._share_out(team, tree, visitor, shares, tell)
                else:
                    visit_newest(visitor, waiting)
                    tell(waiting.size)
            return True
        except StorageError as error:
            raise Ended(str(error)) from error
        finally:
            self.nodes = before + visitor.nodes

    def _share_out(
        self, team: Team, tree: Tree[BatchType], visitor: Visitor[BatchType], shares: _Shares[BatchType],
        tell: Callable[[int], None],
    ) -> None:  # fmt: skip
        with closing(team.run(SubtreeWork(tree), shares)) as work:
            for came in work:
                for share, result in came:
                    shares.away -= share.nodes.size
                    self._take(result, visitor, shares)
                tell(shares.waiting.size + shares.away)
        if shares.away:
            raise Ended(LOST)

    def _take(self, result: ShareResult[BatchType], visitor: Visitor[BatchType], shares: _Shares[BatchType]) -> None:
        shares.waiting.add(visitor.merge_record(result.open, result.recorded))
        visitor.nodes += result.visited
        for point in result.points:
            if self.violates(point):
                raise Ended(None)
            shares.stops = False
        if result.failure is not None:
            raise Ended(result.failure)


class _Shares(Generic[BatchType]):
    """Shares of what is open, as workers ask for them; after results came there may be more again.

    Attributes:
        away: How many nodes are with workers.
        stops: Whether points end the search of a share; not once one was refused, since it would be found again.
    """

    def __init__(self, waiting: Pool[BatchType], workers: int, batch_size: int, stop: float, ends: float) -> None:
        self.waiting, self.workers, self.batch_size, self.stop, self.ends = waiting, workers, batch_size, stop, ends
        self.away, self.stops = 0, True

    def __iter__(self) -> Iterator[tuple[Share[BatchType]]]:
        return self

    def __next__(self) -> tuple[Share[BatchType]]:
        now = time.monotonic()
        if now >= self.stop or not self.waiting.size:
            raise StopIteration
        open_nodes = self.waiting.size + self.away
        few = open_nodes < self.workers * self.batch_size
        nodes = self.waiting.take(max(1, min(BATCHES * self.batch_size, -(-open_nodes // self.workers))))
        self.away += nodes.size
        seconds = min(FIRST_SLICE if few else SLICE, self.stop - now)
        return (Share(nodes, seconds, self.ends - now, self.stops),)
