"""Draws a run's curve of accuracy against radius into a picture file."""

from __future__ import annotations

import io
import math
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from relucert.errors import InputError
from relucert.inputs.storage import files
from relucert.report.summary import Summary, against, rounded_down

UNDATED = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
MARKED = {".png": "Comment", ".svg": "Description", ".pdf": "Keywords"}  # where a picture says what it is about
CURVE, GUIDE, QUIET = "#1f5fa8", "#c2571a", "#667788"  # colours of the curve, of the median, of what stands back


def check_suffix(path: Path) -> None:
    """Raises InputError for a suffix of no format that can be drawn."""
    if path.suffix.lower() not in UNDATED:
        raise InputError(f"can't draw {path}: pictures end in {', '.join(UNDATED)}")


def draw(path: Path, summary: Summary, title: str, question: str, norm: str, target: str | int, mark: str = "") -> None:
    """Draws the share of images that keep their class within each radius; equal runs give equal files.

    target: what the radii are about; mark: the beginning of the question's SHA-256, by which the picture is recognised.
    """
    check_suffix(path)
    suffix = path.suffix.lower()
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "relucert", "font.size": 11}):
        figure = Figure(figsize=(7.2, 4.6), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=14, fontweight="bold", pad=24, parse_math=False)
        axes.text(0, 1.025, question, transform=axes.transAxes, fontsize=10, color=QUIET, parse_math=False)
        _curve(axes, summary)
        frame(
            axes,
            1.05 * _farthest(summary),
            f"radius, p = {norm}{'' if summary.proven else ' (rounding ignored)'}",
            f"{'certified accuracy' if summary.proven else 'accuracy, not certified'}{against(target)}",
        )
        figure.savefig(content, format=suffix[1:], dpi=160, metadata={**UNDATED[suffix], MARKED[suffix]: mark})
    files.write(path, content.getvalue())


def _farthest(summary: Summary) -> float:
    """The largest finite radius; 1 where there is none."""
    return max((radius for radius in summary.radii if 0 < radius < math.inf), default=1.0)


def _curve(axes: Axes, summary: Summary) -> None:
    """A step down at every image's radius, from the share that has a radius at all."""
    radii = [min(radius, 2 * _farthest(summary)) for radius in (0.0, *sorted(summary.radii))]
    shares = [count / max(1, summary.with_rival) for count in range(len(summary.radii), -1, -1)]
    axes.step(radii, shares, where="post", color=CURVE, linewidth=2)
    axes.fill_between(radii, shares, step="post", color=CURVE, alpha=0.12, linewidth=0)
    if summary.correct is not None:
        clean = summary.correct / max(1, summary.images)
        axes.axhline(clean, color=QUIET, linewidth=1, linestyle=":")
        axes.annotate(
            f"clean accuracy {clean:.1%}", (1, clean), (-4, 4), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", color=QUIET, fontsize=9,
        )  # fmt: skip
    if summary.median is not None and summary.median < math.inf:
        axes.axvline(summary.median, color=GUIDE, linewidth=1.2, linestyle="--")
        axes.annotate(
            f"median {rounded_down(summary.median, 3)}", (summary.median, 1), (5, -4),
            xycoords=("data", "axes fraction"), textcoords="offset points", va="top", color=GUIDE, fontsize=9,
        )  # fmt: skip


def new_axes() -> Axes:
    """Axes in a new figure of pyplot."""
    from matplotlib import pyplot

    return pyplot.figure(layout="constrained").add_subplot()


def frame(axes: Axes, top: float, across: str, up: str) -> None:
    """Axes of shares against radii up to `top`."""
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlim(0, top)
    axes.set_ylim(0, 1.12)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.grid(color="#e3e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
