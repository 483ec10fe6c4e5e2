"""Convolutions against PyTorch's own, and windows of coefficients against all of them."""

import itertools
from collections.abc import Callable
from math import prod

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from relucert.errors import NetworkError
from relucert.network import BatchScale, Convolution, IndexMap, LinearForms, Rows, Windows

SIZE = (9, 8)
CHANNELS = [(2, 4, 1), (4, 6, 2), (3, 3, 3)]  # of the input, of the output, groups
GEOMETRIES = list(
    itertools.product(
        [(3, 3), (4, 2), (1, 1), (2, 8)],
        [(1, 1), (2, 2), (3, 2)],
        [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 2, 0)],
        [(1, 1), (2, 1)],
    )
)


def convolution(
    channels: tuple[int, int, int],
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (1, 1, 1, 1),
    dilation: tuple[int, int] = (1, 1),
    size: tuple[int, int] = SIZE,
) -> Convolution:
    generator = torch.Generator().manual_seed(0)
    inputs, outputs, groups = channels
    weight = torch.randn(outputs, inputs // groups, *kernel, generator=generator, dtype=torch.float64)
    bias = torch.randn(outputs, generator=generator, dtype=torch.float64)
    return Convolution(weight, bias, size, stride, padding, dilation, groups)


def images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_torch(operation: Convolution, inputs: Tensor) -> Tensor:
    top, left, bottom, right = operation.padding
    padded = functional.pad(inputs, (left, right, top, bottom))
    return functional.conv2d(
        padded, operation.weight, operation.bias, operation.stride, 0, operation.dilation, operation.groups
    )


def assert_same(forms: LinearForms, rows: Tensor, maps: Tensor) -> None:
    """Every question that can be asked of forms, against all of their coefficients."""
    torch.testing.assert_close(forms.rows(), rows)
    torch.testing.assert_close(forms.dot(maps), (rows * maps[:, None]).sum(-1))
    torch.testing.assert_close(forms.absolute_dot(maps), (rows.abs() * maps[:, None]).sum(-1))
    torch.testing.assert_close(forms.times(maps).rows(), rows * maps[:, None])
    torch.testing.assert_close(forms.over(maps).rows(), rows / maps[:, None])
    torch.testing.assert_close(forms.stored().square().sum(-1), rows.square().sum(-1))
    factors = maps[:, None] * torch.arange(1, rows.shape[1] + 1)[:, None]
    laid_out, own = forms.aligned(factors)
    torch.testing.assert_close(laid_out.mapped(lambda numbers: numbers * own).rows(), rows * factors)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), GEOMETRIES)
def test_is_pytorch_s_convolution_and_its_adjoint(
    channels: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> None:
    operation = convolution(channels, kernel, stride, padding, dilation)
    inputs = images(2, channels[0], *SIZE)
    outputs = by_torch(operation, inputs)
    assert operation.shape((channels[0], *SIZE)) == outputs.shape[1:]
    torch.testing.assert_close(operation.apply(inputs), outputs)
    forms = images(2, 5, *outputs.shape[1:])
    pulled = operation.transpose(forms)[0]
    linear = outputs - operation.constant
    torch.testing.assert_close((pulled * inputs[:, None]).sum((2, 3, 4)), (forms * linear[:, None]).sum((2, 3, 4)))


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), GEOMETRIES[::3])
def test_windows_are_the_rows_they_stand_for(
    channels: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> None:
    """The neurons of a convolution, and of one on top of it, as windows on the first one's input."""
    first = convolution(channels, kernel, stride, padding, dilation)
    shape, maps = (channels[0], *SIZE), images(2, channels[0] * prod(SIZE)).abs() + 0.1
    between = first.shape(shape)
    neurons = torch.arange(0, prod(between), 3)
    rows = first.transpose(units(neurons, between))[0]
    assert_same(first.unit_forms(neurons, shape), rows.flatten(2), maps)
    second = convolution((between[0], 3, 1), (2, 2), (1, 1), (1, 1, 1, 1), (1, 1), (between[1], between[2]))
    neurons = torch.arange(0, prod(second.shape(between)), 5)
    rows = first.transpose(second.transpose(units(neurons, second.shape(between)))[0])[0]
    assert_same(first.pull(second.unit_forms(neurons, between), (shape,))[0], rows.flatten(2), maps)


def units(neurons: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Forms of single coordinates: (1, count, *shape)."""
    return functional.one_hot(neurons, prod(shape)).double().reshape(1, -1, *shape)


def test_sums_of_windows_meet_at_their_places() -> None:
    shape = (4, 6, 6)
    wide = convolution((4, 3, 1), (3, 3), (2, 2), (1, 1, 1, 1), size=(6, 6))
    narrow = convolution((4, 3, 1), (1, 1), (2, 2), (0, 0, 0, 0), size=(6, 6))
    neurons = torch.arange(27)
    block, skip = wide.unit_forms(neurons, shape), narrow.unit_forms(neurons, shape)
    assert block.places is not None
    assert skip.places is not None
    for one, other in ((block, skip), (skip, block)):
        joined = one.plus(other)
        assert isinstance(joined, Windows)
        assert joined.places is not None
        assert_same(joined, one.rows() + other.rows(), images(2, 144).abs() + 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stride": (0, 1)}, "stride"),
        ({"padding": (-1, 0, 0, 0)}, "padding"),
        ({"padding": (1, 1)}, "padding"),
        ({"dilation": (0, 1)}, "dilation"),
        ({"groups": 3}, "groups"),
        ({"size": (5, 5)}, "made for"),
        ({"bias": torch.zeros(3)}, "bias"),
        ({"weight": torch.zeros(4, 2, 3)}, "weight"),
        ({"weight": torch.zeros(4, 2, 30, 3)}, "smaller than the kernel"),
    ],
)
def test_refuses_what_is_no_convolution(changes: dict[str, object], message: str) -> None:
    given = {
        "weight": torch.zeros(4, 2, 3, 3), "bias": torch.zeros(4), "size": SIZE, "stride": (1, 1),
        "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, **changes,
    }  # fmt: skip
    with pytest.raises(NetworkError, match=message):
        Convolution(**given).shape((2, *SIZE))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("indices", "after", "message"),
    [((0, 1), (3,), "coordinates"), ((0, 7), (2,), "has not"), ((-1, 0), (2,), "has not"), ((), (0,), "coordinates")],
)
def test_refuses_what_is_no_index_map(indices: tuple[int, ...], after: tuple[int, ...], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        IndexMap(indices, (2, 3), after).shape((2, 3))


def test_an_index_map_picks_and_its_adjoint_adds_up() -> None:
    operation = IndexMap.of(torch.tensor([[0, 2, -1], [2, 2, 5]]), (2, 3))
    inputs, forms = images(4, 2, 3), images(4, 7, 2, 3)
    outputs = operation.apply(inputs)
    assert outputs[:, 0, 2].abs().max() == 0
    torch.testing.assert_close(outputs[:, 1, 0], inputs[:, 0, 2])
    assert operation.terms == 3
    pulled = operation.transpose(forms)[0]
    torch.testing.assert_close((pulled * inputs[:, None]).sum((2, 3)), (forms * outputs[:, None]).sum((2, 3)))


def resized(places: Tensor) -> Tensor:
    return places.repeat_interleave(2, 1).repeat_interleave(2, 2)


def mirrored(places: Tensor) -> Tensor:
    padded: Tensor = functional.pad(places[None].double(), (2, 2, 1, 1), mode="reflect")[0].long()
    return padded


SELECTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "reflect": mirrored,
    "resize": resized,
    "flip": lambda places: places.flip(1, 2),
    "crop and zeros": lambda places: functional.pad(places[:, 1:, :-1], (0, 2), value=-1),
    "channels": lambda places: places[[3, 0, 1, 1, 2]],
    "transpose": lambda places: places.transpose(1, 2),
}


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("batch", [1, 2])
def test_windows_through_an_index_map_stay_windows(name: str, batch: int) -> None:
    before = (4, 9, 9)
    selection = IndexMap.of(SELECTIONS[name](torch.arange(prod(before)).reshape(before)), before)
    layer = convolution(
        (selection.after[0], 3, 1), (3, 2), (2, 1), (1, 1, 1, 1), size=(selection.after[1], selection.after[2])
    )
    neurons = torch.arange(0, prod(layer.shape(selection.after)), 2)
    forms = layer.unit_forms(neurons, selection.after)
    if batch > 1:
        forms = forms.times(images(batch, prod(selection.after)))
    (pulled,) = selection.pull(forms, (before,))
    assert isinstance(pulled, Windows)
    assert pulled.places is not None
    rows = selection.transpose(forms.rows().unflatten(-1, selection.after))[0].flatten(2)
    maps = images(batch, prod(before)).abs() + 0.1
    assert_same(pulled, rows, maps)
    other = convolution((4, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), size=before[1:])
    beside = other.unit_forms(torch.arange(len(neurons)) % 81, before)
    assert_same(pulled.plus(beside), rows + beside.rows(), maps)


def test_windows_that_an_index_map_scatters_become_whole_images() -> None:
    before = (2, 6, 6)
    chance = torch.Generator().manual_seed(0)
    selection = IndexMap.of(torch.randperm(72, generator=chance).reshape(before), before)
    forms = convolution((2, 3, 1), size=(6, 6)).unit_forms(torch.arange(108), before)
    (pulled,) = selection.pull(forms, (before,))
    rows = selection.transpose(forms.rows().unflatten(-1, before))[0].flatten(2)
    torch.testing.assert_close(pulled.rows(), rows)


@pytest.mark.parametrize(("variance", "epsilon"), [(0.0, 0.0), (-1.0, 0.5), (1.0, -0.1), (1.0, float("nan"))])
def test_refuses_a_root_of_nothing(variance: float, epsilon: float) -> None:
    with pytest.raises(NetworkError, match="not positive"):
        BatchScale(torch.ones(3, 1, 1), torch.full((3, 1, 1), variance), epsilon).shape((3, 2, 2))


@pytest.mark.parametrize("count", [3, 200])
def test_pulled_forms_have_gradients(count: int) -> None:
    """Few forms and many are multiplied in different ways; slopes are optimised through both."""
    layer = Convolution(torch.ones(8, 4, 4, 4), torch.zeros(8), (16, 16), (2, 2), (1, 1, 1, 1), (1, 1), 1)
    with torch.no_grad():
        forms = images(count, 8, 8, 8)[None].flatten(2).to(torch.float32)
    forms.requires_grad_()
    pulled = layer.pull(Rows(forms, (8, 8, 8)), ((4, 16, 16),))[0].rows()
    (gradient,) = torch.autograd.grad(pulled.sum(), forms)
    torch.testing.assert_close(gradient, layer.linear(torch.ones(1, 4, 16, 16)).flatten(1).expand_as(gradient[0])[None])


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients_of_pulled_forms_are_the_convolution(
    channels: tuple[int, int, int], geometry: tuple[tuple[int, int], ...]
) -> None:
    kernel, stride, padding, dilation = geometry
    layer = convolution(channels, kernel, stride, padding, dilation)  # type: ignore[arg-type]
    shape = layer.shape((channels[0], *SIZE))
    with torch.no_grad():
        forms, point = images(60, *shape)[None].flatten(2), images(60, channels[0], *SIZE)
    forms.requires_grad_()
    pulled = layer.pull(Rows(forms, shape), ((channels[0], *SIZE),))[0].rows()
    (gradient,) = torch.autograd.grad((pulled * point.flatten(1)).sum(), forms)
    torch.testing.assert_close(gradient[0], layer.linear(point).flatten(1))


def test_windows_without_a_column_have_no_image() -> None:
    layer = convolution((2, 3, 1), (1, 5), (1, 1), (0, 0, 0, 0))
    image = layer._transposed(torch.zeros(1, 4, 1, 0, 3, dtype=torch.float64))
    assert bool((image == 0).all())


def test_depthwise_products_refuse_another_precision() -> None:
    layer = convolution((3, 3, 3))
    with pytest.raises(AssertionError):
        layer.pull(Rows(torch.zeros(1, 4, 216), (3, 9, 8)), ((3, 9, 8),))


def test_a_convolution_that_sees_only_zeros_has_forms_of_zeros() -> None:
    """All that its transpose makes of them lies outside the image."""
    weight, bias = torch.ones(2, 1, 1, 1, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    convolution = Convolution(weight, bias, (1, 1), (6, 6), (2, 2, 2, 2), (1, 1), 1)
    rows = torch.ones(1, 3, 2, dtype=torch.float64)
    (pulled,) = convolution.pull(Rows(rows, convolution.shape((1, 1, 1))), [(1, 1, 1)])
    assert torch.equal(pulled.rows(), torch.zeros(1, 3, 1, dtype=torch.float64))


@pytest.mark.parametrize("count", [17, 64, 65, 129])
@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), GEOMETRIES[::3])
@pytest.mark.parametrize("channels", [1, 2])
def test_images_are_convolved_wherever_they_lie_in_memory(
    channels: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Views into larger tensors, images side by side, and a last chunk of one image."""
    monkeypatch.setattr("relucert.network.convolution.LEAST_FACTORS", 1)
    operation = convolution((channels, 3, 1), kernel, stride, padding, dilation)
    shape = channels, *SIZE
    behind = images(count + 7, *shape)[7:]
    side_by_side = images(prod(shape) + 3, count)[3:].T.unflatten(1, shape)
    image_last = images(2, *SIZE, channels, count)[1].permute(3, 2, 0, 1)
    for inputs in (behind, side_by_side, image_last):
        torch.testing.assert_close(operation.apply(inputs), by_torch(operation, inputs))


@pytest.mark.parametrize("count", [1, 40])
def test_numbers_between_the_taps_of_a_kernel_are_not_seen(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relucert.network.convolution.LEAST_FACTORS", 1)
    kernel, bias = torch.ones(1, 1, 1, 2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    operation = Convolution(kernel, bias, (1, 5), (1, 1), (0, 0, 0, 0), (1, 2), 1)
    row = torch.tensor([1.0, torch.inf, 1.0, 1.0, 1.0], dtype=torch.float64).expand(count, 1, 1, 5)
    expected = torch.tensor([2.0, torch.inf, 2.0], dtype=torch.float64).expand(count, 1, 1, 3)
    assert torch.equal(operation.linear(row), expected)
