"""Jobs whose answerers misbehave in worker processes."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from relucert.answers.certificates import Certificate, Rounding
from relucert.common.progress import Report
from relucert.errors import BudgetError
from relucert.execution.job import ImageJob, in_steps
from relucert.query.questions import Inquiry, Question


@dataclass(frozen=True)
class Answering:
    """Answers with the image's number and its first pixel; kills its process at some images: once, or each time.

    folder: where it leaves a file for every question that it is asked.
    """

    folder: Path
    once: tuple[int, ...] = ()
    always: tuple[int, ...] = ()
    refuse: tuple[int, ...] = ()
    pause: float = 0.0

    def run(self, inquiry: Inquiry, report: Report) -> Iterator[list[Certificate]]:
        for question in inquiry.questions:
            time.sleep(self.pause)
            image = question.image
            mark = self.folder / f"asked-{image}"
            before = mark.exists()
            with mark.open("a") as file:
                file.write("x")
            if image in self.always or (image in self.once and not before):
                os.kill(os.getpid(), signal.SIGKILL)
            if image in self.refuse:
                raise BudgetError(f"image {image} needs too much")
            yield [certificate(question, float(inquiry.images[image, 0]), None)]

    def lost(self, inquiry: Inquiry, question: Question, reason: str) -> Certificate:
        return certificate(question, None, reason)


def certificate(question: Question, radius: float | None, reason: str | None) -> Certificate:
    return Certificate(
        question.image, question.label, question.rivals[0], math.inf, "fake", Rounding.FLOAT, radius, reason, 0.0, 1,
        failed=radius is None,
    )  # fmt: skip


def job(answering: Answering, count: int, step: int) -> ImageJob[Certificate]:
    images = torch.arange(1.0, count + 1)[:, None].repeat(1, 4)
    questions = [Question(image, 0, [1], None) for image in range(count)]
    inquiry = Inquiry(images, torch.zeros(count, 2), questions)
    return ImageJob(answering, inquiry, in_steps(inquiry, step), {"command": "fake"})
