"""Context managers: some only close, others set a context variable for a while."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from typing_extensions import Self

Value = TypeVar("Value")


class Closing(ABC):
    """A context manager that calls `close` on leaving, whatever happened."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def setting(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Sets a variable for the work within this context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
