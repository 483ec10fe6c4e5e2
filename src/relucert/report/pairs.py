"""Pictures of adversarial examples: the image, the perturbation magnified, and the example."""

from __future__ import annotations

import io
import math
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from relucert.answers import UpperBound
from relucert.errors import InputError
from relucert.report import files
from relucert.report.png import magnification
from relucert.report.summary import rounded_up

COLOURS = 3
Picture = NDArray[np.float64]


class Album:
    """A folder of pictures, one a pair, for a network that takes images."""

    def __init__(self, folder: Path, input_shape: tuple[int, ...]) -> None:
        self.folder, self.shape, self.count = folder, _picture_shape(input_shape), 0
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"can't write pictures into {folder}: {error.strerror}") from error
        files.check_writable(folder / "image.png")

    def add(self, image: Tensor, answer: UpperBound) -> None:
        """Draws an attack that found something farther than the image itself."""
        if answer.witness is None or not answer.distance:
            return
        name = f"image-{answer.image:05d}-label-{answer.label}-rival-{answer.target}.png"
        files.write(self.folder / name, self._draw(image.double().flatten(), answer.witness.double().flatten(), answer))
        self.count += 1

    def _draw(self, image: Tensor, witness: Tensor, answer: UpperBound) -> bytes:
        low, high = answer.box or (float(min(image.min(), witness.min())), float(max(image.max(), witness.max())))
        change = (witness - image) / (high - low)
        factor = magnification(float(change.abs().max()))
        p = "inf" if math.isinf(answer.norm) else f"{answer.norm:g}"
        panels = (
            ((image - low) / (high - low), f"image {answer.image}: class {answer.label}"),
            (0.5 + factor * change, f"perturbation, {factor} times"),
            ((witness - low) / (high - low), f"taken for class {answer.predicted}"),
        )
        content = io.BytesIO()
        with matplotlib.rc_context({"font.size": 10}):
            figure = Figure(figsize=(7.2, 3.0), layout="constrained")
            FigureCanvasAgg(figure)
            distance = rounded_up(answer.distance or 0.0, 4)
            figure.suptitle(f"rival {answer.target} catches up at distance {distance} (p = {p}, {answer.method})")
            for axes, (pixels, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
                axes.imshow(self._arranged(pixels), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axes.set_title(title, fontsize=10)
                axes.set_axis_off()
            figure.savefig(content, format="png", dpi=120)
        return content.getvalue()

    def _arranged(self, pixels: Tensor) -> Picture:
        """Rows by columns, by colours if there are any."""
        planes = pixels.clamp(0, 1).reshape(self.shape).numpy()
        return planes[0] if len(planes) == 1 else np.moveaxis(planes, 0, -1)


def _picture_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Colours, rows and columns; a flat input counts as a square, grey or with its three colours one after another."""
    if len(shape) == 3 and shape[0] in (1, COLOURS):
        return (shape[0], shape[1], shape[2])
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 1:
        for colours in (1, COLOURS):
            side = math.isqrt(shape[0] // colours)
            if colours * side * side == shape[0]:
                return (colours, side, side)
    raise InputError(f"can't draw inputs of shape {shape}: they are no grey or three-coloured pictures")
