"""The checks find what they are there to find."""

from logboom.base.ids import Offset
from logboom.sim.client import TopicPartition
from logboom.sim.history import History

A = TopicPartition("s", 0)
B = TopicPartition("s", 1)


def recorded() -> History:
    history = History()
    history.send("p", A, [1, 2, 3])
    history.send("p", B, [4])
    history.acknowledge(A, 0, [1, 2, 3])
    return history


def places(*values: int) -> list[tuple[Offset, int]]:
    return [(Offset(offset), value) for offset, value in enumerate(values)]


def test_a_history_without_faults_has_none() -> None:
    history = recorded()
    history.poll(A, Offset(0), places(1, 2, 3))
    history.poll(A, Offset(1), places(1, 2, 3)[1:])
    assert history.check({A: places(1, 2, 3), B: places(4)}) == []
    assert history.check({A: places(1, 2, 3), B: []}) == []  # nobody was told of 4


def test_acknowledged_and_read_records_that_are_gone_are_lost_writes() -> None:
    history = recorded()
    history.poll(B, Offset(0), places(4))
    assert history.check({A: places(1, 2), B: []}) == [
        "lost write in s-0: 3 was acknowledged at 2, where None is",
        "lost write in s-1: 4 was read at 0, where None is",
    ]


def test_duplicates_and_disorder() -> None:
    assert recorded().check({A: places(1, 2, 3, 2), B: []}) == [
        "duplicate: 2 is in s-0 at 1 and in s-0 at 3",
        "order in s-0: 2 of p lies behind 3, at 3",
    ]


def test_what_may_lie_twice_or_behind_later_ones_is_no_fault_and_is_counted() -> None:
    history = recorded()
    history.may_repeat = {2}
    assert history.check({A: places(1, 2, 3, 2), B: []}) == []
    assert history.repeated == {2}
    history = recorded()
    history.may_repeat, history.may_stray = {3}, {1}
    assert history.check({A: places(1, 2, 3), B: places(4, 1)}) == ["duplicate: 1 is in s-0 at 0 and in s-1 at 1"]
    astray = History(may_stray={5})
    astray.send("p", A, [5, 6])
    assert astray.check({A: places(6, 5)}) == []


def test_what_may_be_in_any_of_several_partitions_is_in_one_where_it_was_acknowledged() -> None:
    history = History()
    history.send_to_one_of("p", (A, B), [1, 2])
    history.acknowledge_in_one_of((A, B), 0, 1)
    history.poll(B, Offset(0), places(2))
    assert history.violations == []
    assert history.check({A: places(1), B: places(2)}) == []
    assert history.check({A: places(1, 2), B: places(2)}) == ["duplicate: 2 is in s-0 at 1 and in s-1 at 0"]
    assert history.check({A: [], B: places(2)}) == ["lost write: 1 was acknowledged at 0 of one of s-0, s-1"]
    history.acknowledge_in_one_of((A,), 0, 1)
    assert history.check({A: [], B: places(2)})[0] == "lost write in s-0: 1 was acknowledged at 0, where None is"


def test_an_offset_that_changes_its_record() -> None:
    history = recorded()
    history.send("q", A, [9])
    history.poll(A, Offset(0), places(1, 9))
    assert history.violations == ["inconsistent offsets in s-0: 1 held 2, then 9 was read there"]


def test_polls_that_skip_go_back_or_give_what_nobody_sent() -> None:
    history = recorded()
    history.poll(A, Offset(0), [(Offset(0), 1), (Offset(2), 3)])
    history.poll(A, Offset(2), [(Offset(1), 2)])
    history.poll(B, Offset(0), [(Offset(0), 77)])
    assert history.violations == [
        "poll skip in s-0: offset 2 came where 1 was next",
        "poll skip in s-0: offset 1 came where 2 was next",
        "phantom in s-1: 77 at 0 was never sent there",
    ]


def test_what_was_refused_is_neither_read_nor_there() -> None:
    history = recorded()
    history.send("p", B, [5])
    history.refuse([5])
    history.poll(B, Offset(0), places(4, 5))
    assert history.check({A: places(1, 2, 3), B: places(4, 5)}) == [
        "aborted read in s-1: 5 at 1 was refused",
        "aborted write in s-1: 5 is at 1, and was refused",
    ]


def test_many_violations_are_told_shortly() -> None:
    history = recorded()
    for number in range(9):
        history.violated(str(number))
    assert history.check({A: places(1, 2, 3), B: []}) == ["0", "1", "2", "3", "4", "and 4 more"]
