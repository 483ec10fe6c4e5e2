"""PyTorch's own attention: the network is the module, which is left alone; what is not computed is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.errors import MismatchError, UnsupportedError
from relucert.inputs.loading import load
from relucert.inputs.loading.torch_attention import MultiheadAttention, batch_first
from relucert.inputs.loading.torch_module import live_network

POSITIONS, FEATURES = 3, 4


class Called(nn.Module):
    """A function of a module and tokens (batch, positions, features), and scores of all numbers that it gives."""

    def __init__(self, module: nn.Module, call: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self.call = module, call
        with torch.no_grad():
            size = call(deepcopy(module).eval(), torch.zeros(2, POSITIONS, FEATURES)).flatten(1).shape[1]
        self.last = nn.Linear(size, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.last(self.call(self.module, tokens).flatten(1))
        return scores


class Classifier(nn.Module):
    """A transformer with learnt positions, and a token of its own for the class, or the mean of all tokens."""

    def __init__(self, encoder: nn.Module, with_token: bool) -> None:
        super().__init__()
        self.encoder, self.with_token, self.dropout = encoder, with_token, nn.Dropout(0.3)
        self.positions, self.token = (nn.Parameter(torch.randn(1, size, FEATURES)) for size in (POSITIONS, 1))
        self.norm, self.last = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = self.dropout(tokens + self.positions)
        if self.with_token:
            tokens = torch.cat([self.token.expand(tokens.shape[0], -1, -1), tokens], 1)
        tokens = self.norm(self.encoder(tokens))
        scores: Tensor = self.last(tokens[:, 0] if self.with_token else tokens.mean(1))
        return scores


def itself(module: Any, tokens: Tensor) -> Tensor:
    result: Tensor = module(tokens)
    return result


def attention(call: Callable[[Any, Tensor], Tensor], **options: Any) -> nn.Module:
    return Called(nn.MultiheadAttention(FEATURES, 2, **{"batch_first": True, **options}), call)


def of_itself(module: Any, tokens: Tensor, **options: Any) -> Tensor:
    result: Tensor = module(tokens, tokens, tokens, **options)[0]
    return result


def with_weights(module: Any, tokens: Tensor) -> Tensor:
    result, weights = module(tokens, tokens.flip(1), tokens)
    return torch.cat([result, weights], 2)


def with_weights_of_heads(module: Any, tokens: Tensor) -> Tensor:
    result, weights = module(tokens, tokens.flip(1), tokens, average_attn_weights=False)
    return torch.cat([result, weights[:, 1] @ tokens], 2)


def of_others(module: Any, tokens: Tensor) -> Tensor:
    result: Tensor = module(tokens, tokens[:, :2, :3], tokens[:, 1:, :2], need_weights=False)[0]
    return result


def decoded(module: Any, tokens: Tensor) -> Tensor:
    result: Tensor = module(tokens, -tokens)
    return result


def layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(FEATURES, 2, 5, **{"batch_first": True, **options})


def encoder(count: int, **options: Any) -> nn.Module:
    module = nn.TransformerEncoder(layer(**options), count, enable_nested_tensor=False)
    for parameter in module.parameters():  # so that the layers, and their biases, differ
        nn.init.normal_(parameter, std=0.5)
    return module


MODULES: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: attention(of_itself),
    "attention without biases": lambda: attention(of_itself, bias=False),
    "attention with weights": lambda: attention(with_weights),
    "attention with weights of heads": lambda: attention(with_weights_of_heads),
    "attention to others": lambda: attention(of_others, kdim=3, vdim=2),
    "attention to others without biases": lambda: attention(of_others, kdim=3, vdim=2, bias=False),
    "layer": lambda: Called(layer(), itself),
    "layer of GELUs, mean": lambda: Classifier(layer(activation="gelu"), False),
    "layer without biases, class token": lambda: Classifier(layer(bias=False, norm_first=True), True),
    "layer of another activation": lambda: Called(layer(activation=nn.SiLU()), itself),
    "two layers, class token": lambda: Classifier(encoder(2, activation="gelu", norm_first=True), True),
    "three layers, mean": lambda: Classifier(encoder(3, activation=functional.relu), False),
    "one layer for both": lambda: Called(nn.Sequential(*[layer()] * 2), itself),
    "in place before": lambda: Called(nn.Sequential(nn.Softsign(), nn.ReLU(inplace=True), layer()), itself),
    "decoder": lambda: Called(nn.TransformerDecoderLayer(FEATURES, 2, 5, batch_first=True), decoded),
}


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().eval()


@pytest.mark.parametrize("name", MODULES)
def test_the_network_is_the_module(name: str) -> None:
    """`load` compares, too, also far out."""
    module = made(MODULES[name]).double()
    network = load(module, input_shape=(POSITIONS, FEATURES))
    tokens = torch.randn(7, POSITIONS, FEATURES, dtype=torch.float64)
    torch.testing.assert_close(network(tokens.flatten(1)), module(tokens), rtol=1e-9, atol=1e-9)
    assert not network.remarks


def test_the_module_is_left_alone() -> None:
    module = made(MODULES["two layers, class token"])
    module.get_submodule("encoder.layers.1").train()
    before = [(type(part), part.training, dict(vars(part))) for part in module.modules()]
    state = deepcopy(module.state_dict())
    with pytest.warns(relucert.RemarkWarning, match="training mode"):
        load(module, input_shape=(POSITIONS, FEATURES))
    assert [(type(part), part.training, dict(vars(part))) for part in module.modules()] == before
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[key])


def test_hooks_run_where_pytorch_runs_them() -> None:
    """Attention runs those of itself, but none of its last layer."""
    module = made(MODULES["layer"])
    self_attention = module.get_submodule("module.self_attn")
    self_attention.register_forward_hook(lambda part, inputs, results: (results[0] * 2, results[1]))
    module.get_submodule("module.self_attn.out_proj").register_forward_hook(lambda part, inputs, result: result * 3)
    network = load(module, input_shape=(POSITIONS, FEATURES))
    tokens = torch.randn(7, POSITIONS, FEATURES)
    torch.testing.assert_close(network(tokens.flatten(1)), module(tokens), rtol=1e-4, atol=1e-5)


def test_layers_of_derived_classes_stay() -> None:
    class Derived(nn.MultiheadAttention):
        pass

    module = nn.ModuleList([Derived(4, 2), nn.MultiheadAttention(4, 2)])
    assert [isinstance(part, Derived) for part in batch_first(module).children()] == [True, False]
    assert type(module[0]) is Derived
    assert type(module[1]) is not nn.MultiheadAttention


MASK = nn.Transformer.generate_square_subsequent_mask(POSITIONS)
A_MASK = r"MultiheadAttention \(a mask: pass no attn_mask, key_padding_mask or is_causal\) at layer module"

REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch second": (
        lambda: Called(layer(batch_first=False), itself),
        r"MultiheadAttention \(batch_first=False: build it with batch_first=True.*\) at layer module\.self_attn",
    ),
    "mask": (lambda: attention(lambda part, tokens: of_itself(part, tokens, attn_mask=MASK)), A_MASK),
    "mask of a layer": (lambda: Called(layer(), lambda part, tokens: part(tokens, src_mask=MASK)), A_MASK),
    "mask of an encoder": (lambda: Called(encoder(1), lambda part, tokens: part(tokens, mask=MASK)), A_MASK),
    "mask of padding": (
        lambda: Called(
            nn.TransformerEncoder(layer(), 1),
            lambda part, tokens: part(tokens, src_key_padding_mask=torch.zeros(len(tokens), POSITIONS).bool()),
        ),
        A_MASK,
    ),
    "biases of keys": (lambda: attention(of_itself, add_bias_kv=True), r"\(add_bias_kv=True\)"),
    "zeros": (lambda: attention(of_itself, add_zero_attn=True), r"\(add_zero_attn=True\)"),
    "images as positions": (
        lambda: attention(lambda part, tokens: of_itself(part, tokens[:, 0])), r"\(inputs of 2 axes, where"
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_computed_is_named(name: str) -> None:
    make, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=f"^Called: unsupported uses: .*{reason}") as caught:
        load(made(make), input_shape=(POSITIONS, FEATURES))
    assert "\n" not in str(caught.value)


def test_it_is_compared_with_the_layer_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    projected = MultiheadAttention._projected
    monkeypatch.setattr(MultiheadAttention, "_projected", lambda self, *inputs: projected(self, *inputs)[::-1])
    with pytest.raises(MismatchError, match="differs from torch"):
        load(made(MODULES["attention"]), input_shape=(POSITIONS, FEATURES))


@pytest.mark.parametrize("name", ["layer", "layer of GELUs, mean"])
def test_certified_radii_are_below_those_of_attacks(name: str) -> None:
    module, tokens = made(MODULES[name]), torch.randn(2, POSITIONS, FEATURES)
    certified = relucert.certify(module, tokens, method="crown", tolerance=0.1)
    nearest = relucert.attack(module, tokens, steps=50)
    for certificate, violation in zip(certified, nearest, strict=True):
        assert certificate.radius is not None
        assert violation.distance is not None
        assert 0.01 < certificate.radius < violation.distance


def test_gradients_flow_back_to_the_projections() -> None:
    module = made(MODULES["attention"])
    live_network(module, (POSITIONS, FEATURES))()(torch.randn(5, POSITIONS * FEATURES)).square().sum().backward()
    for parameter in module.parameters():
        assert parameter.grad is not None
    assert type(module.module) is nn.MultiheadAttention


def test_no_compiler_is_imported_for_a_transformer() -> None:
    code = (
        "import sys, relucert; from torch import nn;"
        "encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 5, batch_first=True), 2);"
        "module = nn.Sequential(encoder, nn.Flatten(), nn.Linear(12, 3)).eval();"
        "relucert.load(module, input_shape=(3, 4)); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
