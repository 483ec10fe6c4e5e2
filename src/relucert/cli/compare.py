"""`relucert compare`: all methods side by side on the same images."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relucert.cli import options
from relucert.cli.table import PARALLELISM, STATED, Option, add_options, effort
from relucert.common import names
from relucert.common.words import counted
from relucert.errors import RelucertError
from relucert.report.runfile import RunFile
from relucert.report.summary import fits, or_dash, rounded_down, rounded_up

if TYPE_CHECKING:
    from relucert.cli.show import Screen
    from relucert.experiments.comparison.compare import ComparisonRun
    from relucert.experiments.comparison.ranking import Ranking

NAME = "compare"
HELP = "all methods side by side on the same images"
DESCRIPTION = (
    "Asks every method about the same images: certified radii, exact distances where they close in time, estimates and "
    "attacks. The order that is provable is checked on every image; a violation ends with exit code 3. Without "
    "arguments: the bundled network on the bundled images."
)
EFFORT: dict[str, Any] = {"steps": 100, "batches": 50, "samples": 256, "budget": 60.0}
SETTING_OPTIONS = ("target", "box", "scale", "memory", "inference", "seed", *EFFORT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "network")
    which = "which methods, with commas between them: any of certify's, exact, clever, attack (default: all but best)"
    add_options(
        parser.add_argument_group("the question"),
        *STATED,
        "--inference",
        methods=Option(which, options.each(names.CONTENDERS.find), metavar="NAMES"),
        seed="for random starts, samples and targets",
    )
    group = parser.add_argument_group("the effort")
    add_options(group, **effort(**EFFORT))
    add_options(group, "--memory", *PARALLELISM)
    add_options(parser.add_argument_group("the answers"), "--json", "--csv", "--overwrite", "--quiet")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then asks one method after the other, records and shows."""
    outputs = options.outputs(arguments, ("json", "csv"))
    from relucert.arithmetic.norm import Norm
    from relucert.cli import runs
    from relucert.experiments.comparison.compare import ComparisonRun, row, running
    from relucert.experiments.comparison.methods import Setting, find_contenders

    contenders = find_contenders(arguments.methods)
    setup = runs.set_up(arguments, SETTING_OPTIONS)
    network, screen, images, call_options = setup.network, setup.screen, setup.images, setup.options
    setting = Setting(Norm.parse(arguments.norm), **call_options)
    comparison = ComparisonRun(setup.loaded, images.images, images.labels, contenders, setting)
    question_options = {"norm": arguments.norm, "methods": [contender.name for contender in contenders], **call_options}
    head = {**replace(setup, options=question_options).head(), "skipped": comparison.skipped}
    kept = runs.store_path(arguments, outputs)
    started = time.perf_counter()
    with (
        screen.progress("comparing", comparison.total) as bar,
        runs.execution(arguments) as workers,
        running(comparison, workers, None, kept, bar.tell),
    ):
        run_file = RunFile(head, outputs.get("json"), outputs.get("csv"), overwrite=arguments.overwrite)
        work = runs.collect(comparison.run(), run_file, row=lambda entry: row(entry, network, comparison.images))
    if not work.answers and isinstance(work.stopped, RelucertError):
        raise work.stopped
    if work.answers:
        _show(comparison, screen)
        runs.tell_failures(screen, work.answers)
        screen.line("network", setup.about)
        screen.line("images", f"{len(images)} of {images.name}")
        screen.line("question", setup.question())
        screen.line("time", f"{time.perf_counter() - started:.2f} s")
    code = runs.end(work, kept, screen, counted(len(work.answers), "answer"))
    return runs.FAILED if comparison.failed and not code else code


def _show(comparison: ComparisonRun, screen: Screen) -> None:
    from relucert.experiments.comparison.ranking import rankings

    rivals = comparison.network.classes - 1 if comparison.answer_record.each_rival else 1
    by_method = {ranking.method: ranking for ranking in rankings(comparison.answer_record.entries, rivals)}
    titles = ("method", "kind", "images", "mean", "to best certified", "to nearest witness", "s an image", "remark")
    rows = [_cells(ranking, _remarks(comparison, name)) for name, ranking in by_method.items()]
    absent = [name for name in comparison.skipped if name not in by_method]
    screen.columns(titles, [*rows, *((name, *["-"] * 6, "; ".join(_remarks(comparison, name))) for name in absent)])


def _remarks(comparison: ComparisonRun, method: str) -> list[str]:
    """Why a method was left out or stopped, and how many of its answers failed, with what the first error says."""
    skipped, reasons = comparison.skipped.get(method), comparison.failed.get(method, [])
    failed = [f"{len(reasons)} failed: {reasons[0]}"] if reasons else []
    return [*([] if skipped is None or skipped.startswith("failed: ") else [skipped]), *failed]


def _cells(ranking: Ranking, remarks: list[str]) -> tuple[str, ...]:
    from relucert.report.reading import AnswerKind

    mean = or_dash(rounded_up if ranking.kind is AnswerKind.UPPER else rounded_down, ranking.mean)
    if ranking.closed is not None:
        remarks = [f"{ranking.closed} closed; the mean is of the lower ends", *remarks]
    if ranking.fitted is not None:
        remarks = ["not certified", fits(ranking.fitted, ranking.count), *remarks]
    gaps = (or_dash(lambda gap: f"{100 * gap:+.1f} %", gap) for gap in (ranking.to_best, ranking.to_witness))
    seconds = or_dash("{:.3g}".format, ranking.seconds)
    return ranking.method, ranking.kind.value, str(ranking.count), mean, *gaps, seconds, "; ".join(remarks)
