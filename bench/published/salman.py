"""Table 2 of Salman et al. 2019: mean radii, p = inf, untargeted, on ten MNIST images, beside LP-ALL and PGD.

python -m bench.published.salman FOLDER --record FILE [--networks NAME ...] [--boxes none|valid ...]
       [--method sdp|best|exact|...] [--limit S]

The folder has the networks and images as .npz files; docs/benchmarks.md says where the originals are. Every image is a
question of its own: a run that was stopped goes on, and the table has whatever is answered. A record holds one method.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
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
EXACT = "exact"
BOXES = {"none": None, "valid": (0.0, 1.0)}
HEADER = ["network", "LP-ALL, published", "PGD, published", "box", "images", "radii / 1e-3", "mean", "s a radius"]


class Question(NamedTuple):
    """One image of one network."""

    folder: Path
    network: str
    box: str
    image: int
    method: str
    limit: float


def answer(question: Question) -> record.Row:
    """The proven radius of an image, and the distance of an adversarial example where the method knows one."""
    shape = (784,) if "mlp" in question.network else (1, 28, 28)
    network = network_of(question.folder / f"salman-mnist-{question.network}.npz", shape)
    images = torch.from_numpy(np.load(question.folder / "salman-ten-images.npz")["images"]).double()
    images = images / 255 if float(images.max()) > 1 else images
    image, box = images[question.image].reshape(1, *shape), BOXES[question.box]
    if question.method == EXACT:
        (distance,) = relucert.exact(network, image, norm="inf", box=box, time_limit=question.limit, workers=1)
        return {"radius": distance.lower, "upper": distance.upper, "reason": distance.reason}
    method = names.METHODS.find(question.method)
    budget = question.limit if method == "best" else None
    (certificate,) = relucert.certify(network, image, norm="inf", method=method, budget=budget, box=box, workers=1)
    return {"radius": certificate.radius, "evaluations": certificate.evaluations, "reason": certificate.reason}


def rows(answers: dict[str, record.Row]) -> Iterator[list[str]]:
    for name, (program, attack) in PUBLISHED.items():
        for box in BOXES:
            known = [answers.get(f"{name} {box} {image}") for image in range(IMAGES)]
            found = [row for row in known if row is not None]
            if found:
                radii = ", ".join("-" if row is None else _between([row]) for row in known)
                seconds = sum(row["seconds"] for row in found) / len(found)
                yield [
                    name, f"{program:.2f}", f"{attack:.2f}", box, str(len(found)), radii, _between(found),
                    f"{seconds:.1f}",
                ]  # fmt: skip


def _between(answers: Sequence[record.Row]) -> str:
    """The mean of proven radii in thousandths, and that of adversarial examples where every row has one."""
    ends = [1e3 * sum(row["radius"] or 0.0 for row in answers) / len(answers)]
    if all(row.get("upper") is not None for row in answers):
        ends.append(1e3 * sum(row["upper"] for row in answers) / len(answers))
    return " to ".join(f"{end:.2f}" for end in ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="*", choices=list(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--boxes", nargs="*", choices=list(BOXES), default=list(BOXES))
    parser.add_argument("--method", default="sdp", help="a method of `certify`, or exact (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for an image, by best and exact")
    record.add_arguments(parser)
    arguments = parser.parse_args()
    asked = {
        f"{network} {box} {image}": Question(arguments.folder, network, box, image, arguments.method, arguments.limit)
        for box in arguments.boxes
        for network in arguments.networks
        for image in range(IMAGES)
    }
    answers = record.filled(arguments, asked, answer)
    print(record.table(HEADER, rows(answers)))
    print(f"\n{record.circumstances(answers.values())}")


if __name__ == "__main__":
    main()
