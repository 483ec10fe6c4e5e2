"""The rows of a comparison's record: answers, with the neurons' states, and pictures of adversarial examples."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relucert.api.bounds import bounds
from relucert.arithmetic.region import Region
from relucert.experiments.comparison.methods import Entry
from relucert.network import Network
from relucert.report import pictures
from relucert.report.reading import AnswerKind

FAR = 1e12  # the radius of bounds where a certified radius is infinite


def row(entry: Entry, network: Network, images: Tensor) -> dict[str, Any]:
    """An answer for the record; images: (batch, size), the images of all questions."""
    record = entry.to_json()
    image, answer = images[entry.answer.image], entry.answer
    if entry.method == "fast-lin" and entry.lower:
        record["neurons"] = neurons(network, image, entry.lower, answer)
    if entry.kind is AnswerKind.UPPER and answer.distance:
        record |= pictures.recorded(network, image, answer.witness, answer.box)
    return record


def neurons(network: Network, image: Tensor, radius: float, answer: Any) -> list[dict[str, int]]:
    """How many neurons of each ReLU layer Fast-Lin finds inactive, unstable and active within the radius."""
    region = Region.around(image[None], min(radius, FAR), answer.norm, answer.box, answer.input_scale)
    intervals = bounds(network, region, arithmetic="float", inference=answer.inference)
    states = []
    for interval in intervals[: len(network.preactivations)]:
        inactive = int((interval.upper <= 0).sum())
        active = int(((interval.lower >= 0) & (interval.upper > 0)).sum())
        states.append({"dead": inactive, "undecided": interval.lower.numel() - inactive - active, "active": active})
    return states
