"""`relucert exact`: the minimum distortion of every image, between a proven and a witnessed end."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from relucert.cli import options, runs

if TYPE_CHECKING:
    from relucert import Exact
    from relucert.branch_and_bound.exact import SearchProgress
    from relucert.cli.show import Screen

NAME = "exact"
HELP = "the exact minimum distortion, with a proof that can be checked"
DESCRIPTION = (
    "Finds for every image the distance of the nearest valid input at which a rival class catches up: an interval "
    "whose lower end is proven by branch and bound and whose upper end has a witness. For small networks. Without "
    "arguments: the bundled network on the bundled images."
)
LIBRARY_OPTIONS = ("norm", "target", "box", "scale", "tolerance", "time_limit", "seed", "proof")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    runs.add_network(parser)
    question = parser.add_argument_group("the question")
    runs.add_question(question)
    effort = parser.add_argument_group("the effort")
    effort.add_argument(
        "--tolerance",
        type=options.number,
        default=1e-3,
        metavar="T",
        help="how wide, relatively, an interval may stay (default: %(default)s)",
    )
    effort.add_argument(
        "--time-limit",
        type=options.seconds,
        default=60.0,
        metavar="S",
        help="seconds per answer; then the interval so far is given (default: %(default)s)",
    )
    runs.add_seed(effort, "for random targets and the attack's random starts")
    runs.add_threads(effort)
    answers = parser.add_argument_group("the answers")
    runs.add_json(answers)
    runs.add_csv(answers)
    answers.add_argument(
        "--proof", type=Path, metavar="FILE", help="write the proof of one answer, for `relucert check`; .gz compresses"
    )
    runs.add_quiet(answers)


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then searches, records and shows."""
    outputs = runs.outputs(arguments, ("json", "csv", "proof"))
    import relucert
    from relucert.report.runfile import RunFile

    setup = runs.set_up(arguments, LIBRARY_OPTIONS)
    network, screen, images, chosen = setup.network, setup.screen, setup.images, setup.chosen
    started = time.perf_counter()
    with screen.status("searching", len(images)) as show:
        answers = relucert.exact_each(
            network, images.images, images.labels, **chosen, progress=lambda state: show(state.image, _describe(state))
        )
        chosen["proof"] = arguments.proof and str(arguments.proof)
        record = RunFile(runs.head(arguments, setup, chosen), outputs.get("json"), outputs.get("csv"))
        work = runs.collect(answers, record, lambda answer: show(answer.image + 1, ""))
    if work.answers:
        screen.intervals(work.answers)
        screen.line("network", setup.about)
        screen.line("question", f"norm {arguments.norm}, target {arguments.target}, {setup.valid}")
        _summarise(work.answers, screen)
        if arguments.proof is not None and arguments.proof.exists():
            screen.line("proof", f"{arguments.proof}: verify it with `relucert check`")
        screen.line("time", f"{time.perf_counter() - started:.2f} s")
    done = len({answer.image for answer in work.answers})
    return runs.end(work, screen, f"{done} of {len(images)} images")


def _describe(progress: SearchProgress) -> str:
    upper = "?" if progress.upper is None else f"{progress.upper:.4g}"
    return f"[{progress.lower:.4g}, {upper}], {progress.nodes:,} nodes, {progress.rate:,.0f}/s"


def _summarise(answers: list[Exact], screen: Screen) -> None:
    """Counts, and the means of both ends over the answers that have both and are about a correct image."""
    from relucert.report.summary import rounded_down, rounded_up

    screen.line("closed", f"{sum(answer.closed for answer in answers)} of {len(answers)}")
    if unreachable := sum(answer.unreachable for answer in answers):
        screen.line("unreachable", f"{unreachable}: no valid input is adversarial (proven)")
    both = [(answer.lower, answer.upper) for answer in answers if answer.lower is not None and answer.upper]
    if both:
        lower, upper = (sum(end) / len(both) for end in zip(*both, strict=True))
        screen.line("mean distortion", f"{rounded_down(lower)} to {rounded_up(upper)} over {len(both)} answers")
