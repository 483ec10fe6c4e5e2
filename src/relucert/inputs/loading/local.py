"""Index maps that pick whole channels of an image: as convolutions they keep the forms of neurons local."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.network import Shape


@dataclass(frozen=True)
class Axis:
    """How a kernel moves along one axis of an image: its first tap is at `stride * index - before`.

    before, after: how many zeros there are outside of the image.
    """

    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    def extent(self, taps: int) -> int:
        """How many coordinates a kernel of this many taps covers."""
        return self.dilation * (taps - 1) + 1


def picked(indices: Tensor, before: Shape, dtype: torch.dtype) -> tuple[Tensor, tuple[Axis, Axis], int] | None:
    """An index map that picks channels as a whole, as a convolution: its weight, axes and groups; otherwise None.

    indices: (channels, height, width) with flat positions in an image of the shape `before`, -1 for zero.
    """
    if indices.ndim != 3 or len(before) != 3 or not bool((indices >= 0).any()):
        return None
    inputs, height, width = before
    source = torch.where(indices < 0, -1, indices // (height * width)).amax((1, 2))
    down = torch.where(indices < 0, -1, indices // width % height).amax((0, 2))
    across = torch.where(indices < 0, -1, indices % width).amax((0, 1))
    channels, rows, columns = source[:, None, None], down[:, None], across
    expected = channels * (height * width) + rows * width + columns
    zero = (channels < 0) | (rows < 0) | (columns < 0)
    axes = _axis(down.tolist(), height), _axis(across.tolist(), width)
    if not torch.equal(torch.where(zero, -1, expected), indices) or axes[0] is None or axes[1] is None:
        return None
    if torch.equal(source, torch.arange(inputs)):
        return torch.ones(inputs, 1, 1, 1, dtype=dtype), (axes[0], axes[1]), inputs
    weight = (source[:, None] == torch.arange(inputs)).to(dtype)[:, :, None, None]
    return weight, (axes[0], axes[1]), 1


def _axis(picked: list[int], size: int) -> Axis | None:
    """The axis that picks these coordinates, -1 for zero."""
    inside = [index for index, source in enumerate(picked) if source >= 0]
    first = inside[0]
    stride = picked[inside[1]] - picked[first] if len(inside) > 1 else 1
    before = stride * first - picked[first]
    if stride < 1 or before < 0:
        return None
    sources = [stride * index - before for index in range(len(picked))]
    after = max(0, sources[-1] + 1 - size)
    windows = (size + before + after - 1) // stride + 1
    if windows != len(picked) or picked != [source if 0 <= source < size else -1 for source in sources]:
        return None
    return Axis(stride, before, after)
