"""`relucert estimate`: CLEVER's estimate for every image. Nothing here is certified, and nothing is called so."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from relucert.cli import options, runs
from relucert.common.words import counted

if TYPE_CHECKING:
    from relucert import Estimate

NAME = "estimate"
HELP = "CLEVER's estimates, which prove nothing"
DESCRIPTION = (
    "Estimates by sampling, for every image, how far it can move before the network changes its mind (CLEVER). "
    "An estimate is no bound: `relucert certify` gives proven ones. Without arguments: the bundled network on the "
    "bundled images."
)
LIBRARY_OPTIONS = ("norm", "target", "radius", "batches", "samples", "box", "scale", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    runs.add_network(parser)
    _add_question(parser.add_argument_group("the question"))
    effort = parser.add_argument_group("the effort")
    for name, default in (("batches", 500), ("samples", 1024)):
        effort.add_argument(
            f"--{name}", type=options.count, default=default, metavar="N",
            help="how many batches of samples" if name == "batches" else "how many samples a batch has",
        )  # fmt: skip
    runs.add_threads(effort)
    runs.add_workers(effort)
    answers = parser.add_argument_group("the answers")
    runs.add_json(answers)
    runs.add_overwrite(answers)
    runs.add_all(answers)
    runs.add_quiet(answers)


def _add_question(group: argparse._ArgumentGroup) -> None:
    runs.add_question(group)
    group.add_argument(
        "--radius",
        type=options.rounded_up,
        metavar="R",
        help="of the region that is sampled (default: 30 for p = 1, 3 for p = 2, 0.1 for p = inf)",
    )
    runs.add_seed(group, "of the samples")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then estimates, records and shows."""
    files = runs.outputs(arguments, ("json",))
    import relucert
    from relucert.report.overview import overview

    setup = runs.set_up(arguments, LIBRARY_OPTIONS)
    images = setup.images

    def show(estimates: list[Estimate]) -> None:
        screen = setup.screen
        screen.estimates(estimates)
        screen.line("network", setup.about)
        asked = f"norm {arguments.norm}, target {arguments.target}, {setup.valid}"
        screen.line("question", f"{asked}, CLEVER: not certified")
        (summed,) = overview(answer.to_json() for answer in estimates).methods
        over = f"over {summed.answered:,} of {counted(summed.images, 'image')}"
        mean = "-" if summed.mean is None else f"{summed.mean:.4g}"
        screen.line("mean estimate", f"{mean} {over}{f', {summed.remark}' if summed.remark else ''} (not certified)")

    return runs.answer(
        arguments,
        setup,
        files,
        "sampling",
        lambda place: relucert.estimate_each(
            setup.network, images.images, images.labels, **setup.chosen, **place.options
        ),
        show,
    )
