"""The brackets of VNN-LIB 1.0: a text as nested lists of words, each with its line.

Most of a long file is regular: declarations, and comparisons of one variable with a number, hundreds in a row, or
thousands of conjunctions of them (clauses). Such a run is one item with its text, which the parser takes apart at once,
or bracket by bracket (`Run.groups`).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, cast

from relucert.common.deadline import check_time
from relucert.errors import LoadError

RunKind = Literal["clause", "comparison", "assertion", "declaration"]
TOKEN = re.compile(r";[^\n]*|\n|[()]|[^\s();]+")
COMPARISON = r"\([<>]=?\s+[XY]_[0-9]+\s+[-+.eE0-9]+\s*\)"  # whose number is read at once
DECIMAL = r"[-+]?(?:[0-9]{1,99}(?:\.[0-9]{0,99})?|\.[0-9]{1,99})(?:[eE][-+]?[0-9]{1,2})?"  # always within float64
LATER = COMPARISON.replace("[-+.eE0-9]+", DECIMAL)  # whose number may be read later: nothing is wrong with it
MOST_COMPARISONS = 1024  # of a clause or in a row
MOST_CLAUSES = 16  # in a row: regular expressions remember every comparison of a run until it ends
REGULAR: dict[RunKind, tuple[str, int]] = {  # patterns, and how many brackets a run of them has at most
    "clause": (rf"\(and\s+(?:{LATER}\s*){{1,{MOST_COMPARISONS}}}\)", MOST_CLAUSES),
    "comparison": (COMPARISON, MOST_COMPARISONS),
    "assertion": (rf"\(assert\s+{COMPARISON}\s*\)", MOST_COMPARISONS),
    "declaration": (r"\(declare-const\s+[XY]_[0-9]+\s+Real\s*\)", MOST_COMPARISONS),
}
RUNS = "|".join(rf"(?P<{kind}>(?:{pattern}\s*){{1,{most}}})" for kind, (pattern, most) in REGULAR.items())
RUN_OR_TOKEN = re.compile(f"{RUNS}|{TOKEN.pattern}")
DEEPEST = 100


class Word(NamedTuple):
    text: str
    line: int


class Group(NamedTuple):
    items: list[Expression]
    line: int


class Run(NamedTuple):
    """Regular brackets of one kind in a row, as they are written, and the line of the first."""

    text: str
    line: int
    kind: RunKind

    @property
    def plain(self) -> str:
        """The text without brackets."""
        return self.text.replace("(", " ").replace(")", " ")

    @property
    def clauses(self) -> list[str]:
        """The comparisons of every clause, without brackets."""
        return self.plain.split("and")[1:]

    def groups(self) -> list[Group]:
        """The brackets one by one."""
        return [item for item in expressions(self.text, self.line, TOKEN) if isinstance(item, Group)]


Expression = Word | Group | Run


def groups(text: str) -> list[Group | Run]:
    """The outermost brackets of a text; comments are left out."""
    outermost: list[Group | Run] = []
    for item in expressions(text):
        if isinstance(item, Word):
            raise LoadError(f"line {item.line}: {item.text[:40]!r} stands outside of brackets")
        outermost.append(item)
    return outermost


def expressions(text: str, line: int = 1, pattern: re.Pattern[str] = RUN_OR_TOKEN) -> list[Expression]:
    """The outermost brackets and words of a text whose first line has this number."""
    open_groups = [Group([], 0)]
    for match in pattern.finditer(text):
        token = match.group()
        if match.lastgroup is not None:
            check_time()
            if len(open_groups) > DEEPEST:
                raise _too_deep(line)
            run = Run(token, line, cast(RunKind, match.lastgroup))
            if run.kind == "clause" and len(open_groups) == DEEPEST:
                raise _too_deep(line + token[: token.index("(", 1)].count("\n"))
            is_formula = run.kind in ("comparison", "clause")
            expected = (len(open_groups) > 1) == is_formula  # commands are outermost, formulas are not
            open_groups[-1].items.extend([run] if expected else run.groups())
            line += token.count("\n")
        elif token == "\n":
            line += 1
        elif token == "(":
            check_time()
            if len(open_groups) > DEEPEST:
                raise _too_deep(line)
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
    return open_groups[0].items


def _too_deep(line: int) -> LoadError:
    return LoadError(f"line {line}: brackets are nested deeper than {DEEPEST}")
