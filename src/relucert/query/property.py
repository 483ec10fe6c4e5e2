"""What must hold: linear forms on the outputs that stay positive."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.checks import check_whole, shown
from relucert.errors import InputError
from relucert.words import counted


@dataclass(frozen=True, eq=False)
class Property:
    """Linear forms on the outputs, plus offsets, that must all stay positive: `rows @ outputs + offsets > 0`.

    Attributes:
        rows: (batch, rows, outputs).
        offsets: (batch, rows).
    """

    rows: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        given: tuple[object, object] = (self.rows, self.offsets)
        if not all(isinstance(part, Tensor) for part in given):
            raise InputError(f"a property needs tensors, rows and offsets, not {shown(given)}")
        if self.rows.ndim != 3 or self.offsets.shape != self.rows.shape[:2]:
            raise InputError(
                f"a property needs rows (batch, rows, outputs) and offsets (batch, rows), "
                f"not {tuple(self.rows.shape)} and {tuple(self.offsets.shape)}"
            )

    def __repr__(self) -> str:
        batch, rows, outputs = self.rows.shape
        return f"Property({counted(rows, 'row')} on {counted(outputs, 'output')}, batch of {batch})"

    @classmethod
    def margins(cls, labels: Tensor, rivals: Tensor, classes: int) -> Property:
        """The margins of labels over rivals: the label's score minus the rival's score.

        Args:
            labels: (batch,).
            rivals: (batch, rows).
            classes: How many outputs the network has.
        """
        check_whole("number of classes", classes, 2, 2**31)
        given: tuple[object, object] = (labels, rivals)
        whole = all(isinstance(part, Tensor) and not part.is_floating_point() for part in given)
        if not whole or labels.ndim != 1 or rivals.ndim != 2 or len(labels) != len(rivals) or not rivals.numel():
            raise InputError("margins need whole numbers: labels (batch,) and rivals (batch, rows), one row at least")
        labels, rivals = labels.long(), rivals.long()
        for numbers in (labels, rivals):
            if bool(((numbers < 0) | (numbers >= classes)).any()):
                raise InputError(f"labels and rivals are classes from 0 to {classes - 1}")
        if bool((labels[:, None] == rivals).any()):
            raise InputError("a label is no rival of its own")
        rows = torch.zeros(*rivals.shape, classes, dtype=torch.float64, device=labels.device)
        rows.scatter_(2, labels[:, None, None].expand(*rivals.shape, 1), 1)
        rows.scatter_(2, rivals[..., None], -1)
        return cls(rows, rows.new_zeros(rivals.shape))

    def __len__(self) -> int:
        return len(self.rows)

    def cast(self, dtype: torch.dtype) -> Property:
        """The same in another precision."""
        return Property(self.rows.to(dtype), self.offsets.to(dtype))

    def select(self, chosen: Tensor) -> Property:
        """Those of some batch members."""
        return Property(self.rows[chosen], self.offsets[chosen])

    def repeat(self, times: int) -> Property:
        """The whole batch several times over."""
        return Property(self.rows.repeat(times, 1, 1), self.offsets.repeat(times, 1))

    def narrow(self, chosen: Tensor) -> Property:
        """Some rows of each batch member, (batch, fewer rows)."""
        places = chosen[..., None].expand(-1, -1, self.rows.shape[2])
        return Property(self.rows.gather(1, places), self.offsets.gather(1, chosen))

    def values(self, outputs: Tensor) -> Tensor:
        """What must be positive, as computed, at one output per batch member, (batch, outputs): (batch, rows)."""
        return (self.rows @ outputs[..., None]).squeeze(-1) + self.offsets
