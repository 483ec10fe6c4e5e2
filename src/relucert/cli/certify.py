"""`relucert certify`: the certified radius of every image."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relucert.cli import images as image_options
from relucert.cli import options
from relucert.errors import InputError, RelucertError

if TYPE_CHECKING:
    from relucert import Certificate, Network
    from relucert.cli.show import Screen
    from relucert.data import Dataset
    from relucert.report.runfile import RunFile

NAME = "certify"
HELP = "certified radii of a network's decisions"
DESCRIPTION = (
    "Finds for every image a radius within which provably no perturbation changes the network's decision. "
    "Without arguments: the bundled network on the bundled images."
)
NETWORK = "mnist-2x20"
LIBRARY_OPTIONS = ("norm", "method", "target", "arithmetic", "tolerance", "memory", "seed", "shells", "time_limit")
INTERRUPTED = 130
PREDICTED_AT_ONCE = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "network",
        nargs="?",
        default=NETWORK,
        metavar="NETWORK",
        help="a bundled network's name, an .onnx or a .safetensors file (default: %(default)s)",
    )
    _add_question(parser.add_argument_group("the question"))
    _add_effort(parser.add_argument_group("the effort"))
    _add_outputs(parser.add_argument_group("the answers"))


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then certifies, records and shows."""
    outputs = _outputs(arguments)
    import torch

    import relucert
    from relucert.cli.show import Screen
    from relucert.report.runfile import RunFile

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    network = relucert.load(arguments.network)
    screen = Screen(quiet=arguments.quiet)
    images = image_options.load(arguments, network, screen)
    chosen = {name: getattr(arguments, name) for name in LIBRARY_OPTIONS}
    started = time.perf_counter()
    answers = relucert.certify_each(network, images.images, images.labels, **chosen)
    record = RunFile(_head(arguments, network, images), outputs.get("json"), outputs.get("csv"))
    work = _collect(answers, record, screen, len(images))
    seconds = time.perf_counter() - started
    if work.certificates:
        _show(arguments, network, images, work.certificates, screen)
        screen.line("time", f"{seconds:.2f} s")
    if work.stopped is None:
        return 0
    done = len({certificate.image for certificate in work.certificates})
    screen.complain(f"stopped after {done} of {len(images)} images")
    if isinstance(work.stopped, RelucertError):
        raise work.stopped
    return INTERRUPTED


def _add_question(group: argparse._ArgumentGroup) -> None:
    image_options.add_arguments(group)
    group.add_argument("--norm", default="inf", metavar="P", help="inf, 2, 1 or any number >= 1 (default: %(default)s)")
    group.add_argument(
        "--method",
        default="fast-lin",
        help="fast-lin, interval, fast-lip, lipschitz-norm, op-norm, lp or lp-full (default: %(default)s)",
    )
    group.add_argument(
        "--shells",
        type=options.count,
        metavar="N",
        help="for fast-lip and lipschitz-norm: how many parts the ball is split into (default: 30)",
    )
    group.add_argument(
        "--target",
        default="untargeted",
        help="the rival class: runner-up, least-likely, random, all, untargeted or a class index "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--arithmetic",
        default="rigorous",
        metavar="KIND",
        help="rigorous (proven, rounding included) or float (rounding ignored) (default: %(default)s)",
    )
    group.add_argument(
        "--seed", type=options.seed, default=0, metavar="N", help="for random targets (default: %(default)s)"
    )


def _add_effort(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tolerance",
        type=options.number,
        default=1e-4,
        metavar="T",
        help="how far, relatively, a radius may stay below the largest provable one (default: %(default)s)",
    )
    group.add_argument(
        "--memory",
        type=options.memory,
        default="1G",
        metavar="SIZE",
        help="what the bounds of one batch may take, as in 512M (default: %(default)s)",
    )
    group.add_argument(
        "--time-limit",
        type=options.number,
        metavar="S",
        help="for lp and lp-full: how many seconds each program may take (default: 60)",
    )
    group.add_argument("--threads", type=options.threads, metavar="N", help="how many threads to compute with")


def _add_outputs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--at",
        type=options.radius,
        action="append",
        metavar="R",
        help="a radius to report the certified accuracy at; may be repeated (default: five round ones)",
    )
    group.add_argument("--json", type=Path, metavar="FILE", help="record the run, also while it goes on")
    group.add_argument("--csv", type=Path, metavar="FILE", help="the same answers as a table")
    group.add_argument("--plot", type=Path, metavar="FILE", help="accuracy against radius, as .png, .svg or .pdf")
    group.add_argument("--quiet", action="store_true", help="no progress bar and no table, only the summary")


def _outputs(arguments: argparse.Namespace) -> dict[str, Path]:
    """The files to write, checked before any long work."""
    from relucert.report import files

    outputs = {name: path for name in ("json", "csv", "plot") if (path := getattr(arguments, name)) is not None}
    inputs = {name: Path(given) for name in ("network", "data") if (given := getattr(arguments, name)) is not None}
    for (_, first), (name, second) in combinations([*inputs.items(), *outputs.items()], 2):
        if name in outputs and first.resolve() == second.resolve():
            raise InputError(f"--{name} {second} would overwrite another file of this command")
    for path in outputs.values():
        files.check_writable(path)
    if "plot" in outputs:
        from relucert.report import accuracy

        accuracy.check_suffix(outputs["plot"])
    return outputs


def _head(arguments: argparse.Namespace, network: Network, images: Dataset) -> dict[str, Any]:
    import relucert

    options_given = {name: getattr(arguments, name) for name in ("network", "data", *LIBRARY_OPTIONS, "threads")}
    options_given |= {"data_dir": arguments.data_dir and str(arguments.data_dir), "images": len(images)}
    return {
        "relucert": relucert.__version__,
        "network": {
            "name": network.name,
            "layers": network.describe(),
            "parameters": network.parameters,
            "classes": network.classes,
        },
        "options": options_given,
    }


@dataclass(frozen=True)
class _Work:
    """What was found, and what stopped it before the end."""

    certificates: list[Certificate]
    stopped: KeyboardInterrupt | RelucertError | None


def _collect(answers: Iterable[Certificate], record: RunFile, screen: Screen, total: int) -> _Work:
    """Takes the answers as they come; what came is recorded whatever happens."""
    certificates: list[Certificate] = []
    try:
        with record, screen.progress("certifying", total) as advance:
            for certificate in answers:
                certificates.append(certificate)
                record.add(certificate.to_json())
                advance(certificate.image + 1)
            record.finish()
    except (KeyboardInterrupt, RelucertError) as stopped:
        return _Work(certificates, stopped)
    return _Work(certificates, None)


def _show(
    arguments: argparse.Namespace,
    network: Network,
    images: Dataset,
    certificates: list[Certificate],
    screen: Screen,
) -> None:
    from relucert.report.summary import summarise

    target = int(arguments.target) if arguments.target.isdecimal() else arguments.target
    summary = summarise(certificates, _correct(network, images), target, network.classes - 1)
    question = f"norm {arguments.norm}, {arguments.method}, target {target}, {arguments.arithmetic} arithmetic"
    if arguments.plot is not None:
        from relucert.report import accuracy

        accuracy.draw(arguments.plot, summary, f"{network.name} ({network.describe()})", question)
    screen.table(certificates, proven=summary.proven)
    screen.line("network", f"{network.name} ({network.describe()}, {network.parameters:,} parameters)")
    screen.line("images", f"{summary.images} of {images.name}")
    screen.line("question", question)
    screen.summary(summary, sorted(set(arguments.at)) if arguments.at else summary.grid())


def _correct(network: Network, images: Dataset) -> list[bool] | None:
    """Whether each image is classified as labelled; None without labels."""
    import torch

    if images.labels is None:
        return None
    exact = network.cast(torch.float64)
    right: list[bool] = []
    with torch.inference_mode():
        for first in range(0, len(images), PREDICTED_AT_ONCE):
            part = slice(first, first + PREDICTED_AT_ONCE)
            right += (exact(images.images[part].double()).argmax(1) == images.labels[part]).tolist()
    return right
