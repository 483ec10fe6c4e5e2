"""`relucert attack`: the nearest adversarial example found for every image."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import relucert
from relucert.cli import options
from relucert.cli.table import PARALLELISM, STATED, Option, add_options, flag
from relucert.common import names
from relucert.common.words import counted
from relucert.report.summary import or_dash, rounded_up

if TYPE_CHECKING:
    from relucert.cli.show import Screen

NAME = "attack"
HELP = "the nearest adversarial examples that attacks find"
DESCRIPTION = (
    "Searches for every image the nearest valid input at which a rival class catches up, and re-checks what it finds. "
    "A distance is an upper bound of what can be certified. Without arguments: the bundled network on the bundled "
    "images."
)
LIBRARY_OPTIONS = (
    "norm", "method", "target", "box", "scale", "polish", "steps", "time_limit", "memory", "inference", "seed",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "network")
    add_options(parser.add_argument_group("the question"), *STATED, "--inference")
    effort = parser.add_argument_group("the effort")
    methods = "best, fmn, pgd, cw, ead or ddn; not all for every norm"
    add_options(
        effort,
        method=Option(methods, names.ATTACKS.find, "best"),
        steps=Option("of each attack", options.count, 200, "N"),
        no_polish=flag("leave out the search over linear regions", dest="polish", action="store_false"),
        time_limit=Option("seconds for all images, shared evenly (default: none)", options.seconds, metavar="S"),
        memory="what the attack may take, of all workers together, as in 512M",
        seed="for random starts and targets",
    )
    add_options(effort, *PARALLELISM)
    answers = parser.add_argument_group("the answers")
    drawn = "draw every pair into this folder: the image, the perturbation magnified, the adversarial example"
    add_options(answers, "--json", "--csv", save=Option(drawn, Path, metavar="DIR"))
    add_options(answers, "--save-arrays", "--overwrite", "--all", "--quiet")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then attacks, records, draws and shows."""
    files = options.outputs(arguments, ("json", "csv", "save_arrays"))
    from relucert.arithmetic.norm import Norm
    from relucert.attacks.methods import find_attacks
    from relucert.cli import runs
    from relucert.report import pictures
    from relucert.report.pairs import Album

    find_attacks(arguments.method, Norm.parse(arguments.norm))  # told before anything is loaded
    setup = runs.set_up(arguments, LIBRARY_OPTIONS)
    network, images = setup.network, setup.images
    question, folder = setup.head()["question"], arguments.save
    album = None if folder is None else Album(folder, network, question, arguments.overwrite)
    example_file = runs.example_file(setup)
    row = partial(pictures.answer_row, network, images.images)

    def draw(answer: relucert.UpperBound) -> None:
        if album is not None:
            album.add(images.images[answer.image], answer)

    def show(answers: list[relucert.UpperBound]) -> None:
        screen = setup.screen
        screen.answers("distance", [(answer, or_dash(rounded_up, answer.distance)) for answer in answers])
        screen.line("network", setup.about)
        screen.line("question", setup.question(arguments.method))
        _summarise(answers, screen)
        runs.tell_runtime(screen, answers)
        if album is not None:
            screen.line("pictures", f"{album.count} in {arguments.save}")
        runs.save_examples(example_file, setup, answers)

    return runs.answer(setup, files, "attacking", relucert.attack_each, show, draw, row)


def _summarise(answers: list[relucert.UpperBound], screen: Screen) -> None:
    """Counts, and the mean over what attacks found: an image that is misclassified as it is needs none."""
    distances = [answer.distance for answer in answers if answer.distance]
    screen.line("found", f"{counted(len(distances), 'adversarial example')} for {counted(len(answers), 'question')}")
    if already := sum(answer.distance == 0 for answer in answers):
        screen.line("already wrong", f"{already}, at distance 0, not in the mean")
    if distances:
        screen.line("mean distance", f"{rounded_up(sum(distances) / len(distances))} over the {len(distances)} found")
