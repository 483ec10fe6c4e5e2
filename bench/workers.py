"""What workers gain and cost: one process, two workers, and Ray on this machine, side by side.

python -m bench.workers [--share S]

Start-up is left out. All images are asked about in rounds, by everyone in turn, so that a machine that slows down does
so for all. The first line says what the machine allows: how much faster two programs with nothing in common do the
same matrix products than one alone. What larger machines take is computed from the rows above.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import relucert
from bench.run import show  # before NumPy and PyTorch, which it limits to one thread
from relucert.data import bundled
from relucert.execution.execution import Execution

HEADER = ["network", "images", "one process, s", "two workers, s", "ratio", "Ray, two CPUs, s", "over two workers"]
CASES = (("mnist-3x1024", 200, 3), ("mnist-2x20", 1000, 20))  # images, and in how many rounds everyone is asked
LARGE_NETWORK = "mnist-3x1024"
WARM = 4  # questions of the large network that start all workers
LARGE = 10_000
CORES = (1, 8, 64)
PRODUCTS = """
import sys, time, torch
torch.set_num_threads(1)
left, right = torch.rand(1808, 1024, dtype=torch.float64), torch.rand(1024, 1024, dtype=torch.float64)
print("ready", flush=True)
sys.stdin.readline()
started = time.perf_counter()
for _ in range(40):
    (left @ right).abs_().sum()
print(time.perf_counter() - started, flush=True)
"""


def limit() -> float:
    """By how much two programs are faster than one on this machine, at best."""
    alone, together = (_products(count) for count in (1, 2))
    return 2 * alone / together


def _products(count: int) -> float:
    """Seconds for the same products in so many programs at a time."""
    command = [sys.executable, "-c", PRODUCTS]
    programs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for program in programs:
        assert program.stdout is not None
        program.stdout.readline()
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    return max(float(program.communicate()[0]) for program in programs)


def measure(name: str, count: int, rounds: int) -> tuple[list[str], float]:
    """The cells of a network, and the seconds that one image takes in one process and on its way to a worker."""
    network, data = relucert.load(name), bundled()
    times = -(-count // len(data))
    assert data.labels is not None
    images, labels = data.images.repeat(times, 1)[:count], data.labels.repeat(times)[:count]
    seconds: dict[str, float] = {}
    with ExitStack() as stack:
        places = {"alone": stack.enter_context(Execution(1)), "shared": stack.enter_context(Execution(2))}
        if _starts_ray(stack):
            places["ray"] = stack.enter_context(Execution(None, "auto"))
        for place in places.values():
            few = WARM if name == LARGE_NETWORK else count
            relucert.certify(network, images[:few], labels[:few], workers=place)
        for _ in range(rounds):
            for called, place in places.items():
                started = time.perf_counter()
                relucert.certify(network, images, labels, workers=place)
                seconds[called] = seconds.get(called, 0.0) + (time.perf_counter() - started) / rounds
    alone, shared, on_ray = seconds["alone"], seconds["shared"], seconds.get("ray")
    ray_cells = ["no Ray", "-"] if on_ray is None else [f"{on_ray:.2f}", f"{on_ray / shared - 1:+.0%}"]
    cells = [name, str(count), f"{alone:.2f}", f"{shared:.2f}", f"{alone / shared:.2f}", *ray_cells]
    return cells, (alone + max(0.0, 2 * shared - alone)) / count


def _starts_ray(stack: ExitStack) -> bool:
    """Starts Ray with two CPUs on this machine; whether that worked."""
    if importlib.util.find_spec("ray") is None:
        return False
    import ray

    try:
        ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # it raises nothing more special where a busy machine keeps it from starting in time
        sys.stderr.write(f"Ray did not start: {error}\n")
        return False
    stack.callback(ray.shutdown)
    return True


def rows(share: float) -> Iterator[list[str]]:
    """The measured cells, then what they say of larger machines."""
    yield [f"measured: two programs at once are {limit():.2f} times as fast as one", *[""] * 6]
    for name, count, rounds in CASES:
        cells, each = measure(name, max(2 * WARM, int(count * share)), rounds)
        yield cells
        if name == LARGE_NETWORK:
            for cores in CORES:
                yield [f"computed: {LARGE:,} images on {cores} cores", "", f"{LARGE * each / cores:,.0f}", *[""] * 4]


def main() -> None:
    import torch
    from rich.console import Console

    parser = argparse.ArgumentParser(description="What workers gain and cost.")
    parser.add_argument("--share", type=float, default=1.0, help="of the images (default: 1)")
    torch.set_num_threads(1)
    title = "Workers: Fast-Lin, p = inf, untargeted, seconds by the clock"
    show(Console(width=140), title, HEADER, rows(parser.parse_args().share))


if __name__ == "__main__":
    main()
