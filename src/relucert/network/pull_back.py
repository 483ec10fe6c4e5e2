"""Back-substitution over a network: linear forms on a value become forms on what it is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import assert_never

from relucert.arithmetic.forms import LinearForms, Rows
from relucert.arithmetic.windows import Windows
from relucert.common.deadline import check_time
from relucert.network.activation import Activation
from relucert.network.operation import Affine

if TYPE_CHECKING:
    from relucert.network.graph import Network

INPUT = 0
Form = TypeVar("Form")


class PullRule(Protocol[Form]):
    """How forms pass each operation of a network; a form may be a tensor, or whatever the rule makes of one."""

    def affine(self, value: int, form: Form) -> Sequence[Form]:
        """A form on the value of an affine operation, as forms on each of its inputs."""

    def activation(self, value: int, source: int, form: Form) -> Form | None:
        """A form on the value of an activation, as a form on its source; None: back-substitution ends here."""

    def join(self, value: int, one: Form, other: Form) -> Form:
        """The sum of two forms on a value that two branches lead to."""


def pull_back(network: Network, value: int, form: Form, rule: PullRule[Form], stop: int = INPUT) -> dict[int, Form]:
    """Back-substitutes a form on a value; returns the forms that are left by their values: the input, or `stop`.

    Raises TimeUp between two layers once time is over.
    """
    pending = {value: form}
    for current in range(value, stop, -1):
        if current not in pending:
            continue
        check_time()
        node, reached = network.node(current), pending.pop(current)
        if isinstance(node.operation, Affine):
            forms_before = rule.affine(current, reached)
        elif isinstance(node.operation, Activation):
            form_before = rule.activation(current, node.inputs[0], reached)
            forms_before = [] if form_before is None else [form_before]
        else:
            assert_never(node.operation)
        for source, form_before in zip(node.inputs, forms_before, strict=bool(forms_before)):
            pending[source] = rule.join(source, pending[source], form_before) if source in pending else form_before
    return pending


def transposed(network: Network, value: int, forms: Tensor) -> list[Tensor]:
    """Forms on the value of an affine operation, (batch, forms, size), as forms on each of its inputs."""
    operation = network.affine(value)
    forms_before = operation.transpose(forms.unflatten(-1, network.shapes[value]))
    return [form_before.flatten(2) for form_before in forms_before]


def unit_forms(network: Network, value: int, neurons: Tensor, dtype: torch.dtype) -> tuple[int, LinearForms]:
    """Neurons of a value, (count,), as forms, up to a constant, on the value or on the one that it is computed from."""
    node, shape = network.node(value), network.shapes[value]
    if isinstance(node.operation, Affine):
        forms = node.operation.unit_forms(neurons, network.shapes[node.inputs[0]])
        if forms is not None:
            return node.inputs[0], forms
    if len(shape) == 3:
        return value, Windows.units(neurons, shape, dtype)
    return value, Rows(one_hot(neurons, prod(shape)).to(dtype)[None], shape)
