"""PyTorch's attention, computed with the batch as the first axis.

`nn.MultiheadAttention` moves the batch behind the positions and joins it with the heads, and in evaluation mode runs a
kernel of its own; neither can be followed image by image. In a copy of a module, which is traced instead, these layers
compute the same in products of matrices. The comparison of the import runs the user's module.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from relucert.errors import UnsupportedError


class MultiheadAttention(nn.MultiheadAttention):
    """PyTorch's layer, whose name it has in errors, in products of matrices of each image."""

    path: str

    @property
    def _qkv_same_embed_dim(self) -> bool:
        """False: `nn.TransformerEncoderLayer` then calls this layer, and no kernel that computes all at once."""
        return False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, (batch, positions, features), and the weights if they are needed: (batch, positions of the
        query, positions of the key), averaged over the heads, or with the heads as second axis."""
        padded = key_padding_mask is not None or query.is_nested  # as nn.TransformerEncoder makes it of padding
        self._check(query.ndim, masked=attn_mask is not None or padded or is_causal)
        queries, keys, values = self._projected(query, key, value)
        weights = (queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5).softmax(-1)
        mixed = (weights @ values).transpose(1, 2).flatten(2)
        result = functional.linear(mixed, self.out_proj.weight, self.out_proj.bias)  # whose hooks do not run
        if not need_weights:
            return result, None
        return result, weights.sum(1) / self.num_heads if average_attn_weights else weights

    def _check(self, axes: int, masked: bool) -> None:
        """Refuses what is not computed here."""
        flaws = {
            "batch_first=False: build it with batch_first=True, for (batch, positions, features)": not self.batch_first,
            f"inputs of {axes} axes, where they must be (batch, positions, features)": axes != 3,
            "a mask: pass no attn_mask, key_padding_mask or is_causal": masked,
            "add_bias_kv=True": self.bias_k is not None,
            "add_zero_attn=True": self.add_zero_attn,
        }
        if any(flaws.values()):
            named = ", ".join(flaw for flaw, occurs in flaws.items() if occurs)
            raise UnsupportedError(f"unsupported uses: MultiheadAttention ({named}) at layer {self.path}")

    def _projected(self, *inputs: Tensor) -> list[Tensor]:
        """Query, key and value of every head, (batch, heads, positions, size)."""
        weights = _thirds(self.in_proj_weight) or (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = _thirds(self.in_proj_bias) or (None, None, None)
        return [
            functional.linear(*operands).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for operands in zip(inputs, weights, biases, strict=True)
        ]


def batch_first(module: nn.Module) -> nn.Module:
    """The module, a copy that nobody else has, with the batch first in its attention; layers of derived classes, which
    may compute something else, stay."""
    for path, layer in module.named_modules():
        if type(layer) is nn.MultiheadAttention:
            layer.__class__ = MultiheadAttention
            layer.path = path
    return module


def _thirds(stored: Tensor | None) -> tuple[Tensor, ...] | None:
    """The numbers for query, key and value of a tensor that has all of them."""
    return None if stored is None else stored.chunk(3)
