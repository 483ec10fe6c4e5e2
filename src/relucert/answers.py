"""What a question is answered with. A certified lower bound is a type of its own: nothing else can pose as one."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from relucert.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

OWN_LABEL = "the target is the image's own label"  # the reason where there was no question


class Rounding(str, Enum):
    """How a radius was checked."""

    RIGOROUS = "rigorous"  # in float64 with every rounding error bounded
    FLOAT = "float"  # in plain floating point, rounding ignored: no proof


def parse_rounding(arithmetic: str) -> Rounding:
    try:
        return Rounding(arithmetic)
    except ValueError:
        known = ", ".join(kind.value for kind in Rounding)
        raise InputError(f"unknown arithmetic {arithmetic!r}; known are {known}") from None


@dataclass(frozen=True)
class Certificate:
    """A radius within which no perturbation makes `target` (untargeted: any rival) catch up with `label`.

    The claim is about the network in real arithmetic with its stored weights. It is proven if `proven`.
    """

    image: int
    label: int
    target: int | None
    norm: float
    method: str
    arithmetic: Rounding
    radius: float | None
    reason: str | None
    seconds: float
    evaluations: int

    @property
    def proven(self) -> bool:
        """Whether the radius is a certified lower bound, rounding included."""
        return self.radius is not None and self.arithmetic is Rounding.RIGOROUS

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; absence is null, the norm a number or "inf"."""
        row: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        row["arithmetic"] = self.arithmetic.value
        row["norm"] = "inf" if math.isinf(self.norm) else self.norm
        row["proven"] = self.proven
        return row


@dataclass(frozen=True)
class LipschitzBound:
    """Upper bounds of how steep the margins of `label` over each rival are within a ball, in the ball's norm.

    Within the ball the margin over rivals[i] changes by at most values[i] times the norm of the way. It is about the
    network in real arithmetic with its stored weights, and proven if `proven`.
    """

    label: int
    rivals: tuple[int, ...]
    values: tuple[float, ...]
    radius: float
    norm: float
    method: str
    arithmetic: Rounding

    @property
    def proven(self) -> bool:
        return self.arithmetic is Rounding.RIGOROUS


@dataclass(frozen=True)
class Estimate:
    """CLEVER's guess of how far an image can move before `target` catches up with `label`: no bound of anything.

    value: the least of `radius`, within which gradients were sampled, and the margin over the fitted `location`, the
    end of a reverse Weibull distribution; None, with a reason, where no distribution could be fitted. statistic and
    p_value (Kolmogorov and Smirnov) say how well it fits: below a few percent, poorly. Where every batch found the
    same largest gradient the distribution is a point: scale 0, no shape, and a reason that says so.
    sampled: the same with the largest gradient of all samples for the end, whether or not there is a fit.
    """

    image: int
    label: int
    target: int | None
    norm: float
    method: str
    value: float | None
    sampled: float | None
    reason: str | None
    seconds: float
    radius: float
    batches: int
    samples: int
    shape: float | None
    location: float | None
    scale: float | None
    statistic: float | None
    p_value: float | None

    @property
    def proven(self) -> bool:
        """Never."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; absence is null, the norm a number or "inf"."""
        row: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        row["norm"] = "inf" if math.isinf(self.norm) else self.norm
        row["proven"] = self.proven
        return row


@dataclass(frozen=True, eq=False)
class UpperBound:
    """An adversarial example: at most so far from the image, a rival catches up with its label.

    witness: the example, in the input's shape and the network's own precision; distance: how far it is from the
    image, never understated; None for both, with a reason, where no attack succeeded. Where the image itself is one,
    being misclassified, the distance is 0 and the reason says so. predicted: the class the network gives the witness.
    target: the rival that caught up. box: the least and the largest valid pixel, None where every input is valid.

    That the rival's score is no less than the label's was checked in the network's own precision, and proven in real
    arithmetic: no such distance lies below a certified radius.
    """

    image: int
    label: int
    target: int | None
    norm: float
    method: str
    distance: float | None
    witness: Tensor | None
    predicted: int | None
    box: tuple[float, float] | None
    reason: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON, without the witness; absence is null, the norm a number or "inf"."""
        row: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        del row["witness"]
        row["norm"] = "inf" if math.isinf(self.norm) else self.norm
        row["box"] = None if self.box is None else list(self.box)
        return row


@dataclass(frozen=True, eq=False)
class Exact:
    """The minimum distortion, between two ends: no adversarial example is within `lower`, and `witness` is at `upper`.

    closed: whether the ends are as near as was asked for. lower is proven: it holds in real arithmetic with the stored
    weights, rounding included. witness: re-checked as an `UpperBound`'s is. Where time ended or a step failed the
    interval is what was known by then, and the reason says so: upper and witness are None where no adversarial
    example is known. Where it is proven that no valid input is one, both ends are None, and the answer is closed.
    Where the image itself is misclassified both ends are 0. nodes: how many parts of the ball were bounded.
    """

    image: int
    label: int
    target: int | None
    norm: float
    method: str
    lower: float | None
    upper: float | None
    closed: bool
    witness: Tensor | None
    box: tuple[float, float] | None
    reason: str | None
    seconds: float
    nodes: int

    @property
    def unreachable(self) -> bool:
        """Whether it is proven that there is no adversarial example among the valid inputs."""
        return self.closed and self.upper is None

    @property
    def proven(self) -> bool:
        """Whether the lower end, or that nothing adversarial can be reached, is proven."""
        return self.lower is not None or self.unreachable

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON, without the witness; absence is null, the norm a number or "inf"."""
        row: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        del row["witness"]
        row["norm"] = "inf" if math.isinf(self.norm) else self.norm
        row["box"] = None if self.box is None else list(self.box)
        row["unreachable"], row["proven"] = self.unreachable, self.proven
        return row


class Answer(Protocol):
    """What every kind of answer can do."""

    def to_json(self) -> dict[str, Any]: ...
