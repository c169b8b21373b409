"""Reading and watching a table of a real broker, whatever happens to its stream."""

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until
from tests.table.support import Copy, make_anew, produce, values_of

from logboom.table import (
    AmbiguousKeyError,
    NoSuchTableError,
    NotATableError,
    Table,
    TableError,
    TableTimeoutError,
)
from logboom.table.position import Position

Opened = Callable[..., Table]


def test_a_read_sees_what_was_acked_before_it_began(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    """Two views of one table: what one has written, or any Kafka client, the other one reads at once."""
    one, other = opened(), opened()
    for number in range(20):
        entry = one.put("k", b"%d" % number)
        assert other.get("k") == entry
        assert one.get("k", stale_ok=True) == entry, "one's own write, without asking the broker"
        produce(broker.kafka, stream, [(b"k", b"client %d" % number)], partitioner="murmur2_random")
        found = one.get("k")
        assert found is not None
        assert found.value == b"client %d" % number


def test_reads_at_the_same_time_see_it_too(opened: Opened) -> None:
    """Callers that share one question to the broker may not share one that was asked before they came."""
    writer, reader = opened(), opened()
    newest = 0
    wrong: list[tuple[int, object]] = []

    def read() -> None:
        for _ in range(30):
            known = newest
            entry = reader.get("k")
            if known and (entry is None or int(entry.value) < known):
                wrong.append((known, entry))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in readers:
        thread.start()
    for number in range(1, 31):
        writer.put("k", b"%d" % number)
        newest = number
    for thread in readers:
        thread.join(WAIT_S)
    assert not wrong


def test_empty_values_deletions_and_binary_keys(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    table, keys = opened(), [b"", b"\x00\xff", "\N{SNOWMAN}".encode(), b"k" * 10_000]
    for key in keys:
        table.put(key, b"")
    assert [entry.key for entry in table.entries()] == sorted(keys)
    assert all(entry.value == b"" for entry in table.entries())
    assert table.delete(keys[0])
    assert not table.delete(keys[0]), "it has no value any more"
    assert table.get(keys[0]) is None
    assert values_of(opened()) == dict.fromkeys(keys[1:], b"")


def test_keys_lie_where_kafkas_java_client_puts_them(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    table, keys = opened(), [f"key-{number}" for number in range(30)]
    produce(broker.kafka, stream, [(key.encode(), b"1") for key in keys], partitioner="murmur2_random")
    for key in keys:
        table.put(key, b"2")
    assert len({entry.partition for entry in table.entries()}) == 3
    assert not table.ambiguous_keys()


def test_a_key_stays_where_another_partitioner_put_it(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    table = opened()
    for partition in range(3):
        produce(broker.kafka, stream, [(b"k%d" % partition, b"1")], partition=partition)
    assert [table.put(f"k{partition}", b"2").partition for partition in range(3)] == [0, 1, 2]
    assert not table.ambiguous_keys()


def test_a_key_in_two_partitions_is_told_and_not_guessed(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    table = opened()
    watch = table.watch()
    for partition in (0, 2):
        produce(broker.kafka, stream, [(b"k", b"%d" % partition)], partition=partition)
    for act in (lambda: table.get("k"), lambda: table.put("k", b"3"), lambda: table.delete("k")):
        with pytest.raises(AmbiguousKeyError, match=r"partitions 0 \(version 0\) and 2 \(version 0\)") as told:
            act()
        assert [entry.value for entry in told.value.entries] == [b"0", b"2"]
    assert table.ambiguous_keys() == [b"k"]
    while (change := watch.next(WAIT_S)) is not None and not change.ambiguous:
        pass
    assert change is not None
    assert table.delete("k", partition=2)
    entry = table.get("k")
    assert entry is not None
    assert entry.value == b"0"
    change = watch.next(WAIT_S)
    assert change is not None
    assert (change.entry, change.ambiguous) == (entry, False)


def test_partitions_that_are_added_are_read(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    table = opened()
    for number in range(20):
        table.put(f"k{number}", b"1")
    copy = Copy(table.watch())
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_partitions([NewPartitions(stream, 6)])[stream].result(WAIT_S)
    other = opened()
    for number in range(40):
        other.put(f"k{number}", b"2")
        found = table.get(f"k{number}")
        assert found is not None
        assert found.value == b"2"
    assert not table.ambiguous_keys(), "keys stay in the partition that they are in"
    assert {entry.partition for entry in table.entries()} == set(range(6))
    copy.until({b"k%d" % number: b"2" for number in range(40)})
    copy.close()


@pytest.mark.parametrize("longer", [False, True])
def test_a_stream_that_is_made_anew_is_told_as_a_difference(
    broker: BrokerProcess, stream: str, opened: Opened, *, longer: bool
) -> None:
    """Also where the new one is longer than what was read of the old one, which librdkafka does not notice."""
    table = opened(check_interval_s=0.2)
    for number in range(5):
        table.put(f"old-{number}", b"1")
    table.put("kept", b"1")
    copy = Copy(table.watch())
    copy.until(values_of(table))
    make_anew(broker.kafka, stream)
    wanted = {b"kept": b"2"} | ({b"new-%d" % number: b"2" for number in range(60)} if longer else {})
    produce(broker.kafka, stream, list(wanted.items()), partitioner="murmur2_random")
    copy.until(wanted)
    assert values_of(table) == wanted
    copy.close()


def test_reads_and_writes_meet_the_new_stream_at_once(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    """Without waiting for the next check: each asks which stream it is."""
    table = opened(check_interval_s=3600)
    table.put("k", b"1")
    make_anew(broker.kafka, stream, partitions=1)
    assert table.get("k") is None
    assert table.put("k", b"2").version == 0
    assert values_of(table) == {b"k": b"2"}
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.delete_topics([stream])[stream].result(WAIT_S)
    with pytest.raises(NoSuchTableError, match="logboom tables create"):
        table.get("k")
    found = table.get("k", stale_ok=True)
    assert found is not None
    assert found.value == b"2"


def test_what_is_deleted_from_the_log_leaves_the_table(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    """Records that go without a tombstone, by DeleteRecords or retention."""
    produce(broker.kafka, stream, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], partition=1)
    table = opened(check_interval_s=0.1)
    copy = Copy(table.watch())
    until(lambda: copy.watch.position is not None)
    position = copy.watch.position
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    where = TopicPartition(stream, 1, 2)
    admin.delete_records([where])[where].result(WAIT_S)
    copy.until({b"c": b"1"})
    assert not opened().watch(since=position).resumed, "nothing in the log tells of those deletions"
    copy.close()


def test_a_watch_goes_on_where_an_earlier_one_ended(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    table = opened()
    for key in ("a", "b", "c"):
        table.put(key, b"1")
    with table.watch() as earlier:
        assert not earlier.resumed
        assert {change.key for change in (earlier.next(WAIT_S) for _ in range(3)) if change} == {b"a", b"b", b"c"}
        position = earlier.position
    table.put("b", b"2")
    table.delete("c")
    for other in (table, opened()):
        with other.watch(since=position) as later:
            assert later.resumed
            changes = [later.next(WAIT_S), later.next(WAIT_S)]
            assert {(change.key, change.deleted) for change in changes if change} == {(b"b", False), (b"c", True)}
            assert later.next(0) is None
    make_anew(broker.kafka, stream)
    assert not opened().watch(since=position).resumed
    with pytest.raises(ValueError, match="no position"):
        table.watch(since="yesterday")


def test_a_position_from_before_deletions_may_be_gone_is_not_resumed(opened: Opened) -> None:
    table = opened()
    table.put("a", b"1")
    with table.watch() as earlier:
        assert earlier.next(WAIT_S) is not None
        assert earlier.position is not None
        position = Position.parse(earlier.position)
    a_day_ms = 86_400_000
    for age_ms, resumed in ((0, True), (a_day_ms - 180_000, True), (a_day_ms + 1, False)):
        old = position._replace(known_at_ms=position.known_at_ms - age_ms)
        assert table.watch(since=str(old)).resumed == resumed


def test_a_part_of_a_table(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    whole = opened()
    for number in range(12):
        whole.put(f"a-{number}", b"1")
        whole.put(f"b-{number}", b"1")
    part = opened(prefix="a-")
    assert {entry.key_text[0] for entry in part.entries()} == {"a"}
    with pytest.raises(ValueError, match="does not begin with 'a-'"):
        part.get("b-1")
    one = opened(partitions=[1])
    assert {entry.partition for entry in one.entries()} == {1}
    elsewhere = next(entry for entry in whole.entries() if entry.partition != 1)
    acts: list[Callable[[], object]] = [lambda: one.get(elsewhere.key), lambda: one.put(elsewhere.key, b"2")]
    for act in acts:
        with pytest.raises(ValueError, match=f"belongs to partition {elsewhere.partition}"):
            act()
    with pytest.raises(NotATableError, match="has no partition 7"):
        opened(partitions=[7])


def test_what_is_no_table_is_refused_with_what_to_do(broker: BrokerProcess, stream: str, opened: Opened) -> None:
    with pytest.raises(NoSuchTableError, match="logboom tables create nothing"):
        opened("nothing")
    produce(broker.kafka, f"{stream}-plain", [(b"k", b"v")])
    with pytest.raises(NotATableError, match=r"cleanup.policy=delete.*logboom streams alter"):
        opened(f"{stream}-plain")
    assert not Table.create(broker.kafka, stream), "it exists"


def test_a_table_that_nobody_can_read_completely_says_so(broker: BrokerProcess, opened: Opened, stream: str) -> None:
    name = f"{stream}-hasty"
    assert Table.create(broker.kafka, name, settings={"delete.retention.ms": "0"})

    def told() -> str:
        with pytest.raises(TableTimeoutError) as refused:
            opened(name, timeout_s=1)
        return str(refused.value)

    # On a busy machine the broker may not have answered in that second.
    until(lambda: "raise that setting" in told(), "what is to be done")


def test_without_a_broker_reads_time_out_and_say_why(opened: Opened) -> None:
    with pytest.raises(TableTimeoutError, match=r"no broker answered for table 't' within 0.5 s"):
        Table.open("127.0.0.1:1", "t", timeout_s=0.5)


def test_a_closed_table_refuses_and_ends_its_watchers(opened: Opened) -> None:
    table = opened()
    copy = Copy(table.watch())
    table.close()
    copy.close()
    with pytest.raises(TableError, match="closed"):
        table.get("k", stale_ok=True)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12, where there are threads
def test_a_forked_process_is_told_to_open_its_own(opened: Opened) -> None:
    """Its copy has no threads, so that a question to the broker would wait for ever."""
    table = opened()
    table.put("k", b"1")
    calls = (
        lambda: table.get("k"),
        lambda: table.get("k", stale_ok=True),
        lambda: table.put("k", b"2", expected=0),
        table.watch,
    )

    def in_the_child(told: Any) -> None:
        for call in calls:
            try:
                call()
            except TableError as error:
                told.send(str(error))
        table.close()
        told.send("closed")

    fork = multiprocessing.get_context("fork")
    ours, its = fork.Pipe(duplex=False)
    child = fork.Process(target=in_the_child, args=(its,))
    child.start()
    try:
        for _ in calls:
            assert ours.poll(WAIT_S)
            assert "was forked, and its threads are not here: open it again in each process" in ours.recv()
        assert ours.poll(WAIT_S)
        assert ours.recv() == "closed"
    finally:
        child.kill()
        child.join(WAIT_S)
    assert table.get("k", stale_ok=True) is not None


def test_a_thousand_watchers(opened: Opened) -> None:
    """Each gets the last state; none holds up the others, also not those that never come round to a change."""
    table = opened()
    watches = [table.watch(prefix=f"{number % 10}") for number in range(1_000)]
    for turn in range(3):
        for number in range(10):
            table.put(f"{number}", b"%d" % turn)
    for number, watch in enumerate(watches):
        if number % 7:
            change = watch.next(WAIT_S)
            assert change is not None
            assert change.key == b"%d" % (number % 10)
            assert change.entry is not None
            assert change.entry.value == b"2", "a watcher that comes late gets the newest state alone"
