"""The operations by name, and the two kinds that there are: a branch on the kind of an operation names both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from typing_extensions import dataclass_transform

from relucert.errors import NetworkError, UnsupportedError
from relucert.network.activation import Activation
from relucert.network.operation import Affine

Layer: TypeAlias = Affine | Activation
"""The operation of a node."""

_REGISTRY: dict[str, type[Layer]] = {}
_Registered = TypeVar("_Registered", bound=type[Layer])


@dataclass_transform(frozen_default=True, eq_default=False)
def register(operation: _Registered) -> _Registered:
    """Class decorator: makes a frozen dataclass of an operation, unless it is one, known under its name."""
    if not is_layer(operation):
        raise NetworkError(f"the operation {operation.name!r} is neither affine nor an activation")
    if operation.name in _REGISTRY:
        raise NetworkError(f"an operation named {operation.name!r} exists already")
    if "__dataclass_fields__" not in vars(operation):
        dataclass(frozen=True, eq=False)(operation)  # changes the class itself
    _REGISTRY[operation.name] = operation
    return operation


def find(name: str) -> type[Layer]:
    """The operation of that name; raises UnsupportedError for an unknown one."""
    if name not in _REGISTRY:
        raise UnsupportedError(f"unknown operation {name!r}; known are {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name]


def is_layer(operation: type) -> bool:
    """Whether a class is of one of the two kinds."""
    return issubclass(operation, (Affine, Activation))
