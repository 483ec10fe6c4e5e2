"""The picture of docs/sdp.md: proven radii against processor time, for every method.

python -m bench.radius_and_time; with a number, the mean over that many images (2).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import relucert
from relucert.common.names import MethodName
from relucert.data import bundled
from relucert.data.dataset import Dataset

NETWORK = "mnist-3x1024"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "radius-and-time.svg"
METHODS: tuple[MethodName, ...] = ("interval", "op-norm", "fast-lip", "fast-lin", "crown", "alpha", "sdp")
QUADRATIC, LINEAR, GUIDE = "#c2571a", "#1f5fa8", "#667788"


def measured(images: Dataset) -> tuple[dict[str, tuple[float, float]], float]:
    """By method the mean of its radii as multiples of Fast-Lin's, and seconds; the same of the nearest attack."""
    radii: dict[str, torch.Tensor] = {}
    seconds: dict[str, float] = {}
    for name in METHODS:
        started = time.process_time()
        answers = relucert.certify(NETWORK, images.images, images.labels, target="runner-up", workers=1, method=name)
        seconds[name] = (time.process_time() - started) / len(images)
        radii[name] = torch.tensor([answer.radius or 0.0 for answer in answers], dtype=torch.float64)
    attacks = relucert.attack(NETWORK, images.images, images.labels, target="runner-up", workers=1)
    distances = torch.tensor([attack.distance or torch.nan for attack in attacks], dtype=torch.float64)
    plain = radii["fast-lin"]
    points = {name: (seconds[name], float((radius / plain).mean())) for name, radius in radii.items()}
    return points, float((distances / plain).mean())


def draw(path: Path, points: dict[str, tuple[float, float]], attack: float, count: int) -> None:
    with matplotlib.rc_context({"svg.hashsalt": "relucert", "font.size": 10}):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for name, (seconds, ratio) in points.items():
            _point(axes, name, seconds, ratio)
        axes.axhline(attack, color=GUIDE, linestyle="--", linewidth=1)
        axes.text(1, attack, "nearest adversarial example known", ha="right", va="bottom", color=GUIDE,
                  transform=axes.get_yaxis_transform())  # fmt: skip
        axes.set_xscale("log")
        axes.set_ylim(0, 1.12 * attack)
        axes.set_xlabel("processor time for one radius, seconds")
        axes.set_ylabel("proven radius / Fast-Lin's")
        axes.set_title(f"{NETWORK}, p = infinity, runner-up, mean of {count} images", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _point(axes: Axes, name: str, seconds: float, ratio: float) -> None:
    colour = QUADRATIC if name == "sdp" else LINEAR
    axes.scatter(seconds, ratio, s=36, color=colour, zorder=2)
    axes.annotate(name, (seconds, ratio), xytext=(5, 5), textcoords="offset points", color=colour)


def main() -> None:
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    points, attack = measured(bundled().first(count))
    print("| method | radius / Fast-Lin's | CPU s |\n|---|---|---|")
    for name, (seconds, ratio) in points.items():
        print(f"| {name} | {ratio:.2f} | {seconds:.1f} |")
    print(f"| attack | {attack:.2f} | |")
    draw(PICTURE, points, attack, count)


if __name__ == "__main__":
    main()
