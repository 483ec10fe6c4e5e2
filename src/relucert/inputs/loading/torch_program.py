"""The program of a torch module: calls of ATen's operators in order, whoever traced them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.fx.node import Node


@dataclass(frozen=True)
class TracedProgram:
    """A graph of calls without in-place operators.

    Attributes:
        nodes: The graph's nodes in order; `meta["val"]` has the shape of a result, `meta["nn_module_stack"]` the layers
            that a call is in, outermost first, as (path, class).
        image: The name of the node that stands for the images.
        stored: By the names of nodes that stand for the module's tensors, the tensors' own names.
        tensors: By the tensors' own names, those that were traced.
        output: The name of the node whose result is the module's.
        casts: Whether the module's code casts to a fixed precision anywhere: it would compute in float64 only in part.
    """

    nodes: Sequence[Node]
    image: str
    stored: Mapping[str, str]
    tensors: Mapping[str, Tensor]
    output: str
    casts: bool = False
