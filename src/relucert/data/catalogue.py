"""The image collections known by name: the files each comes in, and where its authors' files can be downloaded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from relucert.common.names import DATA, SplitName
from relucert.data import formats
from relucert.data.formats import Pixels
from relucert.errors import InputError

SPLITS: tuple[SplitName, ...] = ("train", "test")
"""The splits of a collection."""


@dataclass(frozen=True)
class Form:
    """A way to store images: its files, each with its possible names, and the function that reads them."""

    files: tuple[tuple[str, ...], ...]
    read: Callable[..., Pixels]


@dataclass(frozen=True)
class Original:
    """A file as its authors publish it: its size and SHA-256, and the folders on the web that have it (`mirrors`)."""

    name: str
    size: int
    sha256: str
    mirrors: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """The training or the test images; read_originals: reads the files of `originals`, given in their order."""

    title: str
    forms: tuple[Form, ...]
    originals: tuple[Original, ...]
    read_originals: Callable[..., Pixels]


@dataclass(frozen=True)
class Collection:
    """Labelled images known by name, flat pictures of `picture_shape`: colours, rows, columns.

    folders: where in a directory its files may lie; pickled: files and folders of pickles, which are never opened.
    """

    name: str
    picture_shape: tuple[int, ...]
    splits: dict[str, Split]
    folders: tuple[str, ...]
    pickled: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of pixels of an image, all colours counted."""
        return math.prod(self.picture_shape)


def is_collection(name: object) -> bool:
    """Whether a collection is meant, however its name is spelled."""
    try:
        return bool(DATA.find(name))
    except InputError:
        return False


def find(name: str) -> Collection:
    """The collection of that name; raises InputError, which lists the names, for any other."""
    return COLLECTIONS[DATA.find(name)]


MNIST_MIRRORS = (  # the author's own site no longer serves it
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MNIST_FILES = {
    "train": (
        ("train-images-idx3-ubyte.gz", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte.gz", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    ),
    "test": (
        ("t10k-images-idx3-ubyte.gz", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte.gz", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
}
CIFAR10_ARCHIVE = Original(
    "cifar-10-binary.tar.gz",
    170_052_171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ("https://www.cs.toronto.edu/~kriz/",),
)
CIFAR10_BATCHES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
TITLES = {"train": "training images", "test": "test images"}


def _mnist_split(split: str) -> Split:
    originals = tuple(Original(*entry, MNIST_MIRRORS) for entry in MNIST_FILES[split])
    read_idx = partial(formats.read_idx, shape=(28, 28))
    forms = (
        Form(tuple(_idx_names(original.name) for original in originals), read_idx),
        Form(((f"mnist_{split}.npz",),), partial(formats.read_npz, shape=(28, 28))),
    )
    return Split(f"the MNIST {TITLES[split]}", forms, originals, read_idx)


def _idx_names(original: str) -> tuple[str, ...]:
    """The file names in use: unpacked or gzipped, with a hyphen or a dot before `idx`."""
    dotted = original.replace("-idx", ".idx")
    return original.removesuffix(".gz"), original, dotted.removesuffix(".gz"), dotted


def _cifar10_split(split: str) -> Split:
    batches, archive = CIFAR10_BATCHES[split], CIFAR10_ARCHIVE
    read_archive = partial(formats.read_cifar_archive, members=batches)
    forms = (
        Form(tuple((batch,) for batch in batches), formats.read_cifar),
        Form(((archive.name,),), read_archive),
        Form(((f"cifar10_{split}.npz",),), partial(formats.read_npz, shape=(32, 32, 3))),
    )
    return Split(f"the CIFAR-10 {TITLES[split]}", forms, (archive,), read_archive)


MNIST = Collection(
    "mnist",
    (1, 28, 28),
    {split: _mnist_split(split) for split in SPLITS},
    folders=("", "mnist", "MNIST/raw"),
    pickled=("mnist.pkl.gz", "MNIST/processed"),
)
CIFAR10 = Collection(
    "cifar10",
    (3, 32, 32),
    {split: _cifar10_split(split) for split in SPLITS},
    folders=("", "cifar10", "cifar-10-batches-bin"),
    pickled=("cifar-10-batches-py", "cifar-10-python.tar.gz"),
)
COLLECTIONS = {collection.name: collection for collection in (MNIST, CIFAR10)}
NAMES = tuple(COLLECTIONS)
"""The names of the collections."""
