"""The append queue, acks and the leadership as plain pieces: a log on a simulated disk, no broker and no thread."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.conditions import check_without_reads, ids_without_reads
from tests.broker.node import batch
from tests.support.logs import Reports

from logboom.base.errors import (
    CorruptBatchError,
    DiskFullError,
    InvalidTimestampError,
    LogboomError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutOfOrderSequenceError,
)
from logboom.base.ids import BrokerId, Epoch, Offset, StreamId
from logboom.broker.config import BrokerConfig
from logboom.broker.metrics import Counters
from logboom.broker.partition.append_queue import AppendQueue
from logboom.broker.partition.leader import Leader, Leading
from logboom.broker.partition.publications import PublishRun
from logboom.broker.partition.refused_producers import BEGUN_S, GAP_MAX_S, PRODUCERS_MAX, RefusedMemory
from logboom.broker.partition.replication_port import NoReplication, StreamIdPartition
from logboom.broker.partition.services import Undisputed
from logboom.broker.partition.validation import AppendRules, Checked
from logboom.broker.partition.waiters import AckWaiters, RunResult, Watchers, deliver_all, refused
from logboom.broker.settled_clock import SettledClock
from logboom.metadata import Flush, StreamConfig, TimestampType
from logboom.records import read_header, record_content
from logboom.sim.disk import SimDisk
from logboom.storage import LogConfig, PartitionLog

NOW_MS = 1_000_000
ALONE = frozenset({BrokerId(1)})
"""An ISR of this broker."""


class FixedClock:
    now_s = 0.0

    def wall_ms(self) -> int:
        return NOW_MS

    def monotonic_s(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return 0


class Readable:
    high_watermark = Offset(0)


class Bench:
    """A queue and its leadership over a real log; a flush happens when the test says so."""

    def __init__(self, **stream: object) -> None:
        config = replace(StreamConfig(), **stream)  # type: ignore[arg-type]
        self.log = PartitionLog.open(SimDisk(), "log", LogConfig(), now_ms=NOW_MS, report=Reports())
        self.counters = Counters()
        self.clock = clock = FixedClock()
        rules = AppendRules.of(config, BrokerConfig())
        conditions = check_without_reads(self.log, clock, self.counters)
        ids = ids_without_reads(self.log, clock, self.counters)
        settled_clock = SettledClock(clock)
        self.queue = AppendQueue(self.log, rules, conditions, ids, clock, settled_clock, self.counters, RefusedMemory())
        self.readable = Readable()
        minimum = config.min_insync_replicas
        self.leader = Leader(
            "s-0",
            StreamIdPartition(StreamId(UUID(int=1)), 0),
            broker_id=BrokerId(1),
            min_insync_replicas=minimum,
            log=self.log,
            queue=self.queue,
            readable=self.readable,
            replication=NoReplication(),
            standing=Undisputed(),
            on_commit=lambda: None,
        )
        self.told: list[tuple[str, list[Offset | LogboomError]]] = []

    def enqueue(self, name: str, *values: bytes, acks: int = -1, **how: object) -> None:
        self.queue.enqueue([batch(value, **how) for value in values], acks, self.teller(name))  # type: ignore[arg-type]

    def teller(self, name: str) -> Callable[[RunResult], None]:
        return lambda result: self.told.append((name, list(result.outcomes)))

    def flush(self) -> None:
        self.leader.local_end_moved(self.log.flush(sync=True))

    def names(self) -> list[str]:
        return [name for name, _ in self.told]


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.leader.start(Leading(Epoch(0), ALONE), Offset(0))
    made.clock.now_s += BEGUN_S
    return made


def test_an_append_is_answered_where_its_acks_are_served(bench: Bench) -> None:
    bench.enqueue("none", b"a", acks=0)
    bench.enqueue("leader", b"b", acks=1)
    bench.enqueue("commit", b"c", b"d")
    assert bench.names() == []
    assert bench.queue.drain() == sum(len(batch(value)) for value in (b"a", b"b", b"c", b"d"))
    assert bench.names() == ["none"]
    assert bench.queue.drain() == 0
    bench.flush()
    assert bench.told == [("none", [0]), ("leader", [1]), ("commit", [2, 3])]
    assert bench.readable.high_watermark == 4
    assert bench.counters.appended_records == 4


def test_each_batch_of_a_run_succeeds_or_fails_by_itself(bench: Bench) -> None:
    broken = batch(b"broken")
    broken[-1] ^= 1
    bench.queue.enqueue([batch(b"a"), broken, batch(b"b")], -1, bench.teller("run"))
    bench.enqueue("next", b"c")
    bench.queue.drain()
    bench.flush()
    (_, (first, wrong, second)), (_, next_offsets) = bench.told
    assert (first, second, next_offsets) == (0, 1, [2])
    assert isinstance(wrong, CorruptBatchError)
    assert bench.counters.refused_appends == 1


def test_a_run_of_which_nothing_is_taken_is_answered_at_once(bench: Bench) -> None:
    broken = batch(b"broken")
    broken[-1] ^= 1
    bench.queue.enqueue([broken], -1, bench.teller("run"))
    assert bench.queue.drain() == 0
    assert bench.names() == ["run"]


def test_a_repeated_batch_waits_for_its_first_copy_and_no_longer(bench: Bench) -> None:
    bench.enqueue("first", b"a", producer=(7, 0, 0))
    bench.enqueue("again", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    assert bench.names() == []
    bench.flush()
    assert bench.told == [("first", [0]), ("again", [0])]
    bench.enqueue("late", b"a", producer=(7, 0, 0))
    assert bench.queue.drain() == 0, "there is nothing to flush, so nothing must wait for a flush"
    assert bench.told[-1] == ("late", [0])
    assert bench.counters.duplicate_batches == 2


@pytest.mark.uncompiled
def test_what_is_checked_when_it_comes_is_not_checked_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, check = list[int](), AppendRules.check

    def counted(self: AppendRules, records: bytearray | memoryview, now_ms: int) -> Checked:
        checks.append(now_ms)
        return check(self, records, now_ms)

    monkeypatch.setattr(AppendRules, "check", counted)
    broken = batch(b"broken")
    broken[-1] ^= 1
    bench.queue.enqueue([batch(b"a"), broken], -1, bench.teller("held"))
    bench.queue.check_last()
    bench.enqueue("of a producer", b"b", producer=(7, 0, 0))
    bench.queue.check_last()
    assert (len(checks), bench.told) == (3, []), "nothing is answered before it is drained"
    bench.enqueue("last", b"c")
    bench.queue.drain()
    bench.flush()
    assert len(checks) == 4
    (_, (taken, refused_one)), *others = bench.told
    assert (taken, others) == (0, [("of a producer", [1]), ("last", [2])])
    assert isinstance(refused_one, CorruptBatchError)


def test_what_is_stamped_with_the_time_of_its_append_is_checked_then() -> None:
    bench = Bench(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    bench.leader.start(Leading(Epoch(0), ALONE), Offset(0))
    records = batch(b"a", timestamp_ms=5)
    bench.queue.enqueue([records], -1, bench.teller("one"))
    bench.queue.check_last()
    assert read_header(records).max_timestamp == 5
    bench.queue.drain()
    bench.flush()
    assert bench.told == [("one", [0])]


def test_what_is_held_in_a_queue_that_closes_is_refused_and_so_is_what_its_producer_sent_behind_it(
    bench: Bench,
) -> None:
    bench.enqueue("held", b"a", producer=(7, 0, 0))
    bench.queue.check_last()
    error = NotLeaderError("another broker leads")
    bench.queue.close(error)
    assert bench.told == [("held", [error])]


def test_what_a_full_disk_took_back_is_told_and_may_be_sent_again(bench: Bench) -> None:
    bench.enqueue("kept", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    bench.flush()
    bench.enqueue("lost", b"b", producer=(7, 0, 1))
    bench.enqueue("lost too", b"c", acks=1)
    bench.queue.drain()
    bench.log.abandon_staged()
    error = DiskFullError("no room")
    bench.queue.fail_staged(error)
    assert bench.told[1:] == [("lost", [error]), ("lost too", [error])]
    bench.enqueue("again", b"b", producer=(7, 0, 1))
    bench.queue.drain()
    bench.flush()
    assert bench.told[-1] == ("again", [1])


def test_what_a_full_disk_has_taken_before_goes_on_to_wait_for_its_commit(bench: Bench) -> None:
    """Followers may have it, so an error for it would be wrong. A run of repeats waits with what is left."""
    content, published = record_content(None, b"m", ()), list[tuple[str, Sequence[Offset | LogboomError]]]()

    def publish(name: str) -> None:
        run = PublishRun([content], {}, -1, NOW_MS, lambda one: published.append((name, list(one.outcomes))))
        bench.queue.publish(run)

    publish("kept")
    bench.enqueue("kept", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    bench.log.flush(sync=True)  # followers have not, so it is not committed
    publish("lost")
    bench.enqueue("lost", b"b", producer=(7, 0, 1))
    bench.queue.drain()
    bench.enqueue("kept too", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    error = DiskFullError("no room")
    bench.queue.fail_staged(error, bench.log.abandon_staged())
    assert (published, bench.told) == ([("lost", [error])], [("lost", [error])])
    bench.queue.committed(Offset(2))
    assert published[1:] == [("kept", [0])]
    assert bench.told[1:] == [("kept", [1]), ("kept too", [1])]


def test_what_a_producer_sent_behind_something_that_was_taken_back_gets_the_same_answer(bench: Bench) -> None:
    """Its sequence does not follow, and that is not the producer's fault: what it lacks comes again, before it."""
    bench.enqueue("kept", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    bench.flush()
    bench.enqueue("lost", b"b", producer=(7, 0, 1))
    bench.queue.drain()
    error = DiskFullError("no room")
    bench.queue.fail_staged(error, bench.log.abandon_staged())
    bench.enqueue("behind", b"c", producer=(7, 0, 2))
    bench.enqueue("of nobody who lost something", b"c", producer=(8, 0, 0))
    bench.enqueue("a gap of its own", b"c", producer=(8, 0, 2))
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert told["behind"] == [error]
    assert isinstance(told["a gap of its own"][0], OutOfOrderSequenceError)
    for sequence in (1, 2):
        bench.enqueue(f"again {sequence}", b"b", producer=(7, 0, sequence))
    bench.enqueue("another gap", b"b", producer=(7, 0, 9))
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert [told["again 1"], told["again 2"]] == [[2], [3]]
    assert isinstance(told["another gap"][0], OutOfOrderSequenceError)


def test_a_leadership_that_has_just_begun_takes_nothing_that_another_leader_may_have_refused_the_first_of(
    bench: Bench,
) -> None:
    """librdkafka 2.16 may send a batch to the next leader while it waits for the last one to answer the one before.

    Of a new producer it was taken, and counted as an ack of that one too, which was never stored.
    """
    bench.enqueue("known", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    bench.flush()
    bench.queue.begin(Epoch(1), Offset(1))
    behind = [(7, 0, 2), (8, 0, 1)]
    for producer in behind:
        bench.enqueue(f"early {producer}", b"b", producer=producer)
    bench.queue.drain()
    told = dict(bench.told)
    assert [type(told[f"early {producer}"][0]) for producer in behind] == [NotEnoughReplicasError] * 2
    in_order = [(7, 0, 1), (7, 0, 2), (8, 0, 0), (8, 0, 1), (9, 0, 0)]
    for producer in in_order:
        bench.enqueue(f"again {producer}", b"b", producer=producer)
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert [told[f"again {producer}"] for producer in in_order] == [[1], [2], [3], [4], [5]]
    bench.clock.now_s += BEGUN_S
    bench.enqueue("a gap of its own", b"b", producer=(7, 0, 9))
    bench.enqueue("begins anywhere", b"b", producer=(10, 0, 9))
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert isinstance(told["a gap of its own"][0], OutOfOrderSequenceError)
    assert told["begins anywhere"] == [6]


def no_leader_for_a_moment(bench: Bench) -> Callable[[], None]:
    bench.queue.close(NotLeaderError("no leader"))
    bench.queue.refusal = NotLeaderError("no leader yet")

    def leads() -> None:
        bench.queue.refusal = None
        bench.leader.start(Leading(Epoch(4), ALONE), Offset(1))
        bench.clock.now_s += BEGUN_S

    return leads


def too_few_in_sync_for_a_moment(bench: Bench) -> Callable[[], None]:
    bench.leader.minimum_changed(2)
    return lambda: bench.leader.minimum_changed(1)


@pytest.mark.parametrize("a_moment", [no_leader_for_a_moment, too_few_in_sync_for_a_moment])
def test_what_a_producer_sent_behind_something_that_was_refused_gets_the_same_answer(
    bench: Bench, a_moment: Callable[[Bench], Callable[[], None]]
) -> None:
    """Else librdkafka begins a new epoch, and doubles records of other partitions."""
    bench.enqueue("kept", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    bench.flush()
    is_over = a_moment(bench)
    bench.enqueue("refused", b"b", producer=(7, 0, 1))
    bench.queue.drain()
    is_over()
    bench.enqueue("behind", b"c", producer=(7, 0, 2))
    bench.queue.drain()
    told = dict(bench.told)
    assert isinstance(told["refused"][0], NotLeaderError | NotEnoughReplicasError)
    assert told["behind"] == told["refused"]
    for sequence in (1, 2):
        bench.enqueue(f"again {sequence}", b"b", producer=(7, 0, sequence))
    bench.enqueue("a gap of its own", b"b", producer=(7, 0, 9))
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert isinstance(told["again 1"][0], int)
    assert isinstance(told["again 2"][0], int)
    assert isinstance(told["a gap of its own"][0], OutOfOrderSequenceError)


@pytest.mark.parametrize("a_moment", [no_leader_for_a_moment, too_few_in_sync_for_a_moment])
def test_what_a_new_producer_sent_behind_its_first_batch_waits_for_that(
    bench: Bench, a_moment: Callable[[Bench], Callable[[], None]]
) -> None:
    """Taken, the second one would count as an ack of the first too, which was never stored."""
    bench.enqueue("of another one", b"a", producer=(8, 0, 0))
    bench.queue.drain()
    bench.flush()
    is_over = a_moment(bench)
    bench.enqueue("refused", b"b", producer=(7, 0, 0))
    bench.enqueue("refused too", b"c", producer=(7, 0, 1))
    bench.enqueue("of one that was forgotten", b"c", producer=(9, 3, 77))
    bench.queue.drain()
    is_over()
    for sequence in (1, 2):
        bench.enqueue(f"behind {sequence}", b"c", producer=(7, 0, sequence))
    bench.enqueue("behind that", b"c", producer=(9, 3, 78))
    bench.queue.drain()
    told = dict(bench.told)
    assert told["behind 1"] == told["behind 2"] == told["behind that"] == told["refused"]
    again = [(7, 0, 0), (7, 0, 1), (7, 0, 2), (9, 3, 77), (9, 3, 78)]
    for producer in again:
        bench.enqueue(f"again {producer}", b"b", producer=producer)
    bench.enqueue("of no refused one", b"b", producer=(10, 0, 5))
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert [told[f"again {producer}"] for producer in again] == [[1], [2], [3], [4], [5]]
    assert told["of no refused one"] == [6]


def test_what_a_new_producer_sent_behind_something_that_was_taken_back_waits_for_that(bench: Bench) -> None:
    for sequence in (0, 1):
        bench.enqueue(f"lost {sequence}", b"b", producer=(7, 0, sequence))
    bench.queue.drain()
    error = DiskFullError("no room")
    bench.queue.fail_staged(error, bench.log.abandon_staged())
    bench.enqueue("behind", b"c", producer=(7, 0, 2))
    bench.queue.drain()
    assert dict(bench.told)["behind"] == [error]
    for sequence in (0, 1, 2):
        bench.enqueue(f"again {sequence}", b"b", producer=(7, 0, sequence))
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert [told[f"again {sequence}"] for sequence in (0, 1, 2)] == [[0], [1], [2]]


def test_a_client_with_many_producer_ids_takes_no_place_from_an_honest_one(bench: Bench) -> None:
    """Nor any more memory: an id is what a client says. For 120 s any gap is then refused for a moment."""
    bench.enqueue("kept", b"a", producer=(7, 0, 0))
    bench.queue.drain()
    bench.flush()
    is_over = too_few_in_sync_for_a_moment(bench)
    bench.enqueue("known", b"b", producer=(7, 0, 1))
    bench.enqueue("new", b"b", producer=(8, 0, 0))
    for other in range(100, 100 + 3 * PRODUCERS_MAX):
        bench.enqueue("enemy", b"c", producer=(other, 0, 0))
    bench.queue.drain()
    is_over()
    assert len(bench.queue._refused_producers) == PRODUCERS_MAX
    bench.enqueue("behind known", b"c", producer=(7, 0, 2))
    bench.enqueue("behind new", b"c", producer=(8, 0, 1))
    bench.queue.drain()
    told = dict(bench.told)
    assert told["behind known"] == told["known"]
    assert told["behind new"] == told["new"]
    again = [(7, 0, 1), (7, 0, 2), (8, 0, 0), (8, 0, 1)]
    for producer in again:
        bench.enqueue(f"again {producer}", b"b", producer=producer)
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert [told[f"again {producer}"] for producer in again] == [[1], [2], [3], [4]]
    bench.clock.now_s += GAP_MAX_S
    bench.enqueue("a gap of its own", b"b", producer=(7, 0, 9))
    bench.enqueue("begins anywhere", b"b", producer=(9, 0, 9))
    bench.queue.drain()
    bench.flush()
    told = dict(bench.told)
    assert isinstance(told["a gap of its own"][0], OutOfOrderSequenceError)
    assert told["begins anywhere"] == [5]
    assert len(bench.queue._refused_producers) == 0


def test_closing_answers_what_waits_and_what_was_never_staged(bench: Bench) -> None:
    bench.enqueue("staged", b"a")
    bench.queue.drain()
    bench.enqueue("enqueued", b"b", b"c", acks=1)
    error = NotLeaderError("closing")
    bench.queue.close(error)
    assert bench.told == [("staged", [error]), ("enqueued", [error, error])]
    bench.enqueue("late", b"d")
    assert bench.queue.drain() == 0
    assert bench.told[-1] == ("late", [error])
    assert bench.counters.refused_appends == 4


def test_below_the_minimum_nothing_that_waits_for_commit_is_taken() -> None:
    bench = Bench(min_insync_replicas=2)
    bench.leader.start(Leading(Epoch(3), ALONE), Offset(0))
    bench.enqueue("refused", b"a")
    bench.enqueue("leader", b"b", acks=1)
    bench.queue.drain()
    bench.flush()
    (_, (refusal,)), leader = bench.told
    assert isinstance(refusal, NotEnoughReplicasError)
    assert leader == ("leader", [0])
    assert bench.readable.high_watermark == 0
    bench.leader.minimum_changed(1)
    assert bench.readable.high_watermark == 1
    bench.enqueue("taken", b"c")
    bench.queue.drain()
    bench.leader.minimum_changed(2)
    (uncommitted,) = bench.told[-1][1]
    assert isinstance(uncommitted, NotEnoughReplicasAfterAppendError), "it is in the log, and may yet be committed"


def test_a_stream_that_does_not_sync_is_safe_once_written() -> None:
    bench = Bench(flush=Flush.NONE)
    bench.leader.start(Leading(Epoch(0), ALONE), Offset(0))
    bench.enqueue("a", b"a")
    bench.queue.drain()
    bench.leader.local_end_moved(bench.log.flush(sync=False))
    assert bench.told == [("a", [0])]
    assert (bench.queue.safe_end, bench.log.durable_end) == (1, 0)


def test_the_leadership_stamps_its_epoch_and_calls_watchers(bench: Bench) -> None:
    calls: list[int] = []
    handle = bench.leader.watchers.add(lambda: calls.append(bench.readable.high_watermark))
    bench.leader.start(Leading(Epoch(5), ALONE), Offset(0))
    bench.enqueue("a", b"a")
    bench.queue.drain()
    bench.flush()
    data = bench.log.reader.read(Offset(0), 1, ceiling=Offset(1))
    assert data is not None
    assert read_header(data).leader_epoch == 5
    assert calls == [1]
    bench.leader.watchers.remove(handle)
    assert len(bench.leader.watchers) == 0


def test_rules_refuse_times_out_of_bounds_and_stamp_where_asked() -> None:
    bounds = AppendRules.of(
        replace(StreamConfig(), message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=10), BrokerConfig()
    )
    for taken in (NOW_MS - 100, NOW_MS, NOW_MS + 10):
        assert isinstance(bounds.check(batch(b"a", timestamp_ms=taken), NOW_MS), tuple)
    for wrong in (NOW_MS - 101, NOW_MS + 11):
        assert isinstance(bounds.check(batch(b"a", timestamp_ms=wrong), NOW_MS), InvalidTimestampError)
    stamping = replace(bounds, stamps_append_time=True)
    checked = stamping.check(batch(b"a", timestamp_ms=5), NOW_MS)
    assert isinstance(checked, tuple)
    assert (checked[1].max_timestamp, checked[1].uses_append_time) == (NOW_MS, True)


# --- acks -----------------------------------------------------------------------------------------------------------

_EVENTS = st.lists(st.tuples(st.sampled_from(["add", "answer", "refuse"]), st.integers(0, 30)), max_size=60)


@given(_EVENTS)
def test_acks_keep_their_order_come_once_and_never_too_early(events: list[tuple[str, int]]) -> None:
    waiters, told, added, reached = AckWaiters(), list[int](), list[int](), 0
    wanted: list[int] = []
    error = NotLeaderError("over")
    for what, value in events:
        if what == "add":
            number = len(added)
            added.append(number)
            wanted.append(value)
            result = RunResult([Offset(value)], -1, Offset(0))
            waiters.add(value, lambda _, number=number: told.append(number), result)  # type: ignore[misc]
        elif what == "answer":
            reached = max(reached, value)
            before = len(told)
            waiters.answer(reached)
            assert all(wanted[number] <= reached for number in told[before:])
        else:
            deliver_all(waiters.refuse(error, safe_end=reached))
            assert len(waiters) == 0
    assert told == added[: len(told)]
    assert len(waiters) == len(added) - len(told)


@given(st.lists(st.one_of(st.integers(0, 20), st.none()), max_size=8), st.integers(0, 20))
def test_a_refusal_keeps_what_is_safe_and_what_had_failed_before(offsets: list[int | None], safe_end: int) -> None:
    earlier, error = CorruptBatchError("broken"), DiskFullError("no room")
    outcomes = [earlier if offset is None else Offset(offset) for offset in offsets]
    found = refused(RunResult(outcomes, 5, Offset(1)), error, safe_end=safe_end)
    expected = [one if one is earlier or one < safe_end else error for one in outcomes]  # type: ignore[operator]
    assert (list(found.outcomes), found.log_append_time_ms, found.log_start_offset) == (expected, 5, 1)


def test_a_callback_that_raises_costs_no_other_its_call() -> None:
    told: list[RunResult] = []

    def raises(_: RunResult) -> None:
        raise LookupError

    result = RunResult([Offset(0)], -1, Offset(0))
    with pytest.raises(LookupError):
        deliver_all([(raises, result), (told.append, result), (raises, result), (told.append, result)])
    assert told == [result, result]


def test_watchers_may_come_and_go_while_they_are_called() -> None:
    watchers, calls = Watchers(), list[str]()

    def leaves() -> None:
        calls.append("leaves")
        watchers.remove(handle)
        watchers.add(lambda: calls.append("new"))

    handle = watchers.add(leaves)
    watchers.call()
    watchers.call()
    watchers.remove(handle)
    assert calls == ["leaves", "new"]
