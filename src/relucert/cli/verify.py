"""`relucert verify`: does a property hold, given as a VNN-LIB file, as a radius, or as a whole list of them?"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import relucert
from relucert.cli import options
from relucert.cli.table import PARALLELISM, STATED, Option, add_options
from relucert.common.deadline import TimeUp, until
from relucert.common.words import counted
from relucert.errors import InputError
from relucert.inputs.storage.files import check_replaceable, write
from relucert.report.runfile import RunFile

if TYPE_CHECKING:
    from relucert import Query, Verdict
    from relucert.cli.show import Screen
    from relucert.inputs.storage.store import Store
    from relucert.verification.sources import Sources

NAME = "verify"
HELP = "does a given property hold: a VNN-LIB file, or robustness at a radius"
DESCRIPTION = (
    "Answers whether a property holds: proven, violated by a witness that onnxruntime can replay, or unknown. The "
    "property is a VNN-LIB file beside the network, robustness of images at a radius (--radius), or a whole list of "
    "such files (--instances). The exit code is 0 whatever the verdict."
)
LIBRARY_OPTIONS = ("norm", "target", "box", "scale", "radius", "time_limit", "inference", "seed", "proof")
TIME_LIMIT = 60.0  # seconds, unless the user says otherwise
ABOUT = {"property": 0}  # of the one verdict in a store about a property
RESERVE = 0.3  # seconds of a command's time that are left for writing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, "network")
    parser.add_argument("property", nargs="?", type=Path, metavar="PROPERTY", help="a .vnnlib or .vnnlib.gz file")
    add_options(
        parser,
        "--inference",
        network=Option(
            "a further network that a property of VNN-LIB 2.0 declares, or any by its name; may be repeated",
            _named_file, metavar="NAME=FILE", further={"dest": "further_networks", "action": "append"},
        ),
        instances=Option(
            "many at once: a CSV file with network,property,seconds in every line, files counted from its own folder",
            Path, metavar="FILE",
        ),
    )  # fmt: skip
    robust = parser.add_argument_group("robustness of images, in the place of a file")
    add_options(robust, radius=Option("how far an input may be from the image", options.stated_radius, metavar="R"))
    add_options(robust, *STATED)
    effort = parser.add_argument_group("the effort")
    limit = (
        "seconds for a property, start-up included, or per image; of instances, at most so many each "
        f"(default: {TIME_LIMIT:g}, or the instance's own)"
    )
    add_options(
        effort,
        time_limit=Option(limit, options.seconds, metavar="S"),
        seed="for random targets and the attack's random starts",
    )
    add_options(effort, *PARALLELISM)
    answers = parser.add_argument_group("the answers")
    results = "write a property's verdict as VNN-COMP has it: sat, unsat, ..."
    add_options(answers, results=Option(results, Path, metavar="FILE"))
    add_options(answers, "--proof", "--json", "--csv", "--overwrite", "--all", "--quiet")


def _named_file(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise InputError(f"a name and a file are needed, as in N=model.onnx, not {text!r}")
    return name, path


def run(arguments: argparse.Namespace) -> int:
    """Answers the one of three questions that the arguments ask: a property, a list of them, or images."""
    questions = [name for name in ("property", "instances", "radius") if getattr(arguments, name) is not None]
    if len(questions) != 1:
        raise InputError("say what to verify: a PROPERTY file, --radius for images, or --instances for a list of files")
    _check_options(arguments, questions[0])
    if questions[0] == "radius":
        return _robust(arguments)
    if questions[0] == "instances":
        from relucert.cli import instances

        return instances.run(arguments)
    return _property(arguments)


def _check_options(arguments: argparse.Namespace, question: str) -> None:
    """Refuses options that would not be heeded."""
    for name, questions in {
        "results": ("property",), "further_networks": ("property",),
        "proof": ("property", "radius"), "csv": ("instances", "radius"),
        "data": ("radius",), "images": ("radius",), "box": ("radius",), "scale": ("radius",),
        "target_file": ("radius",), "outputs_within": ("radius",), "layout": ("radius",),
        "data_dir": ("radius",), "pixels": ("radius",),
    }.items():  # fmt: skip
        if getattr(arguments, name) is not None and question not in questions:
            subject = {"property": "a property", "instances": "--instances", "radius": "--radius"}[question]
            option = "network" if name == "further_networks" else name.replace("_", "-")
            raise InputError(f"--{option} does not go with {subject}")


def _property(arguments: argparse.Namespace) -> int:
    files = options.outputs(arguments, ("json", "results", "proof"))
    import torch

    from relucert.api.verify import late_in_reading
    from relucert.cli.show import Screen
    from relucert.verification.results import is_results, results

    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    if arguments.results is not None:
        check_replaceable(arguments.results, is_results, arguments.overwrite, "something else than a verdict")
    limit = TIME_LIMIT if arguments.time_limit is None else arguments.time_limit
    begun = time.monotonic() - (since_start() if arguments.process else 0.0)
    ends = begun + limit - RESERVE
    digests = None if arguments.json is None else _digests(arguments)
    screen = Screen(quiet=arguments.quiet)
    query: Query | None = None
    try:
        with until(ends):
            networks, query = _read(arguments)
    except TimeUp:
        verdict = late_in_reading(time.monotonic() - begun, arguments.inference)
        if digests is not None:
            raise InputError(f"{verdict.reason}: there is no question to record") from None
    else:
        if digests is None:
            verdict = _decide(arguments, networks, query, ends, screen)
        else:
            head = _head(arguments, query, *digests)
            with _store(arguments, files, head) as store:
                run_file = RunFile(head, files["json"], None, overwrite=arguments.overwrite)
                stored: Verdict | None = None if arguments.proof is not None else store.get(ABOUT)
                verdict = _decide(arguments, networks, query, ends, screen) if stored is None else stored
                if stored is None:
                    if _digests(arguments) != digests:
                        raise InputError("the files of the network were changed meanwhile: ask again")
                    store.add([(ABOUT, verdict)])
                with run_file:
                    run_file.add(verdict.to_json())
                    run_file.finish()
    if arguments.results is not None:
        write(arguments.results, results(verdict).encode())
    _show(screen, arguments, query, verdict)
    return 0


def _decide(arguments: argparse.Namespace, networks: Sources, query: Query, ends: float, screen: Screen) -> Verdict:
    with screen.progress("verifying", 1) as bar:
        return relucert.verify(
            networks, query, time_limit=max(0.0, ends - time.monotonic()), inference=arguments.inference,
            seed=arguments.seed, progress=bar.tell, proof=arguments.proof, overwrite=arguments.overwrite,
            workers=arguments.workers, ray=arguments.ray,
        )  # fmt: skip


def _store(arguments: argparse.Namespace, files: dict[str, Path], head: dict[str, Any]) -> Store:
    """The store that keeps the verdict, from which the same command takes it."""
    from relucert.cli import runs
    from relucert.inputs.storage.store import open_store

    path = runs.store_path(arguments, files)
    assert path is not None
    question = {name: head["options"][name] for name in ("time_limit", "inference", "seed")}
    network = {"network": head["network"]["file_sha256"], "other networks": head["network"]["others"]}
    return open_store(path, {"command": "verify PROPERTY", **question, **network, "property": head["query"]["sha256"]})


def _read(arguments: argparse.Namespace) -> tuple[Sources, Query]:
    """The networks, by name where there are several, and the property."""
    from relucert.verification.sources import read_query

    if not arguments.further_networks:
        return read_query(str(arguments.network), arguments.property)
    query = relucert.Query.read(arguments.property)
    first = query.declared[0].network if query.declared else "N"
    return {first: str(arguments.network), **dict(arguments.further_networks)}, query


def _head(arguments: argparse.Namespace, query: Query, network: str, further: dict[str, str]) -> dict[str, Any]:
    from relucert.cli import record

    text = hashlib.sha256(query.vnnlib().encode()).hexdigest()
    question_options = {"time_limit": arguments.time_limit, "inference": arguments.inference, "seed": arguments.seed}
    return {
        **record.circumstances(arguments),
        "question": record.question(NAME, question_options, network, further, text),
        "network": {"name": str(arguments.network), "file_sha256": network, "others": further},
        "query": {"name": str(arguments.property), "sha256": text, "violations": len(query.violations)},
        "options": {**question_options, "threads": arguments.threads},
    }


def _digests(arguments: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """The SHA-256 of the network's file, and those of further networks by their names."""
    further = {name: _digest(path) for name, path in arguments.further_networks or ()}
    return _digest(str(arguments.network)), further


def _digest(network: str) -> str:
    """The SHA-256 of a network's file, or of one of the zoo."""
    from relucert.inputs.loading import zoo
    from relucert.inputs.loading.paths import file_digest

    return file_digest(Path(network)) if Path(network).is_file() else zoo.digest(network)


def _show(screen: Screen, arguments: argparse.Namespace, query: Query | None, verdict: Verdict) -> None:
    """query: None where time ended before the files were read."""
    screen.line("verdict", _decided(verdict, ", "))
    if verdict.reason is not None:
        screen.line("", verdict.reason)
    if query is not None:
        violations = counted(len(query.violations), "violation")
        screen.line("property", f"{arguments.property} ({violations} on {counted(query.inputs, 'input')})")
        for remark in verdict.remarks:
            screen.line("", remark)
        evaluated = "" if arguments.inference == "real" else f", evaluated in {arguments.inference}"
        screen.line("network", f"{arguments.network}{evaluated}")
        stage = "" if verdict.stage is None else f", the last ones in: {verdict.stage}"
        screen.line("nodes", f"{verdict.nodes}{stage}")
        if arguments.proof is not None and verdict.holds:
            screen.line("proof", f"{arguments.proof}: verify it with `relucert check`")
    screen.line("time", f"{verdict.seconds:.2f} s")


def _robust(arguments: argparse.Namespace) -> int:
    files = options.outputs(arguments, ("json", "csv", "proof"))
    from relucert.cli import runs
    from relucert.report.verdict_list import Verdicts

    arguments.time_limit = TIME_LIMIT if arguments.time_limit is None else arguments.time_limit
    setup = runs.set_up(arguments, LIBRARY_OPTIONS)

    def show(verdicts: list[relucert.RobustnessVerdict]) -> None:
        screen = setup.screen
        screen.answers("verdict", [(verdict, _decided(verdict)) for verdict in verdicts])
        screen.line("network", setup.about)
        screen.line("question", f"radius {arguments.radius}, {setup.question()}")
        screen.line("verdicts", str(Verdicts(verdicts).summary()))

    further = {"overwrite": arguments.overwrite}
    code = runs.answer(setup, files, "verifying", relucert.robust_at_each, show, **further)
    return 0 if code == runs.FAILED else code


def _decided(verdict: Verdict, before: str = " ") -> str:
    """The status, and what decided it."""
    return verdict.status if verdict.method is None else f"{verdict.status}{before}by {verdict.method}"


def since_start() -> float:
    """Seconds since this process began; where the system does not tell, its processor time."""
    try:
        began = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        up = float(Path("/proc/uptime").read_text().split()[0])
        elapsed = up - began / os.sysconf("SC_CLK_TCK")
        return elapsed if math.isfinite(elapsed) and elapsed >= 0 else time.process_time()
    except (OSError, ValueError, IndexError):
        return time.process_time()
