"""Counters with expected versions: what must not happen to them is called wrong."""

from typing import Any

import pytest

from logboom.base.ids import Offset
from logboom.records import Record
from logboom.sim.client import TopicPartition
from logboom.sim.counting import Counts
from logboom.sim.history import History

KEY = b"counter-0"


def counts() -> Counts:
    """Three records were sent: 1 was acknowledged at 5, 2 refused, another 2 has an unknown fate."""
    found = Counts(History(), TopicPartition("counts", 0))
    found.sent = {10: (KEY, 1), 11: (KEY, 2), 12: (KEY, 2)}
    found.acked, found.refused = {10: Offset(5)}, {11}
    return found


def read(found: Counts, *records: tuple[int, int, int]) -> list[str]:
    """What is wrong with these records: offset, number, id."""
    latest: dict[bytes, tuple[Offset, int]] = {}
    made: list[Any] = [Record(Offset(at), 0, KEY, b"%d %d  " % (number, name)) for at, number, name in records]
    found.read(made, latest)
    return found.history.violations


def test_numbers_that_rise_are_right() -> None:
    assert read(counts(), (5, 1, 10), (9, 2, 12)) == []


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([(5, 1, 10), (6, 2, 11)], "counter-0 is 2 at 6, which was refused"),
        ([(4, 1, 10)], "counter-0 is 1 at 4, which was acknowledged at 5"),
        ([(5, 1, 10), (6, 3, 12)], "counter-0 is 3 at 6, and nobody has written that"),
        ([(4, 2, 12), (5, 1, 10)], "counter-0 is 1 at 5, behind 2 at 4: a count is lost"),
    ],
)
def test_what_is_wrong_is_told(records: list[tuple[int, int, int]], says: str) -> None:
    assert read(counts(), *records) == [says]
