"""Consumer groups of unmodified clients against a real broker: sharing, leaving, static members, kill -9 in between."""

import asyncio
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode
from tests.groups.test_apis import join
from tests.kafka.door import Client, running
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until

from logboom.groups import CommittedOffset
from logboom.groups.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, GroupError

pytestmark = pytest.mark.clients

PARTITIONS = 4
PATIENT_MS = 300_000
"""Session timeout of members that live: the group is not to lose them where a busy machine lets them stand still."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start(tmp_path_factory.mktemp("groups")) as process:
        yield process


def start(directory: Path) -> BrokerProcess:
    prefix = "LOGBOOM_BROKER__GROUPS__"
    quick = {
        f"{prefix}INITIAL_REBALANCE_DELAY_MS": "300ms",
        f"{prefix}OFFSETS_SEGMENT_BYTES": "16KiB",
        "LOGBOOM_BROKER__CLEANER__BACKOFF_MS": "50ms",
    }
    return BrokerProcess(directory / "data", environment=quick)


def new_stream(bootstrap: str, partitions: int = PARTITIONS) -> str:
    name = f"s-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(WAIT_S)
    return name


def produce(bootstrap: str, stream: str, first: int, count: int) -> None:
    """Records `first` to `first + count - 1`, spread over the partitions in turn."""
    failed: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(first, first + count):
        producer.produce(stream, str(number), partition=number % PARTITIONS, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    assert not failed


class Reader:
    """A confluent-kafka consumer in a thread of its own: reads, commits after each record, keeps what it saw."""

    def __init__(self, bootstrap: str, stream: str, group: str, **settings: object) -> None:
        self.seen: list[int] = []
        self.assigned: set[int] = set()
        self.assignments = 0
        self.revocations = 0
        self.commits = 0
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._leave = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": PATIENT_MS,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.max.ms": 500,
            }
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self._cooperative = settings.get("partition_assignment_strategy") == "cooperative-sticky"
        self._consumer.subscribe([stream], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_assign(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        self.assignments += 1
        fresh = {partition.partition for partition in partitions}
        self.assigned = self.assigned | fresh if self._cooperative else fresh

    def _on_revoke(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        self.revocations += 1
        self.assigned -= {partition.partition for partition in partitions}

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
                continue
            value = message.value()
            assert value is not None
            self.seen.append(int(value))
            try:
                self._consumer.commit(message=message, asynchronous=False)
            except KafkaException as error:  # in a rebalance; the checks judge what came of it
                self.errors.append(str(error))
            else:
                self.commits += 1
        self._consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Committer:
    """A thread that commits growing offsets of partition 0 for a group, whatever becomes of the broker meanwhile."""

    def __init__(self, bootstrap: str, stream: str, group: str) -> None:
        self.acked = -1
        """The last offset whose commit was acked."""
        self._settings = {"bootstrap.servers": bootstrap, "group.id": group, "reconnect.backoff.max.ms": 200}
        self._stream = stream
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._commit_on_and_on)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)

    def wait_for(self, count: int) -> None:
        """Return once so many commits more were acked."""
        goal = self.acked + count
        until(lambda: self.acked >= goal, "commits are acked")

    def told(self) -> int:
        """What another client is told was committed."""
        consumer = Consumer(self._settings)
        try:
            (found,) = consumer.committed([TopicPartition(self._stream, 0)], WAIT_S)
            return int(found.offset)
        finally:
            consumer.close()

    def _commit_on_and_on(self) -> None:
        consumer = Consumer(self._settings)
        offset = 0
        while not self._stop.is_set():
            try:
                done = consumer.commit(offsets=[TopicPartition(self._stream, 0, offset)], asynchronous=False)
            except KafkaException:
                continue
            if done[0].error is None:
                self.acked = offset
            offset += 1
        consumer.close()


def shared_evenly(*readers: Reader) -> bool:
    shares = [reader.assigned for reader in readers]
    return sorted(p for share in shares for p in share) == list(range(PARTITIONS)) and all(shares)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_share_and_go(broker: BrokerProcess, strategy: str) -> None:
    stream, group = new_stream(broker.kafka), f"share-{strategy}"
    produce(broker.kafka, stream, 0, 40)
    with Reader(broker.kafka, stream, group, partition_assignment_strategy=strategy) as first:
        until(lambda: first.assigned == set(range(PARTITIONS)), "the first has all")
        # A cooperative member reads on while it rebalances, and what it commits meanwhile may be refused. The record of
        # a commit that was refused comes again where its partition goes to the other member.
        until(lambda: first.commits == 40, "the first has committed all")
        with Reader(broker.kafka, stream, group, partition_assignment_strategy=strategy) as second:
            until(lambda: shared_evenly(first, second), "both have some")
            produce(broker.kafka, stream, 40, 40)
            until(lambda: len(set(first.seen + second.seen)) == 80, "all is read")
            assert second.seen
        until(lambda: first.assigned == set(range(PARTITIONS)), "the first has all again")
        produce(broker.kafka, stream, 80, 20)
        until(lambda: len(set(first.seen + second.seen)) == 100, "all is read")
    assert sorted(first.seen + second.seen) == list(range(100)), "committed records are not read again"


def test_a_static_member_restarts_without_disturbing_the_others(broker: BrokerProcess) -> None:
    stream, group = new_stream(broker.kafka), "static"
    settings = {"session_timeout_ms": PATIENT_MS}
    with Reader(broker.kafka, stream, group, group_instance_id="a", **settings) as first:
        second = Reader(broker.kafka, stream, group, group_instance_id="b", **settings)
        until(lambda: shared_evenly(first, second), "both have some")
        share, assignments = set(second.assigned), first.assignments
        second.stop()  # a static member does not leave
        produce(broker.kafka, stream, 0, 20)
        with Reader(broker.kafka, stream, group, group_instance_id="b", **settings) as again:
            until(lambda: again.assigned == share, "it has its old share")
            until(lambda: len(set(first.seen + again.seen)) == 20, "all is read")
            assert first.assignments == assignments, "the other one was rebalanced"


def test_members_work_on_through_a_kill_of_the_broker(tmp_path: Path) -> None:
    with start(tmp_path) as broker:
        stream = new_stream(broker.kafka)
        produce(broker.kafka, stream, 0, 20)
        with (
            Reader(broker.kafka, stream, "survivors") as first,
            Reader(broker.kafka, stream, "survivors") as second,
        ):
            until(lambda: shared_evenly(first, second), "both have some")
            until(lambda: len(set(first.seen + second.seen)) == 20, "all is read")
            before = (first.assignments, second.assignments)
            broker.kill9()
            broker.restart()
            produce(broker.kafka, stream, 20, 40)
            until(lambda: len(set(first.seen + second.seen)) == 60, "all is read")
            assert (first.assignments, second.assignments) == before, "a needless rebalance"
            committed = Consumer({"bootstrap.servers": broker.kafka, "group.id": "survivors"})
            ends = [TopicPartition(stream, partition, 15) for partition in range(PARTITIONS)]
            until(lambda: committed.committed(ends, WAIT_S) == ends, "all is committed")
            committed.close()


def test_no_acked_commit_is_forgotten_by_kills_of_the_broker(tmp_path: Path) -> None:
    """Commits go on while the broker is killed, and while the offsets stream is compacted again and again."""
    with start(tmp_path) as broker:
        stream = new_stream(broker.kafka)
        with Committer(broker.kafka, stream, "kills") as commits:
            for _ in range(5):
                commits.wait_for(150)
                broker.kill9()
                known = commits.acked
                broker.restart()
                assert commits.told() >= known
        until(lambda: "log compacted" in broker.log_text(), "a compaction")


def test_a_join_that_waits_is_answered_when_the_broker_is_told_to_end(tmp_path: Path) -> None:
    async def play(broker: BrokerProcess) -> None:
        host, port = broker.kafka.split(":")
        client = await Client.connect((host, int(port)))
        waiting = asyncio.create_task(join(client, group_instance_id="i"))
        while "rebalance started" not in broker.log_text():
            await asyncio.sleep(0.05)
        assert await asyncio.to_thread(broker.sigterm) == 0
        assert (await waiting).error_code is ErrorCode.not_coordinator
        await client.close()

    patient = {"LOGBOOM_BROKER__GROUPS__INITIAL_REBALANCE_DELAY_MS": "10min"}
    with BrokerProcess(tmp_path / "data", environment=patient) as broker:
        asyncio.run(asyncio.wait_for(play(broker), WAIT_S))


def test_offsets_of_groups_are_read_changed_and_deleted_by_tools(broker: BrokerProcess) -> None:
    stream, group = new_stream(broker.kafka), "tools"
    produce(broker.kafka, stream, 0, 40)
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    with Reader(broker.kafka, stream, group) as reader:
        until(lambda: len(reader.seen) == 40, "all is read")
        listed = {g.group_id: g for g in admin.list_consumer_groups().result(WAIT_S).valid}
        assert listed[group].state.name == "STABLE"
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
        (member,) = described.members
        assert {p.partition for p in member.assignment.topic_partitions} == set(range(PARTITIONS))
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(WAIT_S)
    until(lambda: _state(admin, group) == "EMPTY", "the group is empty")
    wanted = [TopicPartition(stream, partition, 3) for partition in range(PARTITIONS)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])[group].result(WAIT_S)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    assert sorted((p.partition, p.offset) for p in found.topic_partitions) == [(p, 3) for p in range(PARTITIONS)]
    with Reader(broker.kafka, stream, group) as reader:
        until(lambda: len(reader.seen) == 28, "the rest is read again")
    until(lambda: _state(admin, group) == "EMPTY", "the group is empty")
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    assert group not in {g.group_id for g in admin.list_consumer_groups().result(WAIT_S).valid}


def _state(admin: AdminClient, group: str) -> str:
    return str(admin.describe_consumer_groups([group])[group].result(WAIT_S).state.name)


def test_offsets_of_a_deleted_stream_are_gone_for_the_next_of_its_name(broker: BrokerProcess) -> None:
    stream, group = new_stream(broker.kafka), "reborn"
    produce(broker.kafka, stream, 0, 8)
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    with Reader(broker.kafka, stream, group) as reader:
        until(lambda: len(reader.seen) == 8, "all is read")
    admin.delete_topics([stream])[stream].result(WAIT_S)
    admin.create_topics([NewTopic(stream, PARTITIONS)])[stream].result(WAIT_S)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_S)
    assert not found.topic_partitions


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_members(broker: BrokerProcess) -> None:
    from kafka import KafkaConsumer  # importing it warns

    stream = new_stream(broker.kafka)
    produce(broker.kafka, stream, 0, 40)
    seen: list[int] = []
    lock = threading.Lock()

    def member() -> None:
        consumer = KafkaConsumer(
            stream,
            bootstrap_servers=broker.kafka,
            group_id="kp",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=45_000,
            heartbeat_interval_ms=500,
        )
        while not done.is_set():
            records = consumer.poll(timeout_ms=200)
            with lock:
                seen.extend(int(record.value) for batch in records.values() for record in batch)
            if records:
                consumer.commit()
        consumer.close()

    done = threading.Event()
    threads = [threading.Thread(target=member) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(set(seen)) == 40, "all is read")
        admin = AdminClient({"bootstrap.servers": broker.kafka})
        described = admin.describe_consumer_groups(["kp"])["kp"].result(WAIT_S)
        assert len(described.members) <= 2
    finally:
        done.set()
        for thread in threads:
            thread.join(WAIT_S)
    until(lambda: _state(admin, "kp") == "EMPTY", "the group is empty")


def test_aiokafka_members(broker: BrokerProcess) -> None:
    stream = new_stream(broker.kafka)
    produce(broker.kafka, stream, 0, 40)
    seen: set[int] = set()

    async def member(stop: asyncio.Event) -> set[int]:
        consumer = AIOKafkaConsumer(
            stream,
            bootstrap_servers=broker.kafka,
            group_id="aio",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=45_000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        try:
            while not stop.is_set():
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    seen.update(int(record.value) for record in batch)
                    await consumer.commit()
                if len(seen) == 40 and consumer.assignment():
                    stop.set()
            return {partition.partition for partition in consumer.assignment()}
        finally:
            await consumer.stop()

    async def play() -> None:
        stop = asyncio.Event()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(member(stop), member(stop))

    asyncio.run(play())
    assert seen == set(range(40))


def test_aiokafka_begins_where_its_group_was_though_the_coordinator_refuses_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took refusals for a group without offsets, and began at the latest record."""

    async def body() -> None:
        async with running(tmp_path, groups={"initial_rebalance_delay_ms": 0}) as node:
            await node.broker.catalog.create_stream("orders")
            address = "{}:{}".format(*node.address)
            producer = AIOKafkaProducer(bootstrap_servers=address)
            await producer.start()
            for number in range(10):
                await producer.send_and_wait("orders", b"%d" % number)
            await producer.stop()
            settings = {"bootstrap_servers": address, "group_id": "g", "auto_offset_reset": "latest"}
            first = AIOKafkaConsumer("orders", **settings, enable_auto_commit=False)
            await first.start()
            await first.commit({AioPartition("orders", 0): 4})
            await first.stop()
            refusals: list[GroupError] = [CoordinatorNotAvailableError("no lease"), CoordinatorLoadInProgressError("")]
            committed = node.broker.groups.committed

            def refuse_first(group: str) -> Mapping[tuple[str, int], CommittedOffset]:
                if refusals:
                    raise refusals.pop()
                return committed(group)

            monkeypatch.setattr(node.broker.groups, "committed", refuse_first)
            second = AIOKafkaConsumer("orders", **settings, enable_auto_commit=False)
            await second.start()
            message = await asyncio.wait_for(second.getone(), WAIT_S)
            await second.stop()
            assert (message.offset, refusals) == (4, [])

    asyncio.run(body())


_STUBBORN = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[3], "session.timeout.ms": 6000})
consumer.subscribe([sys.argv[2]], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_the_share_of_a_killed_member_goes_to_the_others(broker: BrokerProcess) -> None:
    stream, group = new_stream(broker.kafka), "killed"
    with Reader(broker.kafka, stream, group) as reader:
        until(lambda: reader.assigned == set(range(PARTITIONS)), "it has all")
        command = [sys.executable, "-c", _STUBBORN, broker.kafka, stream, group]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            try:
                assert other.stdout.readline() == "assigned\n"
                until(lambda: 0 < len(reader.assigned) < PARTITIONS, "it has some")
            finally:
                other.kill()
        until(lambda: reader.assigned == set(range(PARTITIONS)), "it has all again")
