"""A list of instances to verify."""

from __future__ import annotations

from pathlib import Path

from tests.nets import mlp
from tests.verification.networks import as_onnx


def write_instances(folder: Path, count: int) -> None:
    """Writes `list.csv`, a small network, and so many properties of it."""
    as_onnx(mlp(2, 8, 8, 2, seed=6), folder / "network.onnx")
    names = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    box = "(assert (>= X_0 -1)) (assert (<= X_0 1)) (assert (>= X_1 -1)) (assert (<= X_1 1))\n"
    for number in range(count):
        (folder / f"{number}.vnnlib").write_text(f"{names}{box}(assert (<= Y_0 (- {number / 8})))")
    (folder / "list.csv").write_text("".join(f"network.onnx,{number}.vnnlib,9\n" for number in range(count)))
