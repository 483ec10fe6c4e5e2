"""`relucert exact`: the minimum distortion of every image, between a proven and a witnessed end."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import relucert
from relucert.cli import options
from relucert.cli.table import PARALLELISM, STATED, Option, add_options
from relucert.common.words import counted
from relucert.report.summary import or_dash, rounded_down, rounded_up

if TYPE_CHECKING:
    from relucert.cli.show import Screen

NAME = "exact"
HELP = "the exact minimum distortion, with a proof that can be checked"
DESCRIPTION = (
    "Finds for every image the distance of the nearest valid input at which a rival class catches up: an interval "
    "whose lower end is proven by branch and bound and whose upper end has a witness. For small networks. Without "
    "arguments: the bundled network on the bundled images."
)
LIBRARY_OPTIONS = ("norm", "target", "box", "scale", "tolerance", "time_limit", "inference", "seed", "proof")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "network")
    add_options(parser.add_argument_group("the question"), *STATED, "--inference")
    effort = parser.add_argument_group("the effort")
    limit = "seconds per answer; then the interval so far is given"
    add_options(
        effort,
        tolerance=Option("how wide, relatively, an interval may stay", options.number, 1e-3, "T"),
        time_limit=Option(limit, options.seconds, 60.0, "S"),
        seed="for random targets and the attack's random starts",
    )
    add_options(effort, *PARALLELISM)
    answers = parser.add_argument_group("the answers")
    add_options(answers, "--json", "--csv", proof="write the proof of one answer, for `relucert check`; .gz compresses")
    add_options(answers, "--save-arrays", "--overwrite", "--all", "--quiet")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then searches, records and shows."""
    files = options.outputs(arguments, ("json", "csv", "proof", "save_arrays"))
    from relucert.api.exact import ExactOptions
    from relucert.arithmetic.norm import Norm
    from relucert.arithmetic.region import RegionShape
    from relucert.cli import runs
    from relucert.report import pictures

    shape = RegionShape(Norm.parse(arguments.norm))
    ExactOptions(shape, arguments.tolerance, arguments.time_limit, arguments.seed)  # told before anything is loaded
    setup = runs.set_up(arguments, LIBRARY_OPTIONS)
    example_file = runs.example_file(setup)

    def show(answers: list[relucert.Exact]) -> None:
        screen = setup.screen
        screen.answers("minimum distortion", [(answer, _interval(answer)) for answer in answers])
        screen.line("network", setup.about)
        screen.line("question", setup.question())
        _summarise(answers, screen)
        runs.tell_runtime(screen, answers)
        if _version(arguments.proof) != before:
            screen.line("proof", f"{arguments.proof}: verify it with `relucert check`")
        runs.save_examples(example_file, setup, answers)

    before = _version(arguments.proof)
    row = partial(pictures.answer_row, setup.network, setup.images.images)
    further = {"overwrite": arguments.overwrite}
    return runs.answer(setup, files, "searching", relucert.exact_each, show, row=row, **further)


def _interval(answer: relucert.Exact) -> str:
    lower, upper = or_dash(rounded_down, answer.lower), or_dash(rounded_up, answer.upper)
    return "unreachable" if answer.unreachable else f"{lower} to {upper}"


def _version(path: Path | None) -> tuple[int, int] | None:
    """The state of a file, which changes when it is written; None where there is none."""
    if path is None or not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def _summarise(answers: list[relucert.Exact], screen: Screen) -> None:
    """Counts, and the means of both ends over the answers that have both and are about a correct image."""
    screen.line("closed", f"{sum(answer.closed for answer in answers)} of {len(answers)}")
    if unreachable := sum(answer.unreachable for answer in answers):
        screen.line("unreachable", f"{unreachable}: no valid input is adversarial (proven)")
    both = [(answer.lower, answer.upper) for answer in answers if answer.lower is not None and answer.upper]
    if both:
        lower, upper = (sum(end) / len(both) for end in zip(*both, strict=True))
        screen.line(
            "mean distortion", f"{rounded_down(lower)} to {rounded_up(upper)} over {counted(len(both), 'answer')}"
        )
