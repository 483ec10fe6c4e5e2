"""`relucert check`: verifies proofs of certificates, of minimum distortions and of properties, in code of its own."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import relucert
from relucert.cli.table import Option, add_options
from relucert.common.checks import parse_memory
from relucert.errors import InputError

if TYPE_CHECKING:
    from relucert.api.proof_folder import Checked, ProofSubject
    from relucert.checker.check import Claim, QueryClaim
    from relucert.cli.show import Screen

NAME = "check"
HELP = "verify proofs that `relucert certify`, `exact` or `verify` wrote"
DESCRIPTION = (
    "Verifies, in integers and without any of the code that found it, that within the radius "
    "of a proof no valid input is adversarial, or that a property holds. "
    "Exit code 0: the proof, or every one of the folder, holds; 1: one of them proves nothing, or could not be "
    "checked; 2: something was wrong with the question."
)
REJECTED = 1
BUNDLED = "bundled"  # the images that come with the package
BY_NAME = "found by the name in the proof; --network NETWORK checks that it is about yours"
BY_NUMBER = "numbered as the proof says; --data DATA checks that it is of that number"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proof", type=Path, metavar="FILE|FOLDER", help="the proof, or a folder of proofs")
    parser.add_argument(
        "network", nargs="?", metavar="NETWORK",
        help="what it has to be about: a network's name, an .onnx or a .safetensors file "
        "(default: the bundled or built network of the name it gives)",
    )  # fmt: skip
    add_options(
        parser,
        network=Option("the same, as an option", metavar="NETWORK", further={"dest": "option_network"}),
        data=(
            "the images that were asked about: a proof about another one than that of its number is refused; "
            "a .npz or .npy file, mnist, cifar10 or bundled"
        ),
        data_dir="the folder that has mnist or cifar10",
        layout="how the pictures of your file lie",
    )
    add_options(parser, "--pixels")
    processes = "of a folder: check with N processes (default: one, and one per core for what would take long)"
    add_options(
        parser,
        property=Option(
            "the .vnnlib file that was asked about: a proof about another property is refused", Path, metavar="FILE"
        ),
        largest=Option("refuse a proof that has more once it is unpacked, as in 1G", parse_memory, "128M", "SIZE"),
        workers=Option(processes, int, metavar="N"),
        quiet="no progress bar",
    )


def run(arguments: argparse.Namespace) -> int:
    from relucert.api.proof_folder import proof_paths
    from relucert.cli.show import Screen

    if arguments.network is not None and arguments.option_network is not None:
        raise InputError("the network is given twice: before the options, and with --network")
    arguments.network = arguments.network or arguments.option_network
    if arguments.data is None and any((arguments.data_dir, arguments.layout, arguments.pixels)):
        raise InputError("--data-dir, --layout and --pixels are about images: say which with --data")
    if arguments.workers is not None and (arguments.workers < 1 or not arguments.proof.is_dir()):
        raise InputError("--workers is how many processes check a folder, 1 or more")
    if not arguments.proof.exists():
        raise InputError(f"can't read {arguments.proof}: there is no such file or folder")
    screen = Screen(quiet=arguments.quiet)
    if not arguments.proof.is_dir():
        return _single_proof(arguments, _subject(arguments, screen), screen)
    paths = proof_paths(arguments.proof)
    if not paths:
        raise InputError(f"{arguments.proof} has no proofs: no .json or .json.gz files")
    return _folder(paths, arguments, _subject(arguments, screen), screen)


def _subject(arguments: argparse.Namespace, screen: Screen) -> ProofSubject:
    """The subject that the proofs must have: the network, images that fit it where both are given, the property."""
    from relucert.api.proof_folder import ProofSubject
    from relucert.cli import images
    from relucert.query.inputs import check_images
    from relucert.query.samples import read_samples

    network = samples = None
    data = None if arguments.data == BUNDLED else arguments.data  # as other commands name the bundled images
    given = argparse.Namespace(**vars(arguments) | {"data": data})
    if arguments.network is not None and arguments.data is not None:
        network = images.load_network(given, screen)
    elif arguments.network is not None:
        with screen.loading() as progress:
            network = relucert.load(arguments.network, progress=progress)
    if arguments.data is not None:
        samples = read_samples(images.read(given, screen, network), None)
        if network is not None:
            check_images(samples.images, network, arguments.layout or samples.layout)
    text = None if arguments.property is None else relucert.Query.read(arguments.property).vnnlib()
    return ProofSubject(network, samples, arguments.layout, text, arguments.largest)


def _single_proof(arguments: argparse.Namespace, subject: ProofSubject, screen: Screen) -> int:
    """Checks one proof, and shows what it proves."""
    with screen.progress("checking", 1) as bar:
        checked = subject.check(arguments.proof, bar.advance)
    claim = checked.claim
    if claim is None:
        screen.complain(checked.reason)
        return REJECTED
    screen.line("proven", str(claim))
    screen.line("network", f"{claim.network}, SHA-256 {claim.sha256}")
    screen.line("", BY_NAME if subject.network is None else "the one given, checked")
    _about(claim, arguments, screen)
    screen.line("nodes", f"{claim.nodes}, {claim.leaves} of them leaves")
    return 0


def _about(claim: Claim | QueryClaim, arguments: argparse.Namespace, screen: Screen) -> None:
    from relucert.checker.check import Claim

    if isinstance(claim, Claim):
        screen.line("image", f"number {claim.index}, SHA-256 {claim.image} of its numbers as little-endian float64")
        screen.line("", BY_NUMBER if arguments.data is None else f"that of this number in {arguments.data}, checked")
        return
    checked = "its text is in the proof; --property FILE checks that it is yours"
    screen.line("property", checked if arguments.property is None else f"{arguments.property}, checked")


def _folder(paths: Sequence[Path], arguments: argparse.Namespace, subject: ProofSubject, screen: Screen) -> int:
    """Checks every proof in a folder, and shows one row for each."""
    from relucert.api.proof_folder import check_all

    results: list[Checked] = []
    with screen.progress("checking", len(paths)) as bar:
        for result in check_all(paths, subject, arguments.workers):
            results.append(result)
            bar.advance(len(results), len(paths))
    results.sort(key=lambda result: result.path)
    rows = [_row(result) for result in results]
    screen.columns(["seconds", "file", "verdict", "remark"], rows, keys=2, right=1)
    claims = [result.claim for result in results if result.claim is not None]
    _summarise(claims, arguments, screen)
    screen.line("proofs", f"{len(claims)} of {len(results)} hold")
    return 0 if len(claims) == len(results) else REJECTED


def _row(checked: Checked) -> tuple[str, str, str, str]:
    verdict, remark = ("proves nothing", checked.reason) if checked.claim is None else ("holds", str(checked.claim))
    return f"{checked.seconds:.2f}", checked.path.name, verdict, remark


def _summarise(claims: Sequence[Claim | QueryClaim], arguments: argparse.Namespace, screen: Screen) -> None:
    """The networks and images that proofs hold of, and what nobody checked."""
    from relucert.checker.check import Claim

    networks = Counter((claim.network, claim.sha256) for claim in claims)
    for (name, sha256), count in sorted(networks.items()):
        screen.line("network", f"{name}, SHA-256 {sha256}: {count} {'proof' if count == 1 else 'proofs'}")
    if claims:
        screen.line("", BY_NAME if arguments.network is None else "the one given, checked")
    images = sorted({(claim.index, claim.image) for claim in claims if isinstance(claim, Claim)})
    for index, sha256 in images:
        screen.line("image", f"number {index}, SHA-256 {sha256}")
    if images:
        screen.line("", BY_NUMBER if arguments.data is None else f"those of their numbers in {arguments.data}, checked")
