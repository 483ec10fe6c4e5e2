"""Products and quotients of computed values, and layers made of them: what is loaded, and what is proven of it."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.arithmetic.region import Region
from relucert.errors import RelucertError, UnsupportedError
from relucert.inputs.loading import load
from relucert.network import Network, Scale
from relucert.network.fingerprint import fingerprint
from tests.inputs.loading.image_models import Function, Layer, assert_encloses
from tests.inputs.loading.onnx_models import model, node, numbers, write
from tests.nets import NORMS


class Block(nn.Module):
    """A transformer block on four positions of six numbers, and three scores."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 3)
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.norm = nn.LayerNorm(4)

    def forward(self, images: Tensor) -> Tensor:
        values = self.first(images.reshape(-1, 4, 6))
        normal = self.norm(values)
        query, key, value = (layer(normal) for layer in (self.query, self.key, self.value))
        values = values + torch.softmax(query @ key.transpose(1, 2) / 2, -1) @ value
        scores: Tensor = self.last(functional.gelu(values).mean(1))
        return scores


class Bilinear(nn.Module):
    """PyTorch's layer, at two functions of one value."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Bilinear(6, 4, 3)

    def forward(self, values: Tensor) -> Tensor:
        scores: Tensor = self.inner(values.tanh(), values[..., 1:5])
        return scores


LAYERS: dict[str, Layer | nn.Module] = {
    "product": lambda x: x * (x.flip(2) - 1),
    "broadcast": lambda x: x * x[:, :1] + x[:, :, :1] * x,
    "product with a number of each image": lambda x: x.flatten(1) * x.sum((1, 2))[:, None],
    "quotient": lambda x: x.flip(1) / (1 + x.abs()),
    "gated linear unit": nn.GLU(),
    "gated linear unit of channels": lambda x: functional.glu(x, 1),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "bmm": lambda x: torch.bmm(x.transpose(1, 2), x),
    "heads": lambda x: (x.reshape(-1, 2, 2, 6).transpose(1, 2) @ x.reshape(-1, 2, 6, 2)).flatten(1),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x.flip(2)),
    "einsum, an outer product": lambda x: torch.einsum("...i,...j", x[:, 0], x[:, 1]),
    "einsum, of blocks": lambda x: torch.einsum("bhij,bhkj->bihk", x.unflatten(1, (2, 2)), x.unflatten(1, (2, 2)) + 1),
    "einsum, with sums before": lambda x: torch.einsum("bij,bkj,i->bk", x, x.relu(), torch.tensor([1.0, 2.0, 3.0, -1])),
    "bilinear": Bilinear(),
    "normalise": functional.normalize,
    "normalise by the sum of sizes": lambda x: functional.normalize(x, p=1.0, dim=2),
    "normalise by the largest size": lambda x: functional.normalize(x, p=torch.inf, dim=-1, eps=0.5),
    "norms": lambda x: x.norm(dim=2) - x.norm(1, 1, keepdim=True).flatten(1)[:, :4],
    "norms of several axes": lambda x: torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) * x.sum(2, keepdim=True),
    "norms of other orders": lambda x: (
        torch.linalg.norm(x, -torch.inf, 1) + x.norm(dim=(1, 2), keepdim=True).flatten(1)
    ),
    "softmax": lambda x: x.softmax(2) + functional.softmax(x, 1),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x.flip(1), x),
    "layer norm": nn.LayerNorm(6),
    "layer norm, in rows": nn.Sequential(nn.Flatten(), nn.LayerNorm(24), nn.Unflatten(1, (2, 12))),
    "layer norm of all": nn.LayerNorm((4, 6), elementwise_affine=False),
    "rms norm": nn.RMSNorm(6, eps=1e-3),
    "rms norm, whose epsilon is the precision's": nn.RMSNorm(6),
    "rms norm, as a function": lambda x: functional.rms_norm(x, (6,)) + functional.rms_norm(x, (6,), eps=1e-3),
    "group norm": nn.GroupNorm(2, 4),
    "instance norm": nn.InstanceNorm1d(4),
    "instance norm with weights": nn.InstanceNorm1d(4, affine=True, eps=1e-3),
}


def module_of(layer: Layer | nn.Module) -> nn.Module:
    torch.manual_seed(0)
    middle = layer if isinstance(layer, nn.Module) else Function(layer)
    for parameter in middle.parameters():
        nn.init.normal_(parameter)
    with torch.no_grad():
        size = middle(torch.zeros(2, 4, 6)).flatten(1).shape[1]
    return nn.Sequential(middle, nn.Flatten(), nn.Linear(size, 3)).eval()


@pytest.mark.parametrize("name", LAYERS)
def test_the_network_is_the_module(name: str, tmp_path: Path) -> None:
    """`load` compares, too; at the points here as well, and after a round trip."""
    module = module_of(LAYERS[name])
    network = load(module, input_shape=(4, 6))
    images = torch.randn(5, 4, 6)
    torch.testing.assert_close(network(images.flatten(1)), module(images), rtol=1e-4, atol=1e-5)
    path = tmp_path / "kept.safetensors"
    relucert.save(network, path)
    assert fingerprint(load(path)) == fingerprint(network)


ONNX: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Mul": ([node("Neg", "x", "h"), node("Mul", "h x", "z")], {}),
    "Div": (
        [node("Relu", "x", "h"), node("Add", "h one", "d"), node("Div", "x d", "z")],
        {"one": np.array(1, np.float32)},
    ),
    "GLU": ([node("Split", "x", "a b", axis=2, num_outputs=2), node("Sigmoid", "b", "s"), node("Mul", "a s", "z")], {}),
    "MatMul": ([node("Transpose", "x", "h", perm=[0, 2, 1]), node("MatMul", "x h", "z")], {}),
    "Einsum": ([node("Einsum", "x x", "z", equation="bij,bkj->bik")], {}),
    "ReduceL2": ([node("ReduceL2", "x i", "z", keepdims=0)], {"i": np.array([1])}),
    "ReduceL1": ([node("ReduceL1", "x i", "n"), node("Mul", "x n", "z")], {"i": np.array([2])}),
    "LpNormalization": ([node("LpNormalization", "x", "z", axis=1)], {}),
    "LpNormalization by the sum of sizes": ([node("LpNormalization", "x", "z", p=1)], {}),
    "Softmax": ([node("Softmax", "x", "z", axis=1)], {}),
    "LayerNormalization": ([node("LayerNormalization", "x g b", "z", axis=-1)], {"g": numbers(6), "b": numbers(6)}),
    "InstanceNormalization": ([node("InstanceNormalization", "x g b", "z")], {"g": numbers(4), "b": numbers(4)}),
}


@pytest.mark.parametrize("name", ONNX)
def test_files_are_what_their_runtime_computes(name: str, tmp_path: Path) -> None:
    """Which `load` compares."""
    steps, stored = ONNX[name]
    network = load(write(tmp_path, model([*steps, node("Flatten", "z")], stored, ("batch", 4, 6), version=18)))
    assert any(step.operation.name == "power" for step in network.nodes) or name == "Softmax"


def test_older_softmax_is_over_all_axes_from_one_on(tmp_path: Path) -> None:
    steps = [node("Softmax", "x", "z", axis=1), node("Flatten", "z")]
    with pytest.raises(UnsupportedError, match="over all axes from 1 on, as before operator set 13"):
        load(write(tmp_path, model(steps, {}, ("batch", 4, 6), version=12)))
    last = [node("Softmax", "x", "z", axis=2), node("Flatten", "z")]
    assert load(write(tmp_path, model(last, {}, ("batch", 4, 6), version=12))).classes == 24


ODD: dict[str, Layer] = {
    "a factor that does not vary": lambda x: torch.relu(x - 100) * torch.tanh(x),
    "a factor that is not always defined": lambda x: torch.log(x) * torch.tanh(x),
    "a gate that is one half": lambda x: x * torch.sigmoid(0.0 * x),
    "nearly a GELU": lambda x: x * 0.5 * (1 + torch.erf(x * 0.703125)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_factors_are_factors(name: str) -> None:
    torch.manual_seed(1)  # of which some logarithm is defined at a random input
    network = load(nn.Sequential(nn.Linear(4, 4), Function(ODD[name])))
    assert "gelu" not in [step.operation.name for step in network.nodes]
    assert network.nodes


AXES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "power": ([node("Pow", "x e", "z"), node("ReduceMax", "z", "m", axes=[1]), node("Flatten", "m")],
              {"e": np.full((1, 1, 1), 2, np.float32)}),
    "quotient": ([node("Add", "x one", "h"), node("Div", "e h", "z"), node("Flatten", "z")],
                 {"e": np.ones((1, 1, 1), np.float32), "one": np.float32(100)}),
    "product": ([node("Reshape", "x s", "h"), node("Mul", "x h", "z"), node("Flatten", "z")],
                {"s": np.array([-1, 2, 2])}),
}  # fmt: skip


@pytest.mark.parametrize("name", AXES)
def test_axes_that_would_mix_images_are_refused(name: str, tmp_path: Path) -> None:
    steps, stored = AXES[name]
    stored = {key: np.asarray(value) for key, value in stored.items()}
    with pytest.raises(RelucertError) as caught:
        load(write(tmp_path, model(steps, stored, ("batch", 4), version=13)))
    assert "\n" not in str(caught.value)


@cache
def question(dtype: torch.dtype) -> tuple[Network, Tensor]:
    """The block as a network, and two images."""
    torch.manual_seed(1)
    return load(Block().eval(), input_shape=(24,)), torch.randn(2, 24, dtype=dtype)


@cache
def nearest_examples() -> list[relucert.UpperBound]:
    return list(relucert.attack(*question(torch.float32), steps=50))


ENCLOSED = (
    "gated linear unit", "einsum", "bilinear", "instance norm", "normalise", "normalise by the largest size", "norms",
    "norms of other orders",
)  # fmt: skip


@pytest.mark.parametrize("name", ENCLOSED)
def test_layers_are_enclosed(name: str) -> None:
    assert_encloses(load(module_of(LAYERS[name]), input_shape=(4, 6)))


@pytest.mark.parametrize("epsilon", [1e-12, 0.01])
@pytest.mark.parametrize("order", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("method", ["interval", "fast-lin", "crown"])
def test_what_is_normalised_is_no_more_than_it_is_around_zero(method: Any, order: float, epsilon: float) -> None:
    """There `eps` is what is divided by; the root of a sum of squares is at the end of its domain, without bounds."""
    module = nn.Sequential(Function(lambda x: functional.normalize(x, p=order, eps=epsilon))).eval()
    network = load(module, input_shape=(3,)).cast(torch.float64)
    centre = torch.zeros(1, 3, dtype=torch.float64)
    region = Region.around(centre, 0.05, "inf")
    form: Any = {"form": "backward"} if method == "crown" else {}
    found = relucert.bounds(network, region, method=method, **form)[-1]
    generator = torch.Generator().manual_seed(0)
    sizes = 10.0 ** torch.linspace(-14, 0, 200, dtype=torch.float64)[:, None]
    points = sizes * (torch.rand(200, 3, generator=generator, dtype=torch.float64) - 0.5) * 0.1
    values = module(torch.cat([centre, points]))
    assert not ((values < found.lower) | (values > found.upper)).any()  # bounds that are no numbers say nothing
    if epsilon == 0.01:
        torch.testing.assert_close(network(points), module(points), rtol=1e-9, atol=1e-9)


def test_no_radius_reaches_a_vector_of_zeros() -> None:
    """The class changes at once there, though it is the same on all sides that samples find."""
    last = nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    module = nn.Sequential(Function(lambda x: functional.normalize(x)[:, :1]), last)
    image = torch.tensor([[0.3, 0.4]], dtype=torch.float64)
    (found,) = relucert.certify(load(module, input_shape=(2,)), image, norm=2, method="crown")
    assert found.radius is not None
    assert 0.1 < found.radius < 0.3  # where the first coordinate is zero


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", ["interval", "fast-lin", "crown"])
def test_bounds_enclose_what_happens(method: Any, norm: float) -> None:
    network, images = question(torch.float64)
    radius = 0.02 if math.isinf(norm) else 0.05
    region = Region.around(images, radius, norm)
    form: Any = {"form": "backward"} if method == "crown" else {}
    found = relucert.bounds(network, region, method=method, **form)[-1]
    generator = torch.Generator().manual_seed(0)
    way = torch.randn(2, 400, 24, generator=generator, dtype=torch.float64)
    way *= radius / way.norm(p=norm, dim=2, keepdim=True)
    scores = network.cast(torch.float64)((images[:, None] + way).flatten(0, 1)).unflatten(0, (2, 400))
    assert (scores >= found.lower[:, None]).all()
    assert (scores <= found.upper[:, None]).all()
    assert found.lower.isfinite().all()


@pytest.mark.parametrize("method", ["fast-lin", "crown", "best"])
def test_no_certified_radius_reaches_an_attack(method: Any) -> None:
    network, images = question(torch.float32)
    options: Any = {"budget": 0.5} if method == "best" else {}
    certified = relucert.certify(network, images, method=method, tolerance=0.1, **options)
    for certificate, nearest in zip(certified, nearest_examples(), strict=True):
        assert certificate.radius is not None
        assert nearest.distance is not None
        assert nearest.distance / 20 < certificate.radius < nearest.distance


def test_scales_of_products_change_no_value_and_tighten_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(4, 4), Function(lambda x: x * (0.01 * x.flip(1) + 1))).eval()
    network = load(module)
    factors = [float(step.operation.factor) for step in network.nodes if isinstance(step.operation, Scale)]
    assert any(factor <= 2.0**-4 for factor in factors)

    def unscaled(network: Network, points: Tensor) -> Network:
        return network

    monkeypatch.setattr("relucert.inputs.loading.assembly.balanced", unscaled)
    plain, images = load(module), torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(plain.cast(torch.float64)(images), network.cast(torch.float64)(images))

    def width(of: Network) -> float:
        found = relucert.bounds(of, Region.around(images, 1.0, "inf"), method="crown", form="backward")[-1]
        return float((found.upper - found.lower).mean())

    assert width(network) < 0.9 * width(plain)


def test_a_search_ends_soon_where_float32_tells_nothing() -> None:
    """A normalisation's epsilon is lost in float32 where squares vary widely: such margins are no numbers, and a search
    that took them for large ones went up to 1e6 and came back by halves, 30 evaluations per image."""
    torch.manual_seed(0)
    answers = relucert.certify(Block().double(), torch.randn(4, 24, dtype=torch.float64), method="fast-lin")
    assert all(answer.radius is not None and answer.radius > 0.02 for answer in answers)
    assert sum(answer.evaluations for answer in answers) <= 60
