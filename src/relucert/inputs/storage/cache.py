"""The location of the user's cache, for files that can be fetched or built again."""

from __future__ import annotations

import os
from pathlib import Path

from relucert.errors import InputError

VARIABLE = "XDG_CACHE_HOME"


def cache_directory(purpose: str) -> Path:
    """The folder of the user's cache for "data" or "networks"; it may not exist yet."""
    base = Path(os.environ.get(VARIABLE, ""))
    if not base.is_absolute():  # the XDG specification says to ignore relative paths
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise InputError(f"there is no home folder to keep a cache in: set {VARIABLE} to a folder") from error
    return base / "relucert" / purpose
