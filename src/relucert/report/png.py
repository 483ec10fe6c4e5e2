"""Small PNG pictures for a page: a header and compressed rows."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

FACTORS = (1000, 500, 200, 100, 50, 20, 10, 5, 2)  # by which perturbations are magnified
GREY, COLOUR = 0, 2  # PNG's numbers for them


def magnification(largest: float) -> int:
    """A round factor by which a perturbation, as a share of the pixels' range, stays visible and within it."""
    return next((factor for factor in FACTORS if factor * largest <= 0.5), 1)


def address(shape: Sequence[int], pixels: bytes) -> str:
    """The data address of a picture; shape: (rows, columns) or (rows, columns, 3), pixels: as many bytes."""
    rows, columns = shape[:2]
    width = len(pixels) // rows
    lines = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(rows))
    header = struct.pack(">IIBBBBB", columns, rows, 8, COLOUR if len(shape) == 3 else GREY, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, data) for name, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    )
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of the format: the length of its data, its name of four letters, the data, a checksum."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
