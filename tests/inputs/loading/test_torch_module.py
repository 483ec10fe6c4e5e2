"""Torch modules: every supported form computes what the module computes, and the module is left alone."""

import os
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from relucert.errors import InputError, LoadError, MismatchError, NetworkError, RemarkWarning, UnsupportedError
from relucert.inputs.loading import load, torch_rules
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand
from relucert.network import Linear, Network, Scale, Shift

Forward = Callable[["Layers", Tensor], Any]


class Layers(nn.Module):
    """Some layers and constants, combined by a function; an input has shape (6,) or (2, 3)."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3, bias=False)
        self.dropout, self.rectify = nn.Dropout(0.5), nn.ReLU(inplace=True)
        self.square = nn.Parameter(torch.randn(5, 5))
        self.mean: Tensor
        self.register_buffer("mean", torch.randn(2, 1))
        self.deviation = torch.rand(1, 2, 3) + 0.5
        self.formula = forward

    def forward(self, images: Tensor) -> Any:
        return self.formula(self, images)


def functional_relu(layers: Layers, x: Tensor) -> Any:
    return layers.third(functional.relu(layers.second(torch.relu(layers.first(x)))))


def clamped(layers: Layers, x: Tensor) -> Any:
    hidden = layers.second(layers.first(x).clamp(min=0)).clamp_min(0.0)
    return torch.maximum(layers.third(hidden), torch.tensor(0.0))


def residual(layers: Layers, x: Tensor) -> Any:
    hidden = torch.relu(layers.first(x))
    return layers.third(hidden + torch.relu(layers.second(hidden)))


def difference(layers: Layers, x: Tensor) -> Any:
    hidden = torch.relu(layers.first(x))
    return layers.third(torch.sub(hidden, layers.second(hidden), alpha=3))


def viewed(layers: Layers, x: Tensor) -> Any:
    return layers.first(x.view(x.size(0), -1)).relu()


def flattened(layers: Layers, x: Tensor) -> Any:
    return layers.first(torch.flatten(x.unsqueeze(1).squeeze(1), 1))


def reshaped(layers: Layers, x: Tensor) -> Any:
    return layers.first(x.reshape(-1, 3, 2).reshape(-1, 6))


def normalised(layers: Layers, x: Tensor) -> Any:
    return layers.first(((x - layers.mean) / layers.deviation).flatten(1))


def scalars(layers: Layers, x: Tensor) -> Any:
    return 1 - layers.first(2.5 * x / 0.3 - 0.1) * 0.7 + torch.tensor(0.2)


def negated(layers: Layers, x: Tensor) -> Any:
    return layers.second(-layers.first(x)).add(layers.square[0], alpha=0.3)


def dropped(layers: Layers, x: Tensor) -> Any:
    return layers.third(layers.dropout(layers.first(functional.dropout(x, training=layers.training))))


def in_place(layers: Layers, x: Tensor) -> Any:
    hidden = layers.first(x)
    rectified = layers.rectify(hidden)
    return hidden + layers.second(rectified)


def input_in_place(layers: Layers, x: Tensor) -> Any:
    x -= 0.5
    return layers.first(x)


def shared(layers: Layers, x: Tensor) -> Any:
    hidden = torch.relu(layers.first(x))
    return layers.second(torch.relu(layers.second(hidden)))


def products(layers: Layers, x: Tensor) -> Any:
    hidden = layers.first(x) @ layers.square
    hidden = torch.mm(hidden.relu(), layers.square.t()) + layers.square[1].clone()
    return torch.addmm(layers.square[0], hidden, layers.square, beta=0.7, alpha=1.3)


def plain_product(layers: Layers, x: Tensor) -> Any:
    return functional.linear(layers.first(x), layers.square)


FORMS: list[tuple[Forward, tuple[int, ...]]] = [
    *((form, (6,)) for form in (functional_relu, clamped, residual, difference, scalars, negated, dropped)),
    *((form, (6,)) for form in (in_place, input_in_place, shared, products, plain_product)),
    *((form, (2, 3)) for form in (viewed, flattened, reshaped, normalised)),
]


def nested() -> nn.Module:
    block = nn.Sequential(nn.Linear(6, 6), nn.Identity(), nn.ReLU(inplace=True))
    return nn.Sequential(block, nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Flatten()), block, nn.Linear(6, 2))


def make(forward: Forward) -> Layers:
    torch.manual_seed(1)
    return Layers(forward)


def images(shape: tuple[int, ...], count: int = 9) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


def outputs(module: nn.Module, at: Tensor) -> Any:
    with torch.no_grad():
        return deepcopy(module).double().eval()(at.clone())


def assert_same(network: Network, module: nn.Module) -> None:
    at = images(network.input_shape)
    torch.testing.assert_close(network.cast(torch.float64)(at), outputs(module, at), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("forward", "shape"), FORMS, ids=[form.__name__ for form, _ in FORMS])
def test_every_form_computes_what_the_module_computes(forward: Forward, shape: tuple[int, ...]) -> None:
    module = make(forward).eval()
    network = load(module, input_shape=shape)
    assert network.input_shape == shape
    assert network.name == "Layers"
    assert_same(network, module)


def test_nested_modules_tell_their_input_shape() -> None:
    module = nested()
    network = load(module)
    assert network.input_shape == (6,)
    assert_same(network, module)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_keep_their_precision_and_values(dtype: torch.dtype) -> None:
    module = make(functional_relu).to(dtype)
    network = load(module)
    stored = [tensor for node in network.nodes for tensor in node.operation.tensors().values()]
    assert {tensor.dtype for tensor in stored} == {dtype}
    for layer, node in zip((module.first, module.second), network.nodes[::2], strict=False):
        assert isinstance(node.operation, Linear)
        assert torch.equal(node.operation.weight, layer.weight)
        assert torch.equal(node.operation.bias, layer.bias)
    assert_same(network, module)


PLAIN = torch.randn(4, 5, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    "forward",
    [
        lambda layers, x: layers.first(x.float()).float(),
        lambda layers, x: layers.square[0] + layers.first(x).float(),
        lambda layers, x: functional.linear(layers.first(x), PLAIN),
    ],
)
def test_a_module_that_only_runs_in_its_own_precision_is_compared_in_it(forward: Forward) -> None:
    network = load(make(forward))
    assert network.nodes[0].operation.name == "linear"


def test_the_module_is_left_alone() -> None:
    module = nested()
    module.train()
    module[1].eval()  # type: ignore[index]
    calls: list[int] = []
    module.register_forward_hook(lambda *_: calls.append(1))
    next(module.parameters()).requires_grad_(False)
    module(torch.randn(2, 6)).sum().backward()
    flags = [layer.training for layer in module.modules()]
    hooks = [(len(layer._forward_hooks), len(layer._forward_pre_hooks)) for layer in module.modules()]
    before = [
        (
            entry.clone(),
            entry.requires_grad,
            None if entry.grad is None else entry.grad.clone(),
            entry.data_ptr(),
        )
        for entry in module.parameters()
    ]
    random = torch.get_rng_state()
    load(module)
    assert [layer.training for layer in module.modules()] == flags
    assert [(len(layer._forward_hooks), len(layer._forward_pre_hooks)) for layer in module.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), random)
    for entry, (value, required, gradient, place) in zip(module.parameters(), before, strict=True):
        assert torch.equal(entry, value)
        assert entry.requires_grad == required
        assert entry.data_ptr() == place
        assert (entry.grad is None) == (gradient is None)
        assert gradient is None or (entry.grad is not None and torch.equal(entry.grad, gradient))


def test_buffers_that_a_call_would_change_are_left_alone() -> None:
    def counting(layers: Layers, x: Tensor) -> Any:
        layers.mean += 1
        return layers.first(x)

    module = make(counting)
    before = module.mean.clone()
    load(module)
    assert torch.equal(module.mean, before)


def test_later_changes_of_the_module_do_not_reach_the_network() -> None:
    module = make(normalised)
    network = load(module, input_shape=(2, 3))
    at = images((2, 3))
    before = network.cast(torch.float64)(at)
    with torch.no_grad():
        for entry in (*module.parameters(), *module.buffers(), module.deviation):
            entry.add_(1)
    assert torch.equal(network.cast(torch.float64)(at), before)


def test_later_changes_of_a_tensor_outside_the_module_do_not_reach_the_network() -> None:
    outside = torch.ones(4, 5)
    network = load(make(lambda layers, x: functional.linear(layers.first(x), outside)))
    outside.zero_()
    last = network.nodes[-1].operation
    assert isinstance(last, Linear)
    assert torch.equal(last.weight, torch.ones(4, 5))


def test_dropout_is_off_and_flags_come_from_inference() -> None:
    module = make(dropped).train()
    with pytest.warns(RemarkWarning, match="training mode"):
        assert_same(load(module), module)
    assert module.training


def test_products_with_bias_become_one_layer() -> None:
    network = load(make(lambda layers, x: layers.first(x) @ layers.square + layers.square[2]))
    assert [node.operation.name for node in network.nodes] == ["linear", "linear"]


def test_a_product_that_is_used_twice_keeps_its_own_value() -> None:
    def twice(layers: Layers, x: Tensor) -> Any:
        product = layers.first(x) @ layers.square
        return (product + layers.square[2]) + product

    module = make(twice)
    network = load(module)
    assert [node.operation.name for node in network.nodes] == ["linear", "linear", "shift", "add"]
    assert_same(network, module)


def test_a_plain_number_does_not_widen_a_bias() -> None:
    module = make(lambda layers, x: layers.second(layers.first(x) @ layers.square + 0.1))
    network = load(module)
    assert network(images((6,)).float()).dtype == torch.float32
    assert_same(network, module)


def test_plain_numbers_are_stored_exactly() -> None:
    network = load(make(lambda layers, x: layers.first(x / 0.3 - 0.1)))
    scale, shift = network.nodes[0].operation, network.nodes[1].operation
    assert isinstance(scale, Scale)
    assert scale.divide
    assert scale.factor.item() == 0.3
    assert isinstance(shift, Shift)
    assert shift.offset.item() == -0.1


def test_everything_unsupported_is_named_at_once() -> None:
    def unsupported(layers: Layers, x: Tensor) -> Any:
        hidden = torch.sinh(layers.first(x.cumsum(2).flatten(1))).masked_fill(x[:, 0, :1] > 4, 4)
        return torch.acos(hidden) * hidden / hidden

    with pytest.raises(UnsupportedError) as caught:
        load(make(unsupported), input_shape=(2, 3))
    message = str(caught.value)
    for operator in ("cumsum", "sinh", "acos", "gt"):
        assert f"{operator} at the top level of forward" in message
    assert message.endswith("docs/networks.md lists what is supported")
    assert len(message) < 700
    assert "\n" not in message


def test_an_unsupported_layer_is_named_by_its_path() -> None:
    block = nn.Sequential(nn.Linear(6, 6), nn.Hardshrink(), nn.Linear(6, 6))
    with pytest.raises(UnsupportedError, match=r"at layer 0\.1 \(Hardshrink\) and layer 1\.1 \(Hardshrink\)"):
        load(nn.Sequential(block, deepcopy(block), nn.Linear(6, 2)))


CONVOLUTIONAL = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 2))

REFUSED: list[tuple[nn.Module, tuple[int, ...], str]] = [
    (make(lambda layers, x: functional.threshold(layers.first(x), 0.0, 1.0)), (6,), "a jump"),
    (make(lambda layers, x: layers.first(x).int()), (6,), "change of type to torch.int32"),
    (make(lambda layers, x: layers.first(x).sum(0)), (6,), "the batch among them"),
    (make(lambda layers, x: layers.first(x) + torch.rand(5)), (6,), "rand at"),
    (make(lambda layers, x: functional.dropout(layers.first(x), training=True)), (6,), "dropout"),
    (make(lambda layers, x: layers.first(x) + torch.ones(3, 5)), (6,), "constant of shape"),
    (make(lambda layers, x: layers.first(x.view(2, -1).view(-1, 6))), (6,), "changes the first axis"),
]


@pytest.mark.parametrize(("module", "shape", "reason"), REFUSED, ids=[reason for _, _, reason in REFUSED])
def test_what_is_not_understood_is_refused(module: nn.Module, shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        load(module, input_shape=shape)
    assert "\n" not in str(caught.value)


FAILING: list[tuple[nn.Module, tuple[int, ...], str]] = [
    (nn.Linear(3, 2), (4,), "fails on inputs of shape"),
    (make(lambda layers, x: layers.first(x) if x.sum() > 0 else layers.first(-x)), (6,), "can't be traced"),
    (make(lambda layers, x: (layers.first(x), x)), (6,), "must return one tensor"),
    (nn.Bilinear(3, 3, 2), (3,), "missing"),
    (make(lambda layers, x: layers.square), (6,), "does not depend on the input"),
]


@pytest.mark.parametrize(("module", "shape", "reason"), FAILING, ids=[reason for _, _, reason in FAILING])
def test_failures_of_the_module_are_one_line(
    module: nn.Module, shape: tuple[int, ...], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LoadError, match=reason) as caught:
        load(module, input_shape=shape)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("module", [CONVOLUTIONAL, nn.ReLU(), make(normalised)])
def test_the_input_shape_is_asked_for_where_it_is_open(module: nn.Module) -> None:
    with pytest.raises(InputError, match="input_shape"):
        load(module)


def test_weights_that_are_not_numbers_are_refused() -> None:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight[0, 1] = torch.nan
    with pytest.raises(NetworkError, match="NaN"):
        load(module)


def transposed(assembly: Assembly, call: torch_rules.TorchCall) -> Operand:
    return assembly.add(assembly.linear(call.operand("input"), call.constant("weight").T), call.constant("bias"))


def without_bias(assembly: Assembly, call: torch_rules.TorchCall) -> Operand:
    return assembly.linear(call.operand("input"), call.constant("weight"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("fault", [transposed, without_bias])
def test_a_faulty_import_is_noticed(
    fault: Callable[[Assembly, torch_rules.TorchCall], Operand],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = torch_rules.TorchRule(fault, torch_rules.RULES["linear"].arguments)
    monkeypatch.setitem(torch_rules.RULES, "linear", rule)
    with pytest.raises(MismatchError, match="differs from torch"):
        load(nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5)).to(dtype))


def test_the_environment_of_the_process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    before = dict(os.environ)
    load(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)))
    assert dict(os.environ) == before
