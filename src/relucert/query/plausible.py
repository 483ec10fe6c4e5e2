"""Signs that images do not suit a network: another range of numbers, or labels that are met by chance alone."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from math import sqrt

import torch
from torch import Tensor

from relucert.common.closing import setting
from relucert.common.words import counted
from relucert.errors import InputWarning, warn
from relucert.network import Network

Ends = tuple[float, float]
RANGES: tuple[Ends, ...] = ((-0.5, 0.5), (0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))  # in which images are often given
OUTSIDE_SHARE = 0.1  # of the range's width: a perturbed image may leave it by as much
NARROW = 0.02  # of the range's width: images that differ by less have been divided once too often
FEWEST = 10  # images from which on an accuracy by chance tells something
_SILENT = ContextVar("_SILENT", default=False)


def warn_of_range(network: Network, images: Tensor) -> bool:
    """Warns where images (batch, size) do not lie in the range that the network was trained on; returns whether it
    warned."""
    if network.input_range is None:
        return False
    low, high = network.input_range
    least, most = float(images.min()), float(images.max())
    width = high - low
    if (
        low - OUTSIDE_SHARE * width <= least
        and most <= high + OUTSIDE_SHARE * width
        and not 0 < most - least < NARROW * width
    ):
        return False
    ranges = (
        f"{network.name} was trained on inputs from {low:g} to {high:g}, these images go from {least:g} to {most:g}"
    )
    _warn(f"{ranges}: scale them first{_scaling(least, most, low, high)}")
    return True


def warn_of_accuracy(network: Network, images: Tensor, scores: Tensor, labels: Tensor) -> None:
    """Warns where a network meets the labels (batch,) far more often with the images in another of the usual ranges,
    or no more often than chance would."""
    count, classes = scores.shape
    correct = int((scores.argmax(1) == labels).sum())
    if network.input_range is None and count - correct > 2 * sqrt(count):  # five images at the least
        least, most = float(images.min()), float(images.max())
        for low, high in RANGES:
            if (source := _usual(least, most, (low, high))) is None:
                continue
            factor, shift = _into(source, (low, high))
            better = int((network.cast(torch.float64)(images * factor + shift).argmax(1) == labels).sum())
            if better > correct + 2 * sqrt(count):
                _warn(
                    f"the network gives {correct} of {counted(count, 'image')} their labels, and {better} with pixels "
                    f"from {low:g} to {high:g}: scale them first{_scaling(least, most, low, high)}"
                )
                return
    chance = 1 / classes
    if count >= FEWEST and correct <= count * chance + sqrt(count * chance * (1 - chance)):
        _warn(
            f"the network gives {correct} of {counted(count, 'image')} their labels, no more than chance would: "
            "check how the images are scaled and laid out, and that the labels are theirs, counted from 0"
        )


def scaled(least: float, most: float, low: float, high: float) -> str | None:
    """The line of Python that brings images from the usual range they seem to have into this one."""
    source = _usual(least, most, (low, high))
    if source is None:
        return None
    factor, shift = _into(source, (low, high))
    times = "" if factor == 1 else f" / {1 / factor:g}" if factor < 1 else f" * {factor:g}"
    return f"images{times}" + (f" {'-' if shift < 0 else '+'} {abs(shift):g}" if shift else "")


def _usual(least: float, most: float, excluded: Ends) -> Ends | None:
    """The usual range that images seem to have, other than this one."""
    return next((ends for ends in RANGES if ends[0] <= least and most <= ends[1] and ends != excluded), None)


def _into(source: Ends, ends: Ends) -> tuple[float, float]:
    """The factor and the shift that take images from one range into another."""
    factor = (ends[1] - ends[0]) / (source[1] - source[0])
    return factor, ends[0] - factor * source[0]


def _scaling(least: float, most: float, low: float, high: float) -> str:
    line = scaled(least, most, low, high)
    return "" if line is None else f", as in {line} (--pixels {low:g} {high:g})"


def unwarned() -> AbstractContextManager[None]:
    """Silences warnings within this context, for questions about images that have been checked before."""
    return setting(_SILENT, True)


def _warn(message: str) -> None:
    if not _SILENT.get():
        warn(message, InputWarning)
