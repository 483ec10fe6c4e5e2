"""What the head of every record says: what ran, on what, and which question it is."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

import relucert

PACKAGES = ("torch", "numpy", "scipy", "highspy", "clarabel")  # whose versions a record names
NO_MATTER = (
    "network", "data", "data_dir", "layout", "pixels", "target_file", "threads", "memory", "proof", "proofs",
    "images", "methods", "norms", "targets",
)  # fmt: skip
# options that change no question: the numbers that they lead to count, and more images and methods belong to it


def circumstances(arguments: argparse.Namespace) -> dict[str, Any]:
    """The program, the time and the machine of a run."""
    return {
        "command": arguments.command,
        "relucert": relucert.__version__,
        "versions": {name: metadata.version(name) for name in PACKAGES} | {"python": platform.python_version()},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z"),
    }


def question(command: str, options: Mapping[str, Any], *digests: object) -> str:
    """A SHA-256 that is the same for the same command about the same numbers with the same options.

    Options that change no answer, such as the memory that may be used, do not count, and neither do the images: more of
    them belong to the same run, and its store tells other ones apart.

    digests: those of the numbers.
    """
    decisive = {name: value for name, value in options.items() if name not in NO_MATTER}
    return hashlib.sha256(json.dumps([command, decisive, digests], sort_keys=True).encode()).hexdigest()
