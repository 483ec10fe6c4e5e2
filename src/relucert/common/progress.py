"""How far a call is: what every level of the work knows of it, from the run down to the steps of one bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from relucert.common.checks import shown
from relucert.errors import InputError


@dataclass(frozen=True)
class Progress:
    """How far a call is; as a text, in one line. What does not apply is None.

    Attributes:
        done: How many questions are answered; while a network is loaded, at how many inputs it was compared.
        total: How many there are.
        method: Which method is asked, where several are compared.
        image: The image that is worked on; None also where several are at once.
        stage: What is being done: a method's name, "attack", "samples" or "polish"; of branch and bound "cuts" at
            inputs, or "root", "tree", "certificates" or "refinement" of splits by neurons.
        evaluations: How often bounds were evaluated in the search for a radius.
        lower: The radius that is proven so far; where several are sought at once, the least.
        upper: The distance of the nearest adversarial example so far.
        part: The part of the stage, such as "layer 2", "margins" or an attack's name.
        step: Of that part, how many steps are done.
        steps: How many it has at the most.
        nodes: How many subregions branch and bound has bounded.
        open: How many subregions wait.
        rows: How many rows are not proven yet, such as rivals.
        bound: The least bound of the subregions that were bounded last, as computed.
    """

    done: int | None = None
    total: int | None = None
    method: str | None = None
    image: int | None = None
    stage: str | None = None
    evaluations: int | None = None
    lower: float | None = None
    upper: float | None = None
    part: str | None = None
    step: int | None = None
    steps: int | None = None
    nodes: int | None = None
    open: int | None = None
    rows: int | None = None
    bound: float | None = None

    def __str__(self) -> str:
        count = "" if self.total is None else f"{self.done or 0:,} of {self.total:,}"
        return ": ".join(filter(None, [count, self.doing]))

    @property
    def doing(self) -> str:
        """The current activity, in words; empty where nothing is known of it."""
        where = ", ".join(filter(None, [self.method, self._words("image {}", self.image)]))
        ends = self._words("proven {:.4g}", self.lower), self._words("nearest {:.4g}", self.upper)
        steps = "" if self.steps is None else f" of {self.steps:,}"
        news = [
            *ends, self.stage, self._count("{:,} evaluation", self.evaluations), self.part,
            self._words("step {:,}" + steps, self.step), self._count("{:,} node", self.nodes),
            self._words("{:,} open", self.open), self._count("{:,} row", self.rows),
            self._words("bound {:.3g}", self.bound),
        ]  # fmt: skip
        return ": ".join(filter(None, [where, ", ".join(filter(None, news))]))

    def and_news(self, news: Progress) -> Progress:
        """This state, updated by all fields that the news sets."""
        changes = {field.name: value for field in fields(news) if (value := getattr(news, field.name)) is not None}
        return replace(self, **changes)

    @staticmethod
    def _words(pattern: str, value: Any) -> str:
        return "" if value is None else pattern.format(value)

    @classmethod
    def _count(cls, pattern: str, value: int | None) -> str:
        return cls._words(pattern if value == 1 else f"{pattern}s", value)


Report = Callable[[Progress], None]
"""Called with how far some work is."""

ProgressLike = bool | Report | None
"""What users may give as progress: a function to call, True for a bar, False for nothing."""


def silent(state: Progress) -> None:
    """Ignores news of work that nobody asks about."""


def about_image(report: Report, image: int | None) -> Report:
    """A report of news that are about this image."""
    return report if report is silent else lambda state: report(replace(state, image=image))


class Listener:
    """Receives the progress of a call, until it is closed; this one ignores it."""

    def tell(self, state: Progress) -> None:
        pass

    def close(self) -> None:
        pass


class Reporter:
    """Passes on the news of some work, together with the news of the larger work that it belongs to.

    Attributes:
        listener: Who is told; may change from one piece of work to the next.
    """

    def __init__(self, listener: Report = silent) -> None:
        self.listener, self._context = listener, Progress()

    def __call__(self, news: Progress) -> None:
        if self.listener is not silent:
            self.listener(self._context.and_news(news))

    def enter(self, context: Progress) -> None:
        """Sets what all further news is about, and passes it on."""
        self._context = context
        self.listener(context)


def check_progress(progress: object) -> None:
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise InputError(f"progress is a function to call, not {shown(progress)}, or True for a bar, False for none")


def rate(speed: float) -> str:
    """A rate in words: per second or, where it is slow, per minute."""
    return f"{speed:.3g}/s" if speed >= 1 else f"{60 * speed:.3g}/min"


def pace(done: float, remaining: float, seconds: float) -> str:
    """The rate and the remaining time in words, from the steps done in these seconds; empty where there is no rate."""
    if done <= 0 or seconds <= 0:
        return ""
    return f", {rate(done / seconds)}, about {remaining * seconds / done:.0f} s left"
