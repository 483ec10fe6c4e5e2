"""Pictures of adversarial examples: the image, the perturbation magnified, and the example."""

from __future__ import annotations

import io
import math
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from torch import Tensor

from relucert.answers.certificates import UpperBound
from relucert.errors import InputError
from relucert.inputs.storage import files
from relucert.network import Network
from relucert.report import pictures
from relucert.report.runfile import MARK
from relucert.report.summary import rounded_up

ANOTHER_QUESTION = "a picture of another question"


class Album:
    """A folder of pictures, one per image and adversarial example, for a network that takes images.

    question: the SHA-256 of the question; pictures about another one are refused unless `overwrite`.
    """

    def __init__(self, folder: Path, network: Network, question: str, overwrite: bool) -> None:
        self.folder, self.shape, self.count = folder, pictures.shape_of(network), 0
        self._mark = question[:MARK]
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"can't write pictures into {folder}: {error.strerror}") from error
        files.check_writable(folder / "image.png")
        for path in sorted(folder.glob("image-*.png")):
            files.check_replaceable(path, lambda there: self._mark.encode() in there, overwrite, ANOTHER_QUESTION)

    def add(self, image: Tensor, answer: UpperBound) -> None:
        """Draws the adversarial example of an attack, unless there is none but the image itself."""
        if answer.witness is None or not answer.distance:
            return
        name = f"image-{answer.image:05d}-label-{answer.label}-rival-{answer.target}.png"
        files.write(self.folder / name, self._draw(image.double().flatten(), answer.witness.double().flatten(), answer))
        self.count += 1

    def _draw(self, image: Tensor, witness: Tensor, answer: UpperBound) -> bytes:
        low, high = pictures.limits(image, witness, answer.box)
        change = (witness - image) / (high - low)
        factor = pictures.magnification(float(change.abs().max()))
        p = "inf" if math.isinf(answer.norm) else f"{answer.norm:g}"
        panels = (
            ((image - low) / (high - low), f"image {answer.image}: class {answer.label}"),
            (0.5 + factor * change, f"perturbation, {factor} times"),
            ((witness - low) / (high - low), f"taken for class {answer.predicted}"),
        )
        content = io.BytesIO()
        with matplotlib.rc_context({"font.size": 10}):
            figure = Figure(figsize=(7.2, 3.0), layout="constrained")
            distance = rounded_up(answer.distance or 0.0, 4)
            figure.suptitle(f"rival {answer.target} catches up at distance {distance} (p = {p}, {answer.method})")
            for axes, (pixels, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
                axes.imshow(pictures.arranged(pixels, self.shape), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axes.set_title(title, fontsize=10)
                axes.set_axis_off()
            figure.savefig(content, format="png", dpi=120, metadata={"Comment": self._mark})
        return content.getvalue()
