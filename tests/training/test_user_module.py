"""`relucert.train` and the losses on modules and data that users bring: state, randomness, faults."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relucert
from relucert.errors import InputError, RelucertError, UnsupportedError
from relucert.inputs.recipes.recipe import Defence
from relucert.training.losses import attacked
from tests.training.problems import clusters, small_module

DEFENCES: dict[str, Defence | None] = {
    "none": None,
    "distillation": relucert.Distillation(temperature=10),
    "adversarial": relucert.Adversarial(epsilon=0.05, steps=2),
    "certified": relucert.Certified(epsilon=0.02),
}


def with_layer(layer: nn.Module) -> nn.Module:
    first, relu, *others = small_module()
    return nn.Sequential(first, relu, layer, *others)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: with_layer(nn.BatchNorm1d(16)),
    "dropout": lambda: with_layer(nn.Dropout(0.5)),
}


class StopError(Exception):
    """An interruption."""


def loader() -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*clusters(96)), batch_size=32, shuffle=True)


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def trained(layer: str, defence: str, **settings: Any) -> nn.Module:
    module = MODULES[layer]()
    relucert.train(module, loader(), epochs=3, defence=DEFENCES[defence], **settings)
    return module


@cache
def usual(layer: str, defence: str, **settings: Any) -> dict[str, Tensor]:
    """The state after a training that nothing interrupts, which nothing changes."""
    torch.manual_seed(1)
    return state(trained(layer, defence, **settings))


@pytest.mark.parametrize("after", [2, 4])
@pytest.mark.parametrize(
    ("layer", "defence"),
    [(layer, defence) for layer in MODULES for defence in DEFENCES if (layer, defence) != ("batch norm", "certified")],
)
def test_modules_with_state_and_randomness_resume_to_the_same(
    layer: str, defence: str, after: int, tmp_path: Path
) -> None:
    keep, told = tmp_path / "training.checkpoint", []

    def interrupt(report: object) -> None:
        told.append(report)
        if len(told) == after:
            raise StopError

    whole = usual(layer, defence)
    torch.manual_seed(2)
    if after <= 3 or defence == "distillation":
        with pytest.raises(StopError):
            trained(layer, defence, checkpoint=keep, report=interrupt)
    resumed = trained(layer, defence, checkpoint=keep)
    assert same(whole, state(resumed))
    assert not resumed.training
    assert not same(whole, usual(layer, defence, seed=4))


def test_attacks_leave_running_statistics_alone() -> None:
    module = MODULES["batch norm"]()
    relucert.train(module, [clusters(32)], epochs=2, defence=relucert.Adversarial(0.05, steps=5, warm_up=0))
    assert int(module.state_dict()["2.num_batches_tracked"]) == 2


@pytest.mark.parametrize("box", [None, (0.0, 1.0), (-0.5, 2.0)])
def test_attacks_stay_in_the_ball_and_the_box_of_the_user(box: tuple[float, float] | None) -> None:
    images, labels = clusters(60)
    images = images + 0.5
    defence = relucert.Adversarial(0.05, steps=4, box=box)
    adversarial = attacked(small_module(), images, labels, 0.05, defence, torch.Generator().manual_seed(0))
    assert (adversarial - images).abs().max() <= 0.05 + 1e-6
    outside = (adversarial < 0) | (adversarial > 1)
    assert bool(outside.any()) is (box != (0.0, 1.0))


def test_images_outside_of_the_box_are_refused() -> None:
    images, labels = clusters(20)
    with pytest.raises(InputError, match="outside of the box"):
        relucert.train(
            small_module(), [(images + 0.5, labels)], defence=relucert.Adversarial(box=(-0.5, 0.5), warm_up=0)
        )


def test_tied_weights_can_be_kept(tmp_path: Path) -> None:
    module = small_module(size=16)
    module[2].weight = module[0].weight
    images, labels = clusters(32, size=16)
    for epochs in (1, 1):
        relucert.train(module, [(images, labels)], epochs=epochs, checkpoint=tmp_path / "tied.checkpoint")
    assert module[2].weight is module[0].weight


def test_a_module_without_bounds_is_refused_before_it_learns() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Hardshrink(), nn.Linear(8, 3))
    before = state(module)
    with pytest.raises(UnsupportedError, match="Hardshrink"):
        relucert.train(module, [clusters(12)], epochs=100, defence="certified")
    assert same(before, state(module))


IMAGES, LABELS = clusters(12)
NO_BATCH = type("NoBatch", (list,), {"__iter__": lambda self: iter(())})([1])


def frozen() -> nn.Module:
    return small_module().requires_grad_(False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loader": [(IMAGES, LABELS + 5)]}, "label 5 is not among"),
        ({"loader": [(IMAGES, LABELS - 1)]}, "label -1 is not among"),
        ({"loader": [(IMAGES, LABELS[:3])]}, "one per image, 12 in all"),
        ({"loader": [(IMAGES, LABELS.float())]}, "whole numbers"),
        ({"loader": [(IMAGES[:, :5], LABELS)]}, "fails on inputs"),
        ({"loader": [(IMAGES, LABELS), (IMAGES[:, :5], LABELS)]}, "a later one"),
        ({"loader": [(IMAGES, LABELS, LABELS)]}, "pairs"),
        ({"loader": [(IMAGES.numpy(), LABELS)]}, "tensors"),
        ({"loader": [(IMAGES * float("nan"), LABELS)]}, "NaN"),
        ({"loader": [(IMAGES.long(), LABELS)]}, "floats"),
        ({"loader": NO_BATCH}, "no batch"),
        ({"module": frozen()}, "no parameters"),
        ({"module": small_module().double()}, "dtype"),
        ({"module": small_module(classes=1), "loader": [(IMAGES, LABELS * 0)]}, "two scores"),
        ({"validation": (IMAGES[:, :5], LABELS)}, "the validation"),
        ({"validation": IMAGES}, "pair"),
        ({"defence": 3}, "a defence is one of"),
        ({"defence": relucert.Certified}, "a defence is one of"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"epochs": 2**70}, "epochs must be a whole number"),
        ({"learning_rate": float("inf")}, "learning rate must be a finite"),
        ({"learning_rate": "0.1"}, "learning rate must be a finite"),
        ({"weight_decay": float("inf")}, "weight decay"),
        ({"checkpoint": "nowhere/at/all.checkpoint"}, "no folder"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_learnt(change: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"module": small_module(), "loader": [(IMAGES, LABELS)], "epochs": 2, **change}
    before = state(settings["module"])
    reports: list[object] = []
    with pytest.raises(RelucertError, match=message) as caught:
        relucert.train(**settings, report=reports.append)
    assert "\n" not in str(caught.value)
    assert not reports
    if "a later one" not in message:
        assert same(before, state(settings["module"]))


def test_labels_of_any_whole_kind_are_the_same() -> None:
    modules = [small_module(), small_module()]
    for module, labels in zip(modules, (LABELS, LABELS.int()), strict=True):
        relucert.train(module, [(IMAGES, labels)], epochs=2)
    assert same(state(modules[0]), state(modules[1]))


@pytest.mark.parametrize("seed", [2**62, 2**63 - 1])
def test_every_seed_trains(seed: int) -> None:
    relucert.train(small_module(), [(IMAGES, LABELS)], epochs=1, seed=seed, defence=DEFENCES["adversarial"])


@pytest.mark.parametrize(
    "build",
    [
        lambda: relucert.Certified(epsilon=float("inf")),
        lambda: relucert.Certified(norm="half"),
        lambda: relucert.Adversarial(steps=2.5),  # type: ignore[arg-type]
        lambda: relucert.Adversarial(epsilon=float("inf")),
        lambda: relucert.Adversarial(box=(1.0, 0.0)),
        lambda: relucert.Adversarial(box=(0.0, float("nan"))),
        lambda: relucert.Adversarial(box=0.5),  # type: ignore[arg-type]
        lambda: relucert.Distillation(float("inf")),
    ],
)
def test_bad_defences_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        build()
    assert relucert.Certified(norm="inf") == relucert.Certified()


@pytest.mark.parametrize(
    ("network", "images", "labels", "message"),
    [
        (small_module(), IMAGES, LABELS + 5, "label 5"),
        (small_module(), IMAGES, LABELS - 3, "label -3"),
        (small_module(), IMAGES, LABELS[:3], "12 in all"),
        (small_module(), IMAGES, LABELS.float(), "whole numbers"),
        (small_module(), IMAGES * float("nan"), LABELS, "NaN"),
        (small_module(), IMAGES.long(), LABELS, "floats"),
        (small_module(), IMAGES[:0], LABELS[:0], "one row per image"),
        (relucert.live_network(small_module()), IMAGES[:, :5], LABELS, "the shape"),
        (small_module(classes=1), IMAGES, LABELS * 0, "no rival"),
        ("mnist-2x20", IMAGES, LABELS, "a network, a module"),
    ],
)
def test_the_robust_loss_refuses_what_does_not_fit(network: Any, images: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        relucert.robust_loss(network, images, labels, 0.1)


DEAD: dict[str, Callable[[nn.Sequential], object]] = {
    "dead layer": lambda module: module.get_parameter("2.bias").fill_(-50),
    "zero row": lambda module: [module.get_parameter(name)[0].zero_() for name in ("0.weight", "2.weight")],
    "twin outputs": lambda module: module.get_parameter("4.weight")[:2].copy_(
        module.get_parameter("4.weight")[1].clone()
    ),
    "all zero": lambda module: [parameter.zero_() for parameter in module.parameters()],
}


@pytest.mark.parametrize("norm", ["1", "1.5", "2", "3", "inf"])
@pytest.mark.parametrize("case", DEAD)
def test_gradients_are_finite_where_a_form_is_zero(case: str, norm: str) -> None:
    module = small_module()
    with torch.no_grad():
        DEAD[case](module)
    relucert.robust_loss(module, IMAGES, LABELS, 0.05, norm).backward()
    for parameter in module.parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()
