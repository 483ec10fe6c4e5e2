"""Architectures and plans by name."""

import json

import pytest
import torch

from relucert.errors import InputError
from relucert.recipes.architectures import parse_architecture
from relucert.recipes.plans import PLANS, find_plan
from relucert.recipes.recipe import Certified, Recipe


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("mnist-2x20", [784, 20, 10]), ("cifar-3x7", [3072, 7, 7, 10]), ("mnist-1x5", [784, 10])],
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
    "name", ["", "mnist", "mnist-2", "mnist-2x", "mnist-2x20x3", "MNIST-2x20", "mnist--2x3", "mnist-2x0"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="unknown architecture"):
        parse_architecture(name)


def test_every_network_of_the_paper_has_a_plan() -> None:
    for name, plan in PLANS.items():
        assert name.startswith(plan.architecture.name)
        assert name.removeprefix(plan.architecture.name).lstrip("-") == (plan.recipe.defence_name or "")
        assert find_plan(name) is plan
    with pytest.raises(InputError, match="no plan"):
        find_plan("mnist-9x9")


def test_a_recipe_is_plain_json() -> None:
    row = json.loads(json.dumps(Recipe(defence=Certified(epsilon=0.2)).to_json(), allow_nan=False))
    assert row["defence"] == {"name": "certified", "epsilon": 0.2, "norm": "inf", "warm_up": 0.5}
