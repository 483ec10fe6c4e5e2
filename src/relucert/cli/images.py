"""The options that say which images a command works on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from relucert.cli import options
from relucert.errors import InputError

if TYPE_CHECKING:
    from relucert import Network
    from relucert.cli.show import Screen
    from relucert.data import Dataset


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        metavar="DATA",
        help="your images, a .npz or .npy file, or the test images of mnist or cifar10 (default: the bundled)",
    )
    group.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="the folder that has mnist or cifar10 (default: RELUCERT_DATA, else a cache that is filled by download)",
    )
    group.add_argument("--images", type=options.count, metavar="N", help="only the first N images")


def load(arguments: argparse.Namespace, network: Network, screen: Screen) -> Dataset:
    """The images asked for; those known by name must fit the network, which is checked before any download."""
    from relucert import data
    from relucert.data import catalogue

    named = arguments.data is not None and catalogue.known(arguments.data)
    if arguments.data_dir is not None and not named:
        raise InputError(f"--data-dir is where a data set lies: say which with --data {' or '.join(data.NAMES)}")
    if named:
        _check_size(network, catalogue.find(arguments.data).size, f"the images of {arguments.data}")
        with screen.downloads() as progress:
            images = data.load(arguments.data, "test", arguments.data_dir, progress=progress)
    elif arguments.data is not None:
        images = data.read(arguments.data)
    else:
        images = data.bundled()
        _check_size(network, images.images.shape[1], "the bundled images")
    return images if arguments.images is None else images.first(arguments.images)


def _check_size(network: Network, size: int, images: str) -> None:
    if size != network.sizes[0]:
        raise InputError(
            f"{network.name} takes {network.sizes[0]} numbers and {images} have {size}: "
            "give images of its own with --data"
        )
