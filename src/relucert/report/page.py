"""Runs as one self-contained HTML page: no request leaves it, and only the script it comes with may run."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from relucert.common.words import counted
from relucert.report.domain import in_words
from relucert.report.grouping import Group, grouped
from relucert.report.markup import Markup, raw, tag
from relucert.report.paper_table import Table
from relucert.report.published import table_section
from relucert.report.reading import REAL, Run
from relucert.report.record import Record
from relucert.report.sections import norm_section
from relucert.report.verdict_run import VerdictRun
from relucert.report.verdict_section import verdict_section

MOST_REASONS = 3  # for failures, that a warning names


def page(*recorded: Record) -> str:
    """The whole page about one record or several, as text."""
    folder = resources.files("relucert.report")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    groups = grouped([run for run in recorded if isinstance(run, Run)])
    paper = [table for table in recorded if isinstance(table, Table)]
    verdicts = [run for run in recorded if isinstance(run, VerdictRun)]
    title = _title(groups, verdicts, paper)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} \N{MIDDLE DOT} relucert"),
        raw("style", style),
    )
    alone = len(groups) == 1 and not verdicts and not paper
    parts = [part for group, name in zip(groups, _names(groups), strict=True) for part in _group(group, name, alone)]
    parts += [verdict_section(run) for run in verdicts]
    parts += [table_section(table) for table in paper]
    header = tag("header", tag("h1", title), *(_facts(groups[0]) if alone else ()))
    main = tag("main", *parts, _records(recorded))
    body = tag("body", header, main, raw("script", script))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en")


def _policy(style: str, script: str) -> str:
    """Nothing may be fetched, and no style or script but these may count."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _title(groups: Sequence[Group], verdicts: Sequence[VerdictRun], paper: Sequence[Table]) -> str:
    asked = [run.network for run in verdicts if run.network is not None]
    names = list(dict.fromkeys([*(group.name for group in groups), *asked]))
    if not names:
        tables = f"The paper's table{'s' if len(paper) > 1 else ''}, computed anew"
        return "Which properties hold?" if verdicts else tables
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"How robust {'are' if len(names) > 1 else 'is'} {listed}?"


def _names(groups: Sequence[Group]) -> list[str]:
    """What each group is called: by its network, by the target where that is not enough, else by its files."""
    names = [f"{group.name}{_evaluated(group)}" for group in groups]
    named = list(zip(names, groups, strict=True))
    targets = [f"{name}, target {group.target}" for name, group in named]
    files = [f"{name}, {', '.join(run.source for run in group.runs)}" for name, group in named]
    return next((each for each in (names, targets) if len(set(each)) == len(each)), files)


def _evaluated(group: Group) -> str:
    return "" if group.inference == REAL else f" evaluated in {group.inference}"


def _group(group: Group, name: str, alone: bool) -> list[Markup]:
    """A section for every norm; where there are other groups, the first one says what the group has in common."""
    norms = list(dict.fromkeys(answer.norm for answer in group.results))
    if alone:
        return [norm_section(group, norm, "", []) for norm in norms]
    return [norm_section(group, norm, name, [] if place else _facts(group)) for place, norm in enumerate(norms)]


def _facts(group: Group) -> list[Markup | None]:
    """What a group has in common, what was left out, what failed, and whether it is finished."""
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
    unfinished = tag("p", "This run was not finished: the page tells of the answers so far.", class_="warning")
    return [
        tag("p", " \N{MIDDLE DOT} ".join(fact for fact in facts if fact)),
        tag("p", f"Left out or stopped: {'; '.join(group.left_out)}") if group.left_out else None,
        _failures(group),
        None if group.complete else unfinished,
    ]


def _failures(group: Group) -> Markup | None:
    """A warning where errors inside methods spoilt answers."""
    reasons = Counter(f"{answer.name}: {answer.reason}" for answer in group.results if answer.failed)
    if not reasons:
        return None
    named = "; ".join(reason for reason, _ in reasons.most_common(MOST_REASONS))
    return tag("p", f"{counted(reasons.total(), 'answer')} failed inside their method: {named}", class_="warning")


def _records(recorded: Sequence[Record]) -> Markup:
    """What is needed to run everything again."""
    parts = []
    for one in recorded:
        parts += [tag("h3", one.source)] if len(recorded) > 1 else []
        parts.append(_record(one.head))
    return tag("section", tag("h2", "For reproduction"), *parts)


def _record(head: Mapping[str, Any]) -> Markup:
    """Everything that the head of a file says."""
    rows = [
        tag("div", tag("dt", name), tag("dd", value))
        for key, content in head.items()
        for name, value in _entries(key, content)
    ]
    return tag("dl", *rows, class_="record")


def _entries(name: str, content: Any) -> list[tuple[str, str]]:
    """Names and values of whatever is nested in the content."""
    if isinstance(content, dict):
        return [pair for key, value in content.items() for pair in _entries(f"{name} \N{MIDDLE DOT} {key}", value)]
    if isinstance(content, bool):
        return [(name, "yes" if content else "no")]
    if isinstance(content, list):
        return [(name, ", ".join(map(str, content)))]
    return [] if content is None else [(name, str(content))]
