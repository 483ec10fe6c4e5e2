"""The arguments that all calls about images share, checked in one place, and the calls that answer one by one."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import ParamSpec

from relucert.arithmetic.box import check_inside
from relucert.arithmetic.norm import NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.branch_and_bound.stages import search_bytes
from relucert.common.names import InferenceName
from relucert.common.progress import ProgressLike
from relucert.common.words import listed
from relucert.errors import InputError
from relucert.execution.execution import Execution, check_proof_place
from relucert.execution.identity import identity
from relucert.execution.job import Answerer, AnswerType, ImageJob, Item, Proofs
from relucert.execution.run import start
from relucert.inputs.loading.runtime import Origin, Source
from relucert.inputs.storage import files
from relucert.inputs.storage.store import StoreLike
from relucert.methods.table import check_rectifiers
from relucert.network import Network, find_inference
from relucert.network.batching import fitting_workers
from relucert.proofs.files import claimed, is_about
from relucert.query.questions import Inquiry, check_stated, pose, prepare
from relucert.query.types import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike

P = ParamSpec("P")
Each = TypeVar("Each")


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of every call about images; `certify` explains them."""

    network: NetworkLike
    images: ImagesLike
    labels: LabelsLike | None
    norm: NormLike
    target: TargetLike
    box: BoxLike | None
    scale: ScaleLike | None
    seed: int
    input_shape: tuple[int, ...] | None
    workers: int | Execution | None
    ray: str | None
    store: StoreLike | None
    progress: ProgressLike
    property: Property | None = None
    inference: InferenceName = "real"

    def pose(self, needs_rectifiers: str | None = None) -> Posed:
        """Loads the network, reads the images and plans the questions; raises InputError where anything is wrong.

        Args:
            needs_rectifiers: The name of an answer that only networks of affine operations and ReLUs can have.
        """
        evaluation = find_inference(self.inference)
        check_stated(self.property, self.labels, self.target)
        prepared = prepare(self.network, self.images, self.labels, self.input_shape)
        network = prepared.network.evaluated_in(evaluation)
        shape = RegionShape.parse(self.norm, self.box, self.scale, network.input_shape)
        if needs_rectifiers is not None:
            check_rectifiers(network, needs_rectifiers)
        inquiry = pose(network, prepared.images, prepared.labels, self.target, self.seed, self.property)
        check_inside(inquiry.images, shape.box)
        return Posed(self, network, prepared.source, shape, inquiry)


@dataclass(frozen=True, eq=False)
class Posed:
    """Checked questions about images, with the network as it is evaluated, its source, and the shape of the regions."""

    arguments: Arguments
    network: Network
    source: Source
    shape: RegionShape
    inquiry: Inquiry

    @property
    def origin(self) -> Origin:
        """The origin of the network's runtime, which re-checks witnesses."""
        return Origin.of(self.source, self.network)

    def check_proof(self, path: Path | None, overwrite: bool) -> None:
        """Raises InputError where a proof can't be written: there are several questions, or the file holds another."""
        if path is None:
            return
        check_proof_place(self.arguments.workers, self.arguments.ray)
        if len(self.inquiry.questions) != 1:
            raise InputError(f"a proof is about one question, and these are {len(self.inquiry.questions)}")
        files.check_writable(path)
        questions = self.inquiry.questions
        claim = claimed(self.inquiry.problem(self.network, self.shape, questions), questions[0].image)
        inference = self.network.inference.name
        files.check_replaceable(path, lambda content: is_about(content, claim, inference), overwrite)

    def most_workers(self, fitting: int) -> int:
        """How many processes may work: one where a module re-checks witnesses, else as many as fit the memory."""
        return self.origin.most_workers(self.arguments.workers, self.arguments.ray) or fitting

    def most_searches(self) -> int:
        """How many processes may search by branch and bound at once."""
        return self.most_workers(fitting_workers(search_bytes(self.network)))

    def start(
        self, command: str, answerer: Answerer[AnswerType], items: Sequence[Item], options: object,
        most_workers: int | None = None, proofs: Proofs | None = None, again: bool = False,
        further: Mapping[str, Any] | None = None, divisible: bool = False,
    ) -> Iterator[AnswerType]:  # fmt: skip
        """Answers the questions, item by item, in their order.

        Args:
            command: What the run is identified by, together with `options` and `further` (see `identity`).
            most_workers, proofs, divisible: As of an `ImageJob`.
            again: Whether questions that the store has answers to are answered once more.
        """
        arguments = self.arguments
        specification = arguments.target if arguments.property is None else arguments.property
        mark = identity(command, self.network, self.shape, specification, options) | dict(further or {})
        job = ImageJob(answerer, self.inquiry, items, mark, most_workers, divisible, proofs)
        return start(job, arguments.workers, arguments.ray, arguments.store, arguments.progress, again=again)


def one_by_one(
    call: Callable[P, list[Each]],
) -> Callable[[Callable[..., Iterator[Each]]], Callable[P, Iterator[Each]]]:
    """Gives a function the parameters of a call that returns all answers at once.

    The function gets the parameters that all calls share as `Arguments`, and its options by their names.
    """
    signature = inspect.signature(call)
    common = {field.name for field in fields(Arguments)}

    def decorate(answer: Callable[..., Iterator[Each]]) -> Callable[P, Iterator[Each]]:
        @wraps(answer)
        def each(*args: P.args, **kwargs: P.kwargs) -> Iterator[Each]:
            bound_arguments = signature.bind(*args, **kwargs)
            bound_arguments.apply_defaults()
            shared = {name: value for name, value in bound_arguments.arguments.items() if name in common}
            options = {name: value for name, value in bound_arguments.arguments.items() if name not in common}
            return answer(Arguments(**shared), **options)

        returned = answer.__annotations__["return"]
        each.__annotations__ = {**call.__annotations__, "return": returned}
        each.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        words = f"Its parameters are those of `{call.__name__}`: {listed(list(signature.parameters))}."
        each.__doc__ = f"{inspect.getdoc(answer)}\n\n{textwrap.fill(words, 110)}"
        return each

    return decorate
