"""Attacks side by side with foolbox's: the same network, images, rivals, box and number of gradient steps."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

import relucert
from relucert.data import bundled
from relucert.network import Network

HEADER = ["p", "attack", "foolbox", "found", "s", "relucert", "found", "s"]
NETWORK, IMAGES, STEPS, ROUNDS = "mnist-3x1024", 10, 200, 6
BOX = (-0.5, 0.5)


class _Race(torch.nn.Module):
    """Two scores per image: the label's and the runner-up's, so that success means what it means for relucert."""

    def __init__(self, network: Network, labels: torch.Tensor, rivals: torch.Tensor) -> None:
        super().__init__()
        self.network, self.pair = network.cast(torch.float32), torch.stack([labels, rivals], 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(images).gather(1, self.pair)


def rows() -> Iterator[list[str]]:
    """Means over the images that an attack succeeded on, and how many those are; no polish, except for `best`."""
    network, images = relucert.load(NETWORK), bundled().first(IMAGES).images
    scores = network.cast(torch.float32)(images)
    labels, rivals = scores.topk(2).indices.unbind(1)
    for p, name, theirs in _foolbox_attacks():
        started = time.perf_counter()
        distances = _run_foolbox(theirs, _Race(network, labels, rivals), images, p)
        between = time.perf_counter()
        ours = _distances(network, images, norm=p, method=name, polish=False)
        ended = time.perf_counter()
        yield [f"{p:g}", name, *_cells(distances, between - started), *_cells(ours, ended - between)]
    for p in (1.0, 2.0, math.inf):
        started = time.perf_counter()
        best = _distances(network, images, norm=p)
        yield [f"{p:g}", "best, polished", "", "", "", *_cells(best, time.perf_counter() - started)]


def _foolbox() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports what SciPy is about to drop
        return import_module("foolbox")


def _foolbox_attacks() -> list[tuple[float, str, Any]]:
    attacks = _foolbox().attacks
    penalised = {"steps": STEPS // ROUNDS, "binary_search_steps": ROUNDS, "abort_early": False, "initial_const": 0.1}
    return [
        (1.0, "ead", attacks.EADAttack(**penalised, decision_rule="L1")),
        (1.0, "fmn", attacks.L1FMNAttack(steps=STEPS)),
        (2.0, "cw", attacks.L2CarliniWagnerAttack(**penalised)),
        (2.0, "ddn", attacks.DDNAttack(steps=STEPS)),
        (2.0, "fmn", attacks.L2FMNAttack(steps=STEPS)),
        (math.inf, "fmn", attacks.LInfFMNAttack(steps=STEPS)),
    ]


def _run_foolbox(attack: Any, race: _Race, images: torch.Tensor, p: float) -> list[float]:
    foolbox = _foolbox()
    model = foolbox.PyTorchModel(race.eval(), bounds=BOX, device="cpu")
    examples = attack.run(model, images, foolbox.Misclassification(torch.zeros(len(images), dtype=torch.long)))
    lengths = torch.linalg.vector_norm(examples - images, ord=p, dim=1)
    return [float(length) for length in lengths[race(examples).argmax(1) == 1]]


def _distances(network: Network, images: torch.Tensor, **options: Any) -> list[float]:
    answers = relucert.attack(network, images, target="runner-up", steps=STEPS, box=BOX, **options)
    return [answer.distance for answer in answers if answer.distance is not None]


def _cells(distances: list[float], seconds: float) -> list[str]:
    return [f"{sum(distances) / max(1, len(distances)):.5f}", str(len(distances)), f"{seconds:.1f}"]
