"""Whole numbers as text, for proof files: base64 of their bytes, all the lowest bytes first, then the next ones."""

from __future__ import annotations

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


def pack(numbers: Whole, width: int) -> str:
    """Numbers from 0 to 256**width - 1; compression finds more in bytes of like places side by side."""
    if numbers.size and (int(numbers.min()) < 0 or int(numbers.max()) >= 256**width):
        raise ValueError(f"a number that does not fit into {width} bytes")
    planes = [(numbers.ravel() >> (8 * place)) & 255 for place in range(width)]
    return base64.b64encode(np.concatenate(planes).astype(np.uint8).tobytes()).decode()


def unpack(text: str, width: int) -> Whole:
    """The numbers of such a text; raises ValueError where it is none."""
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError("no base64") from error
    if len(content) % width:
        raise ValueError("bytes are missing")
    planes = np.frombuffer(content, dtype=np.uint8).reshape(width, -1)
    numbers = np.zeros(planes.shape[1], dtype=np.int64)
    for place, plane in enumerate(planes):
        numbers |= plane.astype(np.int64) << (8 * place)
    return numbers
