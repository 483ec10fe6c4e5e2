"""Run files to report on: a real comparison on the bundled network, and made-up ones of any size."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import torch

import relucert
from relucert import Ball, Network, UpperBound, data
from relucert.report.runfile import RunFile

HEAD: dict[str, Any] = {
    "relucert": relucert.__version__,
    "command": "compare",
    "skipped": {"lp-full": "60 s were not enough for an image"},
    "versions": {"torch": torch.__version__},
    "machine": {"cores": 2},
    "network": {"name": "mnist-2x20", "layers": "784-20-10", "parameters": 15910, "classes": 10},
    "options": {"norm": "inf", "target": "untargeted", "seed": 0, "box": [-0.5, 0.5]},
}


def write(path: Path, rows: list[dict[str, Any]], **changes: Any) -> Path:
    """A whole run file with these rows."""
    with RunFile({**HEAD, **changes}, path, None) as record:
        for row in rows:
            record.add(row)
        record.finish()
    return path


def compared(count: int) -> list[dict[str, Any]]:
    """Rows as a comparison of methods writes them."""
    network = relucert.load("mnist-2x20")
    images = data.bundled().first(count)
    rows = []
    for method in ("fast-lin", "fast-lip", "op-norm"):
        for answer in relucert.certify(network, images.images, images.labels, method=method):
            row = {**answer.to_json(), "kind": "certified"}
            if method == "fast-lin" and answer.radius is not None:
                row["neurons"] = _neurons(network, images.images[answer.image], answer.radius)
            rows.append(row)
    for guess in relucert.estimate(network, images.images, images.labels, batches=10, samples=20):
        rows.append({**guess.to_json(), "kind": "estimate"})
    for found in relucert.attack(network, images.images, images.labels, method="fmn", steps=40):
        rows.append({**found.to_json(), "kind": "upper", "picture": _picture(images.images[found.image], found)})
    return rows


def invented(images: int) -> list[dict[str, Any]]:
    """Five answers an image, with pictures that don't compress."""
    draw = random.Random(0)
    rows = []
    for image in range(images):
        nearest = draw.uniform(0.01, 0.1)
        for method, share in (("fast-lin", 0.6), ("lp", 0.8)):
            rows.append(
                certified(image, share * nearest, method) | {"neurons": [{"dead": 4, "undecided": 10, "active": 6}]}
            )
        rows.append(
            answer(image, "branch-and-bound", lower=nearest, upper=nearest, closed=True, unreachable=False, proven=True)
        )
        rows.append(answer(image, "clever", value=1.1 * nearest, sampled=1.1 * nearest, proven=False))
        pixels = {part: base64.b64encode(draw.randbytes(3072)).decode() for part in ("original", "adversarial")}
        rows.append(attacked(image, 1.2 * nearest) | {"picture": {"shape": [32, 32, 3], **pixels}})
    return rows


def answer(image: int, method: str, **own: Any) -> dict[str, Any]:
    common = {"image": image, "label": image % 10, "target": (image + 1) % 10, "norm": "inf", "method": method}
    return {**common, "reason": None, "seconds": 0.01, **own}


def certified(image: int, radius: float | None, method: str = "fast-lin") -> dict[str, Any]:
    return answer(image, method, arithmetic="rigorous", radius=radius, proven=radius is not None)


def attacked(image: int, distance: float | None) -> dict[str, Any]:
    return answer(image, "best", distance=distance, predicted=1, box=None)


def _neurons(network: Network, image: torch.Tensor, radius: float) -> list[dict[str, int]]:
    hidden = relucert.bounds(network, Ball.around(image[None], radius, "inf"))[:-1]
    counts = []
    for own in hidden:
        dead, active = int((own.upper <= 0).sum()), int((own.lower >= 0).sum())
        counts.append({"dead": dead, "undecided": own.lower.numel() - dead - active, "active": active})
    return counts


def _picture(image: torch.Tensor, found: UpperBound) -> dict[str, Any] | None:
    if found.witness is None:
        return None
    pixels = {"original": image, "adversarial": found.witness.flatten()}
    scaled = {name: ((own.double() + 0.5) * 255).round().clamp(0, 255).to(torch.uint8) for name, own in pixels.items()}
    return {"shape": [28, 28]} | {name: base64.b64encode(bytes(own.tolist())).decode() for name, own in scaled.items()}
