"""Runs as one self-contained HTML page: no request leaves it, and only the script it comes with may run."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from relucert.common.words import counted, listed
from relucert.report.domain import in_words
from relucert.report.grouping import RunGroup, grouped
from relucert.report.markup import render
from relucert.report.paper_table import Table, table_of, table_section
from relucert.report.reading import REAL, RecordedRun, read_record, run_of
from relucert.report.sections import norm_section
from relucert.report.verdict_run import VerdictRun, verdict_run_of, verdict_section

MOST_REASONS = 3  # for failures, that a warning names


def page(*recorded: Record) -> str:
    """The whole page about one record or several."""
    folder = resources.files("relucert.report")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    groups = grouped([run for run in recorded if isinstance(run, RecordedRun)])
    paper = [table for table in recorded if isinstance(table, Table)]
    verdicts = [run for run in recorded if isinstance(run, VerdictRun)]
    alone = len(groups) == 1 and not verdicts and not paper
    sections = [
        section for group, name in zip(groups, _names(groups), strict=True) for section in _group(group, name, alone)
    ]
    sections += [verdict_section(run) for run in verdicts]
    sections += [table_section(table) for table in paper]
    whole = render(
        "page.html",
        policy=_policy(style, script),
        title=_title(groups, verdicts, paper),
        style=style,
        script=script,
        alone=_facts(groups[0]) if alone else None,
        sections=sections,
        records=[(record.source, _entries(record.head)) for record in recorded],
    )
    return str(whole)


def _policy(style: str, script: str) -> str:
    """The page's Content-Security-Policy: nothing is fetched, and only this style and this script apply."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _title(groups: Sequence[RunGroup], verdicts: Sequence[VerdictRun], paper: Sequence[Table]) -> str:
    networks = [run.network for run in verdicts if run.network is not None]
    names = list(dict.fromkeys([*(group.name for group in groups), *networks]))
    if not names:
        tables = f"The paper's table{'s' if len(paper) > 1 else ''}, computed anew"
        return "Which properties hold?" if verdicts else tables
    return f"How robust {'are' if len(names) > 1 else 'is'} {listed(names)}?"


def _names(groups: Sequence[RunGroup]) -> list[str]:
    """The title of each group: its network, with the target where that is not enough, else with its files."""
    names = [f"{group.name}{_evaluated(group)}" for group in groups]
    named = list(zip(names, groups, strict=True))
    targets = [f"{name}, target {group.target}" for name, group in named]
    files = [f"{name}, {', '.join(run.source for run in group.runs)}" for name, group in named]
    return next((each for each in (names, targets) if len(set(each)) == len(each)), files)


def _evaluated(group: RunGroup) -> str:
    return "" if group.inference == REAL else f" evaluated in {group.inference}"


def _group(group: RunGroup, name: str, alone: bool) -> list[Markup]:
    """One section per norm; where the page has other groups, the first section says what this group has in common."""
    norms = list(dict.fromkeys(answer.norm for answer in group.results))
    if alone:
        return [norm_section(group, norm, "", None) for norm in norms]
    return [norm_section(group, norm, name, None if number else _facts(group)) for number, norm in enumerate(norms)]


def _facts(group: RunGroup) -> dict[str, Any]:
    """What the runs of a group have in common, what was left out, what failed, and whether all are finished."""
    versions = dict.fromkeys(run.head["relucert"] for run in group.runs)
    facts = [
        counted(len({answer.image for answer in group.results}), "image"),
        None if group.layers is None else f"layers {group.layers}",
        None if group.target is None else f"target {group.target}",
        in_words(answer.domain for answer in group.results),
        "perturbations scaled per coordinate" if group.scaled else None,
        _evaluated(group).strip() or None,
        f"relucert {', '.join(map(str, versions))}",
    ]
    return {
        "facts": [fact for fact in facts if fact],
        "left_out": group.left_out,
        "failures": _failures(group),
        "complete": group.complete,
    }


def _failures(group: RunGroup) -> str | None:
    """How many answers errors inside methods spoilt, and what the most frequent errors say; None without any."""
    reasons = Counter(f"{answer.name}: {answer.reason}" for answer in group.results if answer.failed)
    if not reasons:
        return None
    named = "; ".join(reason for reason, _ in reasons.most_common(MOST_REASONS))
    return f"{counted(reasons.total(), 'answer')} failed inside their method: {named}"


def _entries(head: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Names and values of everything that the head of a file says, nested objects included."""
    entries: list[tuple[str, str]] = []
    for key, content in head.items():
        name = f"{prefix}{key}"
        if isinstance(content, dict):
            entries += _entries(content, f"{name} \N{MIDDLE DOT} ")
        elif isinstance(content, bool):
            entries.append((name, "yes" if content else "no"))
        elif isinstance(content, list):
            entries.append((name, ", ".join(map(str, content))))
        elif content is not None:
            entries.append((name, str(content)))
    return entries


Record = RecordedRun | Table | VerdictRun


def read_any(path: Path) -> Record:
    """Reads a run file, verdicts or a table; raises LoadError, with a message of one line, for anything else."""
    record = read_record(path)
    if "cells" in record:
        return table_of(record, path)
    return verdict_run_of(record, path) if record.get("command") == "verify" else run_of(record, path)


def count(record: Record) -> int:
    """How many cells, verdicts or results a record has."""
    if isinstance(record, Table):
        return len(record.cells)
    return len(record.verdicts if isinstance(record, VerdictRun) else record.results)
