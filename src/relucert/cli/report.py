"""`relucert report`: run files as one page to look at."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relucert.cli.table import add_options, flag
from relucert.common.words import counted
from relucert.errors import InputError

NAME = "report"
HELP = "one run, or several, as one page to look at"
DESCRIPTION = (
    "Turns what --json recorded into one self-contained HTML page: curves, bounds image by image, adversarial "
    "examples, verdicts and how soon they came, and what is needed to run it again. Several files about the same "
    "network, images and rivals are set side by side, others one after the other."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_files", type=Path, nargs="+", metavar="RUN.json", help="what a command recorded with --json"
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE", help="(default: %(default)s)"
    )
    shown = flag("show it in the browser, where there is one")
    add_options(parser, overwrite="also replace a file that is no page", open=shown)


def run(arguments: argparse.Namespace) -> int:
    """Reads everything before anything is written."""
    from relucert.inputs.storage import files
    from relucert.report.page import count, page, read_any

    sources, output = arguments.run_files, arguments.output
    for number, source in enumerate(sources):
        if source.resolve() == output.resolve():
            raise InputError(f"-o {output} would overwrite the run file")
        if source.resolve() in [earlier.resolve() for earlier in sources[:number]]:
            raise InputError(f"{source} is given twice")
    files.check_writable(output)
    files.check_replaceable(output, _is_page, arguments.overwrite, "something that is no page")
    recorded = [read_any(source) for source in sources]
    content = page(*recorded).encode(errors="replace")
    files.write(output, content)
    of_files = f" of {len(sources)} files" if len(sources) > 1 else ""
    sys.stdout.write(
        f"{counted(sum(map(count, recorded)), 'result')}{of_files} in {output} ({len(content) / 1e6:.2f} MB)\n"
    )
    if arguments.open and not _show(output):
        sys.stdout.write(f"there is no browser here: open {output.resolve()} with one\n")
    return 0


def _is_page(there: bytes) -> bool:
    return there.lstrip()[:14].lower() == b"<!doctype html"


def _show(output: Path) -> bool:
    """Opens the page; whether there is a browser that can."""
    import webbrowser

    try:
        return webbrowser.open(output.resolve().as_uri())
    except webbrowser.Error:
        return False
