"""The encoding of answers as plain values, from which they are restored bit by bit, tensors and fractions included."""

from __future__ import annotations

import base64
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from relucert.answers.certificates import Certificate, Estimate, Exact, Rounding, UpperBound
from relucert.answers.verdicts import RobustnessVerdict, Verdict

TYPES: dict[str, type] = {
    answer_type.__name__: answer_type
    for answer_type in (Certificate, UpperBound, Exact, Estimate, Verdict, RobustnessVerdict)
}


def encode(value: Any) -> Any:
    """A value as JSON can express it; a value of another type is an object with one key, its type."""
    if is_dataclass(value):
        return {type(value).__name__: {entry.name: encode(getattr(value, entry.name)) for entry in fields(value)}}
    if isinstance(value, Tensor):
        flat = value.detach().contiguous().flatten().view(torch.uint8)
        name, text = str(value.dtype).removeprefix("torch."), base64.b64encode(flat.numpy().tobytes()).decode()
        return {"tensor": [name, list(value.shape), text]}
    if isinstance(value, Enum):
        return {"rounding": value.value}
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def decode(content: Any) -> Any:
    """The value of an encoding; raises ValueError, KeyError or TypeError where the content is no encoding."""
    if not isinstance(content, dict):
        return content
    ((tag, inside),) = content.items()
    if tag in TYPES:
        names = {entry.name for entry in fields(TYPES[tag])}
        if inside.keys() != names:
            raise ValueError(f"a {tag} has other fields")
        return TYPES[tag](**{name: decode(item) for name, item in inside.items()})
    return _DECODERS[tag](inside)


def _tensor(content: Any) -> Tensor:
    name, shape, text = content
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name} is no type of numbers")
    bytes_ = bytearray(base64.b64decode(text, validate=True))
    return (torch.frombuffer(bytes_, dtype=dtype) if bytes_ else torch.empty(0, dtype=dtype)).reshape(shape)


_DECODERS: dict[str, Any] = {
    "tensor": _tensor,
    "rounding": Rounding,
    "tuple": lambda items: tuple(decode(item) for item in items),
    "fraction": Fraction,
    "float": float,
}
