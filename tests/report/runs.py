"""Run files to report on: a real comparison on the bundled network, and invented ones of any size."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import torch

import relucert
from relucert import Network, UpperBound, data
from relucert.network import Linear
from relucert.report.reading import RecordedRun, read_record, run_of
from relucert.report.runfile import RunFile

HEAD: dict[str, Any] = {
    "relucert": relucert.__version__,
    "command": "compare",
    "skipped": {"lp-full": "60 s were not enough for an image"},
    "versions": {"torch": torch.__version__},
    "machine": {"cores": 2},
    "network": {"name": "mnist-2x20", "layers": "784-20-10", "parameters": 15910, "classes": 10},
    "options": {"norm": "inf", "target": "untargeted", "seed": 0, "box": None, "scale": None},
}


def write(path: Path, rows: list[dict[str, Any]], **changes: Any) -> Path:
    """A whole run file with these rows."""
    with RunFile({**HEAD, **changes}, path, None) as record:
        for row in rows:
            record.add(row)
        record.finish()
    return path


def read(path: Path) -> RecordedRun:
    """The answers of a run file."""
    return run_of(read_record(path), path)


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
    for attack in relucert.attack(network, images.images, images.labels, method="fmn", steps=40):
        rows.append({**attack.to_json(), "kind": "upper", "picture": _picture(images.images[attack.image], attack)})
    return rows


def invented(images: int) -> list[dict[str, Any]]:
    """Five answers per image, with pictures that don't compress."""
    draw = random.Random(0)
    rows = []
    for image in range(images):
        nearest = draw.uniform(0.01, 0.1)
        for method, share in (("fast-lin", 0.6), ("lp", 0.8)):
            rows.append(
                certified(image, share * nearest, method) | {"neurons": [{"dead": 4, "undecided": 10, "active": 6}]}
            )
        rows.append(answer(image, "exact", lower=nearest, upper=nearest, closed=True, unreachable=False, proven=True))
        rows.append(answer(image, "clever", value=1.1 * nearest, sampled=1.1 * nearest, fitted=True, proven=False))
        pixels = {part: base64.b64encode(draw.randbytes(3072)).decode() for part in ("original", "adversarial")}
        rows.append(attacked(image, 1.2 * nearest) | {"picture": {"shape": [32, 32, 3], **pixels}})
    return rows


def older(rows: list[dict[str, Any]], box: list[float] | None) -> list[dict[str, Any]]:
    """The rows as older versions wrote them: attacks and exact answers within the box, all others without saying."""
    silent = [{key: value for key, value in row.items() if key != "box"} for row in rows]
    return [{**row, "box": box} if {"distance", "upper"} & row.keys() else row for row in silent]


def answer(image: int, method: str, **keys: Any) -> dict[str, Any]:
    common = {"image": image, "label": image % 10, "target": (image + 1) % 10, "norm": "inf", "method": method}
    return {**common, "box": None, "reason": None, "seconds": 0.01, **keys}


def certified(image: int, radius: float | None, method: str = "fast-lin") -> dict[str, Any]:
    return answer(image, method, arithmetic="rigorous", radius=radius, proven=radius is not None)


def attacked(image: int, distance: float | None) -> dict[str, Any]:
    return answer(image, "best", distance=distance, predicted=1)


def _neurons(network: Network, image: torch.Tensor, radius: float) -> list[dict[str, int]]:
    """The counts of the only hidden layer, for p = inf."""
    layer = network.nodes[0].operation
    assert isinstance(layer, Linear)
    middle = layer.weight.double() @ image.double() + layer.bias.double()
    reach = radius * layer.weight.double().abs().sum(1)
    dead, active = int((middle + reach <= 0).sum()), int((middle - reach >= 0).sum())
    return [{"dead": dead, "undecided": len(middle) - dead - active, "active": active}]


def _picture(image: torch.Tensor, attack: UpperBound) -> dict[str, Any] | None:
    if attack.witness is None:
        return None
    picture: dict[str, Any] = {"shape": [28, 28]}
    for name, pixels in (("original", image), ("adversarial", attack.witness.flatten())):
        scaled = ((pixels.double() + 0.5) * 255).round().clamp(0, 255).to(torch.uint8)
        picture[name] = base64.b64encode(bytes(scaled.tolist())).decode()
    return picture
