"""`relucert estimate`: CLEVER's estimate for every image. Nothing here is certified, and nothing is called so."""

from __future__ import annotations

import argparse

import relucert
from relucert.cli import options
from relucert.cli.table import PARALLELISM, STATED, Option, add_options
from relucert.common.words import counted
from relucert.report.summary import or_dash

NAME = "estimate"
HELP = "CLEVER's estimates, which prove nothing"
DESCRIPTION = (
    "Estimates by sampling, for every image, how far it can move before the network changes its mind (CLEVER). "
    "An estimate is no bound: `relucert certify` gives proven ones. Without arguments: the bundled network on the "
    "bundled images."
)
LIBRARY_OPTIONS = ("norm", "target", "radius", "batches", "samples", "box", "scale", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "network")
    sampled = "of the region that is sampled (default: 30 for p = 1, 3 for p = 2, 0.1 for p = inf)"
    add_options(
        parser.add_argument_group("the question"),
        *STATED,
        radius=Option(sampled, options.rounded_up, metavar="R"),
        seed="of the samples",
    )
    effort = parser.add_argument_group("the effort")
    add_options(
        effort,
        batches=Option("how many batches of samples", options.count, 500, "N"),
        samples=Option("how many samples a batch has", options.count, 1024, "N"),
    )
    add_options(effort, *PARALLELISM)
    add_options(parser.add_argument_group("the answers"), "--json", "--overwrite", "--all", "--quiet")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then estimates, records and shows."""
    files = options.outputs(arguments, ("json",))
    from relucert.cli import runs
    from relucert.report.overview import overview

    setup = runs.set_up(arguments, LIBRARY_OPTIONS)

    def show(estimates: list[relucert.Estimate]) -> None:
        screen = setup.screen
        values = [(estimate, or_dash("{:.4g}".format, estimate.value)) for estimate in estimates]
        screen.answers("estimate (not certified)", values)
        screen.line("network", setup.about)
        screen.line("question", f"{setup.question()}, CLEVER: not certified")
        (summed,) = overview(answer.to_json() for answer in estimates).methods
        over = f"over {summed.answered:,} of {counted(summed.images, 'image')}"
        mean = or_dash("{:.4g}".format, summed.mean)
        screen.line("mean estimate", f"{mean} {over}{f', {summed.remark}' if summed.remark else ''} (not certified)")

    return runs.answer(setup, files, "sampling", relucert.estimate_each, show)
