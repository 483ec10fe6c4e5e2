"""Adversarial examples as arrays, in one NumPy file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relucert.answers.certificates import Exact, UpperBound
from relucert.errors import InputError
from relucert.inputs.storage import files
from relucert.network import Network
from relucert.report.runfile import MARK

ABSENT = -1  # for a class that is not known


class ExampleFile:
    """A .npz file for the adversarial examples of one question; checked when made, written once.

    Args:
        question: The SHA-256 of the question; a file about another one is refused unless `overwrite`.
    """

    def __init__(self, path: Path, question: str, overwrite: bool) -> None:
        if path.suffix.lower() != ".npz":
            raise InputError(f"arrays are saved in a file that ends in .npz, not {path}")
        self.path, self._mark = path, question[:MARK].encode()
        self._replaces = files.check_replaceable(path, lambda there: self._mark in there, overwrite)

    def write(
        self, network: Network, images: Tensor, answers: Sequence[UpperBound | Exact], complete: bool
    ) -> tuple[Path, int]:
        """Writes one row per witness. An incomplete run writes beside a file, which may hold more.

        Args:
            images: (count, size), those that were asked about.

        Returns:
            The file, and how many examples are in it.
        """
        shown = [answer for answer in answers if answer.witness is not None]
        points = [answer.witness for answer in shown if answer.witness is not None]
        originals = images[[answer.image for answer in shown]].reshape(-1, *network.input_shape)
        dtype = torch.float64 if any(point.dtype == torch.float64 for point in points) else torch.float32
        witnesses = torch.stack([point.to(dtype) for point in points]) if points else originals
        distances = [answer.distance if isinstance(answer, UpperBound) else answer.upper for answer in shown]
        arrays = {
            "images": witnesses.numpy(),
            "originals": originals.numpy(),
            "labels": _classes([answer.label for answer in shown]),
            "targets": _classes([answer.target for answer in shown]),
            "predicted": _predicted(network, witnesses),
            "distances": np.array(distances, dtype=np.float64),
            "indices": np.array([answer.image for answer in shown], dtype=np.int64),
            "question": np.bytes_(self._mark),
        }
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        path = self.path if complete or not self._replaces else files.free_name(self.path)
        files.write(path, content.getvalue())
        return path, len(points)


def _classes(classes: Sequence[int | None]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([ABSENT if number is None else number for number in classes], dtype=np.int64)


def _predicted(network: Network, witnesses: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The class that the network gives each witness, one at a time, in the witnesses' own precision."""
    cast = network.cast(witnesses.dtype)
    with torch.inference_mode():
        return np.array([int(cast(witness[None]).argmax()) for witness in witnesses], dtype=np.int64)
