from __future__ import annotations

import csv
import json
import math
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

import relucert
from relucert import Certificate, data
from relucert.answers.certificates import Rounding
from relucert.errors import InputError, RelucertError
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
    assert "\n" not in repr(answers)


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


def _legend(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_curves_on_one_axes_are_told_apart() -> None:
    first = Answers([_certificate(0, 0.02)])
    assert _legend(first.plot()) == ["fast-lin"]
    axes = first.plot()
    Answers([replace(_certificate(0, 0.9), norm=2.0)]).plot(axes)
    assert _legend(axes) == ["fast-lin, p = inf", "fast-lin, p = 2"]
    assert axes.get_xlabel() == "radius; every input valid"
    Answers([replace(_certificate(0, 0.03), box=(-0.5, 0.5))]).plot(axes)
    assert _legend(axes)[2] == "fast-lin, p = inf, pixels from -0.5 to 0.5"
    assert len(set(_legend(axes))) == 3
    assert len({line.get_color() for line in axes.lines}) == 3
    assert [float(np.max(line.get_xdata())) for line in axes.lines] == [axes.get_xlim()[1]] * 3


def test_curves_that_nothing_tells_apart_are_numbered_or_labelled() -> None:
    answers = Answers([_certificate(0, 0.02)])
    assert _legend(answers.plot(answers.plot())) == ["fast-lin (1)", "fast-lin (2)"]
    axes = answers.plot(label="plain")
    assert _legend(answers.plot(axes, label="defended")) == ["plain", "defended"]
    both = Answers([_certificate(0, 0.02), replace(_certificate(0, 0.03), method="lp")])
    assert _legend(both.plot(label="mine")) == ["mine, fast-lin", "mine, lp"]


def test_several_norms_in_one_list_are_several_curves() -> None:
    axes = Answers([_certificate(0, 0.02), replace(_certificate(0, 0.9), norm=2.0)]).plot()
    assert _legend(axes) == ["fast-lin, p = inf", "fast-lin, p = 2"]


def test_a_table_for_other_programs(tmp_path: Path) -> None:
    answers = Answers([_certificate(0, math.inf), replace(_certificate(1, None, "no, thanks"), box=(-math.inf, 0.5))])
    answers.to_csv(str(tmp_path / "answers.csv"))
    with (tmp_path / "answers.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["radius"], first["norm"], first["method"]) == ("inf", "inf", "fast-lin")
    assert (second["radius"], second["reason"], second["box"]) == ("", "no, thanks", '["-inf", 0.5]')
    with pytest.raises(InputError, match="nowhere"):
        answers.to_csv("/nowhere/answers.csv")


def test_a_table_replaces_no_other(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    answers = Answers([_certificate(0, 0.1), _certificate(1, 0.2)])
    for some in (answers[:1], answers, Answers(replace(one, seconds=9.0) for one in answers)):
        some.to_csv(path)  # more of the same, or the same answers found again
    before = path.read_bytes()
    for others in (answers[:1], Answers([_certificate(0, 0.1), _certificate(1, 0.3)]), Answers[Certificate]()):
        with pytest.raises(InputError, match="overwrite=True"):
            others.to_csv(path)
    assert path.read_bytes() == before
    answers[:1].to_csv(path, overwrite=True)
    for content in (b"my notes", b"\xff\n", b"image,label\n"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="overwrite=True"):
            answers.to_csv(path)


def test_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for pandas, which is no dependency, and without."""
    answers = Answers([_certificate(0, math.inf), _certificate(1, None)])
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    frame = answers.to_frame()
    assert [row["radius"] for row in frame] == [math.inf, None]
    assert {row["norm"] for row in frame} == {math.inf}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RelucertError, match=r"^to_frame needs pandas, which is not installed: pip install pandas$"):
        answers.to_frame()


def test_a_summary() -> None:
    answers = Answers([_certificate(0, 0.0123459), _certificate(1, None), _certificate(2, math.inf)])
    summed = answers.summary()
    (method,) = summed.methods
    assert (summed.answers, method.images, method.answered, method.unlimited) == (3, 3, 1, 1)
    assert (method.mean, method.median) == (0.0123459, 0.0123459)
    assert repr(summed) == str(summed)
    assert str(summed) == (
        "3 answers\nfast-lin: certified radius, mean 0.012345, median 0.012345, over 1 of 3 images, 1 at any distance, "
        "0.1 s per answer; p = inf; every input valid"
    )
    assert str(Answers[Certificate]().summary()) == "0 answers"
    assert "not certified" in str(CALLS["estimate (not certified)"]().summary())


def test_a_comparison_is_seen_as_answers_are(tmp_path: Path) -> None:
    compared = relucert.compare(
        "mnist-2x20", IMAGES.images, IMAGES.labels, norm=3, methods=["fast-lin", "lp", "clever", "attack"], steps=10,
        batches=10, samples=10,
    )  # fmt: skip
    text = compared._repr_html_()
    assert Outline(text).count("tr") == 4
    for words in (">fast-lin<", ">clever (estimate)<", ">attack (best)<", "Left out, stopped or failed: lp: skipped"):
        assert words in text
    axes = compared.plot()
    assert _legend(axes) == ["fast-lin", "clever (estimate)", "attack (best)"]
    assert axes.get_xlabel() == "radius, p = 3; every input valid"
    assert len(compared.summary().methods) == 3
    compared.to_csv(tmp_path / "compared.csv")
    with (tmp_path / "compared.csv").open() as file:
        assert [row["kind"] for row in csv.DictReader(file)] == ["certified"] * 3 + ["estimate"] * 3 + ["upper"] * 3
    assert repr(compared) == "Comparison(3 questions, fast-lin, clever, attack, left out or stopped: lp)"
    assert repr(compared.questions[0]) == "Compared(image 0: fast-lin, clever, attack)"
    listed = relucert.compare("mnist-2x20", IMAGES.images[:1], methods=["fast-lin"], target="all")
    assert ">rival<" in listed._repr_html_()
    assert Outline(listed._repr_html_()).count("tr") == 10


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
    assert axes.get_xlabel() == f"radius, p = inf; {words}"
    assert answers.plot(axes).get_xlabel() == f"radius, p = inf; {words}"


def test_unlike_valid_inputs_are_told() -> None:
    within = Answers([_Row(runs.attacked(0, 0.02) | {"box": [-0.5, 0.5]})])
    everywhere = Answers([_Row(runs.certified(0, 0.01))])
    text = Answers([*within, *everywhere])._repr_html_()
    assert "pixels from -0.5 to 0.5; fast-lin: " in text
    assert "every input valid</caption>" in text
    axes = within.plot()
    for answers in (everywhere, within):
        assert answers.plot(axes).get_xlabel() == "radius, p = inf; valid inputs differ"


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


@pytest.mark.parametrize("title", CALLS)
def test_radii_and_the_accuracy_at_a_radius(title: str) -> None:
    """Both are those of the curve that is drawn."""
    answers = CALLS[title]()
    radii = answers.radii
    assert len(radii) == len(answers)
    assert all(isinstance(radius, float) for radius in radii)
    curve = answers.plot().lines[0]
    steps, shares = curve.get_data()
    for start, end, share in zip(steps, steps[1:], shares, strict=False):
        if start < end:
            assert answers.accuracy_at((start + end) / 2) == pytest.approx(share)
    assert answers.accuracy_at(1e9) == answers.accuracy_at("1000000000") == 0


def test_the_accuracy_at_the_radius_itself() -> None:
    """A proof holds there, and an example breaks it."""
    labels = relucert.load("mnist-2x20")(IMAGES.images.float()).argmax(1).tolist()
    wrong = relucert.certify("mnist-2x20", IMAGES.images, [(labels[0] + 1) % 10, *labels[1:]])
    assert wrong.radii[0] is None
    known = [radius for radius in wrong.radii if radius is not None]
    assert wrong.accuracy_at(0) == pytest.approx(2 / 3)
    assert wrong.accuracy_at(min(known)) == pytest.approx(2 / 3)
    assert wrong.accuracy_at(max(known)) == pytest.approx(1 / 3)
    attacked = CALLS["distance"]()
    assert attacked.accuracy_at(max(attacked.radii)) == 0
    with pytest.raises(InputError, match="one method's answers"):
        Answers([*wrong, *attacked]).accuracy_at(0.1)
    with pytest.raises(InputError, match="radius"):
        wrong.accuracy_at(-1)
