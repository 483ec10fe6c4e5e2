"""Branch and bound: verdicts, seconds and nodes a second, as measured.

    python -m bench.branch_and_bound acasxu ../shared/vnncomp [--every 6] [--limit 60]
    python -m bench.branch_and_bound images NETWORK... [--radii 0.03 0.05] [--images 15] [--limit 60]
    python -m bench.branch_and_bound rate NETWORK

Seconds are the processor's. NETWORK: files or zoo names for MNIST; `relucert zoo train mnist-3x256` (mnist-5x256,
mnist-7x256) builds those that the search is measured on.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import time
from pathlib import Path

import torch

import relucert
from relucert import data
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import cheap_bounds
from relucert.branch_and_bound.confirm import OutputRows, proven_bounds
from relucert.branch_and_bound.dual_ascent import DualAscent, Nodes
from relucert.branch_and_bound.node_tree import STEPS
from relucert.branch_and_bound.root import rooted
from relucert.branch_and_bound.stages import LARGEST_BATCH
from relucert.query.problem import Problem

BOX = (-0.5, 0.5)
WORDS = {"holds": "unsat", "violated": "sat"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["acasxu", "images", "rate"])
    parser.add_argument("where", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="one instance out of so many")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that one question may take")
    parser.add_argument("--radii", type=float, nargs="+", default=[0.03, 0.05])
    parser.add_argument("--images", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "acasxu":
        given_properties(Path(arguments.where[0]), arguments.every, arguments.limit)
    elif arguments.what == "images":
        for name in arguments.where:
            for radius in arguments.radii:
                fixed_radius(name, radius, arguments.images, arguments.limit)
    else:
        rate(arguments.where[0])


def given_properties(folder: Path, every: int, limit: float) -> None:
    """One line per instance, and how many verdicts are as expected."""
    with (folder / "expected.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["benchmark"] == "acasxu"][::every]
    seconds, right, wrong = [], 0, 0
    for row in rows:
        started = time.process_time()
        onnx, vnnlib = folder / "acasxu" / row["onnx"], folder / "acasxu" / row["vnnlib"]
        verdict = relucert.verify(onnx, vnnlib, time_limit=limit, workers=1)
        seconds.append(time.process_time() - started)
        said = WORDS.get(verdict.status, "unknown")
        right += said == row["verdict"]
        wrong += said not in (row["verdict"], "unknown")
        name = f"{Path(row['onnx']).stem} {Path(row['vnnlib']).stem}"
        print(f"{name:<40} {row['verdict']:>6} {said:>8} {verdict.nodes:>8} nodes {seconds[-1]:>7.2f} s", flush=True)
    middle, worst = statistics.median(seconds), max(seconds)
    print(f"{right} of {len(rows)} as expected, {wrong} wrong; median {middle:.2f} s, worst {worst:.2f} s")


def fixed_radius(name: str, radius: float, count: int, limit: float) -> None:
    """One line per image, and what decided how many: bounds, the attack, or a stage of the search."""
    images = data.bundled().first(count)
    assert images.labels is not None
    tally: dict[str, int] = {}
    for number in range(count):
        started = time.process_time()
        (verdict,) = relucert.robust_at(
            name, images.images[number : number + 1], images.labels[number : number + 1], radius=radius, box=BOX,
            time_limit=limit, workers=1,
        )  # fmt: skip
        seconds = time.process_time() - started
        by = "open" if verdict.status == "unknown" else verdict.stage or verdict.method or ""
        tally[by] = tally.get(by, 0) + 1
        print(
            f"{Path(name).stem} {radius:g} image {number}: {verdict.status:>8} ({by}) {verdict.nodes:>8} nodes "
            f"{seconds:>7.2f} s",
            flush=True,
        )
    print(f"{Path(name).stem} {radius:g}:", ", ".join(f"{word} {count}" for word, count in sorted(tally.items())))


def rate(name: str, radius: float = 0.05, splits: int = 8) -> None:
    """Nodes a second of a full batch, the float64 pass included."""
    network, images = relucert.load(name), data.bundled().first(1)
    assert images.labels is not None
    label = int(images.labels[0])
    rivals = [other for other in range(network.classes) if other != label]
    prop = Property.margins(torch.tensor([label]), torch.tensor([rivals]), network.classes)
    shape = RegionShape.parse("inf", BOX, None, network.input_shape)
    region = shape.around(torch.as_tensor(images.images[:1]).double().flatten(1), radius)
    problem = Problem(network, region, prop)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        stages = rooted(problem.exact, region, cheap_bounds(problem.exact, region, RIGOROUS).bounds, math.inf)
        dual_ascent = DualAscent(stages, stages.pulled(problem.exact.output, prop.rows[0], prop.offsets[0]))
        roots = dual_ascent.roots().pick(torch.zeros(LARGEST_BATCH, dtype=torch.long))
        signs = roots.signs.clone()
        for row in signs:
            row[torch.randperm(dual_ascent.unstable_count, generator=generator)[:splits]] = 1
        nodes = Nodes(roots.rows, signs, torch.where(signs == 0, roots.duals, 0))
        rows = OutputRows(problem.exact.output, prop.rows[0], prop.offsets[0])
        dual_ascent.run(nodes, 2, math.inf)  # what the first call alone pays for
        started = time.process_time()
        result = dual_ascent.run(nodes, STEPS, math.inf)
        between = time.process_time()
        proven_bounds(stages, rows, result.nodes)
        ended = time.process_time()
    print(
        f"unstable {[stage.unstable_count for stage in stages.stages]}, "
        f"not inactive {[len(stage.neurons) for stage in stages.stages]}"
    )
    print(f"{LARGEST_BATCH / (ended - started):,.0f} nodes/s; float64 pass {(ended - between):.3f} s of it")


if __name__ == "__main__":
    main()
