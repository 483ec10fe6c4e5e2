"""Numbers as text, for proof files: base64 of their bytes, all the lowest bytes first, then the next ones."""

from __future__ import annotations

import base64
import binascii

import numpy as np
from numpy.typing import ArrayLike, NDArray

Whole = NDArray[np.int64]


def pack(numbers: Whole, width: int) -> str:
    """Packs numbers from 0 to 256**width - 1; bytes of equal significance, side by side, compress better."""
    if numbers.size and (int(numbers.min()) < 0 or int(numbers.max()) >= 256**width):
        raise ValueError(f"a number that does not fit into {width} bytes")
    planes = [(numbers.ravel() >> (8 * index)) & 255 for index in range(width)]
    return base64.b64encode(np.concatenate(planes).astype(np.uint8).tobytes()).decode()


def unpack(text: str, width: int) -> Whole:
    """The numbers that `pack` made a text of; raises ValueError for any other text."""
    planes = _planes(text, width)
    numbers = np.zeros(planes.shape[1], dtype=np.int64)
    for index, plane in enumerate(planes):
        numbers |= plane.astype(np.int64) << (8 * index)
    return numbers


def pack_floats(numbers: ArrayLike) -> str:
    """Numbers in float64, by their eight bytes in little-endian order."""
    content = np.ascontiguousarray(numbers, dtype="<f8").ravel().view(np.uint8).reshape(-1, 8)
    return base64.b64encode(content.T.tobytes()).decode()


def unpack_floats(text: str) -> list[float]:
    """The numbers that `pack_floats` made a text of, which may be NaN; raises ValueError for any other text."""
    numbers: list[float] = np.ascontiguousarray(_planes(text, 8).T).view("<f8").ravel().tolist()
    return numbers


def _planes(text: str, width: int) -> NDArray[np.uint8]:
    """The bytes of the numbers of a text, (width, numbers)."""
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError("no base64") from error
    if len(content) % width:
        raise ValueError("bytes are missing")
    return np.frombuffer(content, dtype=np.uint8).reshape(width, -1)
