"""Images to certify and to train on: bundled, the user's own NumPy files, MNIST and CIFAR-10 (never pickles)."""

from relucert.data.catalogue import NAMES, SPLITS
from relucert.data.dataset import Dataset, bundled, read
from relucert.data.download import DownloadProgress
from relucert.data.sources import load

__all__ = ["NAMES", "SPLITS", "Dataset", "DownloadProgress", "bundled", "load", "read"]
