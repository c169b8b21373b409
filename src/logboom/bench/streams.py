"""The streams a run makes for itself and removes again, with all that were made in its name."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from logboom.base.settings import join_address
from logboom.bench.wire import BenchError

SERVED_WITHIN_S = 30.0
_CREATED_WITHIN_S = 55.0  # thousands of replicas take some seconds on a busy machine


@contextmanager
def bench_stream(
    bootstrap: str, *, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A new stream under a unique name; at the end it is deleted with every stream whose name contains that name.

    It is served, with all replicas in sync, when it is given out. BenchError where it cannot be made, or not so.
    """
    name = f"logboom-bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.connection.setup.timeout.ms": 5_000, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    try:
        admin.create_topics([topic], request_timeout=_CREATED_WITHIN_S)[name].result(_CREATED_WITHIN_S + 5)
    except KafkaException as error:
        raise BenchError(f"no stream could be made at {bootstrap}: {error.args[0].str()}") from None
    try:
        _wait_until_served(admin, name, partitions)
        _wait_until_in_sync(admin, name, replicas)
        yield name
    except BaseException:  # Ctrl-C too: the stream is removed before the error goes on
        with suppress(BenchError):  # what went wrong first is what is raised
            _remove(admin, name)
        raise
    _remove(admin, name)


def _wait_until_served(admin: AdminClient, stream: str, partitions: int) -> None:
    """Return once every partition answers: Kafka acknowledges CreateTopics before the partitions accept writes."""
    deadline = time.monotonic() + SERVED_WITHIN_S
    while True:
        wanted = {TopicPartition(stream, number): OffsetSpec.latest() for number in range(partitions)}  # type: ignore[no-untyped-call]
        try:
            for found in admin.list_offsets(wanted, request_timeout=5).values():
                found.result(10)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise BenchError(f"{stream} was made, but is not served: {error.args[0].str()}") from None
            time.sleep(0.02)
        else:
            return


def _wait_until_in_sync(admin: AdminClient, stream: str, replicas: int) -> None:
    deadline = time.monotonic() + SERVED_WITHIN_S
    while True:
        found = admin.list_topics(stream, timeout=10).topics[stream].partitions.values()
        if all(len(partition.isrs) >= replicas for partition in found):
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{stream} was made, but not all of its {replicas} replicas came in sync")
        time.sleep(0.02)


def leaders_of(bootstrap: str, stream: str) -> list[str]:
    """The address of each partition's leader, by the partition's number. BenchError where one has none."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.connection.setup.timeout.ms": 5_000, "log_level": 0})
    try:
        metadata = admin.list_topics(stream, timeout=15)
    except KafkaException as error:
        raise BenchError(f"{bootstrap} does not tell who leads {stream}: {error.args[0].str()}") from None
    partitions = metadata.topics[stream].partitions
    leaders = [metadata.brokers.get(partitions[number].leader) for number in sorted(partitions)]
    if not leaders or None in leaders:
        raise BenchError(f"{stream} has partitions without a leader: is every broker of {bootstrap} running?")
    return [join_address(str(leader.host), leader.port) for leader in leaders if leader is not None]


def _remove(admin: AdminClient, stream: str) -> None:
    try:
        made = sorted({stream, *(topic for topic in admin.list_topics(timeout=15).topics if stream in topic)})
        for deleted in admin.delete_topics(made, request_timeout=30).values():
            deleted.result(35)
    except KafkaException as error:
        raise BenchError(f"{stream} could not be removed again: {error.args[0].str()}") from None
