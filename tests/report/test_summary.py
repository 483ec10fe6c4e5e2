from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relucert.answers.certificates import Certificate, Rounding
from relucert.report.summary import Summary, against, rounded_down, summarise

PLAIN = Certificate(
    image=0, label=4, target=1, norm=2.0, method="fast-lin", arithmetic=Rounding.RIGOROUS, radius=0.5, reason=None,
    seconds=0.1, evaluations=3,
)  # fmt: skip


def _answer(image: int, radius: float | None, **changes: int) -> Certificate:
    return replace(PLAIN, image=image, radius=radius, **changes)  # type: ignore[arg-type]


def test_counts() -> None:
    answers = [_answer(0, 0.25), _answer(1, None), _answer(2, 0.75), _answer(3, None)]
    summary = summarise(answers, [True, False, True, True], "untargeted", 9)
    assert summary == Summary(images=4, with_rival=4, correct=3, radii=(0.25, 0.75), proven=True)
    assert (summary.mean, summary.median) == (0.5, 0.5)
    assert [summary.within(radius) for radius in (0, 0.25, 0.26, 0.75, 0.8)] == [2, 2, 1, 1, 0]


def test_without_labels_nothing_is_said_of_accuracy() -> None:
    assert summarise([PLAIN], None, "untargeted", 9).correct is None


def test_a_float_radius_is_not_certified() -> None:
    answers = [PLAIN, replace(PLAIN, arithmetic=Rounding.FLOAT)]
    assert not summarise(answers, None, "untargeted", 9).proven


def test_all_rivals_count_by_the_weakest() -> None:
    answers = [_answer(0, 0.5, target=1), _answer(0, 0.25, target=2), _answer(1, None)]
    summary = summarise(answers, [True, False], "all", 2)
    assert (summary.images, summary.radii) == (2, (0.25,))


def test_an_image_some_of_whose_rivals_are_missing_is_left_out() -> None:
    answers = [_answer(0, 0.5), _answer(0, 0.25), _answer(1, 0.9)]
    summary = summarise(answers, [True, True], "all", 2)
    assert (summary.images, summary.correct, summary.radii) == (1, 1, (0.25,))


def test_a_rival_without_a_radius_leaves_the_image_without_one() -> None:
    summary = summarise([_answer(0, 0.5), _answer(0, None)], [True], "all", 2)
    assert (summary.images, summary.radii) == (1, ())


def test_images_of_the_target_class_are_not_asked_about() -> None:
    answers = [_answer(0, 0.5), _answer(1, None, label=3), _answer(2, None)]
    summary = summarise(answers, [True, True, False], 3, 9)
    assert (summary.images, summary.with_rival, summary.correct) == (3, 2, 2)


@pytest.mark.parametrize(
    ("radii", "grid"),
    [
        ((), ()),
        ((0.0, 0.0), ()),
        ((0.032,) * 4, (0.032,)),
        ((0.02657,), (0.0265,)),
        ((0.0195, 0.0251), (0.018, 0.02, 0.022, 0.024)),
        ((0.1, 0.2, 0.3), (0.1, 0.15, 0.2, 0.25, 0.3)),
        (tuple(count / 100 for count in range(101)), (0.2, 0.4, 0.6, 0.8)),
        (tuple(10 + count / 100 for count in range(101)), (10, 10.2, 10.4, 10.6, 10.8)),
        ((0.5, float("inf")), (0.5,)),
        ((float("inf"),), ()),
        ((5e-324,), ()),
    ],
)
def test_grid(radii: tuple[float, ...], grid: tuple[float, ...]) -> None:
    assert Summary(len(radii), len(radii), None, radii, True).grid() == grid


@given(st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=200))
def test_the_grid_spans_the_radii(radii: list[float]) -> None:
    """Few round radii: nearly all images are left at the first that is no tie with the step, and few at the last."""
    summary = Summary(len(radii), len(radii), None, tuple(radii), True)
    grid = summary.grid()
    assert 1 <= len(grid) == len(set(grid)) <= 7
    assert grid == tuple(sorted(grid))
    assert grid[0] > 0
    assert grid[-1] <= max(radii) * (1 + 1e-5)
    step = grid[1] - grid[0] if len(grid) > 1 else 0.01 * max(radii)
    high = sorted(radii)[min(len(radii) - 1, int(0.95 * len(radii)))]
    low = sorted(radii)[int(0.05 * len(radii))]
    assert grid[-1] >= high - 1.01 * step
    assert grid[0] <= max(low * (1 + 1e-5), 1.01 * step)


def test_against() -> None:
    assert [against(target) for target in ("untargeted", "all", None)] == ["", "", ""]
    assert against("runner-up") == ", against target runner-up alone"
    assert against(3) == ", against target 3 alone"


@given(st.floats(1e-300, 1e300))
def test_print_never_exceeds_the_radius(radius: float) -> None:
    shown = Fraction(rounded_down(radius))
    assert shown <= Fraction(radius)
    assert shown >= Fraction(radius) * (1 - Fraction(1, 9999))
