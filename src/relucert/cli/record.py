"""The head of a record, before the answers: what ran, on what, about which network, data and question."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

import relucert
from relucert.arithmetic.norm import Norm
from relucert.data import Dataset
from relucert.network import Network
from relucert.network.fingerprint import fingerprint

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


def head(
    arguments: argparse.Namespace, network: Network, images: Dataset, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The record of a command that answers questions about images; options: those of the library's call."""
    options = dict(options)
    if options.pop("property", None) is not None:
        options["outputs_within"] = [None if math.isinf(end) else end for end in arguments.outputs_within]
    recorded = {"network": arguments.network, "data": arguments.data, **options, "threads": arguments.threads}
    for name in ("data_dir", "target_file"):
        recorded[name] = (path := getattr(arguments, name)) and str(path)
    recorded |= {"layout": arguments.layout, "pixels": arguments.pixels, "target": arguments.target}
    recorded |= {"images": len(images), "workers": arguments.workers, "ray": arguments.ray}
    about = {
        "name": network.name,
        "layers": network.describe(),
        "parameters": network.parameters,
        "classes": network.classes,
        "sha256": fingerprint(network, options.get("inference", "real") != "real"),
    }
    data = {"name": images.name, "images": len(images), "sha256": images.sha256()}
    question_options = {**options, "target": "per image" if arguments.target_file else arguments.target}
    if "norm" in question_options:
        question_options["norm"] = repr(Norm.parse(question_options["norm"]).p)
    return {
        **circumstances(arguments),
        "question": question(arguments.command, question_options, about["sha256"]),
        "network": about,
        "data": data,
        "options": recorded,
    }


def question(command: str, options: Mapping[str, Any], *digests: object) -> str:
    """A SHA-256 that is the same for the same command about the same numbers with the same options.

    Options that change no answer, such as the memory that may be used, do not count, and neither do the images: more of
    them belong to the same run, and its store tells other ones apart.

    digests: those of the numbers.
    """
    decisive = {name: value for name, value in options.items() if name not in NO_MATTER}
    return hashlib.sha256(json.dumps([command, decisive, digests], sort_keys=True).encode()).hexdigest()
