"""Modules that return more than class scores: dictionaries, tuples, and objects with named outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from relucert.errors import OutputsError

Output = str | int | None
"""Which of a module's outputs are the class scores, by its name or its place; None: it returns nothing else."""


class SelectedOutput(nn.Module):
    """A module that returns one of another module's outputs."""

    def __init__(self, module: nn.Module, output: str | int, name: str) -> None:
        super().__init__()
        self.module, self.output, self.name = module, output, name

    def forward(self, images: Tensor) -> Any:
        returned = self.module(images)
        if isinstance(returned, Tensor):
            raise OutputsError(f"{self.name} returns one tensor: leave output={self.output!r} out")
        tensors = _outputs(returned)
        if self.output in tensors:
            return tensors[self.output]
        in_order = list(tensors.values())
        if isinstance(self.output, int) and -len(in_order) <= self.output < len(in_order):
            return in_order[self.output]
        raise OutputsError(f"{self.name} has no output {self.output!r}; it returns {_described(returned)}")


def several(returned: object, name: str) -> str:
    """Advice about a module that returns no tensor."""
    if not (outputs := _outputs(returned)):
        return f"{name} must return one tensor of class scores, not {_described(returned)}"
    scores = [key for key, value in outputs.items() if isinstance(value, Tensor) and value.ndim == 2] or list(outputs)
    choice = "logits" if "logits" in scores else scores[0]
    return (
        f"{name} must return one tensor of class scores, not {_described(returned)}: say which they are, as in "
        f"relucert.load(module, output={choice!r}), and pass the network that it returns"
    )


def _outputs(returned: object) -> dict[str | int, Any]:
    """The outputs by their names, or by their positions where they have none."""
    if isinstance(returned, Mapping):
        return dict(returned)
    if isinstance(returned, tuple) and hasattr(returned, "_fields"):
        return returned._asdict()  # type: ignore[attr-defined, no-any-return]
    if isinstance(returned, tuple | list):
        return dict(enumerate(returned))
    if is_dataclass(returned):
        named = {field.name: getattr(returned, field.name) for field in fields(returned)}
        return {name: value for name, value in named.items() if value is not None}
    return {}


def _described(returned: object) -> str:
    names = ", ".join(map(str, _outputs(returned)))
    return f"a {type(returned).__name__}{f' of {names}' if names else ''}"
