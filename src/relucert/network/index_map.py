"""Transpose, slice, pad, concatenation's parts and every other map that only picks coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from relucert.arithmetic.forms import LinearForms, Shape
from relucert.arithmetic.windows import Windows
from relucert.errors import NetworkError
from relucert.network.operation import Affine, differentiable
from relucert.network.registry import register


@register
class IndexMap(Affine):
    """Every output coordinate is an input coordinate, or zero.

    Attributes:
        indices: For each output coordinate, both counted flat, the input coordinate; one past the last: zero.
        before: The shape of the input, without the batch.
        after: The shape of the output.
    """

    name = "index map"
    indices: Shape
    before: Shape
    after: Shape
    roundings = 0

    @classmethod
    def of(cls, positions: Tensor, before: Shape) -> IndexMap:
        """The map that a tensor of the output's shape describes, by flat indices of the input; -1 stands for zero."""
        indices = torch.where(positions < 0, prod(before), positions)
        return cls(tuple(indices.flatten().tolist()), before, tuple(positions.shape))

    def shape(self, *inputs: Shape) -> Shape:
        if inputs[0] != self.before:
            raise NetworkError(f"index map: made for an input of shape {self.before}, got {inputs[0]}")
        if len(self.indices) != prod(self.after) or not self.indices:
            raise NetworkError(f"index map: {len(self.indices)} coordinates for an output of shape {self.after}")
        if min(self.indices) < 0 or max(self.indices) > prod(self.before):
            raise NetworkError(f"index map: it picks coordinates that an input of shape {self.before} has not")
        return self.after

    def linear(self, *inputs: Tensor) -> Tensor:
        flat = inputs[0].flatten(inputs[0].ndim - len(self.before))
        picked: Tensor = functional.pad(flat, (0, 1))[..., self._positions]
        output: Tensor = picked.unflatten(-1, self.after)
        return output

    def transpose(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        flat = coefficients.flatten(coefficients.ndim - len(self.after))
        sums = flat.new_zeros(*flat.shape[:-1], prod(self.before) + 1).index_add(-1, self._positions, flat)
        return (sums[..., :-1].unflatten(-1, self.before),)

    def pull(self, forms: LinearForms, shapes: Sequence[Shape]) -> tuple[LinearForms, ...]:
        """Windows stay windows where what they pick lies close together, as with a shift, a flip or a resize."""
        if isinstance(forms, Windows) and forms.places is not None and len(self.before) == 3:
            relocated = forms.relocated(self._positions, self.before)
            if relocated is not None:
                return (relocated,)
        return super().pull(forms, shapes)

    @cached_property
    def terms(self) -> int:
        """How often a coordinate is picked, at most; nothing is summed where each is picked once."""
        picked = self._positions[self._positions < prod(self.before)]
        most = int(picked.bincount().max()) if len(picked) else 0
        return most if most > 1 else 0

    @cached_property
    @differentiable
    def _positions(self) -> Tensor:
        return torch.tensor(self.indices)
