"""Arrays as users hand them in, as tensors."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucert.errors import InputError


def dense(given: Any, what: str) -> Tensor:
    """Numbers as an ordinary tensor in the main memory, whatever array they come as."""
    if isinstance(given, (str, bytes, os.PathLike)):
        raise InputError(f"the {what} must be an array or a tensor, not {given!r}; relucert.data.read reads files")
    try:
        if isinstance(given, (list, tuple)) and given and all(isinstance(item, Tensor) for item in given):
            given = torch.stack([dense(item, what) for item in given])
        tensor = given if isinstance(given, Tensor) else _from_array(np.array(given))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        called = getattr(given, "dtype", type(given).__name__)
        raise InputError(f"the {what} are not an array of numbers, all rows alike, but {called}") from None
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_nested or tensor.is_quantized:
        raise InputError(f"the {what} must be an ordinary dense tensor")
    return tensor.detach().cpu()


def _from_array(array: Any) -> Tensor:
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
