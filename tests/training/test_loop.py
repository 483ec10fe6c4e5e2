"""The training loop: what it learns, that it can be repeated, interrupted and resumed, with every defence."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relucert
from relucert.errors import InputError, LoadError
from relucert.inputs.recipes.recipe import Adversarial, Certified, Defence, Distillation, Recipe
from relucert.training.checkpoint import EpochReport
from relucert.training.loop import Shuffled, accuracy, fit
from tests.training.problems import clusters, small_module

DEFENCES: dict[str, Defence | None] = {
    "none": None,
    "distillation": Distillation(temperature=10),
    "adversarial": Adversarial(epsilon=0.05, steps=3),
    "certified": Certified(epsilon=0.05),
    "certified by Fast-Lin": Certified(epsilon=0.05, bounds="fast-lin", clean=0, box=(-0.5, 0.5)),
}


def recipe(defence: str = "none", **changes: object) -> Recipe:
    settings = {"epochs": 6, "learning_rate": 0.1, "batch": 32, "seed": 5, "defence": DEFENCES[defence], **changes}
    return Recipe(**settings)  # type: ignore[arg-type]


def trained(chosen: Recipe, keep: Path | None = None) -> nn.Module:
    module = small_module(chosen.seed)
    fit(module, Shuffled(*clusters(), chosen.batch, chosen.seed), chosen, keep=keep)
    return module


@cache
def usual(defence: str, epochs: int = 6, optimiser: str = "sgd") -> nn.Module:
    """A module that several tests look at, and none changes."""
    rate = 0.1 if optimiser == "sgd" else 0.01
    return trained(recipe(defence, epochs=epochs, optimiser=optimiser, learning_rate=rate))


def weights(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


@pytest.mark.parametrize("defence", DEFENCES)
def test_every_defence_learns_the_problem(defence: str) -> None:
    module = usual(defence, epochs=25)
    assert not module.training
    assert accuracy(module, *clusters(seed=1)) > 0.95


@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.sampled
def test_a_seed_decides_everything(defence: str) -> None:
    state = torch.random.get_rng_state()
    one = trained(recipe(defence))
    assert torch.equal(state, torch.random.get_rng_state())
    assert same(one, usual(defence))
    assert not same(one, trained(recipe(defence, seed=6)))


def test_defences_differ() -> None:
    modules = [usual(defence) for defence in DEFENCES]
    assert not any(same(one, other) for place, one in enumerate(modules) for other in modules[:place])


@pytest.mark.parametrize("change", [{"stretch": 1.5}, {"clean": 0.2}, {"box": (-0.5, 0.5)}, {"warm_up": 0.2}])
def test_settings_of_certified_training_change_the_weights(change: dict[str, Any]) -> None:
    plain = replace(recipe(), epochs=3, defence=Certified(epsilon=0.1))
    assert not same(trained(plain), trained(replace(plain, defence=Certified(epsilon=0.1, **change))))


class StopError(Exception):
    """An interruption in the middle of a training."""


@pytest.mark.parametrize(
    ("defence", "optimiser", "after"),
    [
        (defence, optimiser, after)
        for defence, optimiser in [
            *((defence, "sgd") for defence in DEFENCES),
            ("none", "adam"),
            ("distillation", "adam"),
        ]
        for after in ((1, 3, 8) if defence == "distillation" else (1, 3))
    ],
)
@pytest.mark.sampled
def test_an_interrupted_training_ends_with_the_same_weights(
    defence: str, optimiser: str, after: int, tmp_path: Path
) -> None:
    rate = 0.1 if optimiser == "sgd" else 0.01
    chosen = recipe(defence, optimiser=optimiser, learning_rate=rate)
    keep = tmp_path / "training.checkpoint"
    whole = usual(defence, optimiser=optimiser)
    told: list[EpochReport] = []

    def interrupt(report: EpochReport) -> None:
        told.append(report)
        if len(told) == after:
            raise StopError

    module, batches = small_module(chosen.seed), Shuffled(*clusters(), chosen.batch, chosen.seed)
    stages = 2 if defence == "distillation" else 1
    with pytest.raises(StopError):
        fit(module, batches, chosen, keep=keep, report=interrupt)
    resumed = small_module(seed=77)
    reports = fit(resumed, batches, chosen, keep=keep)
    assert [(row.stage, row.epoch) for row in reports][-1] == ("network", 6)
    assert len(reports) == 6 * stages
    assert same(whole, resumed)
    assert [row.loss for row in reports[:after]] == [row.loss for row in told]


def test_checkpoints_of_other_trainings_are_refused(tmp_path: Path) -> None:
    keep = tmp_path / "training.checkpoint"
    trained(recipe(), keep)
    with pytest.raises(InputError, match="another training"):
        trained(recipe(learning_rate=0.01), keep)
    wider = small_module(width=20)
    with pytest.raises(InputError, match="another shape"):
        fit(wider, Shuffled(*clusters(), 32, 5), recipe(), keep=keep)
    keep.write_bytes(keep.read_bytes()[:100])
    with pytest.raises(LoadError, match="not a readable checkpoint"):
        trained(recipe(), keep)


def test_a_diverging_training_says_so() -> None:
    with pytest.raises(InputError, match="lower the learning rate"):
        trained(recipe(learning_rate=1e6, epochs=20))


def test_defences_show_in_the_certified_radius() -> None:
    images, labels = clusters(60, seed=1)
    mean = {}
    for defence in ("none", "adversarial", "certified"):
        module = usual(defence, epochs=25)
        answers = relucert.certify(module, images, labels)
        mean[defence] = np.mean([answer.radius or 0 for answer in answers])
    assert mean["none"] < min(mean["adversarial"], mean["certified"])


def test_adam_learns_with_a_learning_rate_of_its_own() -> None:
    loader = DataLoader(TensorDataset(*clusters()), batch_size=20)
    modules = [small_module(), small_module()]
    for module, rate in zip(modules, (None, 0.001), strict=True):
        relucert.train(module, loader, epochs=12, optimiser="adam", learning_rate=rate)
    assert same(*modules)
    assert accuracy(modules[0], *clusters(seed=1)) > 0.9


def test_training_ones_own_module_with_a_loader() -> None:
    images, labels = clusters()
    loader = DataLoader(TensorDataset(images, labels), batch_size=40)
    module = small_module()
    told: list[EpochReport] = []
    reports = relucert.train(
        module,
        loader,
        epochs=8,
        learning_rate=0.1,
        defence="certified",
        validation=clusters(seed=2),
        report=told.append,
    )
    assert reports == told
    assert [row.epoch for row in reports] == list(range(1, 9))
    assert reports[-1].validation == accuracy(module, *clusters(seed=2))
    assert reports[-1].accuracy > reports[0].accuracy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"defence": "luck"}, "unknown defence"),
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": -1}, "learning rate"),
        ({"learning_rate": float("nan")}, "learning rate"),
        ({"weight_decay": -1}, "weight decay"),
        ({"momentum": 1.0}, "momentum"),
        ({"seed": -1}, "seed"),
        ({"optimiser": "newton"}, "unknown optimiser"),
        ({"loader": []}, "at least one batch"),
        ({"loader": iter([])}, "length"),
        ({"module": lambda x: x}, "torch.nn.Module"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"module": small_module(), "loader": [clusters(8)], **change}
    with pytest.raises(InputError, match=message):
        relucert.train(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Distillation(0),
        lambda: Adversarial(epsilon=0),
        lambda: Adversarial(steps=0),
        lambda: Certified(epsilon=-1),
        lambda: Certified(norm=0.5),
        lambda: Certified(warm_up=1.5),
        lambda: Certified(bounds="magic"),  # type: ignore[arg-type]
        lambda: Certified(clean=1.1),
        lambda: Certified(stretch=0),
        lambda: Certified(box=(0.5, -0.5)),
    ],
)
def test_bad_defences_are_refused(build) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError):
        build()
