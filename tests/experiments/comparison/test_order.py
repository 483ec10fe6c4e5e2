"""The provable order: every violation is loud, and nothing else is one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest

from relucert.errors import ContradictionError, RelucertError
from relucert.experiments.comparison.methods import Entry
from relucert.experiments.comparison.order import AnswerRecord
from relucert.experiments.comparison.ranking import rankings
from tests.experiments.comparison.answers import INF, attacked, certified, estimated, exact

WRONG: dict[str, list[Entry]] = {
    "certified beyond a witness": [certified("op-norm", 0.2), attacked(0.1)],
    "certified beyond a witness by a hair": [certified("interval", 0.1000001), attacked(0.1)],
    "certified beyond the exact upper end": [certified("fast-lip", 0.2), exact(0.05, 0.1, False)],
    "exact beyond a witness": [exact(0.2, 0.3, False), attacked(0.1)],
    "exact ends crossed by others": [exact(0.1, 0.1, True), attacked(0.0999)],
    "lp below fast-lin": [certified("fast-lin", 0.1), certified("lp", 0.09)],
    "lp-full below fast-lin": [certified("fast-lin", 0.1), certified("lp-full", 0.09)],
    "lp-full below lp": [certified("lp", 0.1), certified("lp-full", 0.09)],
    "alpha below crown": [certified("crown", 0.1), certified("alpha", 0.09)],
    "alpha below fast-lin": [certified("fast-lin", 0.1), certified("alpha", 0.09)],
    "lp-full below alpha": [certified("alpha", 0.1), certified("lp-full", 0.09)],
    "best below alpha": [certified("alpha", 0.1), certified("best", 0.09)],
    "best in little time below fast-lin": [certified("fast-lin", 0.1), certified("best", 0.09, reason="no time")],
    "closed below alpha": [certified("alpha", 0.1), exact(0.09, 0.1, True)],
    "closed below certified": [certified("lp", 0.1), exact(0.09, 0.1, True)],
    "proven unreachable, yet reached": [exact(None, None, True), attacked(0.4)],
}
RIGHT: dict[str, list[Entry]] = {
    "the order": [
        certified("fast-lin", 0.1), certified("lp", 0.11), certified("lp-full", 0.12), exact(0.15, 0.15, True),
        attacked(0.16), certified("fast-lip", 0.09), certified("interval", 0.13), estimated(0.5),
    ],
    "level": [certified("fast-lin", 0.1), certified("lp", 0.1), exact(0.1, 0.1, True), attacked(0.1)],
    "within the search's tolerance": [certified("fast-lin", 0.1), certified("lp", 0.09999)],
    "an open interval may be below": [certified("lp", 0.1), exact(0.05, 0.2, False)],
    "no order between": [certified("crown", 0.1), certified("fast-lin", 0.2)],
    "nor between": [certified("alpha", 0.1), certified("lp", 0.2)],
    "best in little time": [certified("alpha", 0.1), certified("best", 0.09, reason="the budget ended")],
    "unproven": [certified("fast-lin", 0.2, proven=False), attacked(0.1)],
    "absent": [certified("lp", None), certified("fast-lin", 0.1), attacked(None), exact(None, None, False)],
    "estimates have no order": [estimated(5.0), attacked(0.1), certified("fast-lin", 0.05)],
    "other images": [certified("fast-lin", 0.2, image=1), attacked(0.1, image=2)],
}  # fmt: skip


def _recorded(entries: Iterable[Entry], each_rival: bool = False) -> AnswerRecord:
    record = AnswerRecord(each_rival)
    for entry in entries:
        record.add(entry)
    return record


@pytest.mark.parametrize("name", WRONG)
def test_violations_are_loud_whatever_came_first(name: str) -> None:
    for order in permutations(WRONG[name]):
        with pytest.raises(ContradictionError) as raised:
            _recorded(order)
        message = str(raised.value)
        assert "image 0" in message
        assert all(entry.method in message for entry in order)
        assert not isinstance(raised.value, RelucertError)  # no fault of the user's


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_possible_is_accepted(name: str) -> None:
    for order in (RIGHT[name], RIGHT[name][::-1]):
        _recorded(order)


def test_rivals_with_questions_of_their_own_are_not_mixed() -> None:
    pair = [certified("fast-lin", 0.2, target=3), attacked(0.1, target=4)]
    assert len(_recorded(pair, each_rival=True).entries) == 2
    with pytest.raises(ContradictionError):  # untargeted: the weakest rival may differ from method to method
        _recorded(pair)


def test_rankings_by_hand() -> None:
    record = _recorded(
        [
            certified("fast-lin", 0.1), certified("fast-lin", 0.3, image=1), certified("fast-lin", None, image=2),
            certified("lp", 0.2), certified("lp", 0.3, image=1), estimated(0.3), exact(0.2, 0.25, False),
            attacked(0.4), attacked(0.6, image=1), attacked(0.0, image=2),
        ]
    )  # fmt: skip
    by_method = {ranking.method: ranking for ranking in rankings(record.entries)}
    assert {name: ranking.count for name, ranking in by_method.items()} == {
        "fast-lin": 2, "lp": 2, "clever": 1, "exact": 1, "attack": 2,
    }  # fmt: skip
    means = {"fast-lin": 0.2, "lp": 0.25, "clever": 0.3, "exact": 0.2, "attack": 0.5}  # the misclassified is in none
    assert {name: ranking.mean for name, ranking in by_method.items()} == pytest.approx(means)
    assert by_method["fast-lin"].to_best == pytest.approx((-0.5 + 0) / 2)
    assert by_method["fast-lin"].to_witness == pytest.approx((0.1 / 0.25 - 1 + 0.3 / 0.6 - 1) / 2)
    assert by_method["attack"].seconds == pytest.approx(0.25)
    assert by_method["exact"].closed == 0


def test_a_misclassified_image_is_not_closed() -> None:
    record = _recorded([exact(0.2, 0.2, True), exact(0.0, 0.0, True, image=1)])
    (ranking,) = rankings(record.entries)
    assert (ranking.count, ranking.closed) == (1, 1)


def test_rivals_with_questions_of_their_own_count_by_image() -> None:
    """An image's answer is the least over its rivals, and there is none where a rival has none."""
    record = _recorded(
        [
            certified("fast-lin", 0.1, target=3), certified("fast-lin", 0.3, target=4),
            certified("fast-lin", 0.2, image=1, target=3), certified("fast-lin", 0.5, image=1, target=4),
            certified("lp", 0.2, target=3), certified("lp", 0.3, target=4), certified("lp", 0.3, image=1, target=3),
            exact(0.25, 0.25, True, target=3), exact(None, None, True, target=4),
            exact(0.3, 0.3, True, image=1, target=3), exact(0.5, 0.7, False, image=1, target=4),
            attacked(0.25, target=3), attacked(None, target=4),
        ],
        each_rival=True,
    )  # fmt: skip
    assert {ranking.count for ranking in rankings(record.entries, 3)} == {0}  # one rival is missing everywhere
    by_method = {ranking.method: ranking for ranking in rankings(record.entries, 2)}
    counts = {"fast-lin": 2, "lp": 1, "exact": 2, "attack": 0}
    assert {name: ranking.count for name, ranking in by_method.items()} == counts
    means = {"fast-lin": 0.15, "lp": 0.2, "exact": 0.275, "attack": None}
    assert {name: ranking.mean for name, ranking in by_method.items()} == pytest.approx(means)
    assert by_method["fast-lin"].to_best == pytest.approx((0.1 / 0.25 - 1 + 0.2 / 0.3 - 1) / 2)
    assert by_method["fast-lin"].to_witness == pytest.approx((0.1 / 0.25 - 1 + 0.2 / 0.3 - 1) / 2)
    assert by_method["exact"].closed == 1
    assert by_method["fast-lin"].seconds == pytest.approx(1.0)  # of both rivals


def test_a_network_out_of_reach_is_at_no_distance() -> None:
    (ranking,) = rankings(_recorded([exact(None, None, True)]).entries)
    assert (ranking.count, ranking.mean) == (0, None)
    (ranking,) = rankings(_recorded([certified("fast-lin", INF)]).entries)
    assert (ranking.count, ranking.mean) == (1, None)
