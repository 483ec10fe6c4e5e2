"""`relucert.attack`: the nearest adversarial examples that attacks find, each with its witness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from relucert.answers.certificates import UpperBound
from relucert.api.arguments import Arguments, one_by_one
from relucert.arithmetic.norm import Norm, NormLike
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import RegionShape
from relucert.attacks.attacker import Attacker, AttackOptions
from relucert.attacks.minimum_norm import STARTS
from relucert.attacks.witness import check_staying
from relucert.common import names
from relucert.common.checks import parse_memory
from relucert.common.names import AttackName, InferenceName
from relucert.common.progress import ProgressLike
from relucert.execution.execution import Execution
from relucert.execution.job import in_steps
from relucert.inputs.storage.store import StoreLike
from relucert.network.batching import attack_bytes, attack_size
from relucert.query.types import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike
from relucert.report.answer_list import Answers


def attack(
    network: NetworkLike,
    images: ImagesLike,
    labels: LabelsLike | None = None,
    *,
    norm: NormLike = "inf",
    method: AttackName = "best",
    target: TargetLike = "untargeted",
    property: Property | None = None,
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    polish: bool = True,
    steps: int = 200,
    time_limit: float | None = None,
    memory: int | str = 2**30,
    inference: InferenceName = "real",
    seed: int = 0,
    input_shape: tuple[int, ...] | None = None,
    workers: int | Execution | None = None,
    ray: str | None = None,
    store: StoreLike | None = None,
    progress: ProgressLike = None,
) -> Answers[UpperBound]:
    """The nearest adversarial example found for every image, in order (with target "all": an image's rivals in turn).

    Success against a target is that its score is no less than the label's, the exact opposite of what a certificate
    claims.

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name.
        images: An array or a tensor, one row per image, in the network's own input range, or a data set: relucert's, or
            a torch Dataset or DataLoader of image and label. A row has the input's shape, or is flat, or differs by
            axes of length one.
        labels: One class per image; by default those of the data set, else the network's predictions.
        norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1.
        method: "best" (several of the others, from several starts), "fmn" or "pgd" (any norm), "cw" (p = 2 or inf),
            "ead" (p = 1) or "ddn" (p = 2).
        target: As for `certify`.
        property: As for `certify`, in place of labels and targets.
        box: The valid inputs, as for `certify`.
        scale: How far each coordinate may move per unit of radius, as for `certify`.
        polish: Whether to shorten what was found by a search over linear regions.
        steps: Gradient steps of each attack.
        time_limit: Seconds for the whole call, shared evenly among the images; what was found by then is returned.
        memory: How many bytes all attacks that are worked on at a time may take, by all workers together; or "2G".
        inference: What the network is evaluated in, as for `certify`: an example is then one that the network's own
            runtime shows in that precision.
        seed: Of random targets and random starts; the same seed gives the same answers.
        input_shape: Of one image, where neither the network nor the images tell it.
        workers: As for `certify`.
        ray: As for `certify`.
        store: A file that keeps the answers, as for `certify`.
        progress: As for `certify`.
    """
    return Answers(attack_each(**locals()))


@one_by_one(attack)
def attack_each(arguments: Arguments, method: str, memory: int | str, **effort: Any) -> Iterator[UpperBound]:
    """The adversarial examples of `attack`, one by one as they are found.

    Everything is checked at the call; the work is done as answers are asked for.
    """
    options = AttackOptions(
        RegionShape(Norm.parse(arguments.norm)), names.ATTACKS.find(method), memory=parse_memory(memory),
        seed=arguments.seed, **effort,
    )  # fmt: skip
    posed = arguments.pose()
    options = replace(options, shape=posed.shape)
    check_staying(posed.inquiry.images, posed.network, posed.shape)
    step = attack_size(posed.network, STARTS, options.memory)
    attacker = Attacker(posed.network, options, posed.origin, len(posed.inquiry.questions))
    most_workers = posed.most_workers(max(1, options.memory // (step * attack_bytes(posed.network, STARTS))))
    return posed.start("attack", attacker, in_steps(posed.inquiry, step), options, most_workers)
