"""A classification problem that a small network learns in a moment."""

import torch
from torch import Tensor, nn


def clusters(count: int = 240, size: int = 8, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy clusters in [-0.5, 0.5]: images (count, size) and labels."""
    generator = torch.Generator().manual_seed(seed)
    corners = (torch.rand(classes, size, generator=torch.Generator().manual_seed(99)) - 0.5) * 0.8
    labels = torch.arange(count) % classes
    noise = 0.06 * torch.randn(count, size, generator=generator)
    return (corners[labels] + noise).clamp(-0.5, 0.5), labels


def small_module(seed: int = 0, size: int = 8, width: int = 16, classes: int = 3) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
        )
