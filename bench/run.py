"""Times relucert: ratios measured side by side in one run, on one thread.

make bench
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy and PyTorch are imported


def main() -> None:
    import torch
    from rich.console import Console

    from bench import attacks, boxes, convolutions, inference, lipschitz, lp, peak, products, speed, tightness

    torch.set_num_threads(1)
    console = Console(width=140)
    show(console, "A certified radius against the paper's Algorithm 1 with 15 bisection steps", speed.HEADER,
          (row.cells() for row in speed.rows()))  # fmt: skip
    show(console, "One evaluation of all bounds against its matrix products", products.HEADER, products.rows())
    show(console, "One evaluation of all bounds with the box of valid inputs and without", boxes.HEADER, boxes.rows())
    show(console, "One evaluation of convolutional networks, p = inf", convolutions.HEADER, convolutions.rows())
    show(console, "Fast-Lip against Algorithm 2 with 15 bisection steps; CLEVER", lipschitz.HEADER, lipschitz.rows())
    show(console, "Attacks on mnist-3x1024, ten images, runner-up: mean distances", attacks.HEADER, attacks.rows())
    show(console, "LP and LP-Full against Fast-Lin, untargeted, rigorous", lp.HEADER, lp.rows())
    show(console, "Tighter bounds against Fast-Lin, rigorous, processor time", tightness.HEADER, tightness.rows())
    show(console, "Radii about every evaluation in float32 against real arithmetic", inference.HEADER, inference.rows())
    show(console, "Memory of a large network", peak.HEADER, peak.rows())


def show(console: Console, title: str, header: list[str], rows: Iterable[list[str]]) -> None:
    from rich.table import Table

    table = Table(title=title)
    for name in header:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
