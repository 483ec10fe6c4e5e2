"""The interface that the operations in this folder implement, and the half of it that is affine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from math import prod
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from typing_extensions import Self

from relucert.arithmetic.forms import LinearForms, Rows, Shape
from relucert.arithmetic.symbol_windows import Extent, SymbolWindows
from relucert.common.deadline import check_time
from relucert.common.slicing import CHUNK_BYTES
from relucert.errors import NetworkError
from relucert.network.inference import Inference

MOST_SHOWN = 8  # numbers of a setting, in the text of an operation

_Owner = TypeVar("_Owner")
_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class Units:
    """Linear forms that each depend on one coordinate: rows of a diagonal matrix that is not stored in full.

    indices: (m,), their flat positions in ascending order, None for all positions.
    scale: (batch or 1, m), their coefficients, None for ones.
    """

    indices: Tensor | None
    scale: Tensor | None

    def spread(self, lines: Tensor) -> Tensor:
        """The vectors at the forms' positions, times the scale: (batch or 1, m, ...).

        lines: (positions, ...), one vector per position.
        """
        vectors = lines if self.indices is None else lines[self.indices]
        if self.scale is None:
            return vectors[None]
        return vectors * self.scale.reshape(*self.scale.shape, *[1] * (lines.ndim - 1))

    @property
    def batch(self) -> int:
        return 1 if self.scale is None else len(self.scale)

    def count(self, size: int) -> int:
        """How many forms there are, given the number of positions."""
        return size if self.indices is None else len(self.indices)

    def absolute_diagonal(self, size: int, dtype: torch.dtype) -> Tensor:
        """The absolute values on the diagonal: (batch or 1, size)."""
        scale = torch.ones(1, self.count(size), dtype=dtype) if self.scale is None else self.scale.abs()
        if self.indices is None:
            return scale
        return scale.new_zeros(len(scale), size).index_copy_(1, self.indices, scale)

    def dense(self, size: int, dtype: torch.dtype) -> Tensor:
        """The same forms as rows: (batch or 1, m, size)."""
        positions = torch.arange(size) if self.indices is None else self.indices
        scale = torch.ones(1, len(positions), dtype=dtype) if self.scale is None else self.scale
        rows = scale.new_zeros(*scale.shape, size)
        rows[:, torch.arange(len(positions)), positions] = scale
        return rows

    def split(self, size: int, dtype: torch.dtype) -> list[Units]:
        """The forms in order, in groups whose rows memory has room for, given the number of positions."""
        positions = torch.arange(size) if self.indices is None else self.indices
        step = max(1, CHUNK_BYTES // (self.batch * size * dtype.itemsize))
        groups = positions.split(step)
        scales = [None] * len(groups) if self.scale is None else self.scale.split(step, 1)
        return [Units(*group) for group in zip(groups, scales, strict=True)]


def differentiable(function: Callable[[_Owner], _Result]) -> Callable[[_Owner], _Result]:
    """Decorator: what is computed can be part of a gradient, also where that happens in PyTorch's inference mode."""

    @wraps(function)
    def outside(owner: _Owner) -> _Result:
        tracked = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.set_grad_enabled(tracked):
            return function(owner)

    return outside


class Operation(ABC):
    """A node's computation. Subclasses are frozen dataclasses whose fields are everything that is stored."""

    name: ClassVar[str]
    arity: ClassVar[int] = 1

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Operation.__repr__  # type: ignore[method-assign]  # which dataclasses then leave as it is

    def __repr__(self) -> str:
        stored = [f"{name} {tuple(tensor.shape)}" for name, tensor in self.tensors().items()]
        stored += [f"{name} {_briefly(setting)}" for name, setting in self.settings().items()]
        return f"{type(self).__name__}({', '.join(stored)})"

    @abstractmethod
    def shape(self, *inputs: Shape) -> Shape:
        """The output's shape without the batch; raises NetworkError where the inputs do not fit."""

    @abstractmethod
    def apply(self, *inputs: Tensor) -> Tensor:
        """The value at inputs of shape (..., *input shape)."""

    def can_be_evaluated(self, inference: Inference) -> bool:
        """Whether its evaluation in that precision uses the stored numbers, or ones whose rounding is charged."""
        return all(inference.represents(tensor) for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """The stored tensors by field name, unchanged."""
        return {name: value for name, value in _fields(self).items() if isinstance(value, Tensor)}

    def settings(self) -> dict[str, Any]:
        """The stored fields that are not tensors, ready for JSON."""
        return {name: value for name, value in _fields(self).items() if not isinstance(value, Tensor)}

    @classmethod
    def restore(cls, tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Self:
        """The operation with these `tensors` and `settings`; raises NetworkError unless they are its fields."""
        expected = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        stored = [*tensors, *settings]
        if sorted(stored) != sorted(expected):
            raise NetworkError(f"{cls.name} has the fields {sorted(expected)}, but {sorted(stored)} are stored")
        frozen = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
        return cls(**tensors, **frozen)

    def cast(self, dtype: torch.dtype) -> Self:
        """The same operation with its tensors in another precision; they can be part of a gradient, also where the
        cast is made in PyTorch's inference mode."""

        @differentiable
        def tensors(operation: Operation) -> dict[str, Tensor]:
            return {
                name: (tensor.clone() if tensor.is_inference() else tensor).to(dtype)
                for name, tensor in operation.tensors().items()
            }

        return replace(self, **tensors(self))  # type: ignore[type-var]


class Affine(Operation):
    """An operation that is a linear map plus a constant. All maps act on the last axes, after any batch axes."""

    @abstractmethod
    def linear(self, *inputs: Tensor) -> Tensor:
        """The map without its constant."""

    def magnitude(self, *inputs: Tensor) -> Tensor:
        """The linear map with the absolute values of its coefficients at non-negative inputs, or an upper bound of it.

        It only serves to bound rounding errors, in float64, so it may be loose. The caller has to cover the rounding
        of this computation itself, which is 2 * terms + 8 factors.
        """
        return self.absolute.linear(*inputs)

    @abstractmethod
    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        """Pulls linear forms on the output back to each input: (..., *output) to (..., *input)."""

    def quick(self, *inputs: Tensor) -> Tensor:
        """`linear`, by whatever is fastest: for searches alone, as nothing bounds its rounding."""
        return self.linear(*inputs)

    def quick_transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        """`transpose`, by whatever is fastest: for searches alone, as nothing bounds its rounding."""
        return self.transpose(coefficients)

    @property
    def constant(self) -> Tensor | None:
        """The constant, broadcastable to the output's shape; None for zero."""
        return None

    @property
    @abstractmethod
    def terms(self) -> int:
        """The largest number of products that `linear` or `transpose` sums for one entry."""

    @property
    @abstractmethod
    def roundings(self) -> int:
        """How many roundings meet in one output when the layer is evaluated in floating point, in any order of
        summation, at most; 0: it is exact."""

    @property
    def work(self) -> int:
        """How many multiplications `linear` takes for one input, apart from one for each coordinate."""
        return 0

    @property
    def products(self) -> float:
        """How many numbers `pull` holds at once for each coefficient."""
        return 1.0

    @property
    def matrix(self) -> Tensor | None:
        """The linear map as a matrix (outputs, inputs), None where it is not stored as one."""
        return None

    @cached_property
    @differentiable
    def absolute(self) -> Self:
        """The operation whose linear map has the absolute value of every coefficient, exactly.

        By default the operation with the absolute values of the stored tensors.
        """
        return replace(self, **{name: tensor.abs() for name, tensor in self.tensors().items()})  # type: ignore[type-var]

    def apply(self, *inputs: Tensor) -> Tensor:
        value = self.linear(*inputs)
        return value if self.constant is None else value + self.constant

    def pull(self, forms: LinearForms, shapes: Sequence[Shape]) -> tuple[LinearForms, ...]:
        """Forms on the output as forms on each input, of these shapes."""
        forms_before = self.transpose(forms.rows().unflatten(-1, forms.shape))
        return tuple(Rows(form.flatten(2), shape) for form, shape in zip(forms_before, shapes, strict=True))

    def unit_forms(self, neurons: Tensor, shape: Shape) -> LinearForms | None:
        """Output neurons, by flat positions (count,), as forms on the only input, of this shape, where they are stored
        that way: without the constant, and with a batch of one."""
        return None

    def spread(self, units: Units, shape: Shape, dtype: torch.dtype) -> Units | Tensor:
        """`linear` of unit forms on an input of this shape: units again, or rows (batch or 1, m, *output).

        As many forms are made at once as memory has room for. Raises TimeUp between two such parts once time is over.
        """
        size, images = prod(shape), []
        for group in units.split(size, dtype):
            check_time()
            images.append(self.linear(group.dense(size, dtype).unflatten(-1, shape)))
        return torch.cat(images, 1) if len(images) > 1 else images[0]

    def total(self, units: Units, shape: Shape, dtype: torch.dtype) -> Tensor:
        """The sum of the absolute values of the rows of `spread`: (batch or 1, *output)."""
        size, total = prod(shape), torch.zeros(units.batch, *self.shape(shape), dtype=dtype)
        for group in units.split(size, dtype):
            rows = self.spread(group, shape, dtype)
            if isinstance(rows, Units):
                total += rows.absolute_diagonal(size, dtype).reshape(-1, *total.shape[1:])
            else:
                total += rows.abs().sum(1)
        return total

    def images(self, symbols: SymbolWindows, shape: Shape) -> SymbolWindows | Tensor:
        """`linear` of symbols in windows on an input of this shape: windows again, or rows (batch or 1, m, size).

        The windows lie on an image of the same numbers, in the same order.
        """
        return self.linear(symbols.rows().unflatten(-1, shape)).flatten(2)

    def count_image(self, extent: Extent) -> tuple[int, Extent | None]:
        """How many multiplications `images` takes for a symbol of this extent, and the image's; None: rows."""
        return self.work, None

    def restrict(self, support: Tensor) -> Affine | None:
        """The same map restricted to the flat input coordinates in `support`; None where it has no compact form."""
        return None


class Elementwise(Affine):
    """An affine operation that leaves every number at its place, counted flat, and at most scales and shifts it."""

    def spread(self, units: Units, shape: Shape, dtype: torch.dtype) -> Units:
        return units

    def images(self, symbols: SymbolWindows, shape: Shape) -> SymbolWindows:
        return symbols

    def count_image(self, extent: Extent) -> tuple[int, Extent]:
        return 0, extent


def _briefly(setting: Any) -> str:
    """A setting in a few words, as index maps have thousands of numbers."""
    return f"({len(setting):,} numbers)" if isinstance(setting, tuple) and len(setting) > MOST_SHOWN else repr(setting)


def _fields(operation: Operation) -> dict[str, Any]:
    return {field.name: getattr(operation, field.name) for field in fields(operation)}  # type: ignore[arg-type]
