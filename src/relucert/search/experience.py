"""The experience that searches of one network share: it tells the next one where to begin."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from relucert.network import Activation, Affine, Network, SmoothActivation
from relucert.search.prediction import RelativeWidths
from relucert.search.shells import PredictionModel

WIDTH = 3.0  # relative widths are guessed to be this over the square root of how many products a neuron sums, at most 1
GROWTH = 0.05  # the exponent with which relative widths are guessed to grow with the radius
ERROR_RATE = 5e-3  # by how much a root may be off, as a share of how far it is from the evaluated radius
LEAST_ERROR_RATE = 2e-3  # however well searches of this network were predicted so far
MOST_NEURONS = 2**14  # of a layer whose relative widths are remembered one by one
FIRST_SHARES = (0.7, 0.45)  # of the first-order radius, with one layer of ReLUs and for each further: where a root is
SMOOTH_SHARE = 0.9  # the same for each layer of smooth activations, whose lines are exact to first order


@dataclass
class Experience:
    """Guesses for the first evaluation of a search, improved by each search.

    Attributes:
        first_share: The radius, as a share of the first-order radius.
        error_rate: By how much a predicted root is off, as a share of how far it is from the evaluated radius.
        widths: By value, the relative widths of its neurons (see `RelativeWidths`), (size,) or (1,).
        growth: By value, the exponent with which they grow with the radius.
    """

    first_share: float
    error_rate: float = ERROR_RATE
    widths: dict[int, Tensor] = field(default_factory=dict)
    growth: dict[int, float] = field(default_factory=dict)

    @classmethod
    def none(cls, network: Network) -> Experience:
        """Guesses from the sizes of the network alone."""
        depths = network.activation_depths
        widths, growth = {}, {}
        for value in network.bounded:
            if depths[value]:
                operation = network.node(value).operation
                terms = operation.terms if isinstance(operation, Affine) else 1
                widths[value] = torch.tensor([min(1.0, WIDTH / math.sqrt(max(1, terms)))])
            growth[value] = GROWTH if depths[value] else 0.0
        smooth, bent = (_depth(network, kind) for kind in (True, False))
        share = FIRST_SHARES[0] * FIRST_SHARES[1] ** max(0, bent - 1) * SMOOTH_SHARE**smooth
        return cls(share, widths=widths, growth=growth)

    def learn(self, model: PredictionModel, shares: Tensor) -> None:
        """Learns from one search.

        Args:
            model: The prediction model of its last evaluations.
            shares: The radii that it ended with, as shares of the first-order radii: (batch,).
        """
        if isinstance(model, RelativeWidths):
            for value, numbers in model.widths.items():
                logs = numbers.clamp(min=1e-6).log().mean((0, 1))
                kept = logs if len(logs) <= MOST_NEURONS else logs.mean(0, keepdim=True)
                self.widths[value] = kept.exp().nan_to_num(1.0).float()
                self.growth[value] = float(model.growth[value].mean())
        finite = shares[shares.isfinite() & (shares > 0)]
        if len(finite):
            self.first_share = float(finite.log().mean().exp())

    def learn_error_rate(self, moved: Tensor, distances: Tensor) -> None:
        """Learns how far predictions are off.

        moved: By how much, relatively, an evaluation moved the predicted roots, (batch,); distances: how far it was
        from the one before, in logarithms.
        """
        seen = distances > LEAST_ERROR_RATE
        if bool(seen.any()):
            rates = (moved[seen] / distances[seen]).nan_to_num(0.0, 0.0, 0.0)
            self.error_rate = max(LEAST_ERROR_RATE, float(rates.mean()))

    def to_json(self) -> str:
        widths = {value: base64.b64encode(numbers.numpy().tobytes()).decode() for value, numbers in self.widths.items()}
        return json.dumps([self.first_share, self.error_rate, sorted(widths.items()), sorted(self.growth.items())])

    @classmethod
    def from_json(cls, text: str) -> Experience:
        """Raises ValueError where the text is not one of `to_json`, as an earlier version's is not."""
        first_share, error_rate, widths, growth = json.loads(text)
        tensors = {
            value: torch.from_numpy(np.frombuffer(base64.b64decode(numbers), np.float32).copy())
            for value, numbers in widths
        }
        return cls(first_share, error_rate, tensors, dict(growth))


def _depth(network: Network, smooth: bool) -> int:
    """The most activations on one path from the input to the output, of those that are smooth, or of the others."""
    depths = [0]
    for node in network.nodes:
        counts = isinstance(node.operation, Activation) and isinstance(node.operation, SmoothActivation) == smooth
        depths.append(max(depths[source] for source in node.inputs) + counts)
    return depths[-1]
