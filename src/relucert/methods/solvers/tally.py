"""How many programs were solved for each question, and how those ended that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from relucert.arithmetic.property import Property, QuestionKey, question_key
from relucert.arithmetic.region import Region
from relucert.common.words import counted


@dataclass(eq=False)
class Tally:
    """Programs, and for each reason how many fell back."""

    programs: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.programs += other.programs
        self.failures.update(other.failures)

    @property
    def remark(self) -> str | None:
        if not self.failures:
            return None
        ends = ", ".join(f"{reason}: {count}" for reason, count in sorted(self.failures.items()))
        return f"{self.failures.total()} of {counted(self.programs, 'program')} fell back to cheaper bounds ({ends})"


class Tallies:
    """The programs of every question around the points of the latest regions: a point and the property asked about
    it, as float32 has them, whatever the precision of an evaluation."""

    def __init__(self) -> None:
        self._questions: dict[QuestionKey, Tally] = {}
        self._hidden: tuple[Region, Sequence[Tally]] | None = None

    def hold(self, region: Region, tallies: Sequence[Tally]) -> None:
        """Takes those of a region's hidden layers, until the rows asked about it are known."""
        self._hidden = region, tallies

    def settle(self, region: Region, prop: Property, tallies: Sequence[Tally]) -> None:
        """Takes those of a region's rows, and with them those of its hidden layers, one per batch member."""
        which = range(len(region.points)) if region.which is None else region.which.tolist()
        questions = [_key(region.points[index], prop, member) for member, index in enumerate(which)]
        points = {_key(point, prop)[0] for point in region.points}  # also of questions that ended
        self._questions = {key: tally for key, tally in self._questions.items() if key[0] in points}
        batches = [tallies]
        if self._hidden is not None and self._hidden[0] is region:
            batches.append(self._hidden[1])
        self._hidden = None
        for batch in batches:
            for question, tally in zip(questions, batch, strict=True):
                self._questions.setdefault(question, Tally()).add(tally)

    def remark(self, point: Tensor, prop: Property) -> str | None:
        """A remark on the programs of one question, if there is one to make."""
        tally = self._questions.get(_key(point, prop))
        return None if tally is None else tally.remark


def _key(point: Tensor, prop: Property, member: int = 0) -> QuestionKey:
    return question_key(point.float(), prop.cast(torch.float32), member)
