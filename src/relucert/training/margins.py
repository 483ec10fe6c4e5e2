"""Lower bounds of margins, for training and for proofs at one radius: intervals, Fast-Lin and CROWN."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from relucert.batching import batch_size
from relucert.bounding.backward import bound_forms
from relucert.bounding.interval import Bounds, propagate
from relucert.bounding.relaxers import find_relaxer
from relucert.methods.table import find_method
from relucert.network import Affine, LinearForms, Network, Rows, pull_back
from relucert.query.property import Property
from relucert.query.targets import rivals
from relucert.region import Region, RegionShape
from relucert.rigor import DOUBLE, FLOAT, RIGOROUS, Arithmetic, check_subnormals

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
    if method == "interval":
        return _interval_margins(cast, region, prop, arithmetic)
    chosen = find_method(method)
    return chosen.margins(cast, region, prop, chosen.hidden(cast, region, arithmetic), arithmetic)


def certified_share(network: Network, images: Tensor, labels: Tensor, radius: float, shape: RegionShape) -> float:
    """The share of images that are proven to be classified as labelled everywhere within the radius.

    Rounding is included. Intervals are tried first, then Fast-Lin on what they leave open.
    """
    check_subnormals()
    cast, points = network.cast(torch.float64), images.flatten(1).double()
    proven = torch.zeros(len(points), dtype=torch.bool)
    step = batch_size(network, network.classes - 1, MEMORY)
    with torch.inference_mode():
        right = torch.cat([cast(part).argmax(1) for part in points.split(step)]) == labels
        for by_intervals in (True, False):
            left = (right & ~proven).nonzero().flatten()
            for chosen in left.split(step) if len(left) else ():
                region = shape.around(points[chosen], radius)
                prop = _against_all(labels[chosen], network.classes)
                margins = _proven_margins(cast, region, prop, by_intervals)
                proven[chosen] = (margins > 0).all(1)
    return int(proven.sum()) / len(proven)


def _proven_margins(network: Network, region: Region, prop: Property, by_intervals: bool) -> Tensor:
    if not by_intervals:
        method = find_method("fast-lin")
        return method.margins(network, region, prop, method.hidden(network, region, RIGOROUS), RIGOROUS)
    relaxer = find_relaxer("interval")
    hidden = _interval_bounds(network, region, RIGOROUS)
    pulled = bound_forms(
        network, region, prop.rows, network.output, hidden, RIGOROUS, relaxer=relaxer, offsets=prop.offsets
    )
    return pulled.lower


def _against_all(labels: Tensor, classes: int) -> Property:
    """The margins over every other class."""
    scores = torch.zeros(len(labels), classes, dtype=torch.float64)
    return Property.margins(labels, rivals("untargeted", scores, labels, 0), classes)


def _interval_bounds(network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
    """Bounds of every pre-activation by interval arithmetic alone."""
    bounds: Bounds = {}
    for value in network.rectified:
        bounds[value] = propagate(network, region, bounds, value, arithmetic)
    return bounds


def _interval_margins(network: Network, region: Region, prop: Property, arithmetic: Arithmetic) -> Tensor:
    """Interval bounds of margins, rounding ignored: the layers after the last ReLUs are folded into the margins.

    It gives what the interval relaxer gives through the backward driver, which pulls the zeros that are left of the
    forms before the last ReLUs on to the input, at ten times the cost of a whole training step.
    """
    bounds = _interval_bounds(network, region, arithmetic)
    output = propagate(network, region, bounds, network.output, arithmetic)
    rule = _ToNearestRelu(network)
    left = pull_back(network, network.output, Rows(prop.rows, network.shapes[-1]), rule)
    middle = (output.lower + output.upper) / 2
    margins = prop.values(middle)
    for form in left.values():  # on the input
        margins = margins - form.absolute_dot(region.spans(arithmetic).largest)
    for source, form in rule.met.values():
        below, above = (side.clamp(min=0) for side in bounds[source])
        margins = margins - form.absolute_dot((above - below) / 2)
    return margins


@dataclass(frozen=True, eq=False)
class _ToNearestRelu:
    """The rule of a walk that ends at the first ReLU on every way.

    met: by the value of such a ReLU, its source and the forms on it.
    """

    network: Network
    met: dict[int, tuple[int, LinearForms]] = field(default_factory=dict)

    def affine(self, value: int, form: LinearForms) -> tuple[LinearForms, ...]:
        node = self.network.nodes[value - 1]
        assert isinstance(node.operation, Affine)
        return node.operation.pull(form, [self.network.shapes[source] for source in node.inputs])

    def relu(self, value: int, source: int, form: LinearForms) -> None:
        self.met[value] = (source, form)

    def join(self, value: int, one: LinearForms, other: LinearForms) -> LinearForms:
        return one.plus(other)
