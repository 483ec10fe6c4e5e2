"""Exact minimum distortions beside HiGHS's own mixed-integer solver at the same question, in one run.

Prints a table: for every image both answers, and the seconds each took. HiGHS is told the attack's distance as a
radius, so its constants are as tight as ours.
"""

import argparse
import time

import torch

import relucert
from relucert import data
from tests.milp import nearest

BOX = (-0.5, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="mnist-2x20")
    parser.add_argument("--norm", default="inf", choices=["inf", "1"])
    parser.add_argument("--images", type=int, default=5)
    arguments = parser.parse_args()
    network, images = relucert.load(arguments.network), data.bundled().first(arguments.images)
    print(f"{'image':>5} {'exact':>20} {'seconds':>8} {'HiGHS':>9} {'seconds':>8}")
    answers = relucert.exact_each(
        network, images.images, images.labels, norm=arguments.norm, target="runner-up", box=BOX
    )  # fmt: skip
    for answer in answers:
        if answer.lower is None or not answer.upper or answer.label is None or answer.target is None:
            continue
        started = time.perf_counter()
        image = torch.as_tensor(images.images[answer.image])
        other = nearest(network, image, answer.label, answer.target, answer.norm, answer.upper * 1.001, BOX)
        seconds = time.perf_counter() - started
        distance = "-" if other is None else f"{other[0]:.5f}"
        ends = f"{answer.lower:>9.5f} to {answer.upper:.5f}"
        print(f"{answer.image:>5} {ends} {answer.seconds:>8.2f} {distance:>9} {seconds:>8.2f}")


if __name__ == "__main__":
    main()
