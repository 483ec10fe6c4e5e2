"""`relucert check`: verifies the proof of a minimum distortion or of a property, in code of its own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from relucert.errors import InputError

if TYPE_CHECKING:
    from relucert import Network
    from relucert.cli.show import Screen
    from relucert.data import Dataset

NAME = "check"
HELP = "verify a proof that `relucert exact` or `relucert verify` wrote"
DESCRIPTION = (
    "Verifies, in ball arithmetic and without any of the code that found it, that within the radius of a proof no "
    "valid input is adversarial, or that a property holds. Exit code 0: it is proven; 1: the file proves nothing."
)
REJECTED = 1
BUNDLED = "bundled"  # the images that come with the package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proof", type=Path, metavar="FILE", help="the proof, as --proof of exact and verify writes it")
    parser.add_argument(
        "network",
        nargs="?",
        metavar="NETWORK",
        help="what it is about: a network's name, an .onnx or a .safetensors file (default: the name it gives)",
    )
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="the images that were asked about, to check that it is about the one of its number: a .npz or .npy file, "
        "mnist, cifar10 or bundled",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="the folder that has mnist or cifar10")
    parser.add_argument("--layout", choices=("nchw", "nhwc"), help="how the pictures of your file lie")
    parser.add_argument(
        "--property",
        type=Path,
        metavar="FILE",
        help="the .vnnlib file that was asked about, to check that it is this one",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    import relucert
    from relucert.checker.check import QueryClaim, Rejected, check
    from relucert.checker.document import read
    from relucert.cli.show import Screen

    if arguments.data is None and (arguments.data_dir is not None or arguments.layout is not None):
        raise InputError("--data-dir and --layout are about images: say which with --data")
    screen = Screen(quiet=arguments.quiet)
    try:
        network = relucert.load(arguments.network or read(arguments.proof).name)
        images = None if arguments.data is None else _images(arguments, network, screen)
        if arguments.property is not None:
            _check_property(arguments)
        with screen.progress("checking", 1) as advance:
            claim = check(
                arguments.proof, network, progress=lambda done, total: advance(done, total),
                images=None if images is None else images.images,
            )  # fmt: skip
    except Rejected as error:
        screen.complain(f"rejected: {error}")
        return REJECTED
    screen.line("proven", str(claim))
    screen.line("network", f"{claim.network}, SHA-256 {claim.sha256}")
    if isinstance(claim, QueryClaim):
        named = "" if arguments.property is None else f" is {arguments.property}, checked"
        screen.line(
            "property", f"its text{named}" if named else "its text is in the proof; --property checks which it is"
        )
        screen.line("nodes", f"{claim.nodes}, {claim.leaves} of them leaves")
        return 0
    where = "the images asked about; --data checks that" if images is None else f"{images.name}, checked"
    screen.line("image", f"number {claim.index} of {where}")
    screen.line("", f"SHA-256 {claim.image}, of its numbers as little-endian float64")
    screen.line("nodes", f"{claim.nodes}, {claim.leaves} of them leaves")
    return 0


def _check_property(arguments: argparse.Namespace) -> None:
    """That a proof is about the property of a file: its text, or of VNN-LIB 2.0 the text of 1.0 that says the same."""
    import relucert
    from relucert.checker.document import QueryProof, Rejected, read

    proof, query = read(arguments.proof), relucert.Query.read(arguments.property)
    if not isinstance(proof, QueryProof):
        raise Rejected("it is about an image, and not about a property")
    if query.vnnlib() != proof.text:
        raise Rejected(f"it is about another property than {arguments.property}")


def _images(arguments: argparse.Namespace, network: Network, screen: Screen) -> Dataset:
    """The images that were asked about, in rows as the network takes them."""
    from relucert.cli import images

    named = argparse.Namespace(**vars(arguments))
    named.data, named.images = None if arguments.data == BUNDLED else arguments.data, None
    return images.load(named, network, screen)
