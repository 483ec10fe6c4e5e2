"""Margins and targets, by hand."""

import pytest
import torch

from relucert.arithmetic.property import Property
from relucert.errors import InputError
from relucert.query.targets import parse_target, rivals

SCORES = torch.tensor([[5.0, 1.0, 4.0, 2.0], [0.0, 3.0, 1.0, 2.0]])
LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("runner-up", [[2], [3]]),
        ("least-likely", [[1], [0]]),
        ("untargeted", [[1, 2, 3], [0, 2, 3]]),
        ("all", [[1, 2, 3], [0, 2, 3]]),
        (3, [[3], [3]]),
        (1, [[1], [-1]]),
    ],
)
def test_rivals(target: str | int, expected: list[list[int]]) -> None:
    assert rivals(target, SCORES, LABELS, seed=0).tolist() == expected


def test_random_rivals_are_seeded_and_never_the_label() -> None:
    scores, labels = torch.zeros(200, 5), torch.arange(200) % 5
    drawn = rivals("random", scores, labels, seed=3)
    assert torch.equal(drawn, rivals("random", scores, labels, seed=3))
    assert not torch.equal(drawn, rivals("random", scores, labels, seed=4))
    assert (drawn.squeeze(1) != labels).all()
    assert set(drawn.flatten().tolist()) == set(range(5))


def test_rows_are_margins() -> None:
    prop = Property.margins(LABELS, torch.tensor([[2, 3], [0, 2]]), 4)
    assert prop.values(SCORES.double()).tolist() == [[1.0, 3.0], [3.0, 2.0]]
    assert prop.narrow(torch.tensor([[1], [0]])).values(SCORES.double()).tolist() == [[3.0], [3.0]]
    assert prop.select(torch.tensor([1])).values(SCORES[1:].double()).tolist() == [[3.0, 2.0]]
    shifted = Property(prop.rows, prop.offsets - 2.5)
    assert shifted.values(SCORES.double()).tolist() == [[-1.5, 0.5], [0.5, -0.5]]


@pytest.mark.parametrize(
    ("labels", "others", "message"),
    [
        ([0], [[4]], "from 0 to 3"),
        ([-1], [[1]], "from 0 to 3"),
        ([1], [[1]], "no rival of its own"),
        ([1], [2], "one row at least"),
        ([1.0], [[2]], "whole numbers"),
        ([1, 2], [[2]], "whole numbers"),
    ],
)
def test_other_margins_are_refused(labels: list[float], others: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Property.margins(torch.tensor(labels), torch.tensor(others), 4)


def test_a_property_has_an_offset_for_every_row() -> None:
    with pytest.raises(InputError, match="offsets"):
        Property(torch.zeros(1, 2, 3), torch.zeros(1, 3))


def test_an_unknown_target_is_refused_in_every_path() -> None:
    for target in ("nearest", "", 9):
        with pytest.raises(InputError, match="target"):
            rivals(target, SCORES, LABELS, seed=0)


@pytest.mark.parametrize(("given", "expected"), [("runner-up", "runner-up"), ("3", 3), (0, 0)])
def test_targets_are_read(given: str | int, expected: str | int) -> None:
    assert parse_target(given, 4) == expected


@pytest.mark.parametrize("given", ["runner", "", "-1", 4, "4", -1, True, 1.5, None])
def test_other_targets_are_refused(given: object) -> None:
    with pytest.raises(InputError, match="target"):
        parse_target(given, 4)  # type: ignore[arg-type]
