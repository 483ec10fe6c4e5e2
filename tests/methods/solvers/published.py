"""What the published code computes for p = 2, and why it is no bound: its perturbations are never negative."""

import clarabel
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_matrix

from relucert.network import Linear, Network

Array = NDArray[np.float64]
STEPS = 60


def one_sided_margin(network: Network, image: Array, radius: float, pair: tuple[int, int]) -> float:
    """The published LP's margin of a label over a rival for one layer of ReLUs: Fast-Lin's bounds of the neurons, and
    perturbations in the 2-norm ball that are >= 0, as the solver's default for variables has it."""
    first, last = (node.operation for node in network.nodes if isinstance(node.operation, Linear))
    weight, bias = first.weight.double().numpy(), first.bias.double().numpy()
    row = (last.weight[pair[0]].double() - last.weight[pair[1]].double()).numpy()
    before = weight @ image + bias
    reach = radius * np.linalg.norm(weight, axis=1)
    lower, upper = before - reach, before + reach
    active, unsure = lower >= 0, (lower < 0) & (upper > 0)
    inputs, count = len(image), int(unsure.sum())
    slope = (upper / (upper - lower))[unsure, None]
    move, relu = np.eye(inputs, inputs + count), np.eye(count, inputs + count, k=inputs)
    neuron = np.hstack([weight[unsure], np.zeros((count, count))])
    rows = [-move, -relu, neuron - relu, relu - slope * neuron, np.zeros((1, inputs + count)), -move]
    right = [
        np.zeros(inputs), np.zeros(count), -before[unsure], slope[:, 0] * (before - lower)[unsure],
        np.array([radius]), np.zeros(inputs),
    ]  # fmt: skip
    cost = np.concatenate([row[active] @ weight[active], row[unsure]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(inputs + 3 * count), clarabel.SecondOrderConeT(inputs + 1)]
    nothing = csc_matrix((len(cost), len(cost)))
    solved = clarabel.DefaultSolver(
        nothing, cost, csc_matrix(np.concatenate(rows)), np.concatenate(right), cones, settings
    ).solve()
    assert solved.status == clarabel.SolverStatus.Solved
    return float(solved.obj_val + row[active] @ before[active] + last.bias[pair[0]] - last.bias[pair[1]])


def nearby_rival(network: Network, image: Array, pair: tuple[int, int]) -> Array:
    """The nearest point found, in the 2-norm, at which the rival wins: steps onto the linearised boundary."""
    label, rival = pair
    double, centre = network.cast(torch.float64), torch.from_numpy(image)
    point, crossed = centre.clone(), []
    for _ in range(STEPS):
        leaf = point.clone().requires_grad_()
        scores = double(leaf[None])[0]
        margin = scores[label] - scores[rival]
        (slope,) = torch.autograd.grad(margin, leaf)
        if margin < 0:
            crossed.append(point)
        at_centre = margin.detach() + slope @ (centre - point)
        point = (point + centre - 1.0001 * at_centre / slope.square().sum() * slope) / 2
    return min(crossed, key=lambda wrong: float((wrong - centre).norm())).numpy()
