"""One pass over a foreign graph that translates what is supported and collects everything that is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from relucert.errors import LoadError, UnsupportedError
from relucert.loading.assembly import Assembly, Operand
from relucert.network import Network


@dataclass(frozen=True)
class Step:
    """One foreign node: `result = operator(sources)`.

    translate: makes the operand; None for an unknown operator.
    move: makes the constant where all sources are constants; None for an operator that might round there.
    flaws: the attributes that are refused, whatever the sources are.
    """

    operator: str
    sources: tuple[str, ...]
    result: str
    translate: Callable[[], Operand] | None = None
    move: Callable[[], Tensor] | None = None
    flaws: tuple[str, ...] = ()


class Walk:
    """The operands translated so far, by their foreign names; a result that depends on something refused has none."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.operands: dict[str, Operand] = {}
        self._operators: set[str] = set()
        self._uses: set[str] = set()

    def take(self, step: Step) -> None:
        constant = all(isinstance(self.operands.get(source), Tensor) for source in step.sources)
        if constant and step.move is not None:
            self._keep(step, step.move)
        elif step.translate is None:
            self._operators.add(step.operator)
        elif constant:
            self._uses.add(f"{step.operator} (of constants alone; store its result instead)")
        elif step.flaws:
            self._uses.update(f"{step.operator} ({flaw})" for flaw in step.flaws)
        elif all(source in self.operands for source in step.sources):
            self._keep(step, step.translate)

    def _keep(self, step: Step, make: Callable[[], Operand]) -> None:
        try:
            self.operands[step.result] = make()
        except UnsupportedError as error:
            self._uses.add(f"{step.operator} ({error})")

    def finish(self, output: str, name: str) -> Network:
        """The finished network; if anything was refused, one error that names all of it."""
        parts = []
        if self._operators:
            parts.append(f"unsupported operators: {', '.join(sorted(self._operators))}")
        if self._uses:
            parts.append(f"unsupported uses: {', '.join(sorted(self._uses))}")
        if parts:
            raise UnsupportedError(f"{name}: {'; '.join(parts)}")
        operand = self.operands.get(output)
        if not isinstance(operand, int):
            raise LoadError(f"{name}: the output does not depend on the input")
        return self.assembly.finish(operand, name)
