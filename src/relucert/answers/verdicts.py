"""The verdicts about a property: it holds, it is violated, or nobody knows."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from relucert.answers.certificates import Box, plain_shape
from relucert.arithmetic.norm import Norm
from relucert.common.valid import valid_inputs

if TYPE_CHECKING:
    from torch import Tensor

LATE = "the time limit ended the search"  # how the reason begins where only time was lacking
HOLDS, VIOLATED, UNKNOWN = "holds", "violated", "unknown"


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """Whether a property holds.

    "holds" is proven with the stored weights, rounding included, in real arithmetic or in every evaluation that
    `inference` names. "violated" has a witness, an input that lies in the stated region exactly, and at which the
    violation was replayed by the network's runtime and, in real arithmetic, is proven. Anything else is "unknown", and
    the reason says why.

    Attributes:
        status: "holds", "violated" or "unknown".
        witness: The violating input, in float64 and the input's shape; None where there is none.
        outputs: What the runtime gives there, (outputs,).
        reason: Why it is unknown, or how a violation was checked; None where there is nothing to say.
        seconds: How long it took.
        nodes: How many subregions branch and bound has bounded.
        method: What decided it: the name of a method, "attack", "branch and bound", "bounds of the region",
            "conditions", where those of a violation contradict each other, or "rational arithmetic", where a strict
            relation is only touched; None where nothing did.
        coordinates: The witness's numbers, exactly, in the order of the input; they differ from the witness only where
            the stated region has no float64 number.
        remarks: What there is to know about the question.
        failed: Whether an error inside the search, which the reason names, kept the verdict from being known.
        inference: What the network is evaluated in: "real" arithmetic, "float32", "float16" or "bfloat16".
        stage: What branch and bound was doing last: "cuts" at inputs, or "root", "tree", "certificates" or "refinement"
            of splits by neurons; None where it was not asked.
    """

    status: str
    witness: Tensor | None
    outputs: Tensor | None
    reason: str | None
    seconds: float
    nodes: int
    method: str | None
    coordinates: tuple[Fraction, ...] | None = None
    remarks: tuple[str, ...] = ()
    failed: bool = False
    inference: str = "real"
    stage: str | None = None

    def __repr__(self) -> str:
        shown = f"{type(self).__name__}({self.status!r}"
        if self.inference != "real":
            shown += f" in {self.inference}"
        if self.method is not None:
            shown += f" by {self.method}"
        if self.reason is not None:
            shown += f", {self.reason}"
        return f"{shown}, {self.seconds:.3g} s, {self.nodes} nodes)"

    @property
    def holds(self) -> bool:
        """Whether the property is proven to hold."""
        return self.status == HOLDS

    @property
    def timed_out(self) -> bool:
        """Whether only time was lacking."""
        return self.reason is not None and self.reason.startswith(LATE)

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; the witness and its outputs are lists of numbers, absence is null."""
        row: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        row.pop("coordinates")
        for name in ("witness", "outputs"):
            row[name] = None if row[name] is None else row[name].double().flatten().tolist()
        row["remarks"] = list(self.remarks)
        return row


@dataclass(frozen=True, eq=False, repr=False)
class RobustnessVerdict(Verdict):
    """Whether, within a radius of an image, no valid input makes a rival catch up with its label.

    An image that the network itself misclassifies is its own witness.

    Attributes:
        status: As of a `Verdict`, and so are witness, outputs, reason, seconds, nodes, method, coordinates, remarks,
            failed, inference and stage.
        image: The image's number, counted from 0.
        label: Its class; None where a property was asked about.
        target: The rival that was asked about, or that caught up; None where any would do.
        radius: The radius asked about.
        norm: p.
        box: The lowest and the highest valid values, None where every input is valid.
        input_scale: How far each coordinate may move per unit of radius, None: 1.
        clean: Whether the network gives the image its label, or the property holds there.
        row: The row of the property that is violated; None where classes were asked about, or nothing is violated.
        fraction: The radius exactly, where it was given as a fraction such as "8/255": what is proven is so within
            `radius`, the least float64 that is not below it, and a violation is within the fraction.
    """

    image: int = 0
    label: int | None = 0
    target: int | None = None
    radius: float = 0.0
    norm: float = math.inf
    box: Box = None
    input_scale: Tensor | None = None
    clean: bool = True
    row: int | None = None
    fraction: Fraction | None = None

    @property
    def radius_text(self) -> str:
        """The radius as it was given."""
        return repr(self.radius) if self.fraction is None else str(self.fraction)

    def __repr__(self) -> str:
        scaled = "" if self.input_scale is None else ", scaled per coordinate"
        about = (
            f"image {self.image}, radius {self.radius_text}, p = {Norm(self.norm)}, {valid_inputs(self.box)}{scaled}"
        )
        return f"{type(self).__name__}({about}: {super().__repr__().partition('(')[2]}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON; the witness and its outputs are left out."""
        row = super().to_json() | plain_shape(self.norm, self.box, self.input_scale)
        del row["witness"], row["outputs"]
        if row.pop("fraction") is not None:
            row["fraction"] = str(self.fraction)
        return row
