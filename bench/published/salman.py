"""Table 2 of Salman et al. 2019: mean radii, p = inf, untargeted, on ten MNIST images, beside LP-ALL and PGD.

python -m bench.published.salman FOLDER --record FILE [--networks NAME ...] [--method NAME] [--boxes none|valid ...]

The folder has the networks and images as .npz files; docs/benchmarks.md says where the originals are. Every image is a
question of its own: a run that was stopped goes on, and the table has whatever is answered.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import relucert
from bench import record
from bench.published.networks import network_of
from relucert.common import names

PUBLISHED = {
    "mlp-2-100-nor": (15.83, 28.14),
    "mlp-9-100-nor": (14.23, 31.37),
    "cnn-small-nor": (18.87, 52.70),
    "cnn-small-adv": (85.94, 155.16),
    "cnn-deep-1-nor": (19.58, 44.79),
}  # mean radii of LP-ALL and of PGD, in thousandths
IMAGES = 10
BOXES = {"none": None, "valid": (0.0, 1.0)}
HEADER = ["network", "LP-ALL, published", "PGD, published", "box", "images", "radii / 1e-3", "mean", "s a radius"]


class Question(NamedTuple):
    """One image of one network."""

    folder: Path
    network: str
    box: str
    image: int
    method: str


def answer(question: Question) -> record.Row:
    """The proven radius of an image."""
    shape = (784,) if "mlp" in question.network else (1, 28, 28)
    network = network_of(question.folder / f"salman-mnist-{question.network}.npz", shape)
    images = torch.from_numpy(np.load(question.folder / "salman-ten-images.npz")["images"]).double()
    images = images / 255 if float(images.max()) > 1 else images
    (certificate,) = relucert.certify(
        network, images[question.image].reshape(1, *shape), norm="inf", method=names.METHODS.find(question.method),
        box=BOXES[question.box], workers=1,
    )  # fmt: skip
    return {"radius": certificate.radius, "evaluations": certificate.evaluations, "reason": certificate.reason}


def rows(answers: dict[str, record.Row]) -> Iterator[list[str]]:
    for name, (program, attack) in PUBLISHED.items():
        for box in BOXES:
            known = [(image, answers.get(f"{name} {box} {image}")) for image in range(IMAGES)]
            found = [row for _, row in known if row is not None]
            if not found:
                continue
            radii = [None if row is None else 1e3 * (row["radius"] or 0.0) for _, row in known]
            told = ["-" if radius is None else f"{radius:.2f}" for radius in radii]
            whole = [radius for radius in radii if radius is not None]
            yield [
                name, f"{program:.2f}", f"{attack:.2f}", box, str(len(found)), ", ".join(told),
                f"{sum(whole) / len(whole):.2f}", f"{sum(row['seconds'] for row in found) / len(found):.1f}",
            ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="*", choices=list(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--boxes", nargs="*", choices=list(BOXES), default=list(BOXES))
    parser.add_argument("--method", default="sdp")
    record.add_arguments(parser)
    arguments = parser.parse_args()
    asked = {
        f"{network} {box} {image}": Question(arguments.folder, network, box, image, arguments.method)
        for box in arguments.boxes
        for network in arguments.networks
        for image in range(IMAGES)
    }
    answers = record.filled(arguments, asked, answer)
    print(record.table(HEADER, rows(answers)))
    print(f"\n{record.circumstances(answers.values())}")


if __name__ == "__main__":
    main()
