"""Fast-Lip by this code and by that of another commit: the same radii, in turns, each by a process of its own.

python -m bench.against COMMIT [IMAGES]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy and PyTorch are imported

ROOT = Path(__file__).resolve().parent.parent
HEADER = ["network", "norm", "shells", "before, s", "after, s", "faster", "radius", "evaluations"]
NETWORKS = ("mnist-3x1024", "4x[1024]")
QUESTIONS = [(name, norm, shells) for name in NETWORKS for norm in ("inf", "2", "1") for shells in (30, 1)]


def rows(commit: str, images: int) -> Iterator[list[str]]:
    """Processor seconds per image, how far the radii are from those of the commit, and evaluations of both."""
    with tempfile.TemporaryDirectory() as folder, _tree(commit, Path(folder) / "before") as tree:
        before, after = (_Worker(place) for place in (tree, ROOT))
        for name, norm, shells in QUESTIONS:
            for worker in (before, after):
                worker.ask(name, norm, shells, images, 1)  # weights and what is kept of them
            (slow, old, many), (fast, new, few) = (
                worker.ask(name, norm, shells, 0, images) for worker in (before, after)
            )
            apart = [100 * (one / other - 1) for one, other in zip(new, old, strict=True)]
            yield [
                name, norm, str(shells), f"{slow:.2f}", f"{fast:.2f}", f"{slow / fast:.1f}x",
                f"{min(apart):+.4f} to {max(apart):+.4f} %", f"{many:.1f}, {few:.1f}",
            ]  # fmt: skip
        for worker in (before, after):
            worker.close()


@contextmanager
def _tree(commit: str, place: Path) -> Iterator[Path]:
    """The files of a commit."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(place), commit], check=True)
    try:
        yield place
    finally:
        subprocess.run([*git, "remove", "--force", str(place)], check=True)


class _Worker:
    """A process that certifies with the code of one tree."""

    def __init__(self, tree: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.against", "work"], env=environment, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, name: str, norm: str, shells: int, first: int, count: int) -> tuple[float, list[float], float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(name, norm, shells, first, count, file=self.process.stdin, flush=True)
        seconds, evaluations, *radii = self.process.stdout.readline().split()
        return float(seconds), [float(radius) for radius in radii], float(evaluations)

    def close(self) -> None:
        self.process.communicate()


def work() -> None:
    """Answers what comes on standard input: processor seconds and evaluations per image, and the radii."""
    import torch

    import relucert
    from bench.networks import images, trained

    torch.set_num_threads(1)
    networks = {"mnist-3x1024": relucert.load("mnist-3x1024"), "4x[1024]": trained(784, 1024, 1024, 1024, 10)}
    for line in sys.stdin:
        name, norm, shells, first, count = line.split()
        data = images(784)[int(first) : int(first) + int(count)]
        started = time.process_time()
        answers = relucert.certify(networks[name], data, norm=norm, method="fast-lip", shells=int(shells))
        seconds = time.process_time() - started
        evaluations = sum(answer.evaluations for answer in answers) / len(answers)
        print(seconds / len(answers), evaluations, *(answer.radius or 0.0 for answer in answers), flush=True)


def main() -> None:
    from rich.console import Console

    from bench.run import show

    images = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    show(Console(width=140), f"Fast-Lip before ({sys.argv[1]}) and after", HEADER, rows(sys.argv[1], images))


if __name__ == "__main__":
    work() if sys.argv[1:] == ["work"] else main()
