"""The streams a run makes for itself and removes again, with all that were made in its name."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from logboom.bench.wire import BenchError


@contextmanager
def bench_stream(bootstrap: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> Iterator[str]:
    """A new stream of a name nobody else has; at the end it is deleted, and every stream whose name contains it."""
    name = f"logboom-bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.connection.setup.timeout.ms": 5_000, "log_level": 0})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    try:
        admin.create_topics([topic], request_timeout=15)[name].result(20)
    except KafkaException as error:
        raise BenchError(f"no stream could be made at {bootstrap}: {error.args[0].str()}") from None
    try:
        yield name
    finally:
        made = [topic for topic in admin.list_topics(timeout=15).topics if name in topic]
        for deleted in admin.delete_topics(made, request_timeout=30).values():
            deleted.result(35)
