"""Lower bounds of margins, for training and for proofs at one radius: intervals, Fast-Lin and CROWN."""

from __future__ import annotations

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import DOUBLE, FLOAT, RIGOROUS, check_subnormals
from relucert.methods.table import find_method
from relucert.network import Network
from relucert.network.batching import batch_size
from relucert.query.targets import rivals

MEMORY = 2**30  # bytes for the bounds of a proof


def worst_margins(
    network: Network, images: Tensor, labels: Tensor, radius: float, shape: RegionShape, method: str = "fast-lin"
) -> Tensor:
    """Lower bounds of the margin over every rival class, rounding ignored and differentiable: (batch, classes - 1).

    method: "interval", "fast-lin" or "crown".
    """
    arithmetic = DOUBLE if images.dtype == torch.float64 else FLOAT
    cast = network.cast(arithmetic.dtype)
    points = images.flatten(1).to(arithmetic.dtype)
    region = shape.around(points, points.new_full((len(points),), radius))
    prop = _against_all(labels, network.classes).cast(points.dtype)
    bounding = find_method(method)
    return bounding.margins(cast, region, prop, bounding.hidden(cast, region, arithmetic), arithmetic)


def certified_share(network: Network, images: Tensor, labels: Tensor, radius: float, shape: RegionShape) -> float:
    """The share of images that are proven to be classified as labelled everywhere within the radius.

    Rounding is included. Intervals are tried first, then Fast-Lin on what they leave open.
    """
    check_subnormals()
    cast, points = network.cast(torch.float64), images.flatten(1).double()
    proven = torch.zeros(len(points), dtype=torch.bool)
    step = batch_size(network, network.classes - 1, MEMORY, "fast-lin")
    with torch.inference_mode():
        right = torch.cat([cast(batch).argmax(1) for batch in points.split(step)]) == labels
        for method in (find_method("interval"), find_method("fast-lin")):
            unproven = (right & ~proven).nonzero().flatten()
            for batch in unproven.split(step) if len(unproven) else ():
                region = shape.around(points[batch], radius)
                prop = _against_all(labels[batch], network.classes)
                hidden = method.hidden(cast, region, RIGOROUS)
                margins = method.margins(cast, region, prop, hidden, RIGOROUS)
                proven[batch] = (margins > 0).all(1)
    return int(proven.sum()) / len(proven)


def _against_all(labels: Tensor, classes: int) -> Property:
    """The margins over every other class."""
    scores = torch.zeros(len(labels), classes, dtype=torch.float64)
    return Property.margins(labels, rivals("untargeted", scores, labels, 0), classes)
