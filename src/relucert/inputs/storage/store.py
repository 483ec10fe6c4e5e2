"""The answers of one run on disk: the run's identity, then one record per answer; other runs are refused."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import relucert
from relucert.common.closing import Closing
from relucert.errors import RemarkWarning, StoreError, warn
from relucert.inputs.storage.codec import decode, encode
from relucert.inputs.storage.journal import Journal, Record

FORMAT = 1  # of the file
SUFFIX = ".answers"  # of a store beside the file that is made from it
ANSWER = "answer"  # the key of a record's answer; all other keys say what the answer is about
ANEW = "name another file, or start anew with --overwrite (in Python, remove it)"

About = Mapping[str, Any]
"""What an answer is about, in plain values: the method, the image's number and checksum, and the rivals, for one."""


def series(version: str) -> list[str]:
    """Releases that differ only in their last number read each other's files."""
    return version.split(".")[:2]


def store_path(path: Path) -> Path:
    """The path of the store from whose answers a file is made."""
    return path.with_name(path.name + SUFFIX)


class Store(Closing):
    """Answers by what they are about, from this run and from earlier ones of the same identity.

    Args:
        path: A file that is made where there is none.
        identity: Everything that an answer depends on except the images, in plain values.

    Attributes:
        notes: Further things to remember, by name: from this run and earlier ones.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        head = {"relucert": relucert.__version__, "format": FORMAT, "asked": _plain(identity)}
        self._journal = Journal(path, lambda text: warn(text, RemarkWarning))
        try:
            self._answers: dict[str, Any] = {}
            self._pixels: dict[int, str] = {}  # the checksum of each image that there is an answer about
            self.notes: dict[str, str] = {}
            if self._journal.records or self._journal.damaged:
                self._check(head)
                self._journal.mend()
                self._take()
            if not self._journal.records:
                self._journal.append([head])
            self._journal.records = []  # what they say is here now
        except BaseException:
            self._journal.close()
            raise

    def close(self) -> None:
        self._journal.close()

    def get(self, about: About) -> Any | None:
        return self._answers.get(_key(about))

    def add(self, answers: Sequence[tuple[About, Any]], notes: Mapping[str, str] | None = None) -> None:
        """Keeps answers that came together, and notes; once this returns they are in the file.

        Answers that failed are not kept: their questions are tried again.
        """
        notes = notes or {}
        sound = [(about, answer) for about, answer in answers if not answer.failed]
        assert all(_fits(about, answer) for about, answer in sound), "an answer is about its own question"
        noted = [{"note": name, "text": text} for name, text in notes.items()]
        self._journal.append([*noted, *({**about, ANSWER: encode(answer)} for about, answer in sound)])
        self._answers.update((_key(about), answer) for about, answer in sound)
        self.notes.update(notes)

    def check_images(self, marks: Sequence[str]) -> None:
        """Raises StoreError where answers are about other images; marks: the checksums of those asked about now."""
        for image, pixels in self._pixels.items():
            if image < len(marks) and marks[image] != pixels:
                raise StoreError(f"{self.path} has answers about other images, for one image {image}: {ANEW}")

    def _check(self, head: Record) -> None:
        stored = self._journal.records[0] if self._journal.records else {}
        if not {"relucert", "format", "asked"} <= stored.keys():
            raise StoreError(f"{self.path} is no store of answers, or its first record is damaged: {ANEW}")
        if stored["format"] != FORMAT or series(str(stored["relucert"])) != series(relucert.__version__):
            whose = f"relucert {stored['relucert']} in format {stored['format']}"
            raise StoreError(f"{self.path} was written by {whose}, this is {relucert.__version__}, {FORMAT}: {ANEW}")
        before, now = stored["asked"], head["asked"]
        if before != now and len(self._journal.records) == 1 and not self._journal.damaged:
            self._journal.restart()  # nothing was answered yet
        elif before != now:
            differing = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
            pairs = [f"{name} is {_short(before.get(name))}, not {_short(now.get(name))}" for name in differing]
            shown = ", ".join(pairs)
            raise StoreError(f"{self.path} answers another question ({shown}): {ANEW}")

    def _take(self) -> None:
        """Takes over the records; a later one about the same question counts."""
        strange = 0
        for record in self._journal.records[1:]:
            try:
                if "note" in record:
                    self.notes[str(record["note"])] = str(record["text"])
                else:
                    about, answer = _read(record)
                    self._answers[_key(about)] = answer
                    if "image" in about:
                        self._pixels[about["image"]] = about["pixels"]
            except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
                strange += 1
        if strange:
            warn(f"{self.path}: {strange} records are none of ours and left out", RemarkWarning)


@dataclass(frozen=True)
class Section:
    """The answers of one method in a store that several methods share; without a name, all answers."""

    store: Store
    method: str = ""

    def about(self, about: About) -> About:
        return {**about, "method": self.method} if self.method else about


@dataclass(frozen=True)
class Anew:
    """A file to keep answers in that is emptied first, whatever it holds, once the question is known to be sound."""

    path: Path


StoreLike = str | os.PathLike[str] | Anew | Section
"""A file to keep answers in, or a section of an open store."""


def open_store(location: Path | Anew, identity: Mapping[str, Any]) -> Store:
    """Opens a store; raises StoreError where another run goes on with it."""
    if isinstance(location, Path):
        return Store(location, identity)
    if location.path.exists():
        with Journal(location.path, lambda text: None) as journal:
            journal.restart()
    return Store(location.path, identity)


def mark(image: Tensor, label: int | None) -> str:
    """A checksum of an image (size,) and its label, by which stored answers are recognised."""
    pixels = image.double().contiguous().numpy().tobytes()
    return hashlib.sha256(pixels + str(label).encode()).hexdigest()[:16]


def _key(about: About) -> str:
    return json.dumps(about, sort_keys=True)


def _read(record: Record) -> tuple[About, Any]:
    about, answer = dict(record), decode(record[ANSWER])
    del about[ANSWER]
    if answer.failed or not _fits(about, answer):
        raise ValueError("the record is about another image than its answer")
    return about, answer


def _fits(about: About, answer: Any) -> bool:
    return "image" not in about or answer.image == about["image"]


def _plain(identity: Mapping[str, Any]) -> dict[str, Any]:
    """A description as JSON has it, with checksums in the place of tensors."""
    plain: dict[str, Any] = json.loads(json.dumps({name: _checksummed(value) for name, value in identity.items()}))
    return plain


def _checksummed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_checksummed(item) for item in value]
    if isinstance(value, Tensor):
        return "sha256 " + hashlib.sha256(value.contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
    return repr(value) if isinstance(value, float) else value


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
