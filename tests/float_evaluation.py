"""Networks evaluated in floating point: in any order of summation, fused or not, subnormals kept or flushed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from relucert.network import Add, Affine, BatchScale, IndexMap, Network, Relu, Reshape, Scale, Shift

Array = NDArray[np.floating]
Order = Callable[[NDArray[np.intp]], list[NDArray[np.intp]]]
"""From the numbers of the terms to the blocks that are summed one by one, then added up."""

SINGLE = np.dtype(np.float32)
ORDERS: dict[str, Order] = {
    "sequential": lambda terms: [terms],
    "reversed": lambda terms: [terms[::-1]],
    "blocks of three": lambda terms: list(np.array_split(terms, max(1, len(terms) // 3))),
    "pairs": lambda terms: list(np.array_split(terms, max(1, len(terms) // 2))),
    "shuffled": lambda terms: [np.random.default_rng(0).permutation(terms)],
    "odd and even": lambda terms: [terms[::2], terms[1::2]],
}


@dataclass(frozen=True)
class Evaluation:
    """One way to evaluate a network, every operation rounded to a precision."""

    order: Order
    fused: bool = False
    flushed: bool = False
    dtype: np.dtype[np.floating] = SINGLE
    precision: torch.dtype | None = None  # one that NumPy may not have, in the place of dtype; nothing is flushed

    def values(self, network: Network, points: Array) -> list[Array]:
        """Every value of the network at points (batch, size) of that precision, flat, in float64."""
        values: list[Array] = [self._round(points.astype(np.float64))]
        for value, node in network.steps():
            operation, operands = node.operation, [values[source] for source in node.inputs]
            if isinstance(operation, Relu):
                values.append(np.maximum(operands[0], 0))
            elif node.exact or isinstance(operation, Reshape | IndexMap):
                assert isinstance(operation, Affine)
                shapes = [network.shapes[source] for source in node.inputs]
                parts = [torch.from_numpy(one).unflatten(1, shape) for one, shape in zip(operands, shapes, strict=True)]
                exact = operation.cast(torch.float64)
                values.append(exact.apply(*parts).flatten(1).numpy())
            else:
                assert isinstance(operation, Affine)
                values.append(self._affine(operation, operands, network, value))
        return values

    def _affine(self, operation: Affine, operands: list[Array], network: Network, value: int) -> Array:
        shape = network.shapes[value]
        if isinstance(operation, Add):
            return self._round(operands[0] + operands[1])
        if isinstance(operation, Shift):
            return self._round(operands[0] + self._stored(operation.offset, shape))
        if isinstance(operation, Scale):
            factor = self._stored(operation.factor, shape)
            return self._round(operands[0] / factor if operation.divide else operands[0] * factor)
        if isinstance(operation, BatchScale):
            spread = self._round(self._stored(operation.variance, shape) + self._round(np.array(operation.epsilon)))
            inverse = self._round(1 / self._round(np.sqrt(spread)))
            return self._round(operands[0] * self._round(self._stored(operation.gain, shape) * inverse))
        before = network.shapes[network.source(value)]
        exact = operation.cast(torch.float64)
        columns = exact.linear(torch.eye(operands[0].shape[1], dtype=torch.float64).unflatten(1, before))
        return self._product(columns.flatten(1).T.numpy(), operands[0], self._bias(exact, shape))

    def _bias(self, operation: Affine, shape: tuple[int, ...]) -> Array:
        assert operation.constant is not None
        return self._stored(operation.constant, shape)

    def _product(self, weight: Array, points: Array, bias: Array) -> Array:
        """`weight @ point + bias` for each point, term by term."""
        weight, points = self._flush(weight), self._flush(points)
        total: Array | None = None
        for block in self.order(np.arange(weight.shape[1])):
            part: Array = np.zeros((len(points), len(weight)))
            for term in block:
                product = points[:, term, None] * weight[None, :, term]
                part = self._round(part + (product if self.fused else self._round(product)))
            total = part if total is None else self._round(total + part)
        assert total is not None
        return self._round(total + bias)

    def _stored(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> Array:
        return self._round(tensor.double().expand(shape).flatten().numpy())

    def _round(self, numbers: Array) -> Array:
        if self.precision is None:
            return self._flush(numbers.astype(self.dtype).astype(np.float64))
        rounded: Array = torch.from_numpy(np.ascontiguousarray(numbers)).to(self.precision).double().numpy()
        return rounded

    def _flush(self, numbers: Array) -> Array:
        return np.where(np.abs(numbers) < np.finfo(self.dtype).smallest_normal, 0, numbers) if self.flushed else numbers


EVALUATIONS = {
    f"{name}{', fused' if fused else ''}{', flushed' if flushed else ''}": Evaluation(order, fused, flushed)
    for name, order in ORDERS.items()
    for fused, flushed in ((False, False), (True, False), (False, True))
    if not (fused or flushed) or name in ("sequential", "shuffled")
}
