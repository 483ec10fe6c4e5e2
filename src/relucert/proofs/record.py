"""A record as the entries of a proof file: the trees of ReLU splits that its leaves make up, numbers packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relucert.arithmetic.rigor import RECORDED, SLOPE_UNIT
from relucert.bounding.record import Leaves, NeuronBounds, Record, RuleName, multiplier_units
from relucert.checker.packing import Whole, pack, pack_floats
from relucert.checker.trees import SCALE_ZERO

Columns = dict[int, NDArray[np.int64]]  # by pre-activation the neurons that have slopes


def relaxation_entry(record: Record) -> dict[str, Any]:
    """The fields of a proof file that say how neurons and rows are bounded."""
    every = [group.leaves for groups in record.hidden.values() for group in groups]
    columns = _columns(every if record.rows is None else [*every, record.rows])
    hidden = {}
    for value, groups in sorted(record.hidden.items()):
        before = {source: neurons for source, neurons in columns.items() if source < value}
        numbers = np.concatenate([_bound_numbers(group) for group in groups])
        leaves = [(group.leaves, len(group.neurons)) for group in groups]
        hidden[str(value)] = {"sides": pack(numbers, 4), **_trees(leaves, before)}
    ranges = {str(value): [pack_floats(ends.numpy()) for ends in group] for value, group in record.ranges.items()}
    count = 0 if record.rows is None or not len(record.rows.forms) else int(record.rows.forms.max()) + 1
    return {
        "rules": [rule_entry(rule) for rule in record.rules],
        "neurons": {str(value): pack(neurons, 4) for value, neurons in columns.items()},
        "hidden": hidden,
        "rows": None if record.rows is None else _trees([(record.rows, count)], columns),
        **({"ranges": ranges} if ranges else {}),
    }


def rule_entry(rule: RuleName) -> dict[str, Any]:
    """A rule as a proof file has it."""
    entry = {"rule": rule.name, "scope": rule.scope}
    slopes = {str(value): [pack_floats(table.numpy()) for table in tables] for value, tables in rule.slopes.items()}
    return {**entry, "slopes": slopes} if slopes else entry


def _bound_numbers(group: NeuronBounds) -> Whole:
    """The numbers of bounds: 2 n for the lower bound of neuron n, 2 n + 1 for that of its negative."""
    return np.asarray(2 * group.neurons.numpy() + (group.signs.numpy() < 0), dtype=np.int64)


def _columns(every: Sequence[Leaves]) -> Columns:
    """All neurons that some leaf has a number for."""
    values = sorted({value for leaves in every for value in leaves.neurons})
    neurons_by_value = {
        value: np.unique(np.concatenate([leaves.neurons[value].numpy() for leaves in every if value in leaves.neurons]))
        for value in values
    }
    return {value: neurons for value, neurons in neurons_by_value.items() if len(neurons)}


def _trees(groups: Sequence[tuple[Leaves, int]], columns: Columns) -> dict[str, str]:
    """The trees of several groups of leaves, one after the other; each group comes with the number of its forms."""
    nodes: list[int] = []
    slopes, multipliers, scales = [], [], []
    for leaves, count in groups:
        indices = _column_indices(leaves, columns)
        signs, duals = leaves.signs.numpy(), leaves.duals.double().numpy()
        units, powers = multiplier_units(torch.from_numpy(duals * (signs != 0)))
        lower_slopes = RECORDED.slopes(torch.from_numpy(duals * (signs == 0))).nan_to_num(0).numpy() / SLOPE_UNIT
        table = np.zeros((len(duals), sum(len(neurons) for neurons in columns.values())), dtype=np.int64)
        table[:, indices] = lower_slopes.astype(np.int64)
        order, paths = _grown(leaves.forms.numpy(), signs, count, indices, nodes)
        slopes.append(table[order])
        scales.append(powers.numpy()[order])
        multipliers += [units[leaf, path].numpy() for leaf, path in zip(order, paths, strict=True)]
    return {
        "nodes": pack(np.asarray(nodes, dtype=np.int64), 4),
        "slopes": pack(np.concatenate(slopes), 3),
        "multipliers": pack(np.concatenate(multipliers) if multipliers else np.zeros(0, dtype=np.int64), 4),
        "scales": pack(np.concatenate(scales) + SCALE_ZERO, 2),
    }


def _column_indices(leaves: Leaves, columns: Columns) -> NDArray[np.int64]:
    """The indices of the leaves' columns among all columns."""
    first, indices = 0, [np.zeros(0, dtype=np.int64)]
    for value, neurons in columns.items():
        if value in leaves.neurons:
            indices.append(first + np.searchsorted(neurons, leaves.neurons[value].numpy()))
        first += len(neurons)
    return np.concatenate(indices)


def _grown(
    forms: NDArray[np.int64], signs: NDArray[np.int8], count: int, indices: NDArray[np.int64], nodes: list[int]
) -> tuple[list[int], list[list[int]]]:
    """The leaves in the order of their trees, and the columns on the way to each; nodes are appended.

    The leaves of a tree cover all signs once. So any neuron whose sign all of them know will do for the root, and its
    halves are trees again.
    """
    order: list[int] = []
    paths: list[list[int]] = []
    by_form = np.argsort(forms, kind="stable")
    ends = np.searchsorted(forms[by_form], np.arange(count + 1))
    for form in range(count):
        waiting: list[tuple[NDArray[np.int64], list[int]]] = [(by_form[ends[form] : ends[form + 1]], [])]
        while waiting:
            leaves, path = waiting.pop()
            signed = (signs[leaves] != 0).all(0)
            signed[path] = False
            common = signed.nonzero()[0]
            if len(leaves) == 1 and not len(common):
                nodes.append(0)
                order.append(int(leaves[0]))
                paths.append(path)
                continue
            if not len(leaves) or not len(common):
                raise ArithmeticError("the leaves of a search make no tree")
            column = int(common[0])
            nodes.append(int(indices[column]) + 1)
            waiting += [(leaves[signs[leaves, column] == sign], [*path, column]) for sign in (-1, 1)]
    return order, paths
