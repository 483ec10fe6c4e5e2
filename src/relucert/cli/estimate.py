"""`relucert estimate`: CLEVER's estimate for every image. Nothing here is certified, and nothing is called so."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relucert.cli import images as image_options
from relucert.cli import options
from relucert.errors import InputError, RelucertError

if TYPE_CHECKING:
    from relucert import Estimate, Network
    from relucert.cli.show import Screen
    from relucert.data import Dataset

NAME = "estimate"
HELP = "CLEVER's estimates, which prove nothing"
DESCRIPTION = (
    "Estimates by sampling, for every image, how far it can move before the network changes its mind (CLEVER). "
    "An estimate is no bound: `relucert certify` gives proven ones. Without arguments: the bundled network on the "
    "bundled images."
)
NETWORK = "mnist-2x20"
LIBRARY_OPTIONS = ("norm", "target", "radius", "batches", "samples", "box", "seed")
INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "network",
        nargs="?",
        default=NETWORK,
        metavar="NETWORK",
        help="a bundled network's name, an .onnx or a .safetensors file (default: %(default)s)",
    )
    _add_question(parser.add_argument_group("the question"))
    effort = parser.add_argument_group("the effort")
    for name, default in (("batches", 500), ("samples", 1024)):
        effort.add_argument(
            f"--{name}", type=options.count, default=default, metavar="N",
            help="how many batches of samples" if name == "batches" else "how many samples a batch has",
        )  # fmt: skip
    effort.add_argument("--threads", type=options.threads, metavar="N", help="how many threads to compute with")
    answers = parser.add_argument_group("the answers")
    answers.add_argument("--json", type=Path, metavar="FILE", help="record the run, also while it goes on")
    answers.add_argument("--quiet", action="store_true", help="no progress bar and no table, only the summary")


def _add_question(group: argparse._ArgumentGroup) -> None:
    image_options.add_arguments(group)
    group.add_argument("--norm", default="inf", metavar="P", help="inf, 2, 1 or any number >= 1 (default: %(default)s)")
    group.add_argument(
        "--target",
        default="untargeted",
        help="the rival class: runner-up, least-likely, random, all, untargeted or a class index "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--radius",
        type=options.number,
        metavar="R",
        help="of the ball that is sampled (default: 30 for p = 1, 3 for p = 2, 0.1 for p = inf)",
    )
    group.add_argument(
        "--box",
        type=options.number,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="the valid pixels, to which samples are clipped (default: no clipping)",
    )
    group.add_argument(
        "--seed", type=options.seed, default=0, metavar="N", help="of the samples (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Checks everything that can be checked, then estimates, records and shows."""
    _check_output(arguments)
    import torch

    import relucert
    from relucert.cli.show import Screen

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    network = relucert.load(arguments.network)
    screen = Screen(quiet=arguments.quiet)
    images = image_options.load(arguments, network, screen)
    started = time.perf_counter()
    found, stopped = _collect(arguments, network, images, screen)
    if found:
        screen.estimates(found)
        screen.line("network", f"{network.name} ({network.describe()}, {network.parameters:,} parameters)")
        screen.line("question", f"norm {arguments.norm}, target {arguments.target}, CLEVER: not certified")
        values = [answer.value for answer in found if answer.value is not None]
        if values:
            mean = sum(values) / len(values)
            screen.line("mean estimate", f"{mean:.4g} over {len(values)} of {len(found)} questions (not certified)")
        screen.line("time", f"{time.perf_counter() - started:.2f} s")
    if stopped is None:
        return 0
    screen.complain(f"stopped after {len(found)} answers")
    if isinstance(stopped, RelucertError):
        raise stopped
    return INTERRUPTED


def _check_output(arguments: argparse.Namespace) -> None:
    from relucert.report import files

    if arguments.json is not None:
        for given in (arguments.network, arguments.data):
            if given is not None and Path(given).resolve() == arguments.json.resolve():
                raise InputError(f"--json {arguments.json} would overwrite another file of this command")
        files.check_writable(arguments.json)


def _collect(
    arguments: argparse.Namespace, network: Network, images: Dataset, screen: Screen
) -> tuple[list[Estimate], KeyboardInterrupt | RelucertError | None]:
    """Takes the answers as they come, and what stopped them; what came is recorded whatever happens."""
    import relucert
    from relucert.report.runfile import RunFile

    chosen: dict[str, Any] = {name: getattr(arguments, name) for name in LIBRARY_OPTIONS}
    chosen["box"] = None if arguments.box is None else tuple(arguments.box)
    found: list[Estimate] = []
    with screen.progress("sampling", arguments.batches * len(images)) as advance:
        answers = relucert.estimate_each(
            network, images.images, images.labels, **chosen, progress=lambda done, total: advance(done)
        )
        head = {
            "relucert": relucert.__version__,
            "network": {"name": network.name, "layers": network.describe(), "classes": network.classes},
            "options": {"network": arguments.network, "data": arguments.data, "images": len(images), **chosen},
        }
        try:
            with RunFile(head, arguments.json, None) as record:
                for answer in answers:
                    found.append(answer)
                    record.add(answer.to_json())
                record.finish()
        except (KeyboardInterrupt, RelucertError) as stopped:
            return found, stopped
    return found, None
