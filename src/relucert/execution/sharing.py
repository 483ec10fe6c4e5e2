"""Jobs as bytes and buffers: the numbers of all tensors stand apart, so that processes can share one copy of them."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from relucert.inputs.storage.journal import locked

MEMORY = Path("/dev/shm")  # files that are memory, on Linux
PREFIX = "relucert-job-"
YOUNG = 60.0  # seconds that a file may take to be locked
ALIGNED = 64  # bytes at which a tensor's numbers begin
LENGTH = struct.Struct("<Q")


class _Pickler(pickle.Pickler):
    """Takes the numbers of tensors out of the stream."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not Tensor or not value.numel():
            return NotImplemented
        numbers = value.detach().cpu().contiguous().flatten()
        if numbers.stride(0) != 1:  # a single number that was repeated
            numbers = numbers.clone(memory_format=torch.contiguous_format)
        flat = pickle.PickleBuffer(numbers.view(torch.uint8).numpy().data)
        return _tensor, (flat, str(value.dtype).removeprefix("torch."), tuple(value.shape))


def _tensor(numbers: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(numbers, dtype=getattr(torch, dtype)).reshape(shape)


def dump(value: Any) -> tuple[bytes, list[memoryview]]:
    """A value as a stream and the buffers that it refers to."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return stream.getvalue(), [buffer.raw() for buffer in buffers]


def load(stream: bytes, buffers: Sequence[Any]) -> Any:
    """The value; its tensors are views of the buffers."""
    return pickle.loads(stream, buffers=buffers)


class SharedFile:
    """A value in a file, in memory where the system has such files; removed by `close`."""

    def __init__(self, value: Any) -> None:
        folder = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        _sweep(folder)
        pickled = dump(value)
        try:
            self.path, self._lock = _written(pickled, folder)
        except OSError:  # little memory is set aside for such files in some containers
            self.path, self._lock = _written(pickled, Path(tempfile.gettempdir()))

    def close(self) -> None:
        os.close(self._lock)
        with suppress(OSError):
            self.path.unlink()


def _sweep(folder: Path) -> None:
    """Removes what killed runs left behind: whoever is alive has a lock on its file."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > YOUNG:
                with path.open("r+b") as file:
                    if locked(file.fileno()):
                        path.unlink()


def _written(pickled: tuple[bytes, list[memoryview]], folder: Path) -> tuple[Path, int]:
    """A file with the pickled stream and its buffers, and its descriptor, by which it stays locked."""
    stream, buffers = pickled
    descriptor, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    try:
        locked(descriptor)
        with open(descriptor, "wb", closefd=False) as file:
            for buffer in (memoryview(stream), *buffers):
                file.write(LENGTH.pack(len(buffer)).ljust(ALIGNED, b"\0"))
                file.write(buffer)
                file.write(b"\0" * (-len(buffer) % ALIGNED))
    except BaseException:
        os.close(descriptor)
        Path(name).unlink()
        raise
    return Path(name), descriptor


def open_shared(path: str) -> Any:
    """The value of such a file; pages that are not written to are shared by all processes that opened it."""
    with open(path, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    pickled, offset = [], 0
    while offset < len(view):
        (length,) = LENGTH.unpack(view[offset : offset + LENGTH.size])
        pickled.append(view[offset + ALIGNED : offset + ALIGNED + length])
        offset += ALIGNED + length + -length % ALIGNED
    return load(bytes(pickled[0]), pickled[1:])
