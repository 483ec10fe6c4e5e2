"""Adversarial points for tests: crude, deterministic, and enough to expose a radius that is too large."""

from functools import cache

import torch
from torch import Tensor

from relucert.arithmetic.norm import Norm
from relucert.network import Network
from tests.nets import NETWORKS, centres

STEPS = 25


@cache
def nearest_distances(name: str, norm: float, count: int = 3) -> list[float]:
    """Those of the first points of a network of the table, each labelled with its own class."""
    network = NETWORKS[name]()
    points = centres(network, count, seed=5)
    labels = network.cast(torch.float64)(points).argmax(1).tolist()
    return [nearest_distance(network, point, label, Norm(norm)) for point, label in zip(points, labels, strict=True)]


def nearest_distance(network: Network, centre: Tensor, label: int, norm: Norm, seed: int = 0) -> float:
    """The least distance from a centre, (size,), at which another class is found: random starts, gradient steps
    towards every rival, then bisection on the way back to the centre. Infinite where none is found."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.cat([norm.sample(centre, scale, 64, generator) for scale in (0.3, 1.0, 3.0)])
    rivals = torch.tensor([rival for rival in range(network.classes) if rival != label])
    points = starts.repeat(len(rivals), 1)
    return _descend(network.cast(torch.float64), centre, points, label, rivals.repeat_interleave(len(starts)), norm)


def _descend(network: Network, centre: Tensor, points: Tensor, label: int, rivals: Tensor, norm: Norm) -> float:
    """rivals: towards which each of the points descends."""
    misclassified = []
    for step in range(STEPS):
        leaf = points.clone().requires_grad_()
        scores = network(leaf)
        (scores[:, label] - scores.gather(1, rivals[:, None])[:, 0]).sum().backward()
        assert leaf.grad is not None
        misclassified.append(points[scores.argmax(1) != label])
        length = leaf.grad.norm(dim=1, keepdim=True).clamp(min=1e-12)
        points = points - 0.2 / (1 + step) * leaf.grad / length
        points = centre + 0.98 * (points - centre)
    wrong = torch.cat(misclassified)
    return float(_pulled_back(network, centre, wrong, label, norm).min()) if len(wrong) else float("inf")


def _pulled_back(network: Network, centre: Tensor, points: Tensor, label: int, norm: Norm) -> Tensor:
    """How near the centre the directions of points still find another class; the nearest is among these, (some,)."""
    near, far = torch.zeros(len(points), 1, dtype=torch.float64), torch.ones(len(points), 1, dtype=torch.float64)
    for step in range(30):
        middle = (near + far) / 2
        wrong = (network(centre + middle * (points - centre)).argmax(1) != label)[:, None]
        near, far = torch.where(wrong, near, middle), torch.where(wrong, middle, far)
        if step % 4 == 3:  # a point that can't be the nearest any more need not be followed
            least, most = (norm.distance(centre + share * (points - centre), centre) for share in (near, far))
            left = least <= most.min()
            points, near, far = points[left], near[left], far[left]
    return norm.distance(centre + far * (points - centre), centre)
