"""The options that say which images a command works on."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import relucert
from relucert import Network, data
from relucert.cli import options
from relucert.cli.show import Screen
from relucert.data import Dataset, catalogue
from relucert.data.dataset import USUAL
from relucert.data.formats import numpy_arrays
from relucert.errors import InputError, OpenShapeError
from relucert.query.inputs import check_images
from relucert.query.samples import read_samples


def load_network(arguments: argparse.Namespace, screen: Screen) -> Network:
    """The network; the images tell the shape of its input where it leaves that open."""
    with screen.loading() as progress:
        try:
            return relucert.load(arguments.network, progress=progress)
        except OpenShapeError:
            return relucert.load(arguments.network, input_shape=_shape(arguments), progress=progress)


def _shape(arguments: argparse.Namespace) -> tuple[int, ...]:
    """The shape of one image that is asked about, colours first where the layout is known."""
    if arguments.data is None:
        return data.bundled().picture_shape or ()
    if catalogue.is_collection(arguments.data):
        return catalogue.find(arguments.data).picture_shape
    shape = tuple(data.read(arguments.data).images.shape[1:])
    return (shape[2], *shape[:2]) if arguments.layout == "nhwc" and len(shape) == 3 else shape


def load(arguments: argparse.Namespace, network: Network, screen: Screen) -> Dataset:
    """The images asked for, in rows as the network takes them.

    Those known by name must fit the network, which is checked before any download.
    """
    images = read(arguments, screen, network)
    if arguments.images is not None:
        images = images.first(arguments.images)
    samples = read_samples(images, None)
    rows = check_images(samples.images, network, arguments.layout or samples.layout)
    return replace(images, images=rows.to(images.images.dtype), picture_shape=None)


def read(arguments: argparse.Namespace, screen: Screen, network: Network | None = None) -> Dataset:
    """All images of what is named, as they are stored; they must fit the network where one is given."""
    named = arguments.data is not None and catalogue.is_collection(arguments.data)
    from_file = arguments.data is not None and not named
    if arguments.layout is not None and not from_file:
        raise InputError("--layout is about pictures in a file of your own: name it with --data FILE")
    if arguments.data_dir is not None and not named:
        raise InputError(f"--data-dir is where a data set lies: say which with --data {' or '.join(data.NAMES)}")
    if arguments.pixels is not None and from_file:
        raise InputError("--pixels is about mnist, cifar10 and the bundled images: scale your own beforehand")
    if from_file:
        return data.read(arguments.data)
    low, high = arguments.pixels or (network and network.input_range) or USUAL
    if not named:
        images = data.bundled(pixels=(low, high))
        _check_size(network, images.images.shape[1], "the bundled images")
        return images
    _check_size(network, catalogue.find(arguments.data).size, f"the images of {arguments.data}")
    with screen.downloads() as progress:
        return data.load(arguments.data, "test", arguments.data_dir, pixels=(low, high), progress=progress)


def read_targets(path: Path, images: int | None) -> list[int]:
    """One class per image, of a .npy array or a text with one class per line; images: how many are asked about."""
    if not path.is_file():
        raise InputError(f"can't read --target-file {path}: there is no such file")
    if path.suffix.lower() == ".npy":
        array = numpy_arrays(path)[0]
        if array.dtype.kind not in "iu" or array.ndim != 1:
            came = f"{array.dtype} of shape {array.shape}"
            raise InputError(f"{path}: targets are one whole number per image, not {came}")
        targets: list[int] = array.tolist()
    else:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is neither a .npy file nor a text with one class per line: {error}") from None
        targets = [_target(line.strip(), number, path) for number, line in enumerate(lines, start=1) if line.strip()]
    return targets if images is None else targets[:images]


def _target(line: str, number: int, path: Path) -> int:
    if (index := options.whole(line)) is None:
        raise InputError(f"{path}, line {number}: a class index is needed, not {line[:40]!r}")
    return index


def _check_size(network: Network | None, size: int, images: str) -> None:
    if network is not None and size != network.sizes[0]:
        raise InputError(
            f"{network.name} takes {network.sizes[0]} numbers and {images} have {size}: "
            "give images of its own with --data"
        )
