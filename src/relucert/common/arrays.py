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
        if not isinstance(array, Tensor):
            array = np.array(array)
            array = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        called = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"the {name} are not an array of numbers, all rows alike, but {called}") from None
    if array.layout != torch.strided or array.is_meta or array.is_nested or array.is_quantized:
        raise InputError(f"the {name} must be an ordinary dense tensor")
    tensor: Tensor = array.detach().cpu()
    return tensor
