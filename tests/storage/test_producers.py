import pytest
from tests.support.logs import batch

from logboom.base.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from logboom.base.ids import Offset, ProducerId
from logboom.records import MAX_SEQUENCE, BatchHeader, read_header
from logboom.storage.producers import WINDOW, ProducerTable, Undo

PRODUCER = ProducerId(7)


def table() -> ProducerTable:
    return ProducerTable(expiry_ms=1000, max_producers=3)


def header(sequence: int, count: int = 1, epoch: int = 0, producer: int = PRODUCER) -> BatchHeader:
    return read_header(batch(count, 1, producer=producer, epoch=epoch, sequence=sequence))


def send(producers: ProducerTable, head: BatchHeader, offset: int, now_ms: int = 0) -> Offset | None:
    """Append as the log does; the offset of the first copy if it is a duplicate."""
    duplicate = producers.check(head)
    if duplicate is not None:
        return duplicate.base_offset
    producers.record(head, Offset(offset), now_ms)
    return None


def test_a_sequence_must_follow() -> None:
    producers = table()
    send(producers, header(0, 3), 0)
    send(producers, header(3, 2), 3)
    for wrong in (4, 6, 100):
        with pytest.raises(OutOfOrderSequenceError):
            producers.check(header(wrong))
    assert producers.check(header(5)) is None


def test_the_last_five_batches_are_recognised() -> None:
    producers = table()
    for n in range(WINDOW + 1):
        send(producers, header(2 * n, 2), 100 + 2 * n)
    for n in range(1, WINDOW + 1):
        assert send(producers, header(2 * n, 2), 999) == 100 + 2 * n
    with pytest.raises(OutOfOrderSequenceError):
        producers.check(header(0, 2))


def test_a_batch_behind_a_gap_is_remembered_alone() -> None:
    """As recovery meets it: the batches between a snapshot and the start of the log were deleted."""
    producers = ProducerTable(expiry_ms=1_000, max_producers=10)
    for sequence, offset in ((0, 0), (1, 1), (5, 5), (6, 6)):
        producers.record(header(sequence), Offset(offset), 0)
    state = producers.get(ProducerId(PRODUCER))
    assert state is not None
    assert [one.base_offset for one in state.batches] == [5, 6]


def test_another_length_is_no_duplicate() -> None:
    producers = table()
    send(producers, header(0, 3), 0)
    with pytest.raises(OutOfOrderSequenceError):
        producers.check(header(0, 2))


def test_sequences_wrap() -> None:
    producers = table()
    send(producers, header(MAX_SEQUENCE - 1, 2), 0)
    assert producers.check(header(0)) is None
    send(producers, header(0, 4), 2)
    assert producers.check(header(4)) is None
    assert send(producers, header(MAX_SEQUENCE - 1, 2), 9) == 0


def test_a_batch_across_the_wrap() -> None:
    producers = table()
    send(producers, header(MAX_SEQUENCE - 1, 5), 0)
    assert producers.check(header(3)) is None
    with pytest.raises(OutOfOrderSequenceError):
        producers.check(header(4))


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    producers = table()
    send(producers, header(0, epoch=2), 0)
    with pytest.raises(InvalidProducerEpochError):
        producers.check(header(1, epoch=1))
    with pytest.raises(OutOfOrderSequenceError):
        producers.check(header(1, epoch=3))
    send(producers, header(0, epoch=3), 1)
    with pytest.raises(InvalidProducerEpochError):
        producers.check(header(0, epoch=2))


def test_a_batch_below_those_that_are_remembered_is_never_told_to_be_there() -> None:
    """This one was not: the producer was forgotten, and began in the middle. Clients count a duplicate as written."""
    producers = table()
    for number in range(WINDOW + 1):
        assert send(producers, header(7 + number), offset=number) is None
    for sequence in (6, 7):
        with pytest.raises(OutOfOrderSequenceError):
            producers.check(header(sequence))


def test_an_unknown_producer_may_go_on_in_the_middle() -> None:
    # Its records may have been deleted by retention, or it was silent for long (KIP-360).
    assert table().check(header(500)) is None


def test_silent_producers_expire() -> None:
    producers = table()
    send(producers, header(0, producer=1), 0, now_ms=0)
    send(producers, header(0, producer=2), 1, now_ms=500)
    send(producers, header(1, producer=1), 2, now_ms=900)
    producers.expire(1600)
    assert [producer for producer, _ in producers] == [1]


def test_the_longest_silent_producer_is_evicted_above_the_limit() -> None:
    producers = table()
    for producer in (1, 2, 3):
        send(producers, header(0, producer=producer), 0)
    send(producers, header(1, producer=1), 0)
    send(producers, header(0, producer=4), 0)
    assert [producer for producer, _ in producers] == [3, 1, 4]


def test_what_was_recorded_can_be_taken_back() -> None:
    """Also the order of the producers, and the one that was forgotten because there were too many."""
    producers = table()
    for number, producer in enumerate((PRODUCER, 8, 9)):
        send(producers, header(0, producer=producer), number)
    known = list(producers)
    undo: Undo = []
    producers.record(header(1), Offset(3), 5, undo)
    producers.record(header(0, producer=10), Offset(4), 5, undo)
    assert [producer for producer, _ in producers] == [9, PRODUCER, 10]
    producers.revert(undo)
    assert list(producers) == known


def test_a_snapshot_holds_everything_and_no_other_bytes_pass() -> None:
    producers = table()
    for n in range(8):
        send(producers, header(n, epoch=4), n, now_ms=n)
    send(producers, header(0, producer=8), 8)
    data = producers.to_bytes(Offset(9))
    again = table()
    assert again.load(data, Offset(9))
    assert list(again) == list(producers)
    assert not again.load(data, Offset(8))
    for at in range(len(data)):
        garbled = bytearray(data)
        garbled[at] ^= 1
        assert not again.load(bytes(garbled), Offset(9))
        assert not again.load(data[:at], Offset(9))
    assert list(again) == list(producers)
