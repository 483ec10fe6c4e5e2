"""Architectures and plans by name."""

import json

import pytest
import torch
from torch import nn

from relucert.cli import train as cli_train
from relucert.errors import InputError
from relucert.inputs.recipes.architectures import NAMED, ResidualBlock, parse_architecture
from relucert.inputs.recipes.plans import PLANS, find_plan
from relucert.inputs.recipes.recipe import DEFENCES, Certified, Recipe


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mnist-2x20", [784, 20, 10]),
        ("cifar-3x7", [3072, 7, 7, 10]),
        ("mnist-1x5", [784, 10]),
        ("mnist-3x8-sigmoid", [784, 8, 8, 10]),
        ("cifar-2x5-gelu", [3072, 5, 10]),
    ],
)
def test_architectures_are_built_as_named(name: str, sizes: list[int]) -> None:
    architecture = parse_architecture(name)
    module = architecture.build(seed=3)
    weights = [parameter for key, parameter in module.named_parameters() if key.endswith("weight")]
    assert [weights[0].shape[1], *(len(weight) for weight in weights)] == sizes
    assert architecture.name == name
    twin = architecture.build(seed=3)
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize(
    "name",
    ["", "mnist", "mnist-2", "mnist-2x", "mnist-2x20x3", "MNIST-2x20", "mnist--2x3", "mnist-2x0", "mnist-2x3-relu"],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="unknown architecture"):
        parse_architecture(name)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mnist-cnn", [8 * 13 * 13, 16 * 5 * 5, 100, 10]),
        ("mnist-cnn-wide", [16 * 13 * 13, 32 * 5 * 5, 128, 10]),
        ("mnist-cnn-gelu", [8 * 13 * 13, 16 * 5 * 5, 100, 10]),
        ("cifar-cnn", [32 * 16 * 16, 64 * 8 * 8, 256, 10]),
        ("cifar-resnet", [8 * 16 * 16, 16 * 8 * 8, 16 * 8 * 8, 100, 10]),
    ],
)
def test_convolutional_architectures_have_the_layers_of_their_tables(name: str, values: list[int]) -> None:
    architecture = parse_architecture(name)
    module, sizes = architecture.build(seed=1).eval(), []
    value = torch.zeros(2, *architecture.input_shape)
    for layer in module:
        value = layer(value)
        if isinstance(layer, nn.ReLU | nn.GELU):
            sizes.append(value[0].numel())
    assert [*sizes, value.shape[1]] == values
    assert architecture.name == name
    twin = architecture.build(seed=1)
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), twin.parameters(), strict=True))


def test_shortcuts_are_convolutions_only_where_shapes_change() -> None:
    blocks = [layer for layer in parse_architecture("cifar-resnet").build(0) if isinstance(layer, ResidualBlock)]
    kernels = [[layer.kernel_size for layer in block.shortcut if isinstance(layer, nn.Conv2d)] for block in blocks]
    assert kernels == [[(1, 1)], []]


@pytest.mark.parametrize("name", ["mnist-3x50", "mnist-cnn", "cifar-resnet"])
def test_small_weights_keep_the_widths_of_intervals(name: str) -> None:
    """A width of 1 becomes one of about 2, of which a ReLU leaves half; with the usual first weights it grows."""
    for small, least, most in ((True, 1.6, 2.4), (False, 2.5, 99)):
        module = parse_architecture(name).build(seed=0, small=small)
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear) and layer.weight[0].numel() > 20:
                growth = float(layer.weight.detach().flatten(1).abs().sum(1).mean())
                assert least < growth < most
                assert not small or layer.bias is None or not layer.bias.any()


def test_every_network_of_the_paper_has_a_plan() -> None:
    for name, plan in PLANS.items():
        parts = [plan.architecture.name.removesuffix("-wide"), plan.recipe.defence_name]
        assert name == "-".join(filter(None, parts))
        assert find_plan(name) is plan
    with pytest.raises(InputError, match="no plan"):
        find_plan("mnist-9x9")


def test_a_recipe_is_plain_json() -> None:
    row = json.loads(json.dumps(Recipe(defence=Certified(epsilon=0.2)).to_json(), allow_nan=False))
    assert "optimiser" not in row
    assert Recipe(optimiser="adam").to_json()["optimiser"] == "adam"
    assert row["defence"] == {
        "name": "certified",
        "epsilon": 0.2,
        "norm": "inf",
        "warm_up": 0.5,
        "bounds": "interval",
        "clean": 0.5,
        "stretch": 1.0,
        "box": None,
    }


@pytest.mark.parametrize(("norm", "bounds"), [("inf", "interval"), (2, "fast-lin"), (1, "fast-lin")])
def test_intervals_bound_the_loss_where_the_ball_is_a_box(norm: str | float, bounds: str) -> None:
    assert Certified(norm=norm).bounds == bounds
    assert Certified(norm=norm) == Certified(norm=norm, bounds=bounds)
    assert Certified(norm=norm).starts_small == (bounds == "interval")


def test_the_command_line_names_what_the_tables_have() -> None:
    assert tuple(DEFENCES) == cli_train.DEFENCES
    assert tuple(NAMED) == cli_train.NAMED
