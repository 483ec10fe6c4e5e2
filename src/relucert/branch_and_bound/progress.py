"""How far a search is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Of a search in one region.

    Attributes:
        stage: What it is doing: "cuts" at inputs; of splits by neurons "root", "tree", "certificates" or "refinement".
        nodes: How many parts of the region were bounded.
        open: How many parts wait.
        rows: How many rows are not proven yet, such as rivals.
        bound: The least bound of the parts that were bounded last, as computed; None where there is none.
    """

    stage: str
    nodes: int
    open: int
    rows: int
    bound: float | None = None

    def __str__(self) -> str:
        bound = "" if self.bound is None else f", bound {self.bound:.3g}"
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{self.stage}: {self.nodes:,} nodes, {self.open:,} open, {rows}{bound}"
