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
HELP = "verify proofs that `relucert certify`, `exact` or `verify` wrote"
DESCRIPTION = (
    "Verifies, in integers and without any of the code that found it, that within the radius "
    "of a proof no valid input is adversarial, or that a property holds. "
    "Exit code 0: it is proven; 1: the file, or one of the folder's, proves nothing."
)
REJECTED = 1
BUNDLED = "bundled"  # the images that come with the package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proof", type=Path, metavar="FILE|FOLDER", help="the proof, or a folder of proofs")
    parser.add_argument(
        "network",
        nargs="?",
        metavar="NETWORK",
        help="what it is about: a network's name, an .onnx or a .safetensors file (default: the name it gives)",
    )
    parser.add_argument("--network", dest="option_network", metavar="NETWORK", help="the same, as an option")
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
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="of a folder: check with N processes (default: one, and one per core for what would take long)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    import relucert
    from relucert.checker.document import QueryProof, Rejected, read
    from relucert.cli.show import Screen

    if arguments.network is not None and arguments.option_network is not None:
        raise InputError("the network is given twice: before the options, and with --network")
    arguments.network = arguments.network or arguments.option_network
    if arguments.data is None and (arguments.data_dir is not None or arguments.layout is not None):
        raise InputError("--data-dir and --layout are about images: say which with --data")
    if arguments.workers is not None and (arguments.workers < 1 or not arguments.proof.is_dir()):
        raise InputError("--workers is how many processes check a folder, 1 or more")
    screen = Screen(quiet=arguments.quiet)
    if arguments.proof.is_dir():
        return _folder(arguments, screen)
    try:
        proof = read(arguments.proof)
        network = relucert.load(arguments.network or proof.name)
        if arguments.property is not None or (isinstance(proof, QueryProof) and arguments.data is None):
            _about_property(arguments, network, screen)
        else:
            _about_image(arguments, network, screen)
    except Rejected as error:
        screen.complain(f"rejected: {error}")
        return REJECTED
    return 0


def _folder(arguments: argparse.Namespace, screen: Screen) -> int:
    """Every proof in a folder, one row each; 1 where one of them proves nothing."""
    from relucert.checker.folder import check_all, proof_paths

    if arguments.property is not None or arguments.data is not None:
        raise InputError("--property and --data are for one proof: give its file instead of a folder")
    paths = proof_paths(arguments.proof)
    if not paths:
        raise InputError(f"{arguments.proof} has no proofs: no .json or .json.gz files")
    results = []
    with screen.progress("checking", len(paths)) as bar:
        for result in check_all(paths, arguments.network, arguments.workers):
            results.append(result)
            bar.advance(len(results), len(paths))
    results.sort(key=lambda result: result.path)
    rows = [
        (f"{result.seconds:.2f}", result.path.name, "holds" if result.holds else "proves nothing", result.words)
        for result in results
    ]
    screen.columns(["seconds", "file", "verdict", "remark"], rows, right=1)
    held = sum(result.holds for result in results)
    screen.line("proofs", f"{held} of {len(results)} hold")
    return 0 if held == len(results) else REJECTED


def _about_image(arguments: argparse.Namespace, network: Network, screen: Screen) -> None:
    from relucert.checker.check import check

    images = None if arguments.data is None else _images(arguments, network, screen)
    with screen.progress("checking", 1) as bar:
        claim = check(
            arguments.proof, network, progress=bar.advance,
            images=None if images is None else images.images,
        )  # fmt: skip
    screen.line("proven", str(claim))
    screen.line("network", f"{claim.network}, SHA-256 {claim.sha256}")
    where = "the images asked about; --data checks that" if images is None else f"{images.name}, checked"
    screen.line("image", f"number {claim.index} of {where}")
    screen.line("", f"SHA-256 {claim.image}, of its numbers as little-endian float64")
    screen.line("nodes", f"{claim.nodes}, {claim.leaves} of them leaves")


def _about_property(arguments: argparse.Namespace, network: Network, screen: Screen) -> None:
    import relucert
    from relucert.checker.check import check_property
    from relucert.checker.document import QueryProof, Rejected, read

    proof = read(arguments.proof)
    if arguments.property is not None and isinstance(proof, QueryProof):
        text = relucert.Query.read(arguments.property).vnnlib()  # of VNN-LIB 2.0, the text of 1.0 that says the same
        if text != proof.text:
            raise Rejected(f"it is about another property than {arguments.property}")
    with screen.progress("checking", 1) as bar:
        claim = check_property(arguments.proof, network, bar.advance)
    screen.line("proven", str(claim))
    screen.line("network", f"{claim.network}, SHA-256 {claim.sha256}")
    checked = "its text is in the proof; --property checks that it is a file's"
    screen.line("property", checked if arguments.property is None else f"{arguments.property}, checked")
    screen.line("nodes", f"{claim.nodes}, {claim.leaves} of them leaves")


def _images(arguments: argparse.Namespace, network: Network, screen: Screen) -> Dataset:
    """The images that were asked about, in rows as the network takes them."""
    from relucert.cli import images

    named = argparse.Namespace(**vars(arguments))
    named.data, named.images = None if arguments.data == BUNDLED else arguments.data, None
    return images.load(named, network, screen)
