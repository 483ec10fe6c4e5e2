"""The valid inputs, in words: the same words on the command line, in reports and in notebooks."""

from __future__ import annotations

from numbers import Real
from typing import Any


def valid_inputs(box: Any) -> str:
    """The valid inputs in words.

    Args:
        box: None where every input is valid; otherwise the lowest and the highest valid value, as two numbers, or as
            two lists, arrays or tensors with one number per coordinate.
    """
    if box is None:
        return "every input valid"
    low, high = box
    if is_number(low) and is_number(high):
        return f"pixels from {float(low):g} to {float(high):g}"
    return "valid range given per coordinate"


def is_number(end: Any) -> bool:
    """Whether one end of a box is a single number, which may be an array or a tensor without dimensions."""
    return not isinstance(end, bool) and (isinstance(end, Real) or getattr(end, "ndim", None) == 0)
