"""Reads whatever a command recorded with --json."""

from __future__ import annotations

from pathlib import Path

from relucert.report.paper_table import Table, table_of
from relucert.report.reading import Run, read_record, run_of
from relucert.report.verdict_run import VerdictRun, verdict_run_of

Record = Run | Table | VerdictRun


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
