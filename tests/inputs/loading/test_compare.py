"""The comparison with the runtime: honest rounding passes, any error of the map does not."""

import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from relucert.common.progress import Progress
from relucert.errors import MismatchError
from relucert.inputs.loading import compare as comparing
from relucert.inputs.loading.compare import compare, probes
from relucert.network import Linear, Network, Node, Relu
from tests.nets import NETWORKS

DTYPES = [torch.float16, torch.float32, torch.float64]


def random_network(*widths: int, scale: float = 1.0, seed: int = 0) -> Network:
    generator = torch.Generator().manual_seed(seed)
    nodes: list[Node] = []
    for inputs, outputs in pairwise(widths):
        weight = scale * torch.randn(outputs, inputs, generator=generator) * (2 / inputs) ** 0.5
        nodes.append(Node(Linear(weight, 0.1 * torch.randn(outputs, generator=generator)), (len(nodes),)))
        nodes.append(Node(Relu(), (len(nodes),)))
    return Network(widths[:1], tuple(nodes[:-1]), "random").cast(torch.float16)


def backwards(network: Network, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The same network in that precision with every sum taken in another order."""

    def run(images: Tensor) -> Tensor:
        value = images
        for node in network.cast(dtype).nodes:
            operation = node.operation
            if isinstance(operation, Linear):
                value = (value.flip(1) @ operation.weight.flip(1).T.contiguous()) + operation.bias
            else:
                value = operation.apply(value)
        return value

    return run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("widths", [(3, 2), (5, 1), (30, 40, 40, 40, 40, 40, 3), (784, 256, 10)])
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_rounding_is_no_mismatch(widths: tuple[int, ...], scale: float, dtype: torch.dtype) -> None:
    for seed in range(3):
        network = random_network(*widths, scale=scale, seed=seed)
        compare(network, backwards(network, dtype), dtype, "the runtime")


@pytest.mark.parametrize(("dtype", "error"), list(zip(DTYPES, (0.3, 1e-3, 1e-10), strict=True)))
def test_a_slightly_different_weight_is_a_mismatch(dtype: torch.dtype, error: float) -> None:
    network = random_network(20, 30, 30, 4)
    first = network.nodes[0].operation
    assert isinstance(first, Linear)
    weight = first.weight.double() * (1 + error)
    other = Network((20,), (Node(Linear(weight, first.bias), (0,)), *network.nodes[1:]), "other")
    with pytest.raises(MismatchError, match="other: the imported network differs from the runtime by up to"):
        compare(other, network.cast(dtype), dtype, "the runtime")


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_outputs_that_are_not_numbers_are_a_mismatch(wrong: float) -> None:
    network = random_network(3, 2)

    def run(images: Tensor) -> Tensor:
        output = network.cast(torch.float64)(images)
        output[4, 1] = wrong
        return output

    with pytest.raises(MismatchError):
        compare(network, run, torch.float64, "the runtime")


def test_outputs_of_another_shape_are_a_mismatch() -> None:
    network = random_network(3, 2)
    with pytest.raises(MismatchError, match="outputs of shape"):
        compare(network, lambda images: network.cast(torch.float64)(images)[:, :1], torch.float64, "the runtime")


def test_a_runtime_that_overwrites_its_input_is_compared_all_the_same() -> None:
    network = random_network(3, 2)

    def run(images: Tensor) -> Tensor:
        output = network.cast(torch.float64)(images)
        images.fill_(1e9)
        return output * (1 + 1e-6)

    with pytest.raises(MismatchError):
        compare(network, run, torch.float64, "the runtime")


def test_the_probes_are_always_the_same_and_have_the_zero() -> None:
    assert torch.equal(probes((2, 3)), probes((2, 3)))
    assert not probes((2, 3))[-1].any()


def test_of_large_inputs_there_are_fewer_at_every_scale() -> None:
    assert [len(probes(shape)) for shape in ((784,), (3, 32, 32), (3, 224, 224))] == [16, 16, 7]
    sizes = probes((3, 224, 224)).flatten(1).std(1)
    assert sizes.tolist() == pytest.approx([0.1, 0.1, 1, 1, 10, 10, 0], rel=0.01)


@pytest.mark.parametrize("wrong", range(16))
def test_inputs_in_slices_are_all_compared(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at a time: the outputs at one input are wrong, and without that nothing is."""
    network, told = random_network(8, 9, 3), list[Progress]()
    monkeypatch.setattr(comparing, "SLICE_BYTES", 1)
    compare(network, network.cast(torch.float64), torch.float64, "the runtime", report=told.append)
    assert [(state.done, state.total) for state in told] == [(done, 20) for done in range(2, 21, 2)]  # 4 far ones
    spoilt = probes((8,))[wrong].double()

    def run(images: Tensor) -> Tensor:
        return network.cast(torch.float64)(images) + 1e-6 * (images == spoilt).all(1, keepdim=True)

    with pytest.raises(MismatchError, match="more than rounding explains"):
        compare(network, run, torch.float64, "the runtime")


def test_few_values_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a deep network and of one with a skip connection, whose ends wait for each other."""
    alive: list[weakref.ref[Tensor]] = []
    most, original = 0, Linear.apply

    def counted(layer: Linear, *inputs: Tensor) -> Tensor:
        nonlocal most
        output = original(layer, *inputs)
        alive.append(weakref.ref(output))
        most = max(most, sum(one() is not None for one in alive))
        return output

    monkeypatch.setattr(Linear, "apply", counted)
    for network, bound in ((random_network(5, *[4] * 40, 3), 2), (NETWORKS["residual"](), 3)):
        most = 0
        alive.clear()
        runtime = torch.zeros(20, network.classes)
        with suppress(MismatchError):
            compare(network, lambda images: runtime[: len(images)], torch.float64, "the runtime")  # noqa: B023
        assert len(alive) >= 2 * len([node for node in network.nodes if isinstance(node.operation, Linear)])
        assert 0 < most <= bound
