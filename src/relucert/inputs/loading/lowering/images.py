"""Images of one or two axes as the images of a network's convolutions: (channels, height, width)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand

Pair = tuple[int, int]


def on_images(assembly: Assembly, value: Operand, axes: int, lower: Callable[[int], int]) -> int:
    """Applies `lower` to images (channels, height, width), for a value whose channels have this many axes.

    Those of one axis get the height 1, which the result loses again.
    """
    full = assembly.full_shape(value)
    if axes > 2:
        raise UnsupportedError("of three axes; images have one or two")
    if len(full) != axes + 2 or (assembly.batch is None and full[0] != 1):
        expected = ("length",) if axes == 1 else ("height", "width")
        raise UnsupportedError(f"on a value of shape {full}, not (batch, channels, {', '.join(expected)})")
    channels, *sizes = full[1:]
    image = assembly.reshaped(value, (channels, *[1] * (2 - axes), *sizes))
    result = lower(image)
    channels, *sizes = assembly.shape(result)
    return assembly.reshape(result, (full[0], channels, *sizes[2 - axes :]))


def pair(numbers: Sequence[int], missing: int) -> Pair:
    """Numbers for one or two axes, the vertical one first; `missing` stands for the vertical one of one axis."""
    first, last = [missing, *numbers][-2:]
    return first, last


def repeated(numbers: int | Sequence[int], axes: int) -> list[int]:
    """A list of one number per axis; a single number is repeated for all axes."""
    by_axis = [numbers] if isinstance(numbers, int) else list(numbers)
    return by_axis * axes if len(by_axis) == 1 else by_axis
