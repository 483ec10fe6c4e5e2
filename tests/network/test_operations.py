"""Every operation keeps its contract: operation x property."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.forms import Shape
from relucert.errors import NetworkError, UnsupportedError
from relucert.network import (
    Add,
    Affine,
    BatchScale,
    Convolution,
    IndexMap,
    Linear,
    Operation,
    Relu,
    Reshape,
    Scale,
    Shift,
    Units,
    find,
)  # fmt: skip
from relucert.network.registry import register

Case = tuple[Operation, tuple[Shape, ...]]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CASES: dict[str, Callable[[], Case]] = {
    "linear": lambda: (Linear(numbers(4, 6), numbers(4)), ((6,),)),
    "reshape": lambda: (Reshape((2, 3), (6,)), ((2, 3),)),
    "add": lambda: (Add(), ((2, 3), (2, 3))),
    "scale": lambda: (Scale(numbers(2, 1), divide=False), ((2, 3),)),
    "division": lambda: (Scale(numbers(3), divide=True), ((2, 3),)),
    "scale by one number": lambda: (Scale(numbers(), divide=False), ((2, 3),)),
    "shift": lambda: (Shift(numbers(2, 1)), ((2, 3),)),
    "convolution": lambda: (
        Convolution(numbers(3, 1, 2, 2), numbers(3), (2, 3), (1, 2), (1, 0, 1, 2), (2, 1), 1),
        ((1, 2, 3),),
    ),
    "convolution in groups": lambda: (
        Convolution(numbers(4, 1, 2, 1), numbers(4), (3, 1), (1, 1), (0, 0, 1, 0), (1, 1), 2),
        ((2, 3, 1),),
    ),
    "index map": lambda: (IndexMap.of(torch.tensor([[0, 2, -1, 5], [2, 2, 4, 1]]), (2, 3)), ((2, 3),)),
    "batch scale": lambda: (BatchScale(numbers(2, 1), numbers(2, 1).abs(), 1e-3), ((2, 3),)),
    "batch scale of a negative variance": lambda: (
        BatchScale(numbers(2, 1), -numbers(2, 1).abs(), 2.0),
        ((2, 3),),
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Affine, tuple[Shape, ...]]:
    operation, shapes = CASES[request.param]()
    assert isinstance(operation, Affine)
    return operation, shapes


def matrix(operation: Affine, shapes: tuple[Shape, ...]) -> list[Tensor]:
    """The linear map written out, for each input: (outputs, inputs)."""
    written = []
    for place, shape in enumerate(shapes):
        size = int(torch.tensor(shape).prod())
        inputs = [torch.zeros(size, *other, dtype=torch.float64) for other in shapes]
        inputs[place] = torch.eye(size, dtype=torch.float64).view(size, *shape)
        written.append(operation.linear(*inputs).flatten(1).T)
    return written


def test_apply_is_the_linear_map_plus_the_constant(case: tuple[Affine, tuple[Shape, ...]]) -> None:
    operation, shapes = case
    points = [numbers(5, *shape, seed=place) for place, shape in enumerate(shapes)]
    expected = sum(point.flatten(1) @ part.T for point, part in zip(points, matrix(operation, shapes), strict=True))
    if operation.constant is not None:
        expected = expected + operation.constant.expand(operation.shape(*shapes)).flatten()
    torch.testing.assert_close(operation.apply(*points).flatten(1), expected)
    assert tuple(operation.apply(*points).shape[1:]) == operation.shape(*shapes)


def test_transpose_is_the_transposed_map(case: tuple[Affine, tuple[Shape, ...]]) -> None:
    operation, shapes = case
    forms = numbers(3, 2, *operation.shape(*shapes))
    for pulled, part in zip(operation.transpose(forms), matrix(operation, shapes), strict=True):
        torch.testing.assert_close(pulled.reshape(3, 2, -1), forms.reshape(3, 2, -1) @ part)


def test_magnitude_is_at_least_the_absolute_map(case: tuple[Affine, tuple[Shape, ...]]) -> None:
    operation, shapes = case
    points = [numbers(5, *shape, seed=place).abs() for place, shape in enumerate(shapes)]
    least = sum(point.flatten(1) @ part.abs().T for point, part in zip(points, matrix(operation, shapes), strict=True))
    assert isinstance(least, Tensor)
    assert (operation.magnitude(*points).flatten(1) >= least * (1 - 1e-12)).all()
    for row in matrix(operation, shapes):
        assert operation.terms >= 0
        assert max((row != 0).sum(0).max(), (row != 0).sum(1).max()) <= max(1, operation.terms)


def test_absolute_is_the_map_of_absolute_coefficients(case: tuple[Affine, tuple[Shape, ...]]) -> None:
    operation, shapes = case
    for whole, part in zip(matrix(operation.absolute, shapes), matrix(operation, shapes), strict=True):
        assert torch.equal(whole, part.abs())
    forms = numbers(3, *operation.shape(*shapes))
    for pulled, part in zip(operation.absolute.transpose(forms), matrix(operation, shapes), strict=True):
        torch.testing.assert_close(pulled.flatten(1), forms.flatten(1) @ part.abs())
    if operation.matrix is not None:
        assert torch.equal(operation.matrix, matrix(operation, shapes)[0])


@pytest.mark.parametrize("indices", [None, [0, 2, 5]])
@pytest.mark.parametrize("scaled", [False, True])
def test_units_spread_like_written_out_forms(
    case: tuple[Affine, tuple[Shape, ...]], indices: list[int] | None, scaled: bool
) -> None:
    operation, shapes = case
    if len(shapes) > 1:
        pytest.skip("branches are joined written out")
    count = 6 if indices is None else len(indices)
    units = Units(None if indices is None else torch.tensor(indices), numbers(2, count) if scaled else None)
    written = operation.linear(units.dense(6, torch.float64).unflatten(-1, shapes[0])).flatten(2)
    spread = operation.spread(units, shapes[0], torch.float64)
    rows = spread.dense(6, torch.float64) if isinstance(spread, Units) else spread.flatten(2)
    torch.testing.assert_close(rows, written)
    total = operation.total(units, shapes[0], torch.float64).flatten(1)
    torch.testing.assert_close(total, written.abs().sum(1))


@pytest.mark.parametrize("name", [name for name, make in CASES.items() if isinstance(make()[0], Convolution)])
def test_many_images_are_convolved_as_few_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relucert.network.convolution.LEAST_FACTORS", 1)
    operation, (shape,) = CASES[name]()
    assert isinstance(operation, Convolution)
    images = numbers(3, 50, *shape)
    few = torch.stack([operation.linear(image) for image in images.flatten(0, 1)]).unflatten(0, (3, 50))
    torch.testing.assert_close(operation.linear(images), few, rtol=1e-12, atol=1e-12)
    tracked = images.clone().requires_grad_()
    operation.linear(tracked).sum().backward()
    assert tracked.grad is not None


def test_patches_are_pulled_back_with_gradients() -> None:
    """A kernel as large as its stride, as of a vision transformer: what a position adds is the whole image."""
    operation = Convolution(numbers(8, 2, 3, 3), numbers(8), (6, 6), (3, 3), (0, 0, 0, 0), (1, 1), 1)
    forms = numbers(1, 1, 8, 2, 2).requires_grad_()
    (pulled,) = operation.transpose(2 * forms)
    (gradient,) = torch.autograd.grad(pulled.sum(), forms)
    torch.testing.assert_close(gradient[0, 0], 2 * operation.linear(torch.ones(2, 6, 6, dtype=torch.float64)))


def test_a_restricted_linear_map_sees_only_its_support() -> None:
    operation = Linear(numbers(4, 6), numbers(4))
    support = torch.tensor([1, 4])
    values = numbers(3, 2, seed=1)
    wide = torch.zeros(3, 6, dtype=torch.float64)
    wide[:, support] = values
    torch.testing.assert_close(operation.restrict(support).linear(values), operation.linear(wide))


@pytest.mark.parametrize("name", CASES)
def test_an_operation_is_restored_bit_by_bit(name: str) -> None:
    operation, _ = CASES[name]()
    twin = find(operation.name).restore(operation.tensors(), operation.settings())
    assert twin.settings() == operation.settings()
    assert twin.tensors().keys() == operation.tensors().keys()
    assert all(torch.equal(twin.tensors()[key], tensor) for key, tensor in operation.tensors().items())


def test_relu() -> None:
    assert Relu().apply(torch.tensor([-1.0, 0.0, 2.0])).tolist() == [0.0, 0.0, 2.0]


@pytest.mark.parametrize(
    ("operation", "shapes", "message"),
    [
        (Linear(numbers(4, 6), numbers(4)), ((5,),), "expected a flat input of 6"),
        (Linear(numbers(4, 6), numbers(4)), ((2, 6),), "flat"),
        (Linear(numbers(4, 6), numbers(3)), ((6,),), "bias"),
        (Reshape((2, 3), (5,)), ((2, 3),), "can't become"),
        (Reshape((2, 3), (6,)), ((3, 2),), "can't become"),
        (Add(), ((2,), (3,)), "branches"),
        (Scale(numbers(4), divide=False), ((3,),), "does not fit"),
        (Scale(numbers(2, 3), divide=False), ((3,),), "does not fit"),
        (Scale(torch.tensor([1.0, 0.0]), divide=True), ((2,),), "division by zero"),
        (Shift(numbers(4)), ((3,),), "does not fit"),
        (BatchScale(numbers(1) * 1e-310, torch.full((1,), 1e20).double(), 0.0), ((1,),), "too small or too large"),
        (BatchScale(numbers(1) * 1e300, torch.full((1,), 1e-30).double(), 0.0), ((1,),), "too small or too large"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(operation: Operation, shapes: tuple[Shape, ...], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        operation.shape(*shapes)


def test_the_registry_refuses_strangers_and_twins() -> None:
    with pytest.raises(UnsupportedError, match="known are add, batch scale, convolution, cos, elu, erf, exp"):
        find("softmax")
    with pytest.raises(NetworkError, match="exists already"):
        register(Linear)


@pytest.mark.parametrize(
    ("tensors", "settings"),
    [({}, {}), ({"weight": numbers(2, 2)}, {}), ({"weight": numbers(2, 2), "bias": numbers(2)}, {"extra": 1})],
)
def test_restoring_checks_its_fields(tensors: dict[str, Tensor], settings: dict[str, int]) -> None:
    with pytest.raises(NetworkError, match="fields"):
        Linear.restore(tensors, settings)


def test_restoring_refuses_a_field_stored_twice() -> None:
    with pytest.raises(NetworkError, match="fields"):
        Linear.restore({"weight": numbers(2, 2), "bias": numbers(2)}, {"bias": 1})
