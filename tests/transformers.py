"""A small network of attention, with a layer of ReLUs and a quotient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import relucert
from relucert import Network


class Attention(nn.Module):
    """Attention of four positions with a ReLU layer behind it, and a quotient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 16), nn.Linear(16, 3)
        self.heads = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.first(inputs).reshape(-1, 4, 4)
        query, key, value = (head(tokens) for head in self.heads)
        mixed = torch.softmax(query @ key.transpose(-1, -2), -1) @ value + tokens
        scores: Tensor = self.last(torch.relu(mixed).flatten(1) / (1 + tokens.flatten(1) ** 2))
        return scores


def attention_network() -> Network:
    torch.manual_seed(1)
    return relucert.load(Attention().double(), input_shape=(5,))
