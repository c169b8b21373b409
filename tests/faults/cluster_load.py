"""Load on a cluster, which is checked: an idempotent producer and a consumer group, both from librdkafka.

The producer sends 0, 1, 2, ... round the partitions and remembers what it was told and when. The group's one member
commits what it has handled, and remembers what was acked of that. At the end every acked record lies at its offset,
once, in order; the group had every record, and never went back behind what it had committed.
"""

import itertools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.support.brokers import ClusterBrokers, Place
from tests.support.waiting import WAIT_S

STREAM = "orders"
OFFSETS = "__consumer_offsets"
LEASE_MS = 5_000


class Load(Protocol):
    """Clients at work."""

    def wait_for_acks(self) -> None:
        """Return once records were acked from now on, of each partition."""

    def wait_for_commits(self) -> None:
        """Return once an offset was committed from now on."""

    def times(self) -> tuple[list[float], list[float]]:
        """When something was acked, and when something was committed, of `time.monotonic`."""


class ClusterLoad:
    """Runs in threads of its own between `with` and the end of the block; `check` is for afterwards."""

    def __init__(self, bootstrap: str, stream: str, partitions: int, *, pause_s: float = 0.002) -> None:
        self.stream = stream
        self.acked: dict[int, tuple[int, int | None]] = {}
        """Number of a record -> where it was acked: partition, offset. The offset is None where librdkafka took the ack
        of a later record for this one, too: it had sent that to the next leader before it sent this one again, and the
        sequences say that this one is there (`rd_kafka_dr_implicit_ack`)."""
        self.problems: list[str] = []
        self.sent = 0
        self.record_bytes = 1
        """At least so long is each record from now on: a number, and spaces before it."""
        self.committed: dict[int, int] = {}
        """Partition -> the offset that was committed last, as far as acked."""
        self._times: list[float] = []
        self._commit_times: list[float] = []
        self._handled: dict[int, int] = {}
        self._bootstrap = bootstrap
        self._partitions = partitions
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(one,)) for one in (self._produce, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Return once every record has been acked or refused, and the group has handled them."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
            assert not thread.is_alive(), "the load does not end"

    def wait_for_acks(self, count: int = 200, *, each_partition: bool = True) -> None:
        """Return once `count` records sent from now on were acked, and such ones of each partition."""
        first, deadline = self.sent, time.monotonic() + WAIT_S
        while True:
            # dict.copy is one step; a list of its items may be interrupted by the thread that adds more
            new = [where[0] for number, where in self.acked.copy().items() if number >= first]
            if len(new) >= count and (not each_partition or len(set(new)) == self._partitions):
                return
            assert not self.problems, self.problems[:5]
            assert time.monotonic() < deadline, f"no acks of {self.stream} for {WAIT_S} s: {len(new)} of {count}"
            time.sleep(0.02)

    def wait_for_commits(self) -> None:
        """Return once an offset was committed from now on."""
        count, deadline = len(self._commit_times), time.monotonic() + WAIT_S
        while len(self._commit_times) <= count:
            assert not self.problems, self.problems
            assert time.monotonic() < deadline, f"no commit for {WAIT_S} s"
            time.sleep(0.02)

    def wait_for_silence(self, seconds: float) -> None:
        """Return once nothing was acked for so long."""
        deadline = time.monotonic() + WAIT_S
        while self._times and time.monotonic() - self._times[-1] < seconds:
            assert time.monotonic() < deadline, "acks do not end"
            time.sleep(0.05)

    def times(self) -> tuple[list[float], list[float]]:
        """When something was acked, and when something was committed."""
        return list(self._times), list(self._commit_times)

    def check(self) -> None:
        """After the end: what was acked is there, once, in order; what was committed was never undone."""
        assert self.problems[:5] == []
        assert set(self.acked) == set(range(self.sent)), "not every record was acked at last"
        found = read_all(self._bootstrap, self.stream, self._partitions)
        there = {(index, number) for index, records in found.items() for number in records.values()}
        for number, (index, offset) in self.acked.items():
            if offset is None:
                assert (index, number) in there, f"{number} was acked with a later one, and is not in {index}"
            else:
                assert found[index].get(offset) == number, (
                    f"{number} was acked at {index}/{offset}: {found[index].get(offset)}"
                )
        for index, records in found.items():
            numbers = [records[offset] for offset in sorted(records)]
            wrong = [pair for pair in itertools.pairwise(numbers) if pair[0] >= pair[1]]
            assert not wrong, f"partition {index} has duplicates, or is out of order: {wrong[:5]}"
            assert self.committed[index] == max(records) + 1, "the group has not seen all"

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (AssertionError, KafkaException) as error:
            self.problems.append(repr(error))
            print(f"load: {error!r}", file=sys.stderr)

    # --- the producer ----------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 1_000 * WAIT_S,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.max.ms": 200,
                "socket.timeout.ms": 3_000,  # a broker that stands still is given up after it
                "log_level": 0,
            }
        )
        while not self._stopping.is_set() and not self.problems:
            number, self.sent = self.sent, self.sent + 1
            value = str(number).rjust(self.record_bytes)
            producer.produce(self.stream, value, partition=number % self._partitions, on_delivery=self._delivered)
            producer.poll(self._pause_s)
            while len(producer) > 2_000 and not self.problems:
                producer.poll(0.1)
        if producer.flush(WAIT_S):
            self.problems.append("records were neither acked nor refused")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number, index, offset = message.value(), message.partition(), message.offset()
        assert number is not None
        if error is not None or index is None:
            self.problems.append(f"record {int(number)}: {error}")
            return
        self.acked[int(number)] = index, offset
        self._times.append(time.monotonic())

    # --- the group ---------------------------------------------------------------------------------------------------

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self.stream}-group",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe([self.stream], on_assign=self._assigned)
        deadline: float | None = None
        while not self._handled_all() and not self.problems:
            if self._stopping.is_set():
                deadline = deadline or time.monotonic() + WAIT_S
                assert time.monotonic() < deadline, f"the group is behind: {self.committed}"
            for message in consumer.consume(500, timeout=0.1):
                self._handle(message)
            self._commit(consumer)
        consumer.close()

    def _assigned(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """It starts at what is committed: nothing that was acked may be undone."""
        for one in self._committed(consumer, given):
            if one.offset < self.committed.get(one.partition, -1_001):
                self.problems.append(f"committed {self.committed[one.partition]}, then found {one.offset}: {one}")
            if one.offset >= 0:
                self._handled[one.partition] = one.offset
            else:
                self._handled.pop(one.partition, None)

    def _committed(self, consumer: Consumer, given: list[TopicPartition]) -> list[TopicPartition]:
        """Asked again while the coordinator is away: an error raised from a callback ends its thread without a word."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return consumer.committed(given, timeout=5)
            except KafkaException as error:
                if time.monotonic() > deadline:
                    self.problems.append(f"what was committed is not told: {error!r}")
                    return []
            time.sleep(0.1)

    def _handle(self, message: Message) -> None:
        if message.error() is not None:
            return  # librdkafka says so and goes on
        index, offset = message.partition(), message.offset()
        assert index is not None
        assert offset is not None
        expected = self._handled.get(index, 0)
        if offset != expected:
            self.problems.append(f"partition {index}: read {offset} after {expected - 1}")
        self._handled[index] = offset + 1

    def _commit(self, consumer: Consumer) -> None:
        new = [
            TopicPartition(self.stream, index, offset)
            for index, offset in self._handled.items()
            if self.committed.get(index) != offset
        ]
        if not new:
            return
        try:
            done = consumer.commit(offsets=new, asynchronous=False)
        except KafkaException:
            return  # the next one has it too
        for one in done or []:
            if one.error is None:
                self.committed[one.partition] = one.offset
        self._commit_times.append(time.monotonic())

    def _handled_all(self) -> bool:
        if not self._stopping.is_set() or self._threads[0].is_alive():
            return False
        ends: dict[int, int] = defaultdict(int)
        for index, offset in self.acked.copy().values():
            if offset is not None:  # else a later one has one
                ends[index] = max(ends[index], offset + 1)
        return all(self.committed.get(index) == end for index, end in ends.items())


def read_all(bootstrap: str, stream: str, partitions: int) -> dict[int, dict[int, int]]:
    """Partition -> offset -> number of everything committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(stream, index, OFFSET_BEGINNING) for index in range(partitions)])
    found: dict[int, dict[int, int]] = {index: {} for index in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"{stream} was not read to its end"
        for message in consumer.consume(1_000, timeout=1):
            index, offset, value = message.partition(), message.offset(), message.value()
            assert index is not None
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended.add(index)
            elif offset is not None and value is not None:
                found[index][offset] = int(value)
    consumer.close()
    return found


@contextmanager
def under_load(
    directory: Path,
    *settings: str,
    count: int = 3,
    lease_ms: int = LEASE_MS,
    places: Mapping[int, Place] | None = None,
) -> Iterator[tuple[ClusterBrokers, ClusterLoad]]:
    """A cluster whose records are on all its brokers, and load on it, which is checked at the end."""
    with ClusterBrokers(directory, *settings, count=count, lease_ms=lease_ms, places=places) as cluster:
        cluster.create(STREAM, partitions=3, replicas=count, min_insync_replicas=str(count // 2 + 1))
        with ClusterLoad(cluster.bootstrap, STREAM, 3) as load:
            load.wait_for_commits()
            cluster.wait_in_sync(OFFSETS)
            yield cluster, load
            cluster.wait_in_sync(STREAM)
            cluster.wait_in_sync(OFFSETS)
            load.wait_for_acks()
            load.wait_for_commits()
        load.check()
        for number, broker in cluster.brokers.items():
            assert "damage" not in broker.log_text(), f"broker {number} found damage"


@contextmanager
def timed(what: str, load: Load) -> Iterator[None]:
    """Print how long nothing was acked, and how long nothing was committed."""
    since = time.monotonic()
    yield
    now = time.monotonic()

    def longest(times: list[float]) -> float:
        points = [since, *(one for one in times if one > since), now]
        return max(after - before for before, after in itertools.pairwise(points))

    acks, commits = map(longest, load.times())
    print(f"{what}: {now - since:.1f} s; without acks for {acks:.1f} s, without commits for {commits:.1f} s")


def go_on(load: Load) -> None:
    """The load goes on with what is there."""
    load.wait_for_acks()
    load.wait_for_commits()
