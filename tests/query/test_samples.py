"""Images as users have them: data sets, data loaders, modules that do not tell the shape of their input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

import relucert
from relucert.cli.main import main
from relucert.errors import InputError, LoadError, OpenShapeError, RelucertError
from relucert.query.samples import read_samples
from tests.nets import mlp

NETWORK = mlp(12, 8, 3, seed=4)
IMAGES = torch.randn(7, 12, generator=torch.Generator().manual_seed(5))
LABELS = NETWORK(IMAGES).argmax(1)
EXPECTED = [answer.radius for answer in relucert.certify(NETWORK, IMAGES, LABELS)]


class Pairs(TorchDataset[Any]):
    """Gives what a function makes of a position."""

    def __init__(self, item: Callable[[int], Any], count: int = 7) -> None:
        self.item, self.count = item, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> Any:
        return self.item(place)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return zip(IMAGES, LABELS, strict=True)


PAIRS = TensorDataset(IMAGES, LABELS)
SOURCES: dict[str, Any] = {
    "pairs of tensors": PAIRS,
    "pairs of arrays and numbers": Pairs(lambda place: (IMAGES[place].numpy(), int(LABELS[place]))),
    "lists": Pairs(lambda place: [IMAGES[place].tolist(), np.int64(LABELS[place])]),
    "a stream": Stream(),
    "a subset": torch.utils.data.Subset(PAIRS, range(7)),
    "a loader": DataLoader(PAIRS, batch_size=3),
    "a loader of a stream": DataLoader(Stream(), batch_size=4),
    "a loader without batches": DataLoader(PAIRS, batch_size=None),
    "relucert's own": relucert.data.Dataset(IMAGES, LABELS, "own"),
    "relucert's own pictures": relucert.data.Dataset(IMAGES, LABELS, "own", (3, 2, 2)),
}


@pytest.mark.parametrize("name", SOURCES)
def test_data_sets_bring_their_labels(name: str) -> None:
    wrong = (LABELS + 1) % 3
    answers = relucert.certify(NETWORK, SOURCES[name])
    assert [answer.radius for answer in answers] == pytest.approx(EXPECTED, rel=2e-4)
    with pytest.raises(InputError, match="labels of their own"):
        relucert.certify(NETWORK, SOURCES[name], wrong)


def test_the_labels_of_a_data_set_count() -> None:
    wrong = TensorDataset(IMAGES, (LABELS + 1) % 3)
    assert all(answer.radius is None for answer in relucert.certify(NETWORK, wrong))


@pytest.mark.parametrize(
    "source",
    [
        TensorDataset(IMAGES),
        Pairs(lambda place: IMAGES[place]),
        DataLoader(Pairs(lambda place: IMAGES[place]), batch_size=2),
        relucert.data.Dataset(IMAGES, None, "own"),
    ],
)
def test_data_sets_may_have_no_labels(source: Any) -> None:
    samples = read_samples(source, None)
    assert samples.labels is None
    assert torch.equal(samples.images, IMAGES)
    assert [answer.label for answer in relucert.certify(NETWORK, source, (LABELS + 1) % 3)] == [
        int(label + 1) % 3 for label in LABELS
    ]


@pytest.mark.parametrize(
    "call",
    [
        lambda source: relucert.attack(NETWORK, source, steps=2),
        lambda source: relucert.exact(NETWORK, source, time_limit=2),
        lambda source: relucert.estimate(NETWORK, source, batches=3, samples=4),
        lambda source: relucert.compare(NETWORK, source, methods=["interval"]).questions,
    ],
)
def test_every_call_takes_data_sets(call: Callable[[Any], list[Any]]) -> None:
    assert len(call(PAIRS)) == 7


def test_the_first_images_of_a_data_set_keep_their_shape() -> None:
    first = relucert.data.bundled().first(2)
    assert read_samples(first, None).images.shape == (2, 1, 28, 28)


def test_own_data_sets_are_turned_to_where_a_network_wants_its_colours() -> None:
    own = relucert.data.Dataset(IMAGES, None, "own", (3, 2, 2))
    last = replace(NETWORK, picture_shape=(2, 2, 3))
    expected = relucert.certify(NETWORK, IMAGES.reshape(7, 3, 2, 2).permute(0, 2, 3, 1).flatten(1))
    assert [answer.radius for answer in relucert.certify(last, own)] == [answer.radius for answer in expected]


def failing(place: int) -> Any:
    raise FileNotFoundError("image\n3.png is gone")


BAD: dict[str, tuple[Any, str]] = {
    "one that fails": (Pairs(failing), "fails after 0 items: FileNotFoundError: image 3.png is gone"),
    "an empty one": (Pairs(failing, 0), "the data set is empty"),
    "maps": (Pairs(lambda place: {"image": IMAGES[place]}), "pairs of image and label, or images alone, not dict"),
    "triples": (Pairs(lambda place: (IMAGES[place], 0, 1)), "pairs of image and label"),
    "shapes that differ": (Pairs(lambda place: (IMAGES[0, : 12 - place], 0)), r"item 1 has \(11,\), the first \(12,\)"),
    "bytes": (Pairs(lambda place: (IMAGES[place].to(torch.uint8), 0)), "scale them"),
    "words for labels": (Pairs(lambda place: (IMAGES[place], "cat")), "labels of the data set"),
    "fractions for labels": (Pairs(lambda place: (IMAGES[place], 0.5)), "whole numbers"),
    "nothing": (Pairs(lambda place: None), "not NoneType"),
}


@pytest.mark.parametrize("case", BAD)
def test_other_data_sets_are_refused_in_one_line(case: str) -> None:
    source, message = BAD[case]
    with pytest.raises(RelucertError, match=message) as caught:
        relucert.certify(NETWORK, source)
    assert "\n" not in str(caught.value)


def flattening(*sizes: int) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2]))


@pytest.mark.parametrize("shape", [(12,), (1, 3, 4), (3, 4), (3, 2, 2)])
def test_images_tell_the_input_shape_of_a_module(shape: tuple[int, ...]) -> None:
    module, images = flattening(12, 6, 3), IMAGES.reshape(7, *shape)
    expected = [answer.radius for answer in relucert.certify(relucert.load(module), IMAGES)]
    assert [answer.radius for answer in relucert.certify(module, images)] == pytest.approx(expected, rel=2e-4)
    (attacked,) = relucert.attack(module, images[:1], steps=5)
    assert attacked.witness is not None
    assert attacked.witness.shape == shape
    assert len(relucert.exact(module, images[:1], time_limit=2)) == 1
    assert len(relucert.estimate(module, images[:1], batches=3, samples=4)) == 1
    assert len(relucert.compare(module, images[:1], methods=["interval"]).questions) == 1


class Shaped(nn.Module):
    """Takes inputs of one shape alone, and does not tell which."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.shape, self.factors = shape, nn.Parameter(torch.rand(shape))
        self.last = nn.Linear(int(np.prod(shape)), 3)

    def forward(self, images: Tensor) -> Tensor:
        if tuple(images.shape[1:]) != self.shape:
            raise ValueError(f"images of shape {self.shape} are needed")
        scores: Tensor = self.last(torch.relu(self.factors * images).flatten(1))
        return scores


def test_a_module_may_want_an_axis_more_or_less() -> None:
    radii = [answer.radius for answer in relucert.certify(Shaped(1, 3, 4), IMAGES.reshape(7, 1, 3, 4))]
    assert [answer.radius for answer in relucert.certify(Shaped(1, 3, 4), IMAGES.reshape(7, 3, 4))] == radii
    assert len(relucert.certify(Shaped(3, 4), IMAGES.reshape(7, 1, 3, 4))) == 7


def test_input_shape_is_taken_wherever_a_module_is() -> None:
    module, shape = Shaped(3, 2, 2), (3, 2, 2)
    with pytest.raises(OpenShapeError, match="pass input_shape"):
        relucert.certify(module, IMAGES)
    radii = [answer.radius for answer in relucert.certify(module, IMAGES.reshape(7, *shape))]
    assert [answer.radius for answer in relucert.certify(module, IMAGES, input_shape=shape)] == radii
    assert next(relucert.certify_each(module, IMAGES, input_shape=shape)).radius is not None
    assert relucert.attack(module, IMAGES[:1], steps=5, input_shape=shape)[0].distance is not None
    assert relucert.exact(module, IMAGES[:1], time_limit=5, input_shape=shape)[0].lower is not None
    assert len(relucert.estimate(module, IMAGES[:1], batches=3, samples=4, input_shape=shape)) == 1
    assert len(relucert.compare(module, IMAGES[:1], methods=["interval"], input_shape=shape).questions) == 1
    region = relucert.Region.around(IMAGES, 0.01, "inf")
    assert relucert.bounds(module, region, input_shape=shape)[-1].lower.shape == (7, 3)
    prop = relucert.Property.margins(torch.zeros(7, dtype=torch.int64), torch.ones(7, 1, dtype=torch.int64), 3)
    assert len(relucert.lipschitz(module, region, prop, input_shape=shape)) == 7
    labels = torch.zeros(7, dtype=torch.int64)
    losses = [
        relucert.robust_loss(module, IMAGES, labels, 0.01, input_shape=shape),
        relucert.robust_loss(module, IMAGES.reshape(7, *shape), labels, 0.01),
        relucert.robust_loss(relucert.load(module, input_shape=shape), IMAGES, labels, 0.01),
        relucert.robust_loss(relucert.live_network(module, shape), IMAGES, labels, 0.01),
    ]
    assert [loss.item() for loss in losses] == pytest.approx([losses[0].item()] * 4, rel=1e-6)


def test_an_input_shape_that_is_not_the_networks_is_refused() -> None:
    for call in (relucert.certify, relucert.attack, relucert.exact, relucert.estimate, relucert.compare):
        with pytest.raises(InputError, match=r"takes inputs of shape \(12,\), not \(3, 2, 2\)"):
            call(NETWORK, IMAGES, input_shape=(3, 2, 2))
        with pytest.raises(InputError, match="tuple of positive integers"):
            call(NETWORK, IMAGES, input_shape="3x2x2")  # type: ignore[arg-type]


def test_colours_last_are_noticed_where_a_module_wants_them_first() -> None:
    with pytest.raises(InputError, match=r"\(3, 2, 2\).*NHWC.*images.transpose\(0, 3, 1, 2\)"):
        relucert.certify(Shaped(3, 2, 2), IMAGES.reshape(7, 2, 2, 3))


def test_a_module_that_runs_on_nothing_says_so() -> None:
    with pytest.raises((InputError, LoadError)) as caught:
        relucert.certify(Shaped(5, 5), IMAGES)
    assert "\n" not in str(caught.value)
    with pytest.raises(LoadError, match=r"Shaped fails on inputs of shape \(\d+, 3, 4\)"):  # those of the images
        relucert.certify(Shaped(5, 5), IMAGES.reshape(7, 3, 4))


def test_images_tell_the_open_shape_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    weight = numpy_helper.from_array(np.arange(24, dtype=np.float32).reshape(12, 2), "weight")
    nodes = [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "weight"], ["y"])]
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "rows", "columns"])
    leaving = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])
    model = helper.make_model(
        helper.make_graph(nodes, "open", [entry], [leaving], [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    save(model, tmp_path / "open.onnx")
    pictures = IMAGES.reshape(7, 3, 2, 2)
    answers = relucert.certify(tmp_path / "open.onnx", pictures)
    assert [answer.image for answer in answers if answer.radius] == list(range(7))
    np.save(tmp_path / "last.npy", pictures.permute(0, 2, 3, 1).numpy())
    question = ["certify", str(tmp_path / "open.onnx"), "--data", str(tmp_path / "last.npy")]
    assert main([*question, "--layout", "nhwc", "--json", str(tmp_path / "run.json")]) == 0
    rows = json.loads((tmp_path / "run.json").read_text())["results"]
    assert [row["radius"] for row in rows] == [answer.radius for answer in answers]
    capsys.readouterr()
    assert main(question) == 2
    assert "(3, ?, ?)" in capsys.readouterr().err
