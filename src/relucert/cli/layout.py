"""Tables that fit the terminal: a column is whole or stands in another table, and no number is ever cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len, chop_cells

GAP = "  "  # between columns
REMARK = "remark"  # the title of the last column, where it has words that may be folded
TITLE_LINES = (1, 2, 3)  # that a title may take, tried in this order
LEAST_REMARK = 30  # characters of a column of remarks; one that would be narrower stands below the table


@dataclass(frozen=True)
class Line:
    """A line of a table; `header` where it has titles."""

    text: str
    header: bool = False


@dataclass(frozen=True)
class Column:
    """One title, and one cell per row."""

    title: str
    cells: tuple[str, ...]
    right: bool = False

    def width(self, lines: int) -> int:
        """The least width that holds its cells, and its title on at most `lines` lines."""
        least = max(map(cell_len, (*self.title.split(), *self.cells)))
        widths = range(least, max(least, cell_len(self.title)) + 1)
        return next(width for width in widths if len(fold(self.title, width)) <= lines)


@dataclass(frozen=True)
class Grid:
    """A table before it is laid out.

    Attributes:
        rows: One cell per title each.
        keys: How many columns, the first ones, say what a row is about.
        right: How many columns, the first ones, are set to the right.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1
    right: int = 0

    def columns(self) -> list[Column]:
        """All columns but that of the remarks."""
        shown = len(self.titles) - (self.titles[-1] == REMARK)
        return [
            Column(self.titles[number], tuple(row[number] for row in self.rows), number < self.right)
            for number in range(shown)
        ]

    def remarks(self) -> Column | None:
        """The column of remarks; None where there is nothing to remark."""
        if self.titles[-1] != REMARK or not any(row[-1] for row in self.rows):
            return None
        return Column(REMARK, tuple(row[-1] for row in self.rows))


def lay_out(grid: Grid, width: int, ruled: bool) -> list[Line]:
    """The lines of a table, none wider than the terminal; ruled: with a rule below the titles.

    Where the terminal is too narrow, titles are folded first, then remarks stand below the table, then the columns
    are split among several tables that all repeat the keys, and at last every row becomes a list of its cells.
    """
    columns, remarks = grid.columns(), grid.remarks()
    for lines in TITLE_LINES:
        widths = [column.width(lines) for column in columns]
        room = width - _total(widths)
        if remarks is None and room >= 0:
            return _render(columns, widths, ruled)
        if remarks is not None and room - len(GAP) >= min(LEAST_REMARK, longest := remarks.width(1)):
            return _render([*columns, remarks], [*widths, min(longest, room - len(GAP))], ruled)
    splits = [(lines, split) for lines in TITLE_LINES if (split := _split(columns, grid.keys, lines, width))]
    if not splits:
        return _records(grid, width)
    lines, split = min(splits, key=lambda lines_and_tables: len(lines_and_tables[1]))
    tables = [_render(table, [column.width(lines) for column in table], ruled) for table in split]
    notes = [Line(text) for text in _notes(grid, width)]
    return _separated([*tables, notes] if notes else tables)


def fold(text: str, width: int) -> list[str]:
    """The text in lines of whole words; a word wider than a line has a line of its own."""
    lines = [""]
    for word in text.split():
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _split(columns: Sequence[Column], keys: int, lines: int, width: int) -> list[list[Column]] | None:
    """The columns in as many tables as needed, the keys in each; None where a column does not fit beside the keys."""
    heads = list(columns[:keys])
    tables = [heads]
    for column in columns[keys:]:
        if _total([shown.width(lines) for shown in (*tables[-1], column)]) > width and len(tables[-1]) > keys:
            tables.append(heads)
        tables[-1] = [*tables[-1], column]
    fits = all(_total([column.width(lines) for column in table]) <= width for table in tables)
    return tables if fits else None


def _render(columns: Sequence[Column], widths: Sequence[int], ruled: bool) -> list[Line]:
    titles = [Line(text, header=True) for text in _row(columns, [column.title for column in columns], widths)]
    rule = [Line("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * _total(widths))] if ruled else []
    rows = zip(*(column.cells for column in columns), strict=True)
    return [*titles, *rule, *(Line(text) for row in rows for text in _row(columns, row, widths))]


def _row(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """The lines of one row: more than one where a cell is folded."""
    folded = [
        [cell] if cell_len(cell) <= width else _fold_and_cut(cell, width)
        for cell, width in zip(cells, widths, strict=True)
    ]
    for texts in zip_longest(*folded, fillvalue=""):
        blanks = [" " * (width - cell_len(text)) for text, width in zip(texts, widths, strict=True)]
        aligned = zip(columns, texts, blanks, strict=True)
        yield GAP.join(blank + text if column.right else text + blank for column, text, blank in aligned).rstrip()


def _notes(grid: Grid, width: int) -> Iterator[str]:
    """The remarks, each once, after what they are about."""
    about: dict[str, list[str]] = {}
    keys = 1 if len({row[0] for row in grid.rows}) == len(grid.rows) else grid.keys
    if (remarks := grid.remarks()) is not None:
        for row, remark in zip(grid.rows, remarks.cells, strict=True):
            if remark:
                named = zip(grid.titles[:keys], row[:keys], strict=True)
                name = ", ".join(f"{title} {cell}" if cell.isdecimal() else cell for title, cell in named)
                about.setdefault(remark, []).append(name)
    for remark, names in about.items():
        first, *continuation = _fold_and_cut(f"{'; '.join(names)}: {remark}", width - len(GAP))
        yield first
        yield from (GAP + text for text in continuation)


def _fold_and_cut(text: str, width: int) -> list[str]:
    """The text in lines of whole words, where the words fit at all."""
    return [piece for line in fold(text, width) for piece in chop_cells(line, max(1, width)) or [""]]


def _records(grid: Grid, width: int) -> list[Line]:
    """Every row as a list of its cells, one below the other; empty cells are left out."""
    longest = max(map(cell_len, grid.titles))
    margin = " " * (longest + len(GAP))
    blocks = []
    for row in grid.rows:
        block = []
        for title, cell in zip(grid.titles, row, strict=True):
            lines = _fold_and_cut(cell, max(LEAST_REMARK, width - len(margin))) if cell else []
            heads = [f"{title:<{len(margin)}}", *[margin] * len(lines)]
            block += [Line(head + line) for head, line in zip(heads, lines, strict=False)]
        blocks.append(block)
    return _separated(blocks)


def _separated(blocks: Iterable[list[Line]]) -> list[Line]:
    """All blocks, with an empty line between them."""
    lines = [line for block in blocks for line in (Line(""), *block)]
    return lines[1:]
