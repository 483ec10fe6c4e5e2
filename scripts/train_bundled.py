"""Trains the bundled MNIST networks and stores them in the package's zoo.

    python scripts/train_bundled.py DATA_DIR [NAME ...]

DATA_DIR holds mnist_train.npz and mnist_test.npz (`images` uint8 N x 28 x 28, `labels` uint8).
"""

import argparse
import itertools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import relucert

ZOO = Path(__file__).parent.parent / "src" / "relucert" / "loading" / "zoo"
VALIDATION = 5000


@dataclass(frozen=True)
class Recipe:
    """How one network is trained: SGD with momentum 0.9 and a cosine schedule on cross-entropy."""

    layers: int
    width: int
    epochs: int
    learning_rate: float
    weight_decay: float
    batch: int = 128
    seed: int = 0
    half: bool = False


RECIPES = {
    "mnist-2x20": Recipe(2, 20, epochs=80, learning_rate=0.02, weight_decay=3e-4, seed=2),
    "mnist-3x20": Recipe(3, 20, epochs=80, learning_rate=0.02, weight_decay=3e-4, seed=2),
    "mnist-3x1024": Recipe(3, 1024, epochs=20, learning_rate=0.05, weight_decay=1e-4, half=True),
}


def pixels(path: Path) -> tuple[Tensor, Tensor]:
    """Images as rows in [-0.5, 0.5], and their labels."""
    with np.load(path, allow_pickle=False) as file:
        images = torch.from_numpy(file["images"].reshape(len(file["images"]), -1))
        labels = torch.from_numpy(file["labels"].astype(np.int64))
    return images.float() / 255 - 0.5, labels


def build(recipe: Recipe) -> nn.Sequential:
    widths = [784] + [recipe.width] * (recipe.layers - 1) + [10]
    steps: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        steps += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*steps[:-1])


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).double().mean())


def train(recipe: Recipe, images: Tensor, labels: Tensor) -> nn.Sequential:
    torch.manual_seed(recipe.seed)
    order = torch.Generator().manual_seed(recipe.seed)
    model = build(recipe)
    fit, held = slice(VALIDATION, None), slice(None, VALIDATION)
    count = len(images[fit])
    steps = recipe.epochs * (count // recipe.batch)
    optimiser = torch.optim.SGD(
        model.parameters(), recipe.learning_rate, momentum=0.9, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for epoch in range(recipe.epochs):
        shuffled = torch.randperm(count, generator=order)[: count // recipe.batch * recipe.batch]
        for chosen in shuffled.view(-1, recipe.batch):
            loss = nn.functional.cross_entropy(model(images[fit][chosen]), labels[fit][chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: validation {accuracy(model, images[held], labels[held]):.4f}", flush=True)
    if recipe.half:
        model = model.half().float()  # the rounded weights are the network
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("names", nargs="*", default=list(RECIPES))
    arguments = parser.parse_args()
    images, labels = pixels(arguments.data / "mnist_train.npz")
    test_images, test_labels = pixels(arguments.data / "mnist_test.npz")
    for name in arguments.names:
        recipe = RECIPES[name]
        model = train(recipe, images, labels)
        score = accuracy(model, test_images, test_labels)
        print(f"{name}: test accuracy {score:.4f}")
        stored = model.half() if recipe.half else model
        about = {"recipe": json.dumps(asdict(recipe)), "test_accuracy": f"{score:.4f}"}
        network = replace(relucert.load(stored, input_shape=(784,)), name=name)
        relucert.save(network, ZOO / f"{name}.safetensors", about)


if __name__ == "__main__":
    main()
