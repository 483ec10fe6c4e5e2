"""`relucert.certify`: the certified radius of every image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from relucert.answers.certificates import Certificate
from relucert.api.arguments import Arguments, one_by_one
from relucert.api.best import BEST
from relucert.api.certifiers import BestCertifier, Certifier, CertifyOptions
from relucert.arithmetic.norm import NormLike
from relucert.arithmetic.property import Property
from relucert.common.checks import checked_path
from relucert.common.names import ArithmeticName, InferenceName, MethodName
from relucert.common.progress import ProgressLike
from relucert.execution.execution import Execution, check_proof_place
from relucert.execution.job import by_images, in_steps
from relucert.inputs.storage.store import StoreLike
from relucert.network.batching import batch_size, question_bytes
from relucert.query.types import BoxLike, ImagesLike, LabelsLike, NetworkLike, ScaleLike, TargetLike
from relucert.report.answer_list import Answers

FEW = 8  # the most questions of a batch where each takes long: an interruption loses no more


def certify(
    network: NetworkLike,
    images: ImagesLike,
    labels: LabelsLike | None = None,
    *,
    norm: NormLike = "inf",
    method: MethodName = "fast-lin",
    target: TargetLike = "untargeted",
    property: Property | None = None,
    box: BoxLike | None = None,
    scale: ScaleLike | None = None,
    arithmetic: ArithmeticName = "rigorous",
    inference: InferenceName = "real",
    tolerance: float = 1e-4,
    memory: int | str = 2**30,
    seed: int = 0,
    shells: int | None = None,
    time_limit: float | None = None,
    budget: float | None = None,
    proofs: str | os.PathLike[str] | None = None,
    input_shape: tuple[int, ...] | None = None,
    workers: int | Execution | None = None,
    ray: str | None = None,
    store: StoreLike | None = None,
    progress: ProgressLike = None,
) -> Answers[Certificate]:
    """The certified radius of every image, in the images' order (with target "all": an image's rivals in turn).

    Args:
        network: A Network, a torch.nn.Module, a torch.export.ExportedProgram, a file or a zoo name.
        images: An array or a tensor, one row per image, in the network's own input range, or a data set: relucert's, or
            a torch Dataset or DataLoader of image and label. A row has the input's shape, or is flat, or differs by
            axes of length one.
        labels: One class per image; by default those of the data set, else the network's predictions.
        norm: "inf" (or "linf"), "2" ("l2"), "1" ("l1") or any number >= 1.
        method: "fast-lin", "crown", "alpha", "interval", "fast-lip", "lipschitz-norm", "op-norm", "lp",
            "lp-full", "sdp" or "best".
        target: "runner-up", "least-likely", "random" (drawn with `seed`), a class index, "all" or "untargeted"; or one
            class per image, in a list, an array or a tensor.
        property: What must hold around every image in place of its class, such as `Property.outputs_within`; one for
            all images or one each.
        box: The valid inputs: None (every input), two numbers, or two arrays of the input's shape, the lowest and the
            highest valid value of every coordinate.
        scale: None, or an array of the input's shape: how far each coordinate may move per unit of radius (0: it
            stays).
        arithmetic: "rigorous" (proven, rounding included) or "float" (rounding ignored: no proof).
        inference: What the network is evaluated in: "real" arithmetic, or "float32", "float16" or "bfloat16", which
            round every operation. The certificate then holds for every such evaluation.
        tolerance: How far, relatively, a radius may stay below the largest the method can prove.
        memory: How many bytes all bounds that are worked on at a time may take, by all workers together; or "2G".
        seed: What random targets are drawn with.
        shells: For "fast-lip" and "lipschitz-norm" alone, how many shells the ball is split into (30; 1 is the plain
            form).
        time_limit: For "lp" and "lp-full" alone, how many seconds each program may take (60).
        budget: For "best" alone, how many seconds each answer may take (10).
        proofs: A folder for proofs, one file per certified answer, which `relucert check` verifies: for "interval",
            "fast-lin", "crown", "alpha", "lp", "lp-full" and "best", and
            for "sdp" on chains of linear layers or convolutions and ReLUs.
        input_shape: Of one image, where neither the network nor the images tell it.
        workers: How many processes of one thread each; by default this one, and one per core for what would take long.
        ray: The address of a Ray cluster to work on, or "auto", in the place of `workers`.
        store: A file that keeps the answers as they come: the same call goes on where an earlier one was stopped.
        progress: A function that is called with how far it is, a `Progress`; True: a bar, in notebooks, in terminals
            and as lines in logs; False: none. By default notebooks show a bar.
    """
    return Answers(certify_each(**locals()))


@one_by_one(certify)
def certify_each(arguments: Arguments, proofs: str | os.PathLike[str] | None, **effort: Any) -> Iterator[Certificate]:
    """The certificates of `certify`, one by one as they are found.

    Everything is checked at the call; the work is done as answers are asked for.
    """
    options = CertifyOptions.parse(arguments.norm, inference=arguments.inference, seed=arguments.seed, **effort)
    posed = arguments.pose()
    options = replace(options, shape=posed.shape)
    folder = None if proofs is None else checked_path(proofs, "a folder of proofs")
    if folder is not None:
        check_proof_place(arguments.workers, arguments.ray)
    network, inquiry = posed.network, posed.inquiry
    rows = max(len(question.rivals) for question in inquiry.questions)
    step = batch_size(network, rows, options.memory, options.method)  # questions of a batch that fits the memory
    if options.method == BEST:
        step = 1
        items = in_steps(inquiry, 1)
    elif options.find_method().weaker is not None:
        step = min(step, FEW)
        items = by_images(inquiry, step)
    else:
        items = by_images(inquiry, step, first=1)
    most_workers = max(1, options.memory // (step * question_bytes(network, rows, options.method)))
    further = {"proofs": None if folder is None else str(folder.resolve())}
    if options.method == BEST:  # whose answers need not have proofs
        best = BestCertifier(network, options, folder)
        return posed.start("certify", best, items, options, most_workers, further=further)
    certifier = Certifier(network, options, step, proofs=folder)
    return posed.start("certify", certifier, items, options, most_workers, certifier.writer, further=further)
