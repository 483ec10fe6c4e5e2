"""The table of everything that can be compared: each method's name, its kind of answer, and its call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from relucert.answers.certificates import Answer
from relucert.api.attack import attack_each
from relucert.api.best import BEST
from relucert.api.certify import certify_each
from relucert.api.estimate import estimate_each
from relucert.api.exact import exact_each
from relucert.arithmetic.norm import Norm
from relucert.arithmetic.property import Property
from relucert.common.checks import check_positive, check_whole, shown
from relucert.common.names import CONTENDERS as CONTENDER_NAMES
from relucert.common.names import MethodName
from relucert.common.progress import ProgressLike
from relucert.errors import InputError
from relucert.execution.execution import Execution
from relucert.inputs.storage.store import Section
from relucert.methods.programs import ProgramMethod
from relucert.methods.table import METHODS, find_method
from relucert.network import find_inference
from relucert.query.types import BoxLike, NetworkLike, ScaleLike, TargetLike
from relucert.report.reading import AnswerKind

SOFT = 0.9  # the share of a budget after which methods that mind the time are to end by themselves


@dataclass(frozen=True)
class Setting:
    """The question put to every method, and the effort; checked when built.

    property: the specification in place of classes; steps: of each attack; batches, samples: of CLEVER; budget: seconds
    for each method and image; box, scale, inference, workers, progress: as for `certify`; store: keeps the answers.
    """

    norm: Norm
    target: TargetLike = "untargeted"
    property: Property | None = None
    box: BoxLike | None = None
    scale: ScaleLike | None = None
    steps: int = 100
    batches: int = 50
    samples: int = 256
    budget: float = 60.0
    memory: int = 2**30
    inference: str = "real"
    seed: int = 0
    workers: int | Execution | None = None
    store: Section | None = None
    progress: ProgressLike = None

    def __post_init__(self) -> None:
        for name in ("steps", "batches", "samples"):
            check_whole(f"number of {name}", getattr(self, name), 1, 10**6)
        check_positive("budget", self.budget)
        find_inference(self.inference)
        check_whole("seed", self.seed, 0, 2**63 - 1)

    def question(self) -> dict[str, Any]:
        """The arguments that pose the question, the same for every method."""
        names = ("norm", "target", "property", "box", "scale", "inference", "seed")
        return {name: getattr(self, name) for name in names}

    def resources(self) -> dict[str, Any]:
        """The workers, the store and the listener of a call."""
        return {"workers": self.workers, "store": self.store, "progress": self.progress}


Ask = Callable[[NetworkLike, Tensor, Tensor | None, Setting], Iterator[Answer]]


@dataclass(frozen=True)
class Contender:
    """A method that can be compared.

    timed: its answers depend on the budget; patient: it always ends within the budget; composed: it runs other methods
    of the table, so it is compared only where it is named.
    """

    name: str
    kind: AnswerKind
    ask: Ask
    timed: bool = False
    patient: bool = False
    composed: bool = False


@dataclass(frozen=True, eq=False)
class Entry:
    """The answer of one method to one question."""

    method: str
    kind: AnswerKind
    answer: Any

    @property
    def lower(self) -> float | None:
        """The proven lower bound of the answer, if there is one."""
        if self.kind is AnswerKind.EXACT:
            return self.answer.lower  # type: ignore[no-any-return]
        return self.answer.radius if self.kind is AnswerKind.CERTIFIED and self.answer.proven else None

    @property
    def upper(self) -> float | None:
        """The witnessed upper bound of the answer, if there is one."""
        if self.kind is AnswerKind.EXACT:
            return self.answer.upper  # type: ignore[no-any-return]
        return self.answer.distance if self.kind is AnswerKind.UPPER else None

    @property
    def figure(self) -> float | None:
        """The number of this answer in tables: an estimate, a distance or a proven radius."""
        if self.kind is AnswerKind.ESTIMATE:
            return self.answer.value  # type: ignore[no-any-return]
        return self.upper if self.kind is AnswerKind.UPPER else self.lower

    @property
    def reason(self) -> str | None:
        return self.answer.reason  # type: ignore[no-any-return]

    @property
    def failed(self) -> bool:
        return self.answer.failed  # type: ignore[no-any-return]

    def to_json(self) -> dict[str, Any]:
        return {**self.answer.to_json(), "kind": self.kind.value}


def _certified(
    method: MethodName, network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting
) -> Iterator[Answer]:
    return certify_each(
        network, images, labels, method=method, **setting.question(), **setting.resources(), memory=setting.memory,
        time_limit=setting.budget if _has_programs(method) else None,
        budget=SOFT * setting.budget if method == BEST else None,
    )  # fmt: skip


def _has_programs(method: str) -> bool:
    return method != BEST and isinstance(find_method(method), ProgramMethod)


def _exact(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
    return exact_each(
        network, images, labels, **setting.question(), **setting.resources(), time_limit=SOFT * setting.budget,
    )  # fmt: skip


def _clever(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
    question = setting.question()
    if question.pop("inference") != "real":
        raise InputError(f"clever estimates the function in real arithmetic, not its evaluation in {setting.inference}")
    return estimate_each(
        network, images, labels, **question, **setting.resources(), batches=setting.batches, samples=setting.samples,
    )  # fmt: skip


def _attack(network: NetworkLike, images: Tensor, labels: Tensor | None, setting: Setting) -> Iterator[Answer]:
    return attack_each(
        network, images, labels, **setting.question(), **setting.resources(), memory=setting.memory,
        steps=setting.steps, time_limit=SOFT * setting.budget * len(images),
    )  # fmt: skip


CONTENDERS = {
    contender.name: contender
    for contender in (
        *(
            Contender(name, AnswerKind.CERTIFIED, partial(_certified, name), timed=_has_programs(name))
            for name in METHODS
        ),
        Contender(BEST, AnswerKind.CERTIFIED, partial(_certified, BEST), timed=True, patient=True, composed=True),
        Contender("exact", AnswerKind.EXACT, _exact, timed=True, patient=True),
        Contender("clever", AnswerKind.ESTIMATE, _clever),
        Contender("attack", AnswerKind.UPPER, _attack, timed=True, patient=True),
    )
}


def find_contenders(names: Sequence[str] | None) -> list[Contender]:
    """The methods of these names, in the table's order; None: all but the composed ones."""
    if names is None:
        return [contender for contender in CONTENDERS.values() if not contender.composed]
    if not isinstance(names, (list, tuple)) or not names:
        raise InputError(f"methods are a list of names out of {', '.join(CONTENDERS)}, not {shown(names)}")
    listed = [CONTENDER_NAMES.find(name) for name in names]
    return [contender for contender in CONTENDERS.values() if contender.name in listed]
