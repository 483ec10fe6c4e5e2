"""Fixed radii near what certificates prove on Salman's MLP 9x100, with and without tightened bounds in the search.

    python -m bench.published.salman_fixed FOLDER [--limit 60]

The folder has the networks and images as .npz files; docs/benchmarks.md says where the originals are. Verdicts, the
stage that ended the search, nodes and seconds of processor time, which the limit counts, too.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

import relucert
from bench.published.networks import network_of
from relucert.branch_and_bound import tree
from relucert.methods.quadratic.cost import tightening_seconds

QUESTIONS = ((5, 0.0196), (5, 0.0205), (4, 0.015), (6, 0.013), (7, 0.025))  # images and radii


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds of processor time that one question may take"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    network = network_of(arguments.folder / "salman-mnist-mlp-9-100-nor.npz", (784,))
    images = torch.from_numpy(np.load(arguments.folder / "salman-ten-images.npz")["images"]).double().reshape(10, 784)
    images = images / 255 if float(images.max()) > 1 else images
    for image, radius in QUESTIONS:
        for tightens in (True, False):
            seconds = tightening_seconds if tightens else lambda *_: math.inf
            with patch.object(time, "monotonic", time.process_time), patch.object(tree, "tightening_seconds", seconds):
                started = time.process_time()
                (verdict,) = relucert.robust_at(
                    network, images[image : image + 1], norm="inf", radius=radius, time_limit=arguments.limit, workers=1
                )
                spent = time.process_time() - started
            told = f"{verdict.status} ({verdict.stage}), {verdict.nodes} nodes, {spent:.1f} s"
            print(f"image {image}, {radius}, {'tightened' if tightens else 'trees alone'}: {told}", flush=True)


if __name__ == "__main__":
    main()
