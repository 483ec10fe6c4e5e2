"""`relucert report`: a run file as one page to look at."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relucert.errors import InputError

NAME = "report"
HELP = "a run as one page to look at"
DESCRIPTION = (
    "Turns what --json recorded into one self-contained HTML page: curves, bounds image by image, adversarial "
    "examples, and what is needed to run it again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_file", type=Path, metavar="RUN.json", help="what a command recorded with --json")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE", help="(default: %(default)s)"
    )
    parser.add_argument("--open", action="store_true", help="show it in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Reads everything before anything is written."""
    from relucert.report.page import page
    from relucert.report.reading import read
    from relucert.storage import files

    source, output = arguments.run_file, arguments.output
    if source.resolve() == output.resolve():
        raise InputError(f"-o {output} would overwrite the run file")
    files.check_writable(output)
    known = read(source)
    content = page(known).encode(errors="replace")
    files.write(output, content)
    sys.stdout.write(f"{len(known.results):,} results in {output} ({len(content) / 1e6:.2f} MB)\n")
    if arguments.open:
        _show(output)
    return 0


def _show(output: Path) -> None:
    import webbrowser

    if not webbrowser.open(output.resolve().as_uri()):
        raise InputError(f"there is no browser to open {output} with")
