"""The pass over a foreign graph that translates supported operators and collects everything that is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from relucert.common.deadline import check_time
from relucert.errors import LoadError, UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand
from relucert.network import Network

SUPPORTED = "docs/networks.md lists what is supported"
OMITTED = "is left out: it keeps the order of the class scores, which answers are about"


def keeps_only_order(network: Network) -> bool:
    """Whether an import left a last layer out: the scores then have the order of the original's outputs, no more."""
    return any(remark.endswith(OMITTED) for remark in network.remarks)


@dataclass(frozen=True)
class OperatorCall:
    """A node of a foreign graph: `result = operator(sources)`.

    location: the layer or node that it belongs to, for error messages.
    translate: makes the operand; None for an unknown operator.
    fold: makes the constant where all sources are constants; None for one that no constant stands for.
    flaws: the attributes that are refused, whatever the sources are.
    keeps_order: it only rescales the class scores and keeps their order, so as the last layer it is left out.
    exact: `fold` only creates, selects or rearranges numbers, and never rounds.
    cast: `fold` only changes the type of the first source.
    """

    operator: str
    location: str
    sources: tuple[str, ...]
    result: str
    translate: Callable[[], Operand] | None = None
    fold: Callable[[], Tensor] | None = None
    flaws: tuple[str, ...] = ()
    keeps_order: bool = False
    exact: bool = False
    cast: bool = False


@dataclass(frozen=True)
class OmittedRanking:
    """A foreign value that has the order of the class scores, but not their values.

    scores: the foreign name of the scores; layers: what was left out after them, each as operator and location.
    """

    scores: str
    layers: tuple[tuple[str, str], ...]


class Translator:
    """The operands translated so far, by their foreign names; a result that depends on something refused has none."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.operands: dict[str, Operand] = {}
        self._rankings: dict[str, OmittedRanking] = {}
        self._operators: dict[str, list[str]] = {}
        self._uses: dict[str, list[str]] = {}
        self.folded: dict[str, None] = {}  # operators that computed constants from constants, and may have rounded
        self._rounded: set[str] = set()  # these constants, and what was made of them
        self._uses_rounded = False

    def take(self, step: OperatorCall) -> None:
        check_time()
        constant = all(isinstance(self.operands.get(source), Tensor) for source in step.sources)
        if constant and step.fold is not None:
            self._keep(step, step.fold)
            self._follow(step)
        elif step.translate is None:
            self._operators.setdefault(step.operator, []).append(step.location)
        elif constant:
            self._refuse(step, "of constants alone")
        elif step.flaws:
            for flaw in step.flaws:
                self._refuse(step, flaw)
        elif all(source in self.operands for source in step.sources):
            self._keep(step, step.translate)
            self._rank(step)
            self._uses_rounded |= not self._rounded.isdisjoint(step.sources)

    def _follow(self, step: OperatorCall) -> None:
        """Follows constants that were rounded; whole numbers made of them, such as sizes, are no weights."""
        folded = self.operands.get(step.result)
        if not isinstance(folded, Tensor) or not folded.is_floating_point():
            return
        exact = step.exact or (step.cast and _unchanged(self.operands[step.sources[0]], folded))
        if not exact:
            self.folded.setdefault(step.operator, None)
        if not exact or not self._rounded.isdisjoint(step.sources):
            self._rounded.add(step.result)

    def _keep(self, step: OperatorCall, make: Callable[[], Operand]) -> None:
        try:
            self.operands[step.result] = make()
        except UnsupportedError as error:
            self._refuse(step, str(error))

    def _refuse(self, step: OperatorCall, reason: str) -> None:
        self._uses.setdefault(f"{step.operator} ({reason})", []).append(step.location)

    def _rank(self, step: OperatorCall) -> None:
        """Follows a layer that keeps the order of the scores; whatever computes with its result is refused."""
        before = next((self._rankings[source] for source in step.sources if source in self._rankings), None)
        operand = self.operands.get(step.result)
        if not isinstance(operand, int):  # refused, or a constant such as the shape of the result
            return
        if step.keeps_order and operand == self.operands[step.sources[0]]:
            ranking = before or OmittedRanking(step.sources[0], ())
            self._rankings[step.result] = replace(ranking, layers=(*ranking.layers, (step.operator, step.location)))
        elif before is not None and operand == self.operands[before.scores]:
            self._rankings[step.result] = before
        elif before is not None:
            operator, location = before.layers[-1]
            self._refuse(
                replace(step, operator=operator, location=location), "in the middle; only the last one is left out"
            )

    def ranking(self, output: str) -> OmittedRanking | None:
        """The last layers that were left out; None where there are none."""
        return self._rankings.get(output)

    def finish(self, output: str, name: str) -> Network:
        """The finished network; if anything was refused, one error that names all of it."""
        refusals = [
            f"unsupported {group}: {', '.join(f'{entry} at {_locations(refused[entry])}' for entry in sorted(refused))}"
            for group, refused in (("operators", self._operators), ("uses", self._uses))
            if refused
        ]
        if refusals:
            refusals += hints([*self._operators, *self._uses])
            raise UnsupportedError(f"{name}: {'; '.join(refusals)}; {SUPPORTED}")
        operand = self.operands.get(output)
        if not isinstance(operand, int):
            raise LoadError(f"{name}: the output does not depend on the input")
        return self.assembly.finish(operand, name, self._remarks(output), self._real_only())

    def _remarks(self, output: str) -> tuple[str, ...]:
        remarks = []
        if ranking := self.ranking(output):
            layers = " and ".join(operator for operator, _ in ranking.layers)
            remarks.append(f"the final {layers} {OMITTED}")
        if self.folded:
            remarks.append(f"weights that {', '.join(self.folded)} computes from others are taken as computed, rounded")
        if self.assembly.casts:
            remarks.append("changes of precision inside are ignored, since answers are about real arithmetic")
        return tuple(remarks)

    def _real_only(self) -> tuple[str, ...]:
        """The reasons why answers can't be about evaluations in floating point."""
        reasons = [*self.assembly.real_only]
        if self.assembly.casts:
            reasons.append("the network casts to another precision on its way")
        if self._uses_rounded:
            operators = ", ".join(self.folded)
            reasons.append(f"weights that {operators} computes from others are rounded by each runtime in its own way")
        return tuple(reasons)


def _unchanged(before: Operand, after: Tensor) -> bool:
    """Whether a change of type kept all numbers, exactly."""
    assert isinstance(before, Tensor)
    exact = before.is_floating_point() or not bool((before.double().abs() > 2.0**53).any())
    return exact and torch.equal(before.double(), after.double())


def _locations(locations: list[str]) -> str:
    return " and ".join(dict.fromkeys(locations))


_RANDOM = "random: pass training=self.training, and call eval() before an export"
_JUMPS = "jumps, and no bounds follow jumps: write it with relu, clamp, minimum and maximum if it has none"
_CHOOSES = "not a score of each class: return the scores themselves"
_SOLID = "of three axes; images have one or two"
_PRODUCTS = "products of what is computed: write that with matmul"
_BRANCHES = "control flow: export the model without it, for inputs of one shape"

HINTS: dict[str, str] = {
    **dict.fromkeys(("dropout", "nativedropout", "bernoulli", "rand", "randn", "randlike", "randnlike"), _RANDOM),
    **dict.fromkeys(("hardshrink", "le", "lt", "ge", "gt", "eq", "ne", "equal", "less", "greater"), _JUMPS),
    **dict.fromkeys(("lessorequal", "greaterorequal", "sign", "floor", "ceil", "round", "trunc"), _JUMPS),
    **dict.fromkeys(("topk", "sort", "argsort", "argmin"), _CHOOSES),
    **dict.fromkeys(("conv3d", "convtranspose3d", "maxpool3d", "maxpool3dwithindices", "avgpool3d"), _SOLID),
    **dict.fromkeys(("adaptiveavgpool3d", "adaptivemaxpool3d"), _SOLID),
    **dict.fromkeys(("baddbmm", "attention"), _PRODUCTS),
    **dict.fromkeys(("if", "loop", "scan"), _BRANCHES),
    "to": "convert the whole model to one precision and leave the cast out",
    "cast": "convert the whole model to one precision and leave the cast out",
}
"""By the operator's name in lower case, without underscores; both importers look here."""


def hints(refused: Iterable[str]) -> list[str]:
    """One hint for each group of refused operators that has one; an entry may go on after the operator's name."""
    names: dict[str, list[str]] = {}
    for entry in refused:
        name = entry.split(" ")[0]
        key = name.lower().replace("_", "")
        hint = HINTS.get(key, HINTS.get(key.split(".")[0]))
        if hint is not None and name not in names.setdefault(hint, []):
            names[hint].append(name)
    return [f"{', '.join(group)}: {hint}" for hint, group in names.items()]
