"""`relucert check`: verifies the proof of a minimum distortion in code that shares nothing with the search."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "check"
HELP = "verify a proof that `relucert exact` wrote"
DESCRIPTION = (
    "Verifies, in ball arithmetic and without any of the code that found it, that within the radius of a proof no "
    "valid input is adversarial. Exit code 0: it is proven; 1: the file proves nothing."
)
REJECTED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("proof", type=Path, metavar="FILE", help="the proof, as `relucert exact --proof` writes it")
    parser.add_argument(
        "network",
        nargs="?",
        metavar="NETWORK",
        help="what it is about: a network's name, an .onnx or a .safetensors file (default: the name it gives)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(arguments: argparse.Namespace) -> int:
    from relucert.checker.check import Rejected, check
    from relucert.cli.show import Screen

    screen = Screen(quiet=arguments.quiet)
    with screen.progress("checking", 1) as advance:
        try:
            claim = check(arguments.proof, arguments.network, progress=lambda done, total: advance(done, total))
        except Rejected as error:
            screen.complain(f"rejected: {error}")
            return REJECTED
    screen.line("proven", str(claim))
    screen.line("network", f"{claim.network}, SHA-256 {claim.sha256}")
    screen.line("image", f"SHA-256 {claim.image}, of its numbers as little-endian float64")
    screen.line("nodes", f"{claim.nodes}, {claim.leaves} of them leaves")
    return 0
