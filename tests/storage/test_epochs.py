from logboom.base.ids import Epoch, Offset
from logboom.storage import EpochHistory


def history(*entries: tuple[int, int]) -> EpochHistory:
    made = EpochHistory()
    for epoch, start in entries:
        assert made.begin(Epoch(epoch), Offset(start))
    return made


def end_of(made: EpochHistory, epoch: int) -> tuple[int, int]:
    return made.end_of(Epoch(epoch), Offset(100))


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    made = history((1, 0), (3, 20), (7, 50))
    assert [end_of(made, epoch) for epoch in range(-1, 9)] == [
        (-1, -1),
        (0, 0),
        (1, 20),
        (1, 20),
        (3, 50),
        (3, 50),
        (3, 50),
        (3, 50),
        (7, 100),
        (-1, -1),
    ]
    assert end_of(history(), 4) == (-1, -1)


def test_an_epoch_without_records_leaves_no_trace() -> None:
    assert history((1, 0), (2, 10), (3, 10)).entries == ((1, 0), (3, 10))


def test_the_same_epoch_begins_once() -> None:
    made = history((4, 0))
    assert not made.begin(Epoch(4), Offset(30))
    assert made.entries == ((4, 0),)


def test_epoch_of_an_offset() -> None:
    made = history((1, 5), (3, 20))
    assert [made.at(Offset(n)) for n in (0, 4, 5, 19, 20, 99)] == [-1, -1, 1, 1, 3, 3]


def test_truncation_at_both_ends() -> None:
    made = history((1, 0), (3, 20), (7, 50))
    assert not made.truncate_end(Offset(51))
    assert made.truncate_end(Offset(50))
    assert list(made.entries) == [(1, 0), (3, 20)]
    made = history((1, 0), (3, 20), (7, 50))
    assert not made.truncate_start(Offset(0))
    assert made.truncate_start(Offset(30))
    assert list(made.entries) == [(3, 30), (7, 50)]
    assert made.truncate_start(Offset(50))
    assert list(made.entries) == [(7, 50)]
    assert made.truncate_start(Offset(90))
    assert list(made.entries) == [(7, 90)]


def test_bytes_round_trip_and_no_others_pass() -> None:
    made = history((1, 0), (3, 20))
    data = made.to_bytes()
    again = EpochHistory.from_bytes(data)
    assert again is not None
    assert again.entries == made.entries
    for at in range(len(data)):
        assert EpochHistory.from_bytes(data[:at]) is None
        assert EpochHistory.from_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]) is None
