"""The region of inputs that a question is about: a ball, within the box of valid inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from relucert.arithmetic.box import Box, check_inside, is_scale, parse_box, parse_scale
from relucert.arithmetic.deviation import Deviation
from relucert.arithmetic.forms import LinearForms, Rows
from relucert.arithmetic.norm import Norm, NormLike
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS, TINY, Arithmetic
from relucert.arithmetic.windows import Windows
from relucert.common.arrays import dense
from relucert.common.checks import shown
from relucert.common.numbers import NumberLike, number_above
from relucert.common.valid import valid_inputs
from relucert.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LEAST_WHOLE = 1e-12  # radius beyond which nothing is valid, where all valid inputs are one point
SET_BACK = 1 - 2.0**-20  # of the distance from the centre, so that a point of the border is inside
CONFINED_BYTES = 2**21  # of the forms that are concretised at once in a ball that a box cuts: temporaries stay small


@dataclass(frozen=True, eq=False)
class RegionShape:
    """The meaning of a radius: the norm, the valid inputs, and how far each coordinate may move per unit of radius."""

    norm: Norm
    box: Box | None = None
    scale: Tensor | None = None

    def __repr__(self) -> str:
        return f"RegionShape({_described(self.norm, self.box, self.scale)})"

    @classmethod
    def parse(cls, norm: NormLike, box: object, scale: object, shape: tuple[int, ...]) -> RegionShape:
        """Checks a norm, a box and a scale, in the forms that `Region.around` takes, for inputs of this shape."""
        return cls(Norm.parse(norm), parse_box(box, shape), parse_scale(scale, shape))

    @property
    def given_box(self) -> tuple[float, float] | tuple[Tensor, Tensor] | None:
        """The box as users give it."""
        return None if self.box is None else self.box.simplified

    def around(self, points: Tensor, radius: float | Tensor = 0.0, which: Tensor | None = None) -> Region:
        """Regions around points (points, size), in their dtype; radius: one for all, or (batch,)."""
        count = len(points) if which is None else len(which)
        radii = torch.as_tensor(radius, dtype=points.dtype).expand(count)
        box = None if self.box is None else self.box.cast(points.dtype)
        scale = None if self.scale is None else self.scale.to(points.dtype)
        return Region(points, radii, self.norm, which, box, scale)

    def distance(self, points: Tensor, centre: Tensor) -> Tensor:
        """The radius of points (..., size) around a centre, as computed; infinite where one of scale 0 moved."""
        if self.scale is None:
            return self.norm.distance(points, centre)
        return self.norm.distance(self._offsets(points - centre), torch.zeros_like(centre))

    def distance_bound(self, points: Tensor, centre: Tensor, arithmetic: Arithmetic) -> Tensor:
        """An upper bound of the radius that `distance` computes, rounding included."""
        if self.scale is None:
            return self.norm.distance_bound(points, centre, arithmetic)
        offsets = arithmetic.above(self._offsets(points - centre).abs(), 2)
        return self.norm.distance_bound(offsets, torch.zeros_like(offsets), arithmetic)

    def _offsets(self, differences: Tensor) -> Tensor:
        """Differences in units of the scale; infinite where a coordinate of scale 0 moved."""
        assert self.scale is not None
        scale = self.scale.to(differences.dtype)
        moved = torch.where(differences == 0, 0, torch.inf).to(differences.dtype)
        return torch.where(scale > 0, differences / torch.where(scale > 0, scale, 1), moved)


@dataclass(frozen=True, eq=False)
class Region:
    """A batch of regions of one norm: the valid x with `||(x - centre) / scale||_p <= radius`.

    Attributes:
        points: The centres, (batch, size).
        radius: (batch,).
        norm: The norm, for all of them.
        which: Where regions share centres, (batch,): that of region b is points[which[b]].
        box: The valid inputs; None: every input is valid. The centres are valid.
        scale: How far each coordinate may move per unit of radius, (size,), none negative, 0: it stays as it is; None:
            1 for all of them. For p = inf without a box also one for each region: (batch, size).
    """

    points: Tensor
    radius: Tensor
    norm: Norm
    which: Tensor | None = None
    box: Box | None = None
    scale: Tensor | None = None

    def __post_init__(self) -> None:
        tensors: tuple[object, ...] = (self.points, self.radius, self.points if self.which is None else self.which)
        if not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
            raise InputError("a region is made of tensors; relucert.Region.around makes one of other numbers")
        count = len(self.points) if self.which is None else len(self.which)
        if self.points.ndim != 2 or self.radius.shape != (count,):
            raise InputError(
                f"a region needs centres (batch, size) and radii (batch,), "
                f"not {tuple(self.points.shape)} and {tuple(self.radius.shape)}"
            )
        size = self.points.shape[1]
        if self.scale is not None and not is_scale(self.scale, ((size,), (count, size))):
            raise InputError(
                f"a region's scale is a tensor of finite numbers >= 0, one for each of its {size} coordinates, "
                f"not {shown(self.scale)}"
            )

    def __repr__(self) -> str:
        radii = self.radius.tolist()
        extent = f"{min(radii):g} to {max(radii):g}" if len(set(radii)) > 1 else f"{radii[0]:g}" if radii else "none"
        described = _described(self.norm, self.box, self.scale)
        return f"Region(batch of {len(radii)}, {self.points.shape[1]} coordinates, radius {extent}, {described})"

    @classmethod
    def around(
        cls,
        centre: ArrayLike | Tensor,
        radius: NumberLike | Tensor,
        norm: NormLike,
        box: object = None,
        scale: object = None,
    ) -> Region:
        """A checked region around each centre.

        Args:
            centre: (batch, ...).
            radius: One for all, or one for each centre.
            norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1.
            box: None, the lowest and the highest valid value as two numbers, or as two arrays of a centre's shape.
            scale: None, or an array of a centre's shape: how far each coordinate may move per unit of radius.
        """
        try:
            points = dense(centre, "centres")
            shape, flat = tuple(points.shape[1:]), points.flatten(1).double().clone()
            if isinstance(radius, (str, Fraction)):
                radius = number_above(radius, "a radius")
            radii = torch.as_tensor(radius, dtype=torch.float64).expand(len(flat))
        except (TypeError, ValueError, IndexError, RuntimeError, OverflowError):
            raise InputError("a region needs centres of numbers, (batch, ...), and one radius or one each") from None
        if not bool(torch.isfinite(flat).all()):
            raise InputError("the centre has NaN or infinite numbers")
        if not bool((torch.isfinite(radii) & (radii >= 0)).all()):
            raise InputError("a radius must be a finite number >= 0")
        region = RegionShape.parse(norm, box, scale, shape).around(flat, radii)
        check_inside(flat, region.box)
        return region

    @classmethod
    def boxes(cls, low: Tensor, high: Tensor) -> Region:
        """The smallest regions for p = inf around boxes with sides of their own: ends (batch, size) each, finite."""
        middle = low + (high - low) / 2
        half = torch.where(low == high, 0, RIGOROUS.ceil(torch.maximum(high - middle, middle - low)))
        return cls(middle, torch.ones(len(low), dtype=low.dtype), Norm(np.inf), scale=half)

    @property
    def centre(self) -> Tensor:
        """The centres, one per region: (batch, size)."""
        return self.points if self.which is None else self.points[self.which]

    def select(self, members: Tensor) -> Region:
        """The regions of some batch members."""
        which = members if self.which is None else self.which[members]
        scale = self.scale[members] if self.scale is not None and self.scale.ndim == 2 else self.scale
        return replace(self, radius=self.radius[members], which=which, scale=scale)

    def as_multiples(self) -> tuple[Region, Tensor]:
        """A region whose spans, times factors (batch or 1, 1), are those of these regions, as computed: where they
        differ by their centres and radii alone, one of radius 1."""
        if self.box is not None or (self.scale is not None and self.scale.ndim == 2):
            return self, self.radius.new_ones(1, 1)
        return Region(self.points[:1], self.radius.new_ones(1), self.norm, None, None, self.scale), self.radius[:, None]

    def resized(self, radius: Tensor) -> Region:
        """The same regions with other radii, (batch,)."""
        return replace(self, radius=radius)

    def clone(self) -> Region:
        """A copy with tensors of its own."""
        box = None if self.box is None else Box(self.box.low.clone(), self.box.high.clone())
        which, scale = (None if tensor is None else tensor.clone() for tensor in (self.which, self.scale))
        return Region(self.points.clone(), self.radius.clone(), self.norm, which, box, scale)

    def cast(self, dtype: torch.dtype) -> Region:
        """The same regions in another precision."""
        box = None if self.box is None else self.box.cast(dtype)
        scale = None if self.scale is None else self.scale.to(dtype)
        return replace(self, points=self.points.to(dtype), radius=self.radius.to(dtype), box=box, scale=scale)

    @property
    def _is_box(self) -> bool:
        """Whether the region is a box whose sides differ: a ball for p = inf, cut or scaled."""
        return self.norm.body == "box" and not (self.box is None and self.scale is None)

    @property
    def moving(self) -> int:
        """How many coordinates neither the box nor the scale fixes."""
        moving = self.points.shape[1] if self.box is None else int(self.box.moving.sum())
        return moving if self.scale is None else min(moving, int((self.scale > 0).sum()))

    @cached_property
    def reference(self) -> Tensor:
        """The points that deviations count from, (batch, size): the centres of regions that are boxes, else those
        of the balls. They need not be in the region, only near it."""
        if not self._is_box:
            return self.centre
        lowest, highest = self._ends
        return lowest + (highest - lowest) / 2

    @property
    def references(self) -> tuple[Tensor, Tensor | None]:
        """The references without repetition, (points, size), and which of them is each region's, (batch,)."""
        return (self.reference, None) if self._is_box else (self.points, self.which)

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """The ends of a region that is a box, as computed: (batch, size) each."""
        step = self.radius[:, None] if self.scale is None else self.radius[:, None] * self.scale
        lowest, highest = self.centre - step, self.centre + step
        if self.box is not None:
            lowest, highest = torch.maximum(lowest, self.box.low), torch.minimum(highest, self.box.high)
        return lowest, highest

    @cached_property
    def moving_inputs(self) -> Tensor:
        """The numbers of the coordinates that move in some region by more than their rounding."""
        return Box(*self._ends).moving.any(0).nonzero().flatten()

    def spans(self, arithmetic: Arithmetic) -> Deviation:
        """How far every coordinate may lie from the reference: (batch, size), rounding included."""
        if self._is_box:
            lowest, highest = self._ends
            half = torch.maximum(highest - self.reference, self.reference - lowest)
            if arithmetic.rigorous:  # the ends err by two roundings of numbers no larger than the sum
                size = torch.maximum(lowest.abs(), highest.abs()) + self.centre.abs()
                half = arithmetic.above(half + arithmetic.gamma(3) * size, 2)
            return Deviation(half, half)
        radius = self.coordinate_radii(arithmetic)
        if self.box is None:
            return Deviation(radius, radius)
        below, above = self._rooms(arithmetic)
        return Deviation(torch.minimum(radius, below), torch.minimum(radius, above))

    def coordinate_radii(self, arithmetic: Arithmetic) -> Tensor:
        """The radius of every coordinate: the region's deviations from the reference, over these, lie in the unit ball,
        rounding included. (batch, size)"""
        if self._is_box:
            return self.spans(arithmetic).largest
        radius = self.radius[:, None].expand(-1, self.points.shape[1])
        return radius if self.scale is None else arithmetic.above(radius * self.scale, 1)

    @property
    def walls(self) -> Deviation | None:
        """How far coordinates may lie from the centre in units of `coordinate_radii`: (batch, size), as computed.

        None where no box cuts the balls, or where the regions are boxes.
        """
        if self.box is None or self._is_box:
            return None
        radius = self.coordinate_radii(DOUBLE)
        units = torch.where(radius > 0, radius, 1)
        return self._rooms(DOUBLE).map(lambda room: (room / units).clamp(max=1))

    @cached_property
    def whole(self) -> Tensor:
        """A radius beyond which there are no further valid inputs, (batch,); infinite where they do not end."""
        if self.box is None:
            return torch.full_like(self.radius, torch.inf)
        rooms = self._scaled_rooms(RIGOROUS).largest
        endless = rooms.isinf().any(-1)
        finite = self.norm.distance_bound(rooms.where(rooms.isfinite(), 0), torch.zeros_like(rooms), RIGOROUS)
        return torch.where(endless, torch.inf, finite.clamp(min=LEAST_WHOLE))

    @property
    def widest(self) -> Tensor:
        """About how far any coordinate may lie from the centre: (batch, 1)."""
        return self.radius[:, None] if self.scale is None else self.radius[:, None] * self.scale.max()

    def _rooms(self, arithmetic: Arithmetic) -> Deviation:
        """How far the walls of the box are from the centre: (batch, size)."""
        assert self.box is not None

        def room(difference: Tensor) -> Tensor:
            return torch.where(difference > 0, arithmetic.ceil(difference), 0)  # a difference of 0 is exact

        return Deviation(room(self.centre - self.box.low), room(self.box.high - self.centre))

    def _scaled_rooms(self, arithmetic: Arithmetic) -> Deviation:
        """The rooms in units of the scale; 0 where a coordinate stays as it is."""
        rooms = self._rooms(arithmetic)
        if self.scale is None:
            return rooms
        moving = self.scale > 0
        units = torch.where(moving, self.scale, 1)
        return rooms.map(lambda room: torch.where(moving, arithmetic.ceil(room / units), 0))

    def deviation(self, forms: LinearForms, arithmetic: Arithmetic, two_sided: bool = True) -> Deviation:
        """Concretises linear forms on the input: how far they fall below and rise above their values at the reference.

        For a ball that is the radius times the dual norm of a form (Hoelder's inequality). Returns (batch, forms) for
        each side, rounding included; where the rise is not wanted, the fall stands for it.
        """
        if self._is_box:
            moved = arithmetic.above(forms.absolute_dot(self.spans(arithmetic).below), forms.terms + 1)
            return Deviation(moved, moved)
        if self.box is not None:
            return self._confined(forms, arithmetic, two_sided)
        lengths = self.norm.dual_length(self._scaled(forms).stored(), -1)
        lengths = self.norm.above_length(lengths, forms.terms + 1, arithmetic)
        if self.scale is not None and arithmetic.rigorous:
            lengths = lengths + TINY  # coefficients that underflowed when they were scaled
        moved = arithmetic.above(lengths * self.radius[:, None], 1)
        return Deviation(moved, moved)

    def chunked_deviation(self, chunks: Iterable[Tensor], arithmetic: Arithmetic, two_sided: bool) -> Deviation:
        """`deviation` of forms that come as consecutive chunks of the batch, (members, forms, size) each."""
        first, deviations = 0, []
        for chunk in chunks:
            members, forms = torch.arange(first, first + len(chunk)), Rows(chunk, (self.points.shape[1],))
            deviations.append(self.select(members).deviation(forms, arithmetic, two_sided))
            first += len(chunk)
        return Deviation.join(deviations, 0)

    def _scaled(self, forms: LinearForms) -> LinearForms:
        """Forms in units of the scale."""
        return forms if self.scale is None else forms.times(self.scale[None])

    def _confined(self, forms: LinearForms, arithmetic: Arithmetic, two_sided: bool) -> Deviation:
        """A ball cut by a box: falling, a positive coefficient's coordinate goes down, a negative one's up."""
        rooms = self._scaled_rooms(arithmetic).map(lambda room: torch.minimum(room, self.radius[:, None]))
        scaled = self._scaled(forms)
        if isinstance(scaled, Windows) and scaled.places is not None:
            gains = self._confined_windows(scaled, rooms, arithmetic, two_sided)
        else:
            rows = scaled.rows()
            step = max(1, CONFINED_BYTES // (len(self.radius) * rows.shape[-1] * rows.element_size()))
            walls = _walls(rooms, two_sided)
            chunks = [self.norm.confined_gains(chunk, walls, self.radius, arithmetic) for chunk in rows.split(step, 1)]
            gains = [torch.cat(gain, 1) for gain in zip(*chunks, strict=True)]
        if self.scale is not None:
            lost = TINY * self.radius[:, None] if arithmetic.rigorous else 0  # by underflow
            gains = [arithmetic.above(gain + lost, 3) for gain in gains]
        return Deviation(gains[0], gains[-1])

    def _confined_windows(
        self, forms: Windows, rooms: Deviation, arithmetic: Arithmetic, two_sided: bool
    ) -> list[Tensor]:
        """`_confined` of windows: each form meets the walls of its own window, so it is a batch member of its own."""
        count = len(self.radius), forms.count
        coefficients = forms.stored().expand(*count, -1).flatten(0, 1)[:, None]
        local = rooms.map(lambda room: forms.local(room).flatten(2).flatten(0, 1))
        radius = self.radius.repeat_interleave(forms.count)
        gains = self.norm.confined_gains(coefficients, _walls(local, two_sided), radius, arithmetic)
        return [gain.reshape(count) for gain in gains]

    def dual_norm(self, forms: Tensor, arithmetic: Arithmetic) -> Tensor:
        """Upper bounds of the dual norms of forms on the input, (..., size), in units of the scale: (...)."""
        scaled = forms if self.scale is None else arithmetic.above(forms.abs() * self.scale, 1)
        return self.norm.dual_bound(scaled, -1, arithmetic)


def _described(norm: Norm, box: Box | None, scale: Tensor | None) -> str:
    """Norm, valid inputs and scale, in a few words."""
    scaled = "" if scale is None else ", scaled per coordinate"
    return f"p = {norm}, {valid_inputs(None if box is None else box.simplified)}{scaled}"


def _walls(rooms: Deviation, two_sided: bool) -> list[tuple[Tensor, Tensor]]:
    """The walls that positive and negative coefficients meet, for a form's fall and where wanted for its rise."""
    return [(rooms.below, rooms.above), (rooms.above, rooms.below)][: 1 + two_sided]


def check_region(region: object, box: object, scale: object, shape: tuple[int, ...]) -> Region:
    """A region of inputs of this shape, cut by a box and scaled where one is given here and not by the region."""
    if not isinstance(region, Region) or not bool(((region.radius >= 0) & region.radius.isfinite()).all()):
        raise InputError("a region with finite radii >= 0 is needed: relucert.Region.around(centre, radius, norm)")
    if region.points.shape[1] != int(np.prod(shape)):
        raise InputError(f"the region has {region.points.shape[1]} coordinates, the network {int(np.prod(shape))}")
    for name, argument, present in (("box", box, region.box), ("scale", scale, region.scale)):
        if argument is not None and present is not None:
            raise InputError(f"the region has a {name} already: give it once")
    cut, scaled = parse_box(box, shape) or region.box, parse_scale(scale, shape)
    check_inside(region.points, cut)
    return replace(region, box=cut, scale=region.scale if scaled is None else scaled)
