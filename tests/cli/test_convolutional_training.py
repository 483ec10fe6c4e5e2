"""`relucert train` and `relucert zoo train` on convolutional architectures, with a few images."""

import json
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest
import torch

import relucert
from relucert.cli.main import main
from relucert.inputs.recipes import plans
from relucert.inputs.recipes.architectures import NAMED
from relucert.inputs.recipes.recipe import Certified, Recipe

Train = Callable[..., Path]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Trains for one epoch on 40 pictures, whose class is the height of a bright row; returns the network's file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    for name, shape in (("mnist", (28, 28)), ("cifar10", (32, 32, 3))):
        for split, count in (("train", 40), ("test", 10)):
            labels = np.arange(count, dtype=np.uint8) % 10
            images = generator.integers(0, 60, (count, *shape), dtype=np.uint8)
            images[np.arange(count), 2 * labels + 4] = 250
            np.savez(tmp_path / f"{name}_{split}.npz", images=images, labels=labels)

    def run(name: str, *options: str, output: str = "network", code: int = 0) -> Path:
        path = tmp_path / f"{output}.safetensors"
        files = ["--data-dir", str(tmp_path), "--output", str(path), "--json", str(path.with_suffix(".json"))]
        command = ["train", name, "--batch", "12"] if options else ["zoo", "train", name]
        assert main([*command, *options, *files, "--quiet"]) == code
        return path

    return run


CERTIFIED = ("--defence", "certified", "--epsilon", "0.01")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mnist-cnn", ("--half",)),
        ("mnist-cnn", ("--defence", "distillation")),
        ("mnist-cnn", ("--defence", "adversarial", "--steps", "1")),
        ("mnist-cnn", (*CERTIFIED, "--optimiser", "adam")),
        ("mnist-cnn", (*CERTIFIED, "--norm", "2", "--clean", "0.9")),
        ("cifar-resnet", CERTIFIED),
    ],
)
@pytest.mark.sampled
def test_every_defence_trains_convolutional_networks_to_one_file(
    name: str, options: tuple[str, ...], train: Train
) -> None:
    """The network knows its inputs, the record is about it, and one seed gives one file, byte by byte."""
    path = train(name, "--epochs", "1", *options)
    network, record = relucert.load(path), json.loads(path.with_suffix(".json").read_text())
    assert network.input_shape == network.picture_shape == NAMED[name].picture_shape
    assert network.input_range == (-0.5, 0.5)
    test = relucert.data.load(NAMED[name].data_set, "test", path.parent)
    assert test.labels is not None
    right = network.cast(torch.float32)(test.images).argmax(1) == test.labels
    assert record["test_accuracy"] == pytest.approx(float(right.float().mean()))
    assert ("test_certified" in record) == ("certified" in options)
    again = train(name, "--epochs", "1", *options, output="again")
    assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    ("name", "options"),
    [("cifar-resnet", ()), ("mnist-cnn", (*CERTIFIED, "--optimiser", "adam")), ("cifar-cnn", ())],
)
def test_an_interrupted_training_of_convolutions_ends_with_the_same_file(
    name: str, options: tuple[str, ...], train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch normalisation's statistics and Adam's state are in the checkpoint, too."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    whole = train(name, "--epochs", "2", *options)
    with monkeypatch.context() as patch:
        patch.setattr("relucert.cli.training.Board.epoch", interrupt)
        parts = train(name, "--epochs", "2", *options, output="parts", code=130)
    assert parts.with_suffix(".checkpoint").exists()
    assert not parts.exists()
    assert train(name, "--epochs", "2", *options, output="parts").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("name", ["mnist-cnn", "mnist-cnn-certified", "cifar-cnn", "cifar-resnet", "mnist-cnn-gelu"])
def test_plans_of_convolutional_networks_work(name: str, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one epoch instead of many; what comes out can be certified."""
    plan = plans.PLANS[name]
    defence = plan.recipe.defence and Certified(0.001)
    short = plans.Plan(plan.architecture, Recipe(epochs=1, batch=12, defence=defence), plan.half)
    monkeypatch.setitem(plans.PLANS, name, short)
    network = relucert.load(path := train(name))
    images = relucert.data.load(plan.architecture.data_set, "test", path.parent).first(2).images
    for answer in relucert.certify(network, images, norm="inf", method="fast-lin", box=(-0.5, 0.5)):
        assert answer.radius is not None
        assert answer.radius > 0


def test_a_convolutional_network_comes_with_the_package() -> None:
    """It is small, and it is about the bundled images as they are."""
    with as_file(files("relucert.inputs.loading") / "zoo" / "mnist-cnn.safetensors") as path:
        assert path.stat().st_size < 300_000
    network, images = relucert.load("mnist-cnn"), relucert.data.bundled()
    assert network.input_shape == (1, 28, 28)
    assert images.labels is not None
    right = network.cast(torch.float32)(images.images).argmax(1) == images.labels
    assert float(right.float().mean()) >= 0.97
    for norm, least in (("inf", 0.005), ("2", 0.1), ("1", 0.3)):
        (answer,) = relucert.certify(network, images.first(1), norm=norm)
        assert answer.radius is not None
        assert answer.radius > least
