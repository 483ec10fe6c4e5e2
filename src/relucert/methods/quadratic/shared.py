"""Many forms that share one joint certificate: weights of every neuron's own, found for all forms at once.

The ascent is of the sum of all bounds, on the weights that the forms share and on each form's own factor of them,
slopes and centres. So one proof of feasibility serves all forms, as those for the neurons of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.adam import Adam
from relucert.common.deadline import check_time
from relucert.methods.quadratic.ascent import (
    SETTLING,
    SMALLEST_STEP,
    WEIGHT_RATE,
    BoundAscent,
    CertificateAscent,
    VariableLayout,
    best_factors,
    cooling,
    table_gradient,
    weight_gradient,
)
from relucert.methods.quadratic.composed import UniformPlan, compose
from relucert.methods.quadratic.dual import Weights, pull
from relucert.methods.quadratic.joint import PowerIteration
from relucert.methods.quadratic.linearised_network import LinearisedNetwork

FACTORS = torch.logspace(-3, 1, 17)  # of the composed weights: what the input costs, as a share of the form


@dataclass(eq=False)
class SharedAscent(BoundAscent):
    """The state of an ascent.

    Attributes:
        logarithms: Of the weights that forms share, one row.
        power: Of these.
    """

    logarithms: Tensor
    power: PowerIteration

    @classmethod
    def start(cls, linearised: LinearisedNetwork, forms: Tensor, heights: Tensor) -> SharedAscent:
        """From a composed certificate, with slopes as CROWN would choose them and the best of a few factors.

        linearised: In float64.
        """
        quick, forms, heights = linearised.quick(), forms.float(), heights.float()
        pulled = pull(quick, forms, quick.first_shares)
        lengths = {
            value: coefficients.square().sum(1).mean().sqrt() for value, coefficients in pulled.coefficients.items()
        }
        counted = {value: lengths[value].expand(len(neurons)) for value, neurons in quick.neurons.items()}
        base = compose(linearised, quick, UniformPlan(counted)).weights.map(Tensor.float)
        layout = VariableLayout(quick, own=False)
        table = layout.start(pulled)
        ascent = cls(layout, forms, heights, table, layout.weight_columns(base), PowerIteration(quick, 1))
        size = pulled.inputs.abs().sum(1).mean()
        table[:, -1], _ = best_factors(quick, heights, ascent.settled(), pulled, ascent.point, size, FACTORS)
        middle = table[:, -1].median()
        ascent.logarithms += middle
        table[:, -1] -= middle
        return ascent

    def weights(self) -> Weights:
        """The weights that forms share, before they are made feasible, one row."""
        own = VariableLayout(self.linearised, own=True)
        missing = self.logarithms.new_zeros(1, sum(own.sizes) - self.logarithms.shape[1])
        return own.logarithms(torch.cat([missing, self.logarithms], 1)).map(torch.exp)

    def ascend(self, steps: int, speed: float = 1.0) -> None:
        own = VariableLayout(self.linearised, own=True)
        self._settle()
        adam = Adam([self.table, self.logarithms], tiny=SMALLEST_STEP)
        rates = speed * self.layout.rates()
        for step in range(steps):
            check_time()
            spectrum = self.power.step(weights := self.weights())
            slope = self.gradient(weights.inflated(spectrum.largest).times(self.factors))
            on_weights = weight_gradient(own, slope.shared_weights, spectrum)
            directions, cooled = adam.directions([table_gradient(slope), on_weights]), cooling(step, steps)
            self.table.add_(directions[0] * rates * cooled)
            self.logarithms.add_(directions[1] * (speed * WEIGHT_RATE * cooled))

    def _settle(self) -> Tensor:
        """By how much weights of errors and inputs have to be multiplied to be feasible, (1,)."""
        weights = self.weights()
        for _ in range(SETTLING):
            spectrum = self.power.step(weights)
        return spectrum.largest

    def own(self, rows: Tensor) -> CertificateAscent:
        """The ascent of some forms with weights of their own, which starts from those that all share."""
        layout = VariableLayout(self.linearised, own=True)
        factors = self.table[rows, -1:]
        table = torch.cat([self.table[rows, :-1], self.logarithms + factors], 1)
        power = PowerIteration(self.linearised, len(rows))
        ascent = CertificateAscent(layout, self.forms[rows], self.heights[rows], table, self.weights(), power)
        ascent.settled()
        return ascent

    def settled(self) -> Weights:
        """The weights that forms share, one row, which seem to be feasible."""
        return self.weights().inflated(self._settle())
