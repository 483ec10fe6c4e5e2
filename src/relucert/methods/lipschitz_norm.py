"""The paper's alternative bound on the Lipschitz constant (its appendix), for any depth.

Of a form on the output the part through each neuron's least derivative is followed exactly: 1 of an active ReLU, else
0. What the derivative may be beyond that, 1 of an unstable ReLU, adds by the triangle inequality the coefficient's
absolute value times a constant of the neuron itself: the dual norm of its gradient before the first activations, a sum
over the paths of neurons after them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import assert_never

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.gradient import Forms, pull_to_input
from relucert.bounding.interval import Bounds
from relucert.methods.lipschitz import Memo
from relucert.network import INPUT, Activation, Affine, Network, unit_forms

ROW_BYTES = 2**26  # how large one chunk of forms may get while the first layers' rows are measured


class LipschitzNorm:
    """Upper bounds of the Lipschitz constants of forms on the output; remembers the rows of first layers."""

    def __init__(self) -> None:
        self._first = Memo(_affine_values)

    def __call__(
        self, network: Network, region: Region, forms: Tensor, bounds: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        neurons = self._neurons(network, region, bounds, arithmetic)
        spent: list[Tensor] = []

        def rule(value: int, source: int, form: Forms) -> Forms:
            least, largest = network.activations[value].derivatives(*bounds[source])
            costs = neurons[source] * arithmetic.above(largest - least, 1)
            cost = (form.sizes(arithmetic) @ costs[..., None]).squeeze(-1)
            spent.append(arithmetic.above(cost, form.centre.shape[-1] + 3))
            return form.times(least[:, None], arithmetic)

        rest = pull_to_input(network, network.output, Forms.exact(forms), rule, arithmetic)
        length = region.dual_norm(rest.sizes(arithmetic), arithmetic)
        return arithmetic.above(torch.stack([length, *spent]).sum(0), len(spent) + 1)

    def _neurons(self, network: Network, region: Region, bounds: Bounds, arithmetic: Arithmetic) -> dict[int, Tensor]:
        """The Lipschitz constant of every coordinate of every value: (batch or 1, size)."""
        constants = dict(self._first(network, region, arithmetic))
        for value, node in network.steps():
            if value in constants:
                continue
            incoming = [constants[source] for source in node.inputs]
            if isinstance(node.operation, Affine):
                shaped = [
                    constant.unflatten(-1, network.shapes[at])
                    for constant, at in zip(incoming, node.inputs, strict=True)
                ]
                total = node.operation.absolute.linear(*shaped).flatten(1)
                constants[value] = arithmetic.above(total, node.operation.terms + 2)
            elif isinstance(node.operation, Activation):
                least, largest = node.operation.derivatives(*bounds[node.inputs[0]])
                constants[value] = arithmetic.above(incoming[0] * torch.maximum(-least, largest), 1)
            else:
                assert_never(node.operation)
        return constants


def _affine_values(network: Network, region: Region, arithmetic: Arithmetic) -> dict[int, Tensor]:
    """The dual norms of the rows of every value that no activation precedes: (1, size)."""
    ones = torch.ones(1, network.sizes[INPUT], dtype=arithmetic.dtype)
    constants = {INPUT: ones if region.scale is None else region.scale[None]}
    for value, depth in enumerate(network.activation_depths):
        if value == INPUT or depth:
            continue
        node = network.node(value)
        assert isinstance(node.operation, Affine)
        if node.operation.arity == 1 and not node.operation.work:  # every coordinate depends on a single one
            before = constants[node.inputs[0]].unflatten(-1, network.shapes[node.inputs[0]])
            lengths = node.operation.absolute.linear(before).flatten(1)
            constants[value] = arithmetic.above(lengths, node.operation.terms + 2)
        else:
            constants[value] = _row_lengths(network, value, region, arithmetic)
    return constants


def _row_lengths(network: Network, value: int, region: Region, arithmetic: Arithmetic) -> Tensor:
    """The dual norms of the rows of one value that no activation precedes: (1, size)."""
    step = max(1, ROW_BYTES // (16 * max(network.sizes[: value + 1])))
    lengths = []
    for neurons in torch.arange(network.sizes[value]).split(step):
        start, forms = unit_forms(network, value, neurons, arithmetic.dtype)
        rows = pull_to_input(network, start, Forms.exact(forms.rows()), _no_rule, arithmetic)
        lengths.append(region.dual_norm(rows.sizes(arithmetic), arithmetic))
    return torch.cat(lengths, 1)


def _no_rule(value: int, source: int, form: Forms) -> Forms:
    raise AssertionError("an activation before a value that none precedes")
