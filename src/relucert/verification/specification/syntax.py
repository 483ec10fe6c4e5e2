"""The brackets of VNN-LIB 1.0: a text as nested lists of words, each with its line."""

from __future__ import annotations

import re
from typing import NamedTuple

from relucert.errors import LoadError

TOKEN = re.compile(r";[^\n]*|\n|[()]|[^\s();]+")
DEEPEST = 100


class Word(NamedTuple):
    text: str
    line: int


class Group(NamedTuple):
    items: list[Expression]
    line: int


Expression = Word | Group


def groups(text: str) -> list[Group]:
    """The outermost brackets of a text; comments are left out."""
    outermost: list[Expression] = []
    open_groups = [Group(outermost, 0)]
    line = 1
    for match in TOKEN.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token == "(":
            if len(open_groups) > DEEPEST:
                raise LoadError(f"line {line}: brackets are nested deeper than {DEEPEST}")
            open_groups.append(Group([], line))
        elif token == ")":
            if len(open_groups) == 1:
                raise LoadError(f"line {line}: a closing bracket has no opening one")
            closed = open_groups.pop()
            open_groups[-1].items.append(closed)
        elif not token.startswith(";"):
            open_groups[-1].items.append(Word(token, line))
    if len(open_groups) > 1:
        raise LoadError(f"line {open_groups[-1].line}: an opening bracket is never closed")
    whole = [item for item in outermost if isinstance(item, Group)]
    if len(whole) != len(outermost):
        stray = next(item for item in outermost if isinstance(item, Word))
        raise LoadError(f"line {stray.line}: {stray.text[:40]!r} stands outside of brackets")
    return whole
