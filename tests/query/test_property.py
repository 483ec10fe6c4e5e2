"""Margins and targets, by hand."""

import pytest
import torch

from relucert.errors import InputError
from relucert.query.property import Property, parse_target, rivals

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
    rows = Property(LABELS, torch.tensor([[2, 3], [0, 2]])).rows(4, torch.float64)
    margins = (rows @ SCORES.double()[..., None]).squeeze(-1)
    assert margins.tolist() == [[1.0, 3.0], [3.0, 2.0]]


@pytest.mark.parametrize(("given", "expected"), [("runner-up", "runner-up"), ("3", 3), (0, 0)])
def test_targets_are_read(given: str | int, expected: str | int) -> None:
    assert parse_target(given, 4) == expected


@pytest.mark.parametrize("given", ["runnerup", "", "-1", 4, "4", -1, True, 1.5, None])
def test_other_targets_are_refused(given: object) -> None:
    with pytest.raises(InputError, match="target"):
        parse_target(given, 4)  # type: ignore[arg-type]
