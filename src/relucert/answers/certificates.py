"""The answers to questions about images. A certified lower bound is a type of its own: nothing else can pose as one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from relucert.common import names

if TYPE_CHECKING:
    from torch import Tensor

OWN_LABEL = "the target is the image's own label"  # the reason where there was no question
AMOUNTS = ("radius", "value", "distance", "lower", "upper")  # the fields of answers that hold their results


class Rounding(str, Enum):
    """How a radius was checked."""

    RIGOROUS = "rigorous"  # in float64 with every rounding error bounded
    FLOAT = "float"  # in plain floating point, rounding ignored: no proof


def parse_rounding(arithmetic: str) -> Rounding:
    return Rounding(names.ARITHMETICS.find(arithmetic))


Box = tuple[float, float] | tuple["Tensor", "Tensor"] | None
"""The lowest and the highest valid values: two numbers, or where coordinates differ two tensors (size,)."""


class Recordable(Protocol):
    """An answer that records and tables can be made of."""

    def to_json(self) -> dict[str, Any]: ...


class Reply(Recordable, Protocol):
    """The reply of a method: an answer, by itself or under the name that the method is compared under."""

    @property
    def reason(self) -> str | None: ...
    @property
    def failed(self) -> bool:
        """Whether something went wrong inside the method, as the reason says: an error, no mere lack of an answer."""


class Answer(Reply, Protocol):
    """The fields that every answer to a question about an image has."""

    @property
    def image(self) -> int: ...
    @property
    def target(self) -> int | None: ...
    @property
    def seconds(self) -> float: ...


@dataclass(frozen=True, eq=False, repr=False)
class _Recorded:
    """An answer about an image, with its fields as plain values, and as one line."""

    image: int
    label: int | None
    target: int | None
    norm: float
    method: str

    def __repr__(self) -> str:
        """The fields in one line: tensors as their shapes; None is left out, except for amounts and the box."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.repr}
        values["seconds"] = float(f"{values['seconds']:.3g}")
        if hasattr(self, "proven"):
            values["proven"] = self.proven
        kept = (*AMOUNTS, "box")
        shown = [f"{name}={_short(value)}" for name, value in values.items() if value is not None or name in kept]
        return f"{type(self).__name__}({', '.join(shown)})"

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON, without a witness; absence is null, the norm a number or "inf"."""
        row: dict[str, Any] = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        row.pop("witness", None)
        return row | plain_shape(self.norm, row["box"], row["input_scale"])


def plain_shape(norm: float, box: Box, scale: Tensor | None) -> dict[str, Any]:
    """The norm, the valid inputs and the scale of an answer, as plain values for JSON."""
    return {
        "norm": "inf" if math.isinf(norm) else norm,
        "box": None if box is None else [end if isinstance(end, float) else end.tolist() for end in box],
        "input_scale": None if scale is None else scale.tolist(),
    }


def _short(value: Any) -> str:
    """A value in few letters: a tensor is its shape."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_short, value))})"
    if isinstance(value, Enum):
        return repr(value.value)
    return f"<{tuple(value.shape)}>" if hasattr(value, "shape") else repr(value)


@dataclass(frozen=True, repr=False)
class Certificate(_Recorded):
    """A radius within which no valid input makes `target` (untargeted: any rival) catch up with `label`.

    The claim is about the network with its stored weights, in real arithmetic or in every evaluation in floating point
    that `inference` names. It is proven if `proven`.

    Attributes:
        image: The image's number, counted from 0.
        label: Its class; None where the question was about a property.
        target: The rival that the radius is about; untargeted, the weakest. None for a property.
        norm: p.
        method: The method's name.
        arithmetic: How the radius was checked.
        radius: Infinite where it is about all valid inputs; None where there is none.
        reason: Why there is no radius, or why a larger one may hold; otherwise None.
        seconds: How long it took; images bounded together share their time evenly.
        evaluations: How often the bounds were evaluated.
        box: The lowest and the highest valid values, None where every input is valid.
        input_scale: How far each coordinate may move per unit of radius, None: 1.
        failed: Whether an error inside the method, which the reason names, is why there is no radius.
        due_to: The method whose bounds the radius is due to: `method` itself, or one that it builds on; None where
            there is no radius.
        inference: What the network is evaluated in: "real" arithmetic, "float32", "float16" or "bfloat16".
        row: The weakest row of the property that was asked about; None where classes were.
    """

    arithmetic: Rounding
    radius: float | None
    reason: str | None
    seconds: float
    evaluations: int
    box: Box = None
    input_scale: Tensor | None = None
    failed: bool = False
    due_to: str | None = None
    inference: str = "real"
    row: int | None = None

    @property
    def proven(self) -> bool:
        """Whether the radius is a certified lower bound, rounding included."""
        return self.radius is not None and self.arithmetic is Rounding.RIGOROUS

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; absence is null, what is infinite "inf"."""
        radius = "inf" if self.radius == math.inf else self.radius
        return {**super().to_json(), "radius": radius, "arithmetic": self.arithmetic.value, "proven": self.proven}


@dataclass(frozen=True)
class LipschitzBound:
    """Upper bounds of how steep the rows of a property are within a region, in the region's norm.

    Within the region row i changes by at most values[i] times the norm of the way, in units of the scale. It is about
    the network in real arithmetic with its stored weights, and proven if `proven`.

    Attributes:
        values: One bound per row.
        radius: The region's.
        norm: p.
        method: The method's name.
        arithmetic: Whether rounding was bounded.
    """

    values: tuple[float, ...]
    radius: float
    norm: float
    method: str
    arithmetic: Rounding

    @property
    def proven(self) -> bool:
        """Whether rounding was bounded."""
        return self.arithmetic is Rounding.RIGOROUS


@dataclass(frozen=True, repr=False)
class Estimate(_Recorded):
    """CLEVER's guess of how far an image can move before `target` catches up with `label`, or before a stated property
    fails: no bound of anything.

    Where every batch found the same largest gradient the fitted distribution is a point: scale 0, no shape, and a
    reason that says so.

    Attributes:
        image: The image's number, counted from 0.
        label: Its class.
        target: The rival.
        norm: p.
        method: The method's name.
        value: The margin over the fitted `location`; where no distribution could be fitted, over the largest gradient
            of all samples, as in the original, and a reason that says so. It is at most `sampling_radius`, and the
            number that counts in every mean.
        sampled: The value without any fit.
        reason: Why there is no fit or no value; otherwise None.
        seconds: How long it took.
        sampling_radius: Within which gradients were sampled.
        batches: How many batches.
        samples: How many samples each batch had.
        shape: Of the reverse Weibull distribution that was fitted.
        location: Its upper end.
        scale: Its scale.
        statistic: Of Kolmogorov and Smirnov, how far the fit is off.
        p_value: How well the distribution fits: below a few percent, poorly.
        box: As of a `Certificate`.
        input_scale: As of a `Certificate`.
        failed: Whether an error inside the method, which the reason names, is why there is no value.
        row: As of a `Certificate`.
    """

    value: float | None
    sampled: float | None
    reason: str | None
    seconds: float
    sampling_radius: float
    batches: int = field(repr=False)
    samples: int = field(repr=False)
    shape: float | None = field(repr=False)
    location: float | None = field(repr=False)
    scale: float | None = field(repr=False)
    statistic: float | None = field(repr=False)
    p_value: float | None
    box: Box = None
    input_scale: Tensor | None = None
    failed: bool = False
    row: int | None = None

    @property
    def proven(self) -> bool:
        """Never."""
        return False

    @property
    def fitted(self) -> bool:
        """Whether the value comes from a fitted distribution."""
        return self.location is not None

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; absence is null, the norm a number or "inf"."""
        return {**super().to_json(), "fitted": self.fitted, "proven": self.proven}


@dataclass(frozen=True, eq=False, repr=False)
class UpperBound(_Recorded):
    """An adversarial example: at this distance from the image, a rival catches up with its label.

    That the rival's score is no less than the label's was checked in the network's own precision, and proven in real
    arithmetic, or shown in floating point by the network's own runtime, as `inference` says: no such distance lies
    below a radius that is certified about the same. Where the image itself is an example, being misclassified, the
    distance is 0 and the reason says so.

    Attributes:
        image: The image's number, counted from 0.
        label: As of a `Certificate`.
        target: The rival that caught up.
        norm: p.
        method: The attack's name.
        distance: How far the witness is from the image, never understated; None, with a reason, where no attack
            succeeded.
        witness: The example, in the input's shape and the network's own precision, or None.
        predicted: The class the network gives the witness.
        box: As of a `Certificate`.
        reason: Why there is no distance, or what to know about it; otherwise None.
        seconds: How long it took.
        input_scale: As of a `Certificate`.
        failed: Whether an error inside the attack, which the reason names, cut it short.
        inference: As of a `Certificate`.
        shown_by: What evaluated the witness in that precision; None in real arithmetic.
        row: As of a `Certificate`.
    """

    distance: float | None
    witness: Tensor | None
    predicted: int | None
    box: Box
    reason: str | None
    seconds: float
    input_scale: Tensor | None = None
    failed: bool = False
    inference: str = "real"
    shown_by: str | None = None
    row: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Exact(_Recorded):
    """The minimum distortion, between two ends: no adversarial example is within `lower`, and `witness` is at `upper`.

    Where time ended or a step failed the interval is what was known by then, and the reason says so. Where it is
    proven that no valid input is adversarial, both ends are None, and the answer is closed. Where the image itself is
    misclassified both ends are 0.

    Attributes:
        image: The image's number, counted from 0.
        label: As of a `Certificate`.
        target: The rival that the ends are about; untargeted, the nearest.
        norm: p.
        method: The method's name.
        lower: Proven: it holds with the stored weights, in real arithmetic or in every evaluation that `inference`
            names, rounding included.
        upper: The witness's distance; None where no adversarial example is known.
        closed: Whether the ends are as near as was asked for.
        witness: An adversarial example, re-checked as an `UpperBound`'s is, or None.
        box: As of a `Certificate`.
        reason: Why the interval is open, or what to know about it; otherwise None.
        seconds: How long it took.
        nodes: How many subregions branch and bound has bounded.
        input_scale: As of a `Certificate`.
        failed: Whether an error inside the search, which the reason names, kept the interval from closing.
        inference: As of a `Certificate`; the witness fails in the evaluation of the network's own runtime.
        shown_by: As of an `UpperBound`.
        row: As of a `Certificate`.
    """

    lower: float | None
    upper: float | None
    closed: bool
    witness: Tensor | None
    box: Box
    reason: str | None
    seconds: float
    nodes: int
    input_scale: Tensor | None = None
    failed: bool = False
    inference: str = "real"
    shown_by: str | None = None
    row: int | None = None

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
        return {**super().to_json(), "unreachable": self.unreachable, "proven": self.proven}
