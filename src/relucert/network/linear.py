"""A fully connected layer."""

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from relucert.arithmetic.forms import Rows, Shape
from relucert.arithmetic.symbol_windows import Extent, SymbolWindows
from relucert.common.deadline import check_time
from relucert.common.slicing import CHUNK_WORK, in_chunks
from relucert.errors import NetworkError
from relucert.network.operation import Affine, Units, differentiable
from relucert.network.registry import register
from relucert.network.sparse_rows import SparseMatrix, sparse_matrix

MOST_DENSE = 0.1  # share of numbers that are not zero: dense products do about five times the operations a second


@register
class Linear(Affine):
    """`weight @ x + bias`; weight: (outputs, inputs), one row per output neuron; bias: (outputs,)."""

    name = "linear"
    weight: Tensor
    bias: Tensor

    def shape(self, *inputs: Shape) -> Shape:
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1]:
            raise NetworkError(
                f"linear: a weight of shape {tuple(self.weight.shape)} and a bias of {tuple(self.bias.shape)}"
            )
        outputs, expected = self.weight.shape
        if inputs != ((expected,),):
            raise NetworkError(f"linear: expected a flat input of {expected}, got shape {inputs[0]}")
        return (outputs,)

    def linear(self, *inputs: Tensor) -> Tensor:
        rows = inputs[0]
        if self._sparse is not None:
            return self._sparse.images(rows)
        if rows.numel() * len(self.weight) <= CHUNK_WORK:
            return functional.linear(rows, self.weight)
        step = CHUNK_WORK // self.weight.numel()
        sums = in_chunks(lambda chunk: functional.linear(chunk, self.weight), rows.flatten(0, -2), step)
        return sums.reshape(*rows.shape[:-1], -1)

    def magnitude(self, *inputs: Tensor) -> Tensor:
        if self._sparse is not None:  # rows of few numbers, whose products say far more than the whole input's length
            return super().magnitude(*inputs)
        # Cauchy-Schwarz: a row's 2-norm times the input's. The constant exceeds what squaring may lose to underflow.
        length = inputs[0].square().sum(-1, keepdim=True).sqrt() + 2.0**-500
        return length * self._row_lengths

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        if self._sparse is not None:
            return (self._sparse.forms_before(coefficients),)
        return (coefficients @ self.weight,)

    @property
    def matrix(self) -> Tensor:
        return self.weight

    @cached_property
    @differentiable
    def _row_lengths(self) -> Tensor:
        return self.weight.square().sum(1).sqrt() + 2.0**-500

    @cached_property
    @differentiable
    def _sparse(self) -> SparseMatrix | None:
        """The weight as far as it is not zero, where it is mostly; None where it is to have a gradient."""
        return None if self.weight.requires_grad else sparse_matrix(self.weight, MOST_DENSE)

    @cached_property
    @differentiable
    def _columns(self) -> Tensor:
        """The weight stored by columns, since `restrict` gathers some of them at every evaluation."""
        return self.weight.T.contiguous()

    @property
    def constant(self) -> Tensor:
        return self.bias

    @property
    def terms(self) -> int:
        return max(self.weight.shape)

    @property
    def roundings(self) -> int:
        return self.weight.shape[1] + 1

    def unit_forms(self, neurons: Tensor, shape: Shape) -> Rows:
        consecutive = bool((neurons.diff() == 1).all())  # no copy is needed
        rows = self.weight[int(neurons[0]) : int(neurons[-1]) + 1] if consecutive else self.weight[neurons]
        return Rows(rows[None], shape)

    @property
    def work(self) -> int:
        return self.weight.numel()

    def spread(self, units: Units, shape: Shape, dtype: torch.dtype) -> Tensor:
        return units.spread(self.weight.T)

    def images(self, symbols: SymbolWindows, shape: Shape) -> Tensor:
        """One product for all symbols whose windows cover the same part of one row of the image."""
        channels, _, width = symbols.shape
        weights = self._columns.unflatten(0, symbols.shape).permute(1, 2, 0, 3).flatten(1, 2)  # (height, ., outputs)
        sums = self.weight.new_zeros(symbols.count * symbols.batch, len(self.weight))
        for lines in symbols.lines():
            check_time()
            begin, end = max(0, lines.column), min(width, lines.column + lines.width)
            cut = slice((begin - lines.column) * channels, (end - lines.column) * channels)
            product = lines.coefficients[:, cut] @ weights[lines.row, begin * channels : end * channels]
            sums.index_add_(0, lines.symbols, product)
        rows: Tensor = sums.unflatten(0, (symbols.count, symbols.batch)).transpose(0, 1)
        return rows

    def count_image(self, extent: Extent) -> tuple[int, None]:
        return extent.numbers * len(self.weight), None

    def total(self, units: Units, shape: Shape, dtype: torch.dtype) -> Tensor:
        return functional.linear(units.absolute_diagonal(shape[0], dtype), self.absolute.weight)

    def restrict(self, support: Tensor) -> "Linear":
        return Linear(self._columns[support].T, self.bias)
