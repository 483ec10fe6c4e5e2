"""Downloads over https: checked while they arrive, and moved to where they belong only when they are complete."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable, Generator
from contextlib import closing
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import relucert
from relucert.data.catalogue import Original
from relucert.errors import LoadError
from relucert.inputs.storage import files

DownloadProgress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes received, the bytes in total."""

TIMEOUT = 30  # seconds without a byte
BLOCK = 2**16  # bytes read at once
LOOPBACK = ("127.0.0.1", "::1", "localhost")  # hosts that plain http is allowed to


class _UnavailableError(Exception):
    """A mirror does not deliver the file."""


def fetch(original: Original, path: Path, progress: DownloadProgress | None = None) -> None:
    """Downloads a file from the first mirror that has it; if none has, a file at the path stays as it was."""
    failures = []
    for mirror in original.mirrors:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.sweep(path)
            with files.replacing(path) as file:
                _receive(original, mirror + original.name, file, progress)
            return
        except _UnavailableError as failure:
            failures.append(f"{urlsplit(mirror).hostname}: {failure}")
        except OSError as error:
            raise LoadError(f"can't save the download {path}: {error.strerror or error}") from error
    raise LoadError(f"can't download {original.name} ({'; '.join(failures)})")


def is_genuine(path: Path, original: Original) -> bool:
    """Whether the file exists, can be read, and is unchanged."""
    digest = hashlib.sha256()
    try:
        if path.stat().st_size != original.size:
            return False
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    except OSError:
        return False
    return digest.hexdigest() == original.sha256


def _receive(original: Original, address: str, file: BinaryIO, progress: DownloadProgress | None) -> None:
    digest, done = hashlib.sha256(), 0
    with closing(_blocks(address)) as blocks:
        for block in blocks:
            done += len(block)
            if done > original.size:
                raise _UnavailableError(f"more than the expected {original.size:,} bytes came")
            digest.update(block)
            file.write(block)
            if progress is not None:
                progress(original.name, done, original.size)
    if done < original.size:
        raise _UnavailableError(f"the connection ended after {done:,} of {original.size:,} bytes")
    if digest.hexdigest() != original.sha256:
        raise _UnavailableError(f"not the original file: its SHA-256 is {digest.hexdigest()}, not {original.sha256}")


def _blocks(address: str) -> Generator[bytes, None, None]:
    """The content of a file on a server, block by block."""
    _check_address(address)
    request = Request(address, headers={"User-Agent": f"relucert/{relucert.__version__}"})
    try:
        with build_opener(_SafeRedirects).open(request, timeout=TIMEOUT) as response:
            while block := response.read(BLOCK):
                yield block
    except HTTPError as error:
        error.close()
        raise _UnavailableError(f"the server answers {error.code} {_short(error.reason)}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise _UnavailableError(f"no connection: {_reason(error)}") from error


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirections, but never away from https."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        try:
            _check_address(newurl)
        except _UnavailableError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_address(address: str) -> None:
    """Refuses an address that is neither https nor plain http to this machine."""
    url = urlsplit(address)
    if url.scheme != "https" and not (url.scheme == "http" and url.hostname in LOOPBACK):
        raise _UnavailableError(f"{address} is not an https address")


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, URLError) else error
    return _short(getattr(inner, "strerror", None) or str(inner) or type(inner).__name__)


def _short(text: str) -> str:
    """A server's text, shortened and without control characters."""
    return textwrap.shorten("".join(sign if sign.isprintable() else " " for sign in text), 100, placeholder="...")
