"""Rows of a property that quadratic certificates prove in one region, for searches that linear bounds leave open."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.bounding.interval import Bounds
from relucert.common.deadline import TimeUp, until
from relucert.methods.quadratic.chain import Chain, Layer
from relucert.methods.quadratic.cost import least_seconds
from relucert.methods.quadratic.dual import Target
from relucert.methods.quadratic.maps import DTYPE
from relucert.methods.quadratic.problem import Problem
from relucert.methods.quadratic.proof import prove_certificate, prove_margin
from relucert.methods.quadratic.solve import solve
from relucert.network import Network

MOST_ROWS = 5000  # of a certificate's matrix
FEWEST_UNSTABLE = 200  # neurons, below which splitting comes to an end sooner
ENOUGH = 1e-6  # of the margin at the centre, for a row to be proven


def suits_certificates(network: Network, bounds: Bounds) -> bool:
    """Whether certificates may prove more than splitting does: in a chain with many unstable neurons."""
    chain = all(node.inputs == (value - 1,) for value, node in network.steps())
    unstable = sum(int(interval.unstable.sum()) for interval in bounds.values())
    return chain and not network.inference.rounds and unstable >= FEWEST_UNSTABLE


def proven_rows(network: Network, region: Region, prop: Property, bounds: Bounds, ends: float) -> Tensor:
    """Which rows are proven to stay positive: bool, (rows,).

    Args:
        network: In float64, one that `suits_certificates`.
        region: A batch of one.
        prop: A batch of one.
        bounds: Proven ones of every pre-activation.
        ends: By the monotonic clock, when no further row is begun, and none is improved.
    """
    proven = torch.zeros(prop.rows.shape[1], dtype=torch.bool)
    chain = Chain.of(network)
    problem = Problem.of(chain, region, bounds)
    if problem.rows > MOST_ROWS or not problem.relaxed:
        return proven
    seconds = least_seconds(network, problem.rows)
    scores = prop.values(network(region.centre))[0]
    for row in scores.argsort().tolist():
        if not float(scores[row]) > 0 or time.monotonic() + seconds > ends:
            break
        form, offset = prop.rows[0, row].double(), prop.offsets[0, row].double()
        enough = ENOUGH * float(scores[row])
        try:
            with until(ends):
                proven[row] = _margin(problem, chain.layers[-1], form, offset, enough, ends - seconds / 2) > 0
        except TimeUp:
            break
    return proven


def _margin(problem: Problem, last: Layer, form: Tensor, offset: Tensor, enough: float, ends: float) -> float:
    """A proven lower bound of one row; minus infinity where there is none."""
    target = Target((form @ last.weight).to(DTYPE), float(form @ last.bias + offset))
    solution = solve(problem, target, None, enough, ends)
    certificate = None if solution is None else prove_certificate(problem, solution.certificate)
    if solution is None or certificate is None:
        return -torch.inf
    return prove_margin(problem, certificate, solution.dual, last, form, offset)
