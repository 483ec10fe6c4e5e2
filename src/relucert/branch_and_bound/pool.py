"""The open nodes of a search, the newest last; the oldest wait on disk where they would take too much memory."""

from __future__ import annotations

import pickle
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Generic, Protocol, TypeVar

import torch
from torch import Tensor
from typing_extensions import Self

MOST_BYTES = 2**29  # of nodes in memory


class StorageError(Exception):
    """Nodes that do not fit the memory could not be stored, as where a disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"open nodes beyond the memory could not be kept on disk: {error.strerror or error}")


class Batch(Protocol):
    """Nodes of a search: a named tuple of tensors with one row per node."""

    def __init__(self, *tables: Tensor) -> None: ...

    def __iter__(self) -> Iterator[Tensor]: ...

    @property
    def size(self) -> int:
        """The number of nodes."""

    def pick(self, indices: Tensor | slice) -> Self:
        """The nodes at some indices."""


BatchType = TypeVar("BatchType", bound=Batch)


def join(batches: Sequence[BatchType]) -> BatchType:
    """One batch of several."""
    return type(batches[0])(*(torch.cat(columns) for columns in zip(*batches, strict=True)))


class Pool(Generic[BatchType]):
    """Nodes that are taken from where they were added last: the search goes into depth, and few nodes wait."""

    def __init__(self, nodes: BatchType) -> None:
        self.in_memory, self._none = [nodes], nodes.pick(slice(0, 0))
        self._file: BinaryIO | None = None
        self._stored: list[tuple[int, int]] = []  # where each batch on disk begins, and how many nodes it has

    @property
    def size(self) -> int:
        """The number of nodes, those on disk included."""
        return sum(batch.size for batch in self.in_memory) + sum(size for _, size in self._stored)

    def add(self, nodes: BatchType) -> None:
        self.put_back(nodes)
        if len(self.in_memory) > 1 and sum(table.nbytes for batch in self.in_memory for table in batch) > MOST_BYTES:
            self._store(self.in_memory.pop(0))

    def put_back(self, nodes: BatchType) -> None:
        """Adds nodes that were taken, in memory whatever they take: it never fails."""
        if nodes.size:
            self.in_memory.append(nodes)

    def take(self, most: int) -> BatchType:
        """Removes the newest nodes, at most so many."""
        taken: list[BatchType] = []
        while most > 0 and self.size:
            if not self.in_memory:
                self.in_memory.append(self._recall())
            last = self.in_memory.pop()
            first = max(0, last.size - most)
            if first:  # gathered, not sliced: a slice would hold the memory of all
                self.in_memory.append(last.pick(torch.arange(first)))
            taken.insert(0, last.pick(torch.arange(first, last.size)) if first else last)
            most -= last.size - first
        return join(taken) if taken else self._none

    def all(self) -> BatchType:
        """Removes all nodes."""
        return self.take(self.size)

    def _store(self, nodes: BatchType) -> None:
        try:
            self._write(nodes)
        except OSError as error:
            self.in_memory.insert(0, nodes)
            raise StorageError(error) from error

    def _write(self, nodes: BatchType) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="relucert-nodes-", buffering=0)  # noqa: SIM115 - as the pool
            weakref.finalize(self, self._file.close)
        begin, content = self._file.seek(0, 2), memoryview(pickle.dumps(nodes, protocol=5))
        while content:
            content = content[self._file.write(content) :]
        self._stored.append((begin, nodes.size))

    def _recall(self) -> BatchType:
        assert self._file is not None
        begin, size = self._stored[-1]
        self._file.seek(begin)
        nodes: BatchType = pickle.load(self._file)  # that this process has written itself
        assert nodes.size == size
        self._stored.pop()
        self._file.truncate(begin)
        return nodes
