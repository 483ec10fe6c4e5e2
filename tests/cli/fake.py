"""A stand-in for the library behind the command: known answers, at a known pace, with known faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import relucert
from relucert import Certificate, Network
from relucert.answers.certificates import Rounding
from relucert.common.progress import Report
from relucert.execution.job import ImageJob, in_steps
from relucert.execution.run import start
from relucert.network import Linear, Node, Relu
from relucert.query.questions import Inquiry, Question

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
    """Answers like `certify_each`, one image a `pause`; raises `fault` before the image `fault_at`.

    asked: the images that were worked on.
    """

    pause: float = 0.0
    fault: BaseException | None = None
    fault_at: int = 0
    asked: list[int] = field(default_factory=list)

    def load(self, source: object, **options: object) -> Network:
        return network()

    def certify_each(
        self, known: Network, images: Tensor, labels: Tensor | None, **options: Any
    ) -> Iterator[Certificate]:
        given = [0] * len(images) if labels is None else labels.tolist()
        questions = [Question(image, label, [(label + 1) % 10], None) for image, label in enumerate(given)]
        inquiry = Inquiry(images, torch.zeros(len(images), 10), questions)
        workers, store = options.pop("workers", 1), options.pop("store", None)
        asked = {name: str(value) for name, value in options.items() if name != "memory"}
        job = ImageJob(Answering(self, options), inquiry, in_steps(inquiry, 1), asked)
        return start(job, workers, None, store)

    def replace(self) -> dict[str, Any]:
        """What to put into the package's namespace."""
        return {"load": self.load, "certify_each": self.certify_each}


@dataclass
class Answering:
    """Answers like a method."""

    library: Library
    options: dict[str, Any]

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[Certificate]]:
        for question in inquiry.questions:
            if self.library.fault is not None and question.image == self.library.fault_at:
                raise self.library.fault
            time.sleep(self.library.pause)
            self.library.asked.append(question.image)
            assert question.label is not None
            yield [certificate(question.image, question.label, self.options)]

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Certificate:
        raise NotImplementedError


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
