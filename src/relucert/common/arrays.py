"""Arrays as users hand them in, as tensors."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relucert.errors import InputError


def dense(array: Any, name: str) -> Tensor:
    """Numbers as an ordinary tensor in the main memory, whatever array they come as."""
    if isinstance(array, (str, bytes, os.PathLike)):
        raise InputError(f"the {name} must be an array or a tensor, not {array!r}; relucert.data.read reads files")
    try:
        if isinstance(array, (list, tuple)) and array and all(isinstance(item, Tensor) for item in array):
            array = torch.stack([dense(item, name) for item in array])
        tensor = array if isinstance(array, Tensor) else _from_array(np.array(array))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        called = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"the {name} are not an array of numbers, all rows alike, but {called}") from None
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_nested or tensor.is_quantized:
        raise InputError(f"the {name} must be an ordinary dense tensor")
    return tensor.detach().cpu()


def _from_array(array: Any) -> Tensor:
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
