"""Run files side by side: those about the same network, images and rivals are one group, to be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from relucert.report.reading import RecordedRun, Result


@dataclass(frozen=True)
class RunGroup:
    """Runs about the same network, images, rivals, scale and inference."""

    runs: tuple[RecordedRun, ...]

    @property
    def inference(self) -> str:
        """What the network is evaluated in."""
        return self.runs[0].results[0].inference

    @cached_property
    def results(self) -> tuple[Result, ...]:
        """All answers; those of a method that several files have are told apart by the files' names."""
        methods = Counter(key for run in self.runs for key in {_method(answer) for answer in run.results})
        return tuple(
            replace(answer, source=source) if methods[_method(answer)] > 1 else answer
            for run, source in zip(self.runs, _sources(self.runs), strict=True)
            for answer in run.results
        )

    @property
    def _network(self) -> Mapping[str, Any]:
        return self.runs[0].said("network")

    @property
    def name(self) -> str:
        """The network's name, if the files say it."""
        return str(self._network.get("name") or "the network")

    @property
    def layers(self) -> str | None:
        layers = self._network.get("layers")
        return None if layers is None else str(layers)

    @property
    def target(self) -> str | None:
        target = self.runs[0].options.get("target")
        return None if target is None else str(target)

    @property
    def scaled(self) -> bool:
        return self.runs[0].options.get("scale") is not None

    @property
    def complete(self) -> bool:
        return all(run.complete for run in self.runs)

    @property
    def left_out(self) -> list[str]:
        return [reason for run in self.runs for reason in run.left_out]

    @property
    def every_rival(self) -> bool:
        """Whether there is one question per rival of an image."""
        return self.target == "all"

    @property
    def rivals(self) -> int | None:
        """How many answers a method gives per image in a finished run; None where the file does not say."""
        if not self.every_rival:
            return 1
        classes = self._network.get("classes")
        return classes - 1 if isinstance(classes, int) and classes > 1 else None


def grouped(runs: Sequence[RecordedRun]) -> list[RunGroup]:
    """The runs in groups, in the order of each group's first file."""
    groups: list[list[RecordedRun]] = []
    for run in chain.from_iterable(map(_by_inference, runs)):
        group = next((group for group in groups if all(_is_alike(run, member) for member in group)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return [RunGroup(tuple(group)) for group in groups]


def _by_inference(run: RecordedRun) -> list[RecordedRun]:
    """The run's answers as one run for each inference: real arithmetic, or evaluations in one precision."""
    inferences = dict.fromkeys(answer.inference for answer in run.results)
    return [
        replace(run, results=tuple(answer for answer in run.results if answer.inference == inference))
        for inference in inferences
    ]


def _is_alike(first: RecordedRun, second: RecordedRun) -> bool:
    """Whether both are about the same network, images, rivals, scale and inference, as far as the files tell."""
    if first.results[0].inference != second.results[0].inference:
        return False
    if not _agree(first.said("network"), second.said("network"), ("name", "layers", "parameters", "classes", "sha256")):
        return False
    names = ["data", "data_dir", "layout", "target", "target_file", "scale"]
    names += ["seed"] if first.options.get("target") == "random" else []
    if any(first.options.get(name) != second.options.get(name) for name in names):
        return False
    first_data, second_data = first.said("data"), second.said("data")
    as_many = first_data.get("images") == second_data.get("images")
    if not _agree(first_data, second_data, ("name", "sha256") if as_many else ("name",)):
        return False
    labels = {answer.image: answer.label for answer in first.results}
    return all(labels.get(answer.image, answer.label) == answer.label for answer in second.results)


def _agree(first: Mapping[str, Any], second: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether two objects do not differ in what both of them say."""
    return all(first[name] == second[name] for name in names if name in first and name in second)


def _method(answer: Result) -> tuple[str, str]:
    return answer.name, answer.norm


def _sources(runs: Sequence[RecordedRun]) -> list[str]:
    """The files' names, numbered where they are the same."""
    names = [run.source or "a file" for run in runs]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, start=1)]
