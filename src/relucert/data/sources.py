"""Loads a collection by name: from a directory the user names, else from the cache, else from a download."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from relucert.common import names
from relucert.common.checks import check_callable, checked_path
from relucert.common.names import SplitName
from relucert.data import download
from relucert.data.catalogue import Collection, Form, Split, find
from relucert.data.dataset import USUAL, Dataset, scaled
from relucert.data.download import DownloadProgress
from relucert.data.formats import Pixels
from relucert.errors import LoadError
from relucert.inputs.storage.files import cache_directory

VARIABLE = "RELUCERT_DATA"


def load(
    name: str,
    split: SplitName = "test",
    directory: str | Path | None = None,
    *,
    pixels: tuple[float, float] = USUAL,
    progress: DownloadProgress | None = None,
) -> Dataset:
    """The "test" or "train" images of "mnist" or "cifar10", in their original order.

    The result's images are (count, 784), or (count, 3072) with the red pixels first, then the green, then the blue.

    Args:
        name: "mnist" or "cifar10" ("cifar-10" and "cifar" mean the same).
        split: "train" or "test".
        directory: The only place to look in; by default the folder that the environment variable RELUCERT_DATA names.
            Without either, the images come from the user's cache, which is filled by a download.
        pixels: What black and white become: by default pixels / 255 - 0.5, which the paper's networks take.
        progress: Called with a file's name, the bytes that are here, and the bytes there are.
    """
    collection = find(name)
    check_callable("progress", progress)
    wanted = collection.splits[names.SPLITS.find(split)]
    if directory is not None:
        stored = _from_directory(collection, wanted, checked_path(directory, "a folder of images"), str(directory))
    elif variable := os.environ.get(VARIABLE):
        stored = _from_directory(collection, wanted, Path(variable), f"{VARIABLE}={variable}")
    else:
        stored = wanted.read_originals(*_originals(collection, wanted, progress))
    return scaled(*stored, wanted.title, collection.picture_shape, pixels)


def _from_directory(collection: Collection, split: Split, directory: Path, called: str) -> Pixels:
    """Reads the first form whose files are all there; called: the directory's name in error messages."""
    directory = Path(os.path.expanduser(directory))
    if not os.path.isdir(directory):
        raise LoadError(f"{called}: there is no such folder to take {split.title} from")
    incomplete: list[str] = []
    for form in split.forms:
        for folder in collection.folders:
            paths = [path for names in form.files if (path := _existing(directory / folder, names)) is not None]
            if len(paths) == len(form.files):
                return form.read(*paths)
            incomplete += [path.name for path in paths]
    wanted = ", or ".join(_wanted(form) for form in split.forms)
    folders = " and ".join(f"{folder}/" for folder in collection.folders if folder)
    pickles = [name for name in collection.pickled if os.path.exists(directory / name)]
    raise LoadError(
        f"{called} does not hold {split.title}: looked there and in its {folders} for {wanted}"
        + (f"; found only {', '.join(incomplete)}" if incomplete else "")
        + (f"; {pickles[0]} holds pickles, which are never opened" if pickles else "")
    )


def _existing(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if os.path.isfile(folder / name)), None)


def _wanted(form: Form) -> str:
    """The files of a form by their first names; those that may also be gzipped are marked."""
    return " with ".join(f"{names[0]}[.gz]" if len(names) > 1 else names[0] for names in form.files)


def _originals(collection: Collection, split: Split, progress: DownloadProgress | None) -> Iterator[Path]:
    """The authors' files in the cache, downloaded unless they are there unchanged."""
    for original in split.originals:
        path = cache_directory("data") / collection.name / original.name
        if not download.is_genuine(path, original):
            damaged = f"{path} is damaged; " if os.path.exists(path) else ""
            try:
                download.fetch(original, path, progress)
            except LoadError as error:
                hint = f"a folder that holds {split.title} can be named with --data-dir or {VARIABLE}"
                raise LoadError(f"{damaged}{error}; {hint}") from error
        yield path
