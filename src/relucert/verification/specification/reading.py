"""Reads files of either version of VNN-LIB: first the text, and then the query that it asks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from relucert.common import packed
from relucert.common.checks import checked_path
from relucert.errors import InputError, LoadError
from relucert.verification.specification import version_one, version_two
from relucert.verification.specification.violations import Specification

MOST_BYTES = 2**28  # of the text, also where a file is compressed
TWO = re.compile(r"^\s*\(\s*(vnnlib-version|declare-network)\b", re.MULTILINE)


class PropertyFile(NamedTuple):
    """A file's path and text, before it is parsed."""

    path: Path
    text: str

    @property
    def version_two(self) -> bool:
        """Whether it is VNN-LIB 2.0, where a property may be about several networks."""
        return TWO.search(self.text) is not None

    def specification(self) -> Specification:
        """What the text says."""
        try:
            if self.version_two:
                return version_two.parse(self.text)
            return version_one.parse(self.text)
        except (LoadError, InputError) as error:
            raise type(error)(f"{self.path}: {error}") from None


def read(path: str | os.PathLike[str]) -> PropertyFile:
    """A .vnnlib or .vnnlib.gz file."""
    file_path = checked_path(path, "a property")
    try:
        text = packed.content(file_path, MOST_BYTES).decode("utf-8")
    except OSError as error:
        beside = packed.packed_beside(file_path) if isinstance(error, FileNotFoundError) else ""
        raise LoadError(f"can't read the property {file_path}: {error.strerror or error}{beside}") from error
    except UnicodeDecodeError:
        raise LoadError(f"the property {file_path} is no text") from None
    return PropertyFile(file_path, text)
