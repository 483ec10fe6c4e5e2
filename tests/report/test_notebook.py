from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.lines import Line2D

import relucert
from relucert import Certificate, data
from relucert.answers import Rounding
from relucert.report.answer_list import Answers
from tests.report import runs
from tests.report.test_page import EVIL, Outline

IMAGES = data.bundled().first(3)
CALLS: dict[str, Any] = {
    "certified radius": lambda: relucert.certify("mnist-2x20", IMAGES.images, IMAGES.labels),
    "radius (rounding ignored)": lambda: relucert.certify(
        "mnist-2x20", IMAGES.images, arithmetic="float", target="all"
    ),
    "exact distance": lambda: relucert.exact("mnist-2x20", IMAGES.images[:2], target="runner-up"),
    "distance": lambda: relucert.attack("mnist-2x20", IMAGES.images, method="fmn", steps=20),
    "estimate (not certified)": lambda: relucert.estimate("mnist-2x20", IMAGES.images, batches=10, samples=20),
}


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    pyplot.close("all")


def _certificate(image: int, radius: float | None, reason: str | None = None) -> Certificate:
    return Certificate(
        image=image, label=1, target=None, norm=math.inf, method="fast-lin", arithmetic=Rounding.RIGOROUS,
        radius=radius, reason=reason, seconds=0.1, evaluations=3,
    )  # fmt: skip


@pytest.mark.parametrize("title", CALLS)
def test_every_call_gives_a_list_that_can_be_seen(title: str) -> None:
    answers: Answers[Any] = CALLS[title]()
    assert issubclass(type(answers), list)
    assert answers == list(answers)
    assert json.dumps([answer.to_json() for answer in answers])
    text = answers._repr_html_()
    outline = Outline(text)
    assert outline.count("tr") == len(answers) + 1
    assert f">{title}<" in text
    assert ("certified" in text.replace("not certified", "")) == (title == "certified radius")
    axes = answers.plot()
    assert axes.lines
    assert (axes.get_ylabel() == "certified accuracy") == (title in ("certified radius", "exact distance"))


def test_stays_a_list() -> None:
    answers = Answers(_certificate(image, 0.01 * (image + 1)) for image in range(4))
    assert isinstance(answers[1:], Answers)
    assert answers[1:] == list(answers)[1:]
    assert answers[-1] is list(answers)[-1]
    assert pickle.loads(pickle.dumps(answers)) == answers
    assert repr(answers) == repr(list(answers))


def test_the_curve_steps_at_every_radius() -> None:
    axes = Answers([_certificate(0, 0.02), _certificate(1, None), _certificate(2, 0.01), _certificate(3, 0.04)]).plot()
    (line,) = axes.lines
    assert isinstance(line, Line2D)
    assert list(map(float, line.get_xdata()))[:-1] == [0.0, 0.01, 0.02, 0.04]  # type: ignore[arg-type]
    assert list(map(float, line.get_ydata()))[:-1] == [0.75, 0.5, 0.25, 0]  # type: ignore[arg-type]


def test_curves_share_axes() -> None:
    axes = Answers([_certificate(0, 0.02)]).plot()
    assert CALLS["distance"]().plot(axes) is axes
    assert len(axes.lines) == 2
    assert axes.get_ylabel() == "share of images"
    assert axes.get_xlim()[1] >= max(float(max(line.get_xdata())) for line in axes.lines)


@dataclass(frozen=True)
class _Row:
    """An answer that is nothing but its JSON form."""

    row: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return self.row


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"box": None}, "every input valid"),
        ({"box": [-0.5, 0.5]}, "pixels from -0.5 to 0.5"),
        ({"box": [[0.0, -math.inf], [1.0, 2.0]]}, "valid range given per coordinate"),
    ],
)
def test_the_valid_inputs_are_told(keys: dict[str, Any], words: str) -> None:
    answers = Answers([_Row(runs.certified(image, 0.01) | keys) for image in range(2)])
    assert f"; p = inf; {words}</caption>" in answers._repr_html_()
    axes = answers.plot()
    assert axes.get_xlabel() == f"radius; {words}"
    assert answers.plot(axes).get_xlabel() == f"radius; {words}"


def test_unlike_valid_inputs_are_told() -> None:
    within = Answers([_Row(runs.attacked(0, 0.02) | {"box": [-0.5, 0.5]})])
    everywhere = Answers([_Row(runs.certified(0, 0.01))])
    assert "; valid inputs differ</caption>" in Answers([*within, *everywhere])._repr_html_()
    axes = within.plot()
    for answers in (everywhere, within):
        assert answers.plot(axes).get_xlabel() == "radius; valid inputs differ"


def test_older_answers_do_not_say_which_inputs_are_valid() -> None:
    answers = Answers([_Row(row) for row in runs.older([runs.certified(0, 0.01)], None)])
    assert "; valid inputs not recorded</caption>" in answers._repr_html_()


def test_a_printed_radius_is_no_larger_than_the_proven_one() -> None:
    assert ">0.012345<" in Answers([_certificate(0, 0.0123459)])._repr_html_()


def test_nothing_and_too_much() -> None:
    assert Answers[Certificate]().plot().lines[:] == []
    assert "0 answers" in Answers[Certificate]()._repr_html_()
    many = Answers(_certificate(image, 0.01) for image in range(1234))._repr_html_()
    assert "first 100 of 1,234" in many
    assert Outline(many).count("tr") == 101


def test_markup_in_remarks_is_text() -> None:
    assert Outline(Answers([_certificate(0, None, EVIL)])._repr_html_()).count("script") == 0
