"""How many refused producers a broker remembers, and what becomes of those for which there is no room."""

import gc

import pytest
from tests.support.clock import ManualClock

from logboom.base.errors import NotEnoughReplicasError
from logboom.broker.partition import refused_producers
from logboom.broker.partition.refused_producers import GAP_MAX_S, RefusedMemory, RefusedProducers
from logboom.storage import FirstSequence

MAX = 800
ERROR = NotEnoughReplicasError("for a moment")
OTHER = NotEnoughReplicasError("of an enemy")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_producers, "BROKER_PRODUCERS_MAX", MAX)


def first(producer: int) -> FirstSequence:
    return FirstSequence(producer, 0, 5)


def test_there_is_room_for_so_many_in_all_partitions_together() -> None:
    clock, memory = ManualClock(), RefusedMemory()
    honest, *attacked = (RefusedProducers(clock, memory) for _ in range(100))
    honest.note([first(1)], ERROR)
    for producer in range(50):
        for partition in attacked:
            partition.note([first(producer)], OTHER)
            assert len(honest) + sum(map(len, attacked)) <= MAX
    assert honest.answer(1) is ERROR, "the biggest ones made room"
    assert honest.answer(2) is None
    for partition in attacked:
        assert {partition.answer(producer) for producer in range(60)} == {OTHER}, "as long as it may have been refused"


def test_what_is_over_makes_room_first() -> None:
    clock, memory = ManualClock(), RefusedMemory()
    old, new = RefusedProducers(clock, memory), RefusedProducers(clock, memory)
    old.note(map(first, range(MAX - 10)), ERROR)
    clock.now_s += GAP_MAX_S
    new.note(map(first, range(20)), ERROR)
    assert (len(old), len(new)) == (0, 20)
    assert new.answer(30) is None, "nothing was forgotten before its time"


def test_partitions_that_are_gone_take_no_room() -> None:
    clock, memory = ManualClock(), RefusedMemory()
    for _ in range(10):
        gone = RefusedProducers(clock, memory)
        gone.note(map(first, range(MAX // 2)), ERROR)
        del gone
        gc.collect()
    last = RefusedProducers(clock, memory)
    last.note(map(first, range(MAX // 2)), ERROR)
    assert len(last) == MAX // 2
