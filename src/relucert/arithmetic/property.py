"""Properties (specifications): linear forms on the outputs that must stay positive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from relucert.common.arrays import dense
from relucert.common.checks import check_positive, check_whole, shown
from relucert.common.words import counted
from relucert.errors import InputError

QuestionKey = tuple[bytes, bytes]
"""A point, and the rows and offsets of a property, as bytes."""


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
        tensors: tuple[object, object] = (self.rows, self.offsets)
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            raise InputError(f"a property needs tensors, rows and offsets, not {shown(tensors)}")
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
        tensors: tuple[object, object] = (labels, rivals)
        whole = all(isinstance(tensor, Tensor) and not tensor.is_floating_point() for tensor in tensors)
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

    @classmethod
    def outputs_within(cls, low: object, high: object) -> Property:
        """That every output stays above `low` and below `high`.

        Args:
            low: A number, for a network with one output; one per output, (outputs,); or one per image and output,
                (batch, outputs). Infinite: an output has no such end.
            high: A number or numbers in the same form.
        """
        ends = [dense(end, f"the {name} end of outputs") for end, name in ((low, "low"), (high, "high"))]
        if any(not end.is_floating_point() and bool((end.abs() > 2**53).any()) for end in ends):
            raise InputError("whole numbers as ends of outputs go up to 2**53, above which float64 has gaps")
        ends = [end.double() for end in ends]
        if any(end.ndim > 2 for end in ends):
            raise InputError("the ends of outputs are numbers, (outputs,) or (batch, outputs)")
        try:
            lowest, highest = torch.broadcast_tensors(*(torch.atleast_2d(end) for end in ends))
        except RuntimeError:
            shapes = " and ".join(str(tuple(end.shape)) for end in ends)
            raise InputError(f"the ends of outputs have as many numbers each, not shapes {shapes}") from None
        if not bool((lowest < highest).all()):
            raise InputError("the low end of every output must be below its high end")
        batch, outputs = lowest.shape
        unit = torch.eye(outputs, dtype=torch.float64)
        bounded = lowest.isfinite().any(0), highest.isfinite().any(0)
        if not all(bool((end.isfinite() | ~some).all()) for end, some in zip((lowest, highest), bounded, strict=True)):
            raise InputError("an output has an end at all images, or at none")
        rows = torch.cat([unit[bounded[0]], -unit[bounded[1]]])
        if not len(rows):
            raise InputError("no output has an end: there is nothing to prove")
        offsets = torch.cat([-lowest[:, bounded[0]], highest[:, bounded[1]]], 1)
        return cls(rows.expand(batch, -1, -1).clone(), offsets)

    @classmethod
    def outputs_near(cls, outputs: object, distance: float) -> Property:
        """That every output stays nearer than a distance to what it is now.

        Args:
            outputs: What the network gives at each image, as computed, (batch, outputs).
            distance: How far an output may move from its number here.
        """
        middle = dense(outputs, "outputs").double()
        check_positive("distance of outputs", distance)
        infinity = torch.tensor(torch.inf, dtype=torch.float64)
        low, high = torch.nextafter(middle - distance, infinity), torch.nextafter(middle + distance, -infinity)
        return cls.outputs_within(low, high)

    def __len__(self) -> int:
        return len(self.rows)

    def cast(self, dtype: torch.dtype) -> Property:
        """The property in another precision."""
        return Property(self.rows.to(dtype), self.offsets.to(dtype))

    def select(self, members: Tensor) -> Property:
        """The properties of some batch members."""
        return Property(self.rows[members], self.offsets[members])

    def members(self) -> Iterator[Property]:
        """Each batch member on its own, as a batch of one."""
        return map(Property, self.rows.split(1), self.offsets.split(1))

    def repeat(self, times: int) -> Property:
        """The whole batch several times over."""
        return Property(self.rows.repeat(times, 1, 1), self.offsets.repeat(times, 1))

    def narrow(self, indices: Tensor) -> Property:
        """The property with only some rows of each batch member, by their indices (batch, fewer rows)."""
        row_indices = indices[..., None].expand(-1, -1, self.rows.shape[2])
        return Property(self.rows.gather(1, row_indices), self.offsets.gather(1, indices))

    def values(self, outputs: Tensor) -> Tensor:
        """The margins, as computed, at one output per batch member, (batch, outputs): (batch, rows)."""
        return (self.rows @ outputs[..., None]).squeeze(-1) + self.offsets

    def fails_at(self, outputs: Tensor) -> bool:
        """Whether, without any rounding, some row of a batch of one is not positive at outputs, (outputs,).

        Outputs that are not all finite fail no row.
        """
        if not bool(outputs.isfinite().all()):
            return False
        numbers = [Fraction(number) for number in outputs.tolist()]
        values = [Fraction(offset) for offset in self.offsets[0].tolist()]
        coefficients, entries = self.rows[0], self.rows[0].nonzero()
        for (row, output), coefficient in zip(entries.tolist(), coefficients[tuple(entries.T)].tolist(), strict=True):
            values[row] += Fraction(coefficient) * numbers[output]
        return any(value <= 0 for value in values)


def question_key(point: Tensor, prop: Property, member: int = 0) -> QuestionKey:
    """The key by which questions are told apart: a point, (size,), with the rows and offsets of one batch member."""
    return _bytes(point), _bytes(prop.rows[member]) + _bytes(prop.offsets[member])


def question_keys(point: Tensor, prop: Property) -> tuple[QuestionKey, QuestionKey]:
    """The keys of a question, of a batch of one, that was asked in float64, or in float32."""
    return question_key(point, prop), question_key(point.float(), prop.cast(torch.float32))


def _bytes(numbers: Tensor) -> bytes:
    """Numbers of either precision, in float64."""
    return numbers.double().contiguous().numpy().tobytes()
