"""`relucert.verify`: does a property hold? Proven, a violation that anyone can replay, or unknown and why."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.answers.verdicts import HOLDS, LATE, UNKNOWN, VIOLATED, Verdict
from relucert.arithmetic.rigor import check_subnormals
from relucert.bounding.hidden import TimedBounds
from relucert.branch_and_bound.box_queue import BoxQueue
from relucert.branch_and_bound.prove import Outcome, prove
from relucert.common.checks import check_seed, check_time_limit, checked_path, shown
from relucert.common.deadline import TimeUp, check_time, until, within
from relucert.common.listening import listening
from relucert.common.names import InferenceName
from relucert.common.progress import Progress, ProgressLike, Report
from relucert.errors import FAULTS, InputError, in_one_line
from relucert.execution.execution import Execution
from relucert.execution.team import offering
from relucert.inputs.loading.runtime import Runtime, own_precision
from relucert.inputs.storage import files
from relucert.network import Network, find_inference
from relucert.network.split_neurons import fold_split_neurons
from relucert.network.twins import side_by_side
from relucert.proofs import query_proof as proofs
from relucert.proofs.files import BY_LINES, UNDECIDED_BY_LINES, EvidenceKeeper, check_provable, is_about
from relucert.query.problem import Problem
from relucert.verification.attack import BoxAttack
from relucert.verification.equal_inputs import MergedInputs, merge_equal_inputs
from relucert.verification.many_boxes import ListedViolations, excluded, listed, mostly_fixed
from relucert.verification.problem import BoxViolations, boxes_of
from relucert.verification.rational_bounds import impossible
from relucert.verification.search import ATTACK_SHARE, bounded
from relucert.verification.sources import Sources, is_joint, open_sources, read_query
from relucert.verification.specification.query import CONTRADICTORY, EMPTY, Query
from relucert.verification.specification.violations import Violation
from relucert.verification.witness_check import StatedBox, Witness, WitnessCheck

ATTACK, PROVER, REGION, CONDITIONS = "attack", "branch and bound", "bounds of the region", "conditions"
RATIONAL = "rational arithmetic"
QUEUE_SHARE = 0.9  # share of the remaining time for cuts of a long list of boxes
SHORT_QUEUE_SHARE = 0.5  # the same of a short one, before its boxes are searched one by one
MOST_HIDDEN = 16  # open questions whose hidden bounds are kept for the search
TOUCHING_SHARE = 0.1  # share of the remaining time for rational arithmetic, before branch and bound
UNREAD = f"{LATE} before network and property were read"
DIFFERING = "in real arithmetic there is a violation, which {by} does not show"


def verify(
    network: Sources,
    query: Query | str | os.PathLike[str],
    *,
    time_limit: float | None = 60.0,
    inference: InferenceName = "real",
    seed: int = 0,
    proof: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    input_shape: tuple[int, ...] | None = None,
    workers: int | Execution | None = None,
    ray: str | None = None,
    progress: ProgressLike = None,
) -> Verdict:
    """Whether a property holds for a network: proven, violated by a witness, or unknown.

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name. What an .onnx file
            computes is also replayed by onnxruntime. For a query about several networks: a dictionary of .onnx files,
            by the names that it declares.
        query: A `Query`, or the path of a .vnnlib or .vnnlib.gz file.
        time_limit: Seconds for everything, loading included; None: as long as it takes.
        inference: What the network is evaluated in: "real" arithmetic, or "float32", "float16" or "bfloat16", which
            round every operation. "holds" is then about every such evaluation at the inputs of that precision, and a
            violation is one that the network's own runtime shows in that precision.
        seed: Of the attack's random starts.
        proof: A file for the proof that it holds, which `relucert check` verifies.
        overwrite: Whether that file may be replaced where it holds anything but a proof of the same property.
        input_shape: Of one input, where the network leaves it open.
        workers: How many processes share a search that takes longer than a few seconds; 1: this one alone. None: one
            per core. An `Execution` may be given, too.
        ray: The address of a Ray cluster whose workers share it, or "auto".
        progress: As for `certify`.
    """
    with ExitStack() as stack:
        execution = workers if isinstance(workers, Execution) else stack.enter_context(Execution(workers, ray))
        stack.enter_context(offering(execution, execution.room))
        return verify_alone(
            network, query, time_limit=time_limit, inference=inference, seed=seed, proof=proof, overwrite=overwrite,
            input_shape=input_shape, progress=progress,
        )  # fmt: skip


def verify_alone(
    network: Sources, query: Query | str | os.PathLike[str], *, time_limit: float | None, inference: InferenceName,
    seed: int, proof: str | os.PathLike[str] | None = None, overwrite: bool = False,
    input_shape: tuple[int, ...] | None = None, progress: ProgressLike = None,
) -> Verdict:  # fmt: skip
    """Verifies as `verify` does, in this process, and with the workers that are offered to it, if there are any."""
    started = time.monotonic()
    check_time_limit(time_limit)
    check_seed(seed)
    evaluation = find_inference(inference)
    if evaluation.rounds and proof is not None:
        raise InputError(f"proofs are about real arithmetic, not about {inference}; leave out one of the two")
    ends = started + (math.inf if time_limit is None else time_limit)
    try:
        with until(ends):
            network, specification = _opened(network, query, input_shape)
            if proof is not None and is_joint(specification):
                raise InputError(
                    "a proof is about one network with one input and one output, and this property about more"
                )
            loaded, replay = open_sources(network, specification, input_shape, evaluation)
    except TimeUp:
        return late_in_reading(time.monotonic() - started, inference)
    if proof is not None:
        check_provable(BY_LINES[0], loaded)
    check_subnormals()
    claim = None
    if proof is not None:
        path, claim = checked_path(proof, "a proof"), proofs.claimed(loaded, specification)
        files.check_writable(path)
        files.check_replaceable(path, lambda content: is_about(content, claim), overwrite)
    with listening(progress) as receiver:
        verification = _Verification(
            loaded, specification, replay, started, ends, seed, receiver.tell, claim is not None
        )
        verdict = verification.run()
    if claim is not None and verdict.holds:
        proofs.write(path, claim, verification.proven)
    return verdict


def late_in_reading(seconds: float, inference: InferenceName) -> Verdict:
    """The verdict where time ended before network and property were read."""
    return Verdict(UNKNOWN, None, None, UNREAD, seconds, 0, None, inference=find_inference(inference).name)


def _opened(
    network: Sources, query: Query | str | os.PathLike[str], input_shape: tuple[int, ...] | None
) -> tuple[Sources, Query]:  # fmt: skip
    """The query, and the network, loaded already where the query is read from a file."""
    if isinstance(query, Query):
        return network, query
    if isinstance(query, (str, os.PathLike)):
        return read_query(network, query, input_shape)
    raise InputError(f"a query is a relucert.Query or the path of a .vnnlib file, not {shown(query)}")


class _Open(NamedTuple):
    """Violations in one box that cheap bounds do not exclude, the box that their witnesses are checked against, and
    bounds of pre-activations in it, where they are known."""

    group: BoxViolations
    stated: StatedBox
    hidden: TimedBounds | None


@dataclass(eq=False)
class _Verification:
    """The verification of a query: cheap bounds, attacks, then branch and bound, until one of them settles it."""

    network: Network
    query: Query
    replay: Runtime
    started: float
    ends: float
    seed: int
    progress: Report
    record: bool

    def __post_init__(self) -> None:
        self.proven: list[tuple[BoxViolations, Outcome]] = []  # where a record is kept
        self.input_shape = self.network.input_shape
        self.merged: MergedInputs | None = None
        self.bounded = self.network
        self.witness_check = WitnessCheck(self.network, self.replay)
        self.witness: Witness | None = None
        self.nodes = 0
        self.stage: str | None = None
        self.method: str | None = REGION

    def run(self) -> Verdict:
        self._report(0, Progress())
        try:
            with until(self.ends):
                verdict = self._without_inputs()
                if verdict is None and not self.record:  # proofs need the original
                    self._reduce()
                    verdict = self._without_inputs()
                if verdict is not None:
                    return verdict
                self.plain = self.network.cast(own_precision(self.network))
                reason = self._decide()
        except InputError:
            raise
        except TimeUp:
            reason = LATE
        except FAULTS as error:
            return self._verdict(UNKNOWN, f"the search broke down: {in_one_line(error)}", failed=True)
        if self.witness is not None:
            return self._verdict(VIOLATED, self._said(self.witness))
        return self._verdict(HOLDS, None) if reason is None else self._verdict(UNKNOWN, self._unsure(reason))

    def _without_inputs(self) -> Verdict | None:
        """The verdict where no input meets the conditions of any violation."""
        if not self.query.violations:
            return self._verdict(HOLDS, EMPTY)
        if not self.query.possible:
            self.method = CONDITIONS
            return self._verdict(HOLDS, CONTRADICTORY)
        return None

    def _reduce(self) -> None:
        """Asks the same of fewer inputs and of fewer neurons, where some are equal or multiples of others."""
        self.merged = merge_equal_inputs(self.network, self.query, self.replay)
        self.network, self.query, self.replay = self.merged.network, self.merged.query, self.merged.replay
        self.witness_check = WitnessCheck(self.network, self.replay)
        self.bounded = side_by_side(fold_split_neurons(self.network))

    def _decide(self) -> str | None:
        """Returns why the query stays unknown; None where a witness or a proof decides it."""
        waiting = self._bound()
        if not waiting or self._attack(waiting):
            return None
        if not self.record:  # no proof file holds these steps
            waiting = self._uncut(self._untouched(waiting))
        return self._prove(waiting) if waiting else None

    def _bound(self) -> list[_Open]:
        waiting, ends = list[_Open](), within(self.ends, 1 - ATTACK_SHARE)
        possible = self.query.possible
        if not self.record:
            closed = self._screen(possible, ends)
            self.method = next(reversed(closed.values()), self.method)
            possible = tuple(violation for number, violation in enumerate(possible) if number not in closed)
        if self.witness is not None:
            return []
        for group in boxes_of(self.bounded, possible):
            check_time()
            rows, hidden = list(range(len(group.violations))), None
            if not self.record:
                group = group._replace(problem=group.problem.balanced())
                rows, method, hidden = bounded(group.problem, ends, partial(self._report, 0))
                self.method = method if method is not None else self.method
            if rows:
                waiting.append(self._open(group.only(rows), hidden if len(waiting) < MOST_HIDDEN else None))
        return waiting

    def _screen(self, possible: Sequence[Violation], ends: float) -> dict[int, str]:
        """The violations of a long list that batches exclude, by number, each with the method that did: cuts where few
        inputs move, cheap bounds of the other boxes. A violation that cuts come upon ends it."""
        violations = listed(possible, self.bounded.classes)
        if violations is None:
            return {}
        queue = self._cut(possible, violations, QUEUE_SHARE)
        if self.witness is not None:
            return {}
        closed = {violations.numbers[place]: PROVER for place in queue.proven}
        unsuited = [place for place in range(len(violations)) if place not in queue.suited]
        return closed | excluded(self.bounded, violations.pick(unsuited), ends, partial(self._report, 0))

    def _cut(self, possible: Sequence[Violation], violations: ListedViolations, share: float) -> BoxQueue:
        """Cuts the boxes of listed violations in one queue, for a share of the time left."""

        def violates(place: int, point: Tensor) -> bool:
            with torch.inference_mode(False):  # descents need gradients
                stated = StatedBox((possible[violations.numbers[place]],), self.replay.precision)
                attack = BoxAttack(self.plain, stated, self.ends, self.seed)
                return any(self._try(points, stated) for points in attack.near(point.clone()))

        report = partial(self._report, self.nodes)
        queue = BoxQueue(self.bounded.cast(torch.float64), violations.boxes, violations.prop, violates, report)
        with suppress(TimeUp), until(within(self.ends, share)), torch.inference_mode():
            queue.run()
        self.nodes += queue.nodes
        self.method = PROVER if self.witness is not None else self.method
        return queue

    def _uncut(self, waiting: list[_Open]) -> list[_Open]:
        """The open violations without those that cuts of few boxes exclude in which most inputs are fixed: what moves
        is a far smaller network, in which products with fixed numbers are factors. Long lists were cut before."""
        possible = [violation for question in waiting for violation in question.group.violations]
        violations = mostly_fixed(possible, self.bounded.classes)
        if violations is None:
            return waiting
        queue = self._cut(possible, violations, SHORT_QUEUE_SHARE)
        if self.witness is not None:
            return []
        closed = {id(possible[violations.numbers[place]]) for place in queue.proven}
        self.method = PROVER
        return self._without(waiting, lambda violation: id(violation) in closed)

    def _without(self, waiting: list[_Open], closed: Callable[[Violation], bool]) -> list[_Open]:
        """The open violations without those that are closed."""
        remaining = []
        for question in waiting:
            violations = question.group.violations
            rows = [row for row, violation in enumerate(violations) if not closed(violation)]
            if len(rows) == len(violations):
                remaining.append(question)
            elif rows:
                remaining.append(self._open(question.group.only(rows), question.hidden))
        return remaining

    def _open(self, group: BoxViolations, hidden: TimedBounds | None) -> _Open:
        return _Open(group, StatedBox(group.violations, self.replay.precision), hidden)

    def _attack(self, waiting: list[_Open]) -> bool:
        ends = min(self.ends, time.monotonic() + ATTACK_SHARE * (self.ends - self.started))
        for number, question in enumerate(waiting):
            share_ends = within(ends, 1 / (len(waiting) - number))
            attack = BoxAttack(self.plain, question.stated, share_ends, self.seed)
            self._report(0, Progress(stage=ATTACK, part=f"{number + 1} of {len(waiting)}"))
            for points in attack.candidates():
                if self._try(points, question.stated):
                    self.method = ATTACK
                    return True
        return False

    def _untouched(self, waiting: list[_Open]) -> list[_Open]:
        """The open violations without those that rational arithmetic excludes, since they are only touched."""
        ends = within(self.ends, TOUCHING_SHARE)
        remaining = self._without(waiting, lambda violation: impossible(self.network, violation, ends))
        self.method = self.method if remaining else RATIONAL
        return remaining

    def _try(self, points: Tensor, stated: StatedBox) -> bool:
        self.witness = self.witness or self.witness_check.examine(points, stated)
        return self.witness is not None

    def _prove(self, waiting: list[_Open]) -> str | None:
        self.method = PROVER
        reason: str | None = None
        for number, question in enumerate(waiting):
            share_ends = within(self.ends, 1 / (len(waiting) - number))
            attack = BoxAttack(self.plain, question.stated, share_ends, self.seed)

            def violates(point: Tensor, attack: BoxAttack = attack, question: _Open = question) -> bool:
                return any(self._try(points, question.stated) for points in attack.near(point))

            problem, report = question.group.problem, partial(self._report, self.nodes)
            if self.record and not self.network.rectifiers_only:
                outcome = prove_by_lines(problem, share_ends)
            else:
                outcome = prove(
                    problem, share_ends, violates, hidden=question.hidden, record=self.record, record_cuts=True,
                    report=report,
                )  # fmt: skip
            self.nodes, self.stage = self.nodes + outcome.nodes, outcome.stage
            if self.record:
                self.proven.append((question.group, outcome))
            if self.witness is not None:
                return None
            reason = reason if outcome.proven else outcome.failure or reason or "the search ended without an answer"
        return reason

    def _report(self, before: int, state: Progress) -> None:
        nodes = None if state.nodes is None else before + state.nodes
        self.progress(replace(state, nodes=nodes, done=0, total=1))

    def _said(self, witness: Witness) -> str:
        if witness.arithmetic is None:
            return f"shown by {self.replay.by}"
        text = f"proven in {witness.arithmetic} arithmetic, and shown by {self.replay.by}"
        if self.witness_check.differing:
            text += f"; {self.witness_check.differing} other points violate it in real arithmetic only"
        return text

    def _unsure(self, reason: str) -> str:
        return f"{reason}; {DIFFERING.format(by=self.replay.by)}" if self.witness_check.differing else reason

    def _verdict(self, status: str, reason: str | None, failed: bool = False) -> Verdict:
        point = outputs = coordinates = None
        if status == VIOLATED and self.witness is not None:
            coordinates, outputs = self.witness.point, self.witness.outputs
            coordinates = coordinates if self.merged is None else self.merged.original(coordinates)
            point = torch.tensor([float(number) for number in coordinates], dtype=torch.float64)
            point = point.reshape(self.input_shape)
        method = None if status == UNKNOWN else self.method
        seconds = time.monotonic() - self.started
        return Verdict(
            status, point, outputs, reason, seconds, self.nodes, method, coordinates, self.query.remarks, failed,
            self.network.inference.name, self.stage,
        )  # fmt: skip


def prove_by_lines(problem: Problem, ends: float) -> Outcome:
    """The outcome of a proof by linear bounds alone, which proof files can hold for any activation; its stage is the
    method whose bounds they are."""
    evidence = EvidenceKeeper(problem.network).record_by_lines(problem, ends)
    if evidence is None:
        return Outcome(False, UNDECIDED_BY_LINES, 0, PROVER)
    return Outcome(True, None, 0, evidence[0], record=evidence[1])
