"""What the values of options may look like, and the files that they name; whatever else comes is an InputError."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from relucert.common.names import TARGETS, parse_norm
from relucert.errors import InputError
from relucert.inputs.storage import files

MOST_THREADS = 1024  # far more than any machine computes faster with: a larger number is a mistake


def count(text: str) -> int:
    """A whole number >= 1."""
    if (value := whole(text)) is None or value < 1:
        raise InputError(f"a whole number >= 1 is needed, not {text!r}")
    return value


def threads(text: str) -> int:
    if (value := count(text)) > MOST_THREADS:
        raise InputError(f"at most {MOST_THREADS} threads, not {text}")
    return value


def seed(text: str) -> int:
    """A whole number of 63 bits."""
    if (value := whole(text)) is None or value >= 2**63:
        raise InputError(f"a whole number from 0 to 2^63 - 1 is needed, not {text!r}")
    return value


def radius(text: str) -> float:
    """A finite number >= 0, or a fraction such as 8/255, which is rounded up."""
    value = rounded_up(text)
    if not 0 <= value < math.inf:
        raise InputError(f"a radius is a finite number >= 0, not {text!r}")
    return value


def stated_radius(text: str) -> float | str:
    """A radius; a fraction stays as it is written, so that answers can say it."""
    value = radius(text)
    return text.replace(" ", "") if "/" in text else value


def seconds(text: str) -> float:
    """A finite number >= 0."""
    value = number(text)
    if not 0 <= value < math.inf:
        raise InputError(f"a time is a finite number of seconds >= 0, not {text!r}")
    return value


def rounded_up(text: str) -> float:
    """A number, or a fraction such as 8/255 as the least float64 that is not below it."""
    from relucert.common.numbers import number_above

    return number_above(text, "what is needed")


class TwoEnds(argparse.Action):
    """Two numbers or fractions; the function that is the action's constant makes them of their texts."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        try:
            setattr(namespace, self.dest, self.const(*values))
        except InputError as error:
            raise argparse.ArgumentError(self, str(error)) from None


def box(low: str, high: str) -> list[float]:
    """The lowest valid value is rounded down and the highest up, so that none is lost."""
    from relucert.common.numbers import number_above, number_below

    return [number_below(low, "its lowest value"), number_above(high, "its highest value")]


def outputs_within(low: str, high: str) -> list[float]:
    """The low end is rounded up and the high one down, so that no claim is weakened; "none": no such end."""
    from relucert.common.numbers import number_above, number_below

    lowest = -math.inf if low == "none" else number_above(low, "the low end of outputs")
    return [lowest, math.inf if high == "none" else number_below(high, "the high end of outputs")]


def each(parse: Callable[[str], str]) -> Callable[[str], list[str]]:
    """A parser of several values with commas between them."""

    def parse_all(text: str) -> list[str]:
        listed = [name.strip() for name in text.split(",")]
        if not all(listed):
            raise InputError(f"names with commas between them are needed, not {text!r}")
        return [parse(name) for name in listed]

    return parse_all


def target(text: str) -> str:
    """A name, or a class index."""
    return text if whole(text) is not None else TARGETS.find(text)


def norm(text: str) -> str:
    """The p of a norm, as it is shown."""
    p = parse_norm(text)
    return f"{p:g}" if float(f"{p:g}") == p else repr(p)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"a number is needed, not {text!r}") from None


def whole(text: str) -> int | None:
    """The number that ASCII digits spell."""
    return int(text) if text.isascii() and text.isdecimal() else None


def outputs(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, Path]:
    """The files to write, checked before any long work."""
    paths = [(name, path) for name in names for path in _listed(getattr(arguments, name))]
    named = ("network", "data", "scale", "target_file", "property", "instances")
    single = [source for name in named if (source := getattr(arguments, name, None)) is not None]
    further = [path for _, path in getattr(arguments, "further_networks", None) or ()]
    inputs = [("", Path(source)) for source in (*single, *further, *(getattr(arguments, "network_file", None) or ()))]
    for (_, first), (name, second) in combinations([*inputs, *paths], 2):
        if name and first.resolve() == second.resolve():
            option = name.replace("_", "-")
            raise InputError(f"--{option} {second} would overwrite another file of this command")
    for _, path in paths:
        files.check_writable(path)
    return dict(paths)


def _listed(value: Path | list[Path] | None) -> list[Path]:
    """The files that an option names, which may be one that can be repeated."""
    return [] if value is None else value if isinstance(value, list) else [value]
