"""Small MNIST and CIFAR-10 look-alikes in every form they come in, and a web server that may misbehave."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from relucert.data import catalogue
from relucert.data.catalogue import Collection, Original

Array = np.ndarray[Any, np.dtype[Any]]

LABELS = np.array([7, 2, 0, 9, 1], dtype=np.uint8)
_draw = np.random.default_rng(0)
DIGITS: Array = _draw.integers(0, 256, (5, 28, 28), dtype=np.uint8)
PICTURES: Array = _draw.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)

IMAGE_FILE, LABEL_FILE = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
BATCH, ARCHIVE = "test_batch.bin", "cifar-10-binary.tar.gz"


def idx(array: Array) -> bytes:
    """The idx form of an array of bytes."""
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def records(pictures: Array = PICTURES, labels: Array = LABELS) -> bytes:
    """The CIFAR binary form, spelt out: a label, then one colour after the other."""
    return b"".join(
        bytes([label]) + b"".join(picture[:, :, colour].tobytes() for colour in range(3))
        for picture, label in zip(pictures, labels, strict=True)
    )


def archive(**members: bytes) -> bytes:
    """The CIFAR binary archive; keywords are members of its folder, without `.bin`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as entries:
        for name, content in {"readme": b"read me", **members}.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = len(content)
            entries.addfile(entry, io.BytesIO(content))
    return file.getvalue()


MNIST_FILES = {f"{IMAGE_FILE}.gz": gzip.compress(idx(DIGITS)), f"{LABEL_FILE}.gz": gzip.compress(idx(LABELS))}
CIFAR_FILES = {ARCHIVE: archive(test_batch=records(), **{f"data_batch_{n}": records() for n in range(1, 6)})}


def store(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@dataclass
class Mirror:
    """Files a web server has, how it treats them, and what it was asked for."""

    files: dict[str, bytes]
    address: str = ""
    fault: str = "none"
    asked: list[str] = field(default_factory=list)

    def originals(self, *mirrors: str) -> tuple[Original, ...]:
        return tuple(
            Original(name, len(content), hashlib.sha256(content).hexdigest(), mirrors or (self.address,))
            for name, content in self.files.items()
        )

    def collection(self, name: str, *mirrors: str) -> Collection:
        """The collection with the look-alike's files in the place of its originals."""
        known = catalogue.COLLECTIONS[name]
        splits = {
            split: replace(content, originals=self.originals(*mirrors)) for split, content in known.splits.items()
        }
        return replace(known, splits=splits)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Mirror]:
    mirror = Mirror(dict(files))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, mirror)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    mirror.address = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, mirror: Mirror) -> None:
    name = handler.path.rsplit("/", 1)[-1]
    mirror.asked.append(name)
    content = mirror.files.get(name, b"")
    if mirror.fault.startswith("redirect "):
        handler.send_response(302)
        handler.send_header("Location", mirror.fault.removeprefix("redirect ") + name)
        handler.end_headers()
        return
    if mirror.fault == "noise":
        handler.wfile.write(b"this is not HTTP\r\n\r\n")
        return
    if mirror.fault.isdecimal() or not content:
        handler.send_error(int(mirror.fault) if mirror.fault.isdecimal() else 404)
        return
    handler.send_response(200)
    if mirror.fault != "more":
        handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    faulty = {
        "altered": content[:-1] + bytes([content[-1] ^ 1]),
        "truncated": content[: len(content) // 2],
        "more": content + b"!" * 100_000,
        "silent": b"",
    }
    handler.wfile.write(faulty.get(mirror.fault, content))
    if mirror.fault == "silent":
        handler.connection.recv(1)  # until the other side gives up
