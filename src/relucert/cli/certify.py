"""`relucert certify`: the certified radius of every image."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import relucert
from relucert.cli import options
from relucert.cli.table import PARALLELISM, STATED, Option, add_options
from relucert.common import names
from relucert.inputs.storage import files
from relucert.report.runfile import MARK
from relucert.report.summary import or_dash, rounded_down, summarise

if TYPE_CHECKING:
    from relucert.cli.runs import Setup
    from relucert.data import Dataset

NAME = "certify"
HELP = "certified radii of a network's decisions"
DESCRIPTION = (
    "Finds for every image a radius within which provably no perturbation changes the network's decision. "
    "Without arguments: the bundled network on the bundled images."
)
EFFORT = (
    "norm", "method", "arithmetic", "inference", "tolerance", "memory", "seed", "shells", "time_limit", "budget",
)  # fmt: skip
LIBRARY_OPTIONS = (*EFFORT, "target", "box", "scale", "proofs")
PREDICTED_AT_ONCE = 1000  # images in a batch, which bounds memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "network")
    question = parser.add_argument_group("the question")
    add_options(
        question,
        *STATED,
        method=Option(
            "fast-lin, crown, alpha, interval, fast-lip, lipschitz-norm, op-norm, lp, lp-full, sdp or best",
            names.METHODS.find, "fast-lin",
        ),
        shells=Option(
            "for fast-lip and lipschitz-norm: how many shells the ball is split into (default: 30)",
            options.count, metavar="N",
        ),
        arithmetic=Option(
            "rigorous (proven, rounding included) or float (rounding ignored)",
            names.ARITHMETICS.find, "rigorous", "KIND",
        ),
    )  # fmt: skip
    add_options(question, "--inference", "--seed")
    effort = parser.add_argument_group("the effort")
    below = "how far, relatively, a radius may stay below the largest provable one"
    program = "for lp and lp-full: how many seconds each program may take (default: 60)"
    add_options(
        effort,
        tolerance=Option(below, options.number, 1e-4, "T"),
        memory="what the bounds may take, of all workers together, as in 512M",
        time_limit=Option(program, options.number, metavar="S"),
        budget=Option("for best: how many seconds each answer may take (default: 10)", options.number, metavar="S"),
    )
    add_options(effort, *PARALLELISM)
    answers = parser.add_argument_group("the answers")
    add_options(
        answers,
        at=Option(
            "a radius to report the certified accuracy at; may be repeated (default: a few round ones)",
            options.radius, metavar="R", further={"action": "append"},
        ),
    )  # fmt: skip
    add_options(
        answers,
        "--json",
        "--csv",
        plot=Option(
            "accuracy against radius, as .png, .svg or .pdf; may be repeated",
            Path, [], "FILE", {"action": "append"},
        ),
        proofs=Option(
            "write one proof per certified answer there, which `relucert check` verifies: for interval, fast-lin, "
            "crown, alpha, lp, lp-full and best, and for sdp on chains of layers",
            metavar="FOLDER",
        ),
    )  # fmt: skip
    add_options(answers, "--overwrite", "--all", "--quiet")


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then certifies, records and shows."""
    outputs = _outputs(arguments)
    from relucert.api.certifiers import CertifyOptions
    from relucert.cli import runs

    CertifyOptions.parse(**{name: getattr(arguments, name) for name in EFFORT})  # told before anything is loaded
    setup = runs.set_up(arguments, LIBRARY_OPTIONS)
    mark = _picture_mark(setup)

    def show(certificates: list[relucert.Certificate]) -> None:
        _show(setup, certificates, mark)

    return runs.answer(setup, outputs, "certifying", relucert.certify_each, show)


def _outputs(arguments: argparse.Namespace) -> dict[str, Path]:
    """The files to write, checked before any long work."""
    outputs = options.outputs(arguments, ("json", "csv", "plot"))
    if arguments.plot:
        from relucert.report import accuracy

        for path in arguments.plot:
            accuracy.check_suffix(path)
    return outputs


def _picture_mark(setup: Setup) -> str:
    """The mark by which pictures are recognised; raises InputError where their files hold something else."""
    mark: str = setup.head()["question"][:MARK]
    for path in setup.arguments.plot:
        files.check_replaceable(path, lambda there: mark.encode() in there, setup.arguments.overwrite)
    return mark


def _show(setup: Setup, certificates: list[relucert.Certificate], mark: str) -> None:
    arguments, network, images, screen = setup.arguments, setup.network, setup.images, setup.screen
    index = options.whole(arguments.target)
    target = arguments.target if index is None else index
    rival = target if arguments.outputs_within is None else None
    summary = summarise(certificates, _correct(network, images), target, network.classes - 1)
    question = setup.question(arguments.method, end=f", {arguments.arithmetic} arithmetic")
    if arguments.plot:
        from relucert.report import accuracy

        for path in arguments.plot:
            accuracy.draw(
                path, summary, f"{network.name} ({network.describe()})", question, arguments.norm, target, mark
            )
    radii = [(certificate, or_dash(rounded_down, certificate.radius)) for certificate in certificates]
    screen.answers("certified radius" if summary.proven else "radius (rounding ignored)", radii, _remark)
    screen.line("network", setup.about)
    screen.line("images", f"{summary.images} of {images.name}")
    screen.line("question", question)
    screen.summary(summary, sorted(set(arguments.at)) if arguments.at else summary.grid(), rival)


def _remark(certificate: relucert.Certificate) -> str:
    """By which method a radius is proven, where it is another than was asked for, and the reason."""
    method = certificate.due_to if certificate.due_to != certificate.method else None
    return "; ".join(filter(None, [method and f"by {method}", certificate.reason]))


def _correct(network: relucert.Network, images: Dataset) -> list[bool] | None:
    """Whether each image is classified as labelled; None without labels."""
    import torch

    if images.labels is None:
        return None
    exact = network.cast(torch.float64)
    batches = zip(images.images.split(PREDICTED_AT_ONCE), images.labels.split(PREDICTED_AT_ONCE), strict=True)
    with torch.inference_mode():
        return [right for batch, labels in batches for right in (exact(batch.double()).argmax(1) == labels).tolist()]
