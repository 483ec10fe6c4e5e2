"""The names that users choose from, as types, and how they may be spelled. Nothing heavy is imported here.

Each list is that of a table elsewhere; `tests/test_tables.py` compares them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

from relucert.common.checks import shown
from relucert.errors import InputError

MethodName = Literal[
    "fast-lin", "crown", "interval", "fast-lip", "lipschitz-norm", "op-norm", "alpha", "lp", "lp-full", "sdp", "best"
]
"""The certifying methods: `METHODS`, and "best"."""

ContenderName = Literal[MethodName, "exact", "clever", "attack"]
"""The methods that can be compared: `CONTENDERS`."""

RelaxerName = Literal["fast-lin", "crown", "interval"]
"""The methods that bound pre-activations: `RELAXERS`, and "interval"."""

LipschitzName = Literal["fast-lip", "lipschitz-norm", "op-norm"]
"""The methods that bound Lipschitz constants."""

LossBounds = Literal["interval", "fast-lin", "crown"]
"""The methods that bound the loss of certified training: `BOUNDS`."""

AttackName = Literal["best", "fmn", "pgd", "cw", "ead", "ddn"]
"""The attacks: `ATTACKS`."""

TargetName = Literal["runner-up", "least-likely", "random", "all", "untargeted"]
"""The rival classes: `TARGETS`."""

ArithmeticName = Literal["rigorous", "float"]
"""The arithmetics of bounds: the values of `Rounding`."""

InferenceName = Literal["real", "float32", "float16", "bfloat16"]
"""The arithmetics in which networks are evaluated: `INFERENCES`."""

FormName = Literal["forward", "backward"]
"""The directions of bound propagation: `FORMS`."""

OptimiserName = Literal["sgd", "adam"]
"""The optimisers of training: `LEARNING_RATES`."""

SplitName = Literal["train", "test"]
"""The splits of a collection: `SPLITS`."""


def key(name: str) -> str:
    """The common form of all spellings of a name: capitals, hyphens, underscores and spaces do not count."""
    return re.sub(r"[-_\s]", "", name).lower()


def suggestion(name: str, names: tuple[str, ...]) -> str:
    """The end of an error about an unknown name: the name that resembles it, if there is one."""
    spelled = {key(choice): choice for choice in names}
    close = difflib.get_close_matches(key(name), spelled, n=1)
    return f"; did you mean {spelled[close[0]]!r}?" if close else ""


Name = TypeVar("Name", bound=str)


@dataclass(frozen=True)
class Names(Generic[Name]):
    """The choices of a category, such as "method", and their aliases, by the keys of those."""

    category: str
    choices: tuple[Name, ...]
    aliases: Mapping[str, Name] = field(default_factory=dict)

    def find(self, spelling: object) -> Name:
        """The choice that a spelling means; anything else is refused."""
        if isinstance(spelling, str):
            spelled = {**self.aliases, **{key(name): name for name in self.choices}}
            if (choice := spelled.get(key(spelling))) is not None:
                return choice
        close = suggestion(spelling, (*self.choices, *self.aliases)) if isinstance(spelling, str) else ""
        raise InputError(f"unknown {self.category} {shown(spelling)}; known are {', '.join(self.choices)}{close}")


# DeepZ's zonotope has Fast-Lin's parallel lines, DeepPoly the lines of CROWN, alpha-CROWN optimises their slopes.
_CALLED: dict[str, Any] = {
    "deepz": "fast-lin",
    "deeppoly": "crown",
    "ibp": "interval",
    "intervals": "interval",
    "alphacrown": "alpha",
}
_RELAXERS = {alias: name for alias, name in _CALLED.items() if name in get_args(RelaxerName)}
_PRECISIONS: dict[str, InferenceName] = {
    "fp32": "float32",
    "single": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}

METHODS = Names[MethodName]("method", get_args(MethodName), _CALLED)
CONTENDERS = Names[ContenderName]("method", get_args(ContenderName), _CALLED)
RELAXERS = Names[RelaxerName]("method of bounds", get_args(RelaxerName), _RELAXERS)
LIPSCHITZ = Names[LipschitzName]("method of Lipschitz constants", get_args(LipschitzName))
LOSS_BOUNDS = Names[LossBounds]("method", get_args(LossBounds), _RELAXERS)
ATTACKS = Names[AttackName]("method", get_args(AttackName))
TARGETS = Names[TargetName]("target", get_args(TargetName))
ARITHMETICS = Names[ArithmeticName]("arithmetic", get_args(ArithmeticName))
INFERENCES = Names[InferenceName]("inference", get_args(InferenceName), _PRECISIONS)
FORMS = Names[FormName]("form", get_args(FormName))
OPTIMISERS = Names[OptimiserName]("optimiser", get_args(OptimiserName))
DATA = Names[str]("data set", ("mnist", "cifar10"), {"cifar": "cifar10"})
SPLITS = Names[SplitName]("split", get_args(SplitName))


def parse_norm(norm: object) -> float:
    """The p of a norm: a number, a text such as "2", "inf", "l2" or "L_inf"; refused where it is no number >= 1."""
    text = norm.strip() if isinstance(norm, str) else norm
    if isinstance(text, str) and (spelled := re.fullmatch(r"[lL][-_ ]?(\S+)", text)):
        text = spelled[1]
    try:
        if isinstance(norm, bool):
            raise TypeError
        p = float("inf" if text in ("infty", "\N{INFINITY}") else text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        p = 0.0
    if not p >= 1:
        raise InputError(f"a norm needs a number p >= 1 or 'inf', not {shown(norm)}")
    return p
