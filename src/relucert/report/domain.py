"""Which inputs the answers of a run take for valid: read from run files, and told in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from relucert.common.valid import valid_inputs

Box = tuple[float, float] | tuple[tuple[float, ...], tuple[float, ...]]  # the second: one number per coordinate

LARGEST = 1e300  # beyond which sums would overflow
INFINITE = ("-inf", "inf", -math.inf, math.inf)  # JSON has no numbers for them
NOT_RECORDED = "valid inputs not recorded"
UNLIKE = "valid inputs differ"


@dataclass(frozen=True)
class Domain:
    """The inputs that count as valid: those in the box, from the lowest to the highest value; None: every input."""

    box: Box | None

    def __str__(self) -> str:
        return valid_inputs(self.box)


def assumed(domain: Domain | None) -> Domain:
    """The domain; every input where an older file does not say, for its certificates ignored the box."""
    return Domain(None) if domain is None else domain


def in_words(domains: Iterable[Domain | None]) -> str:
    """Which inputs several answers take for valid; None stands for an answer that does not say."""
    distinct = set(domains)
    if len(set(map(assumed, distinct))) > 1:
        return UNLIKE
    recorded = distinct - {None}
    return str(recorded.pop()) if recorded else NOT_RECORDED


def read_domain(row: Mapping[str, Any]) -> Domain | None:
    """The domain of an answer in JSON; None where it has no box. Raises ValueError, saying what is wrong."""
    return Domain(_box(row["box"])) if "box" in row else None


def check_options(options: Mapping[str, Any]) -> None:
    """Raises ValueError unless the box is null or [low, high], and the scale null or a list of numbers from 0 on."""
    box, scale = _box(options.get("box")), options.get("scale")
    if box is not None and isinstance(box[0], tuple):
        raise ValueError("box is no pair of numbers")
    if scale is not None and (not _is_list(scale) or not all(_is_finite(factor) and factor >= 0 for factor in scale)):
        raise ValueError("scale is no list of numbers, none of them negative")


def _box(box: Any) -> Box | None:
    """A box from its JSON form: null, [low, high], or [[low, ...], [high, ...]] with one number per coordinate."""
    if box is None:
        return None
    if not _is_list(box) or len(box) != 2:
        raise ValueError("box is no pair of numbers, nor of lists with one number per coordinate")
    low, high = box
    if _is_list(low) and _is_list(high) and len(low) == len(high) > 0:
        ends = [_range(lowest, highest) for lowest, highest in zip(low, high, strict=True)]
        return tuple(lowest for lowest, _ in ends), tuple(highest for _, highest in ends)
    return _range(low, high)


def _range(low: Any, high: Any) -> tuple[float, float]:
    """The valid values of one coordinate; an end may be infinite."""
    if not all(_is_finite(end) or end in INFINITE for end in (low, high)):
        raise ValueError("box is no pair of numbers, nor of lists with one number per coordinate")
    if float(low) > float(high):
        raise ValueError(f"box has the lowest value {low} above the highest, {high}")
    return float(low), float(high)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST
