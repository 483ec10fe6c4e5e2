"""A stand-in for the library behind the command: known answers, at a known pace, with known faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import relucert
from relucert import Certificate, Network
from relucert.answers import Rounding
from relucert.network import Linear, Node, Relu

WRONG_IMAGE = 3  # the one image the stand-in "misclassifies"


def network(inputs: int = 784, classes: int = 10) -> Network:
    """A small real network: the command asks it for its shape and its decisions."""
    draw = torch.Generator().manual_seed(0)
    hidden = Linear(torch.randn(4, inputs, generator=draw), torch.zeros(4))
    output = Linear(torch.randn(classes, 4, generator=draw), torch.zeros(classes))
    return Network((inputs,), (Node(hidden, (0,)), Node(Relu(), (1,)), Node(output, (2,))), "toy")


def radius(image: int) -> float | None:
    """What the stand-in answers for an image."""
    return None if image == WRONG_IMAGE else 0.012345678 * (1 + image % 7)


@dataclass
class Library:
    """Answers like `certify_each`, one image a `pause`; raises `fault` before the image `fault_at`."""

    pause: float = 0.0
    fault: BaseException | None = None
    fault_at: int = 0

    def load(self, source: object) -> Network:
        return network()

    def certify_each(
        self, known: Network, images: Tensor, labels: Tensor | None, **options: Any
    ) -> Iterator[Certificate]:
        for image in range(len(images)):
            if self.fault is not None and image == self.fault_at:
                raise self.fault
            time.sleep(self.pause)
            yield certificate(image, int(labels[image]) if labels is not None else 0, options)

    def replace(self) -> dict[str, Any]:
        """What to put into the package's namespace."""
        return {"load": self.load, "certify_each": self.certify_each}


def certificate(image: int, label: int, options: dict[str, Any]) -> Certificate:
    certified = radius(image)
    return Certificate(
        image=image,
        label=label,
        target=None if certified is None else (label + 1) % 10,
        norm=float(options["norm"]),
        method=options["method"],
        arithmetic=Rounding(options["arithmetic"]),
        radius=certified,
        reason="the network takes it for class 8" if certified is None else None,
        seconds=0.25,
        evaluations=4,
    )


def main(pause: str, *argv: str) -> int:
    """The command with a slow stand-in behind it, for tests that stop it from outside."""
    from relucert.cli.main import main as command

    vars(relucert).update(Library(pause=float(pause)).replace())
    return command(argv)


if __name__ == "__main__":
    import sys

    sys.exit(main(*sys.argv[1:]))
