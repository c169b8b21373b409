"""What tests of tables do beside a table: plain Kafka clients, and waiting for changes."""

import threading
import time
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.support.waiting import WAIT_S

from logboom.table import Change, Table, Watch

Records = list[tuple[bytes | None, bytes | None]]


def produce(bootstrap: str, stream: str, records: Records, *, partition: int = -1, **options: Any) -> None:
    """Send records as any Kafka client does; returns once all are acked."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **options})
    for key, value in records:
        producer.produce(
            stream, value, key, partition, lambda error, message: failed.append(str(error)) if error else None
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed


def make_anew(bootstrap: str, stream: str, partitions: int = 3) -> None:
    """Delete a stream and make a table of the same name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([stream])[stream].result(WAIT_S)
    assert Table.create(bootstrap, stream, partitions=partitions)


class Copy:
    """Somebody's own copy of a table, made of nothing but the changes of a watch."""

    def __init__(self, watch: Watch) -> None:
        self.values: dict[bytes, bytes] = {}
        self.changes: list[Change] = []
        self.watch = watch
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        for change in self.watch:
            self.changes.append(change)
            if change.entry is None:
                self.values.pop(change.key, None)
            else:
                self.values[change.key] = change.entry.value

    def until(self, values: dict[bytes, bytes]) -> None:
        """Wait until the copy is this."""
        deadline = time.monotonic() + WAIT_S
        while self.values != values:
            assert time.monotonic() < deadline, (self.values, values)
            time.sleep(0.02)

    def close(self) -> None:
        self.watch.close()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def values_of(table: Table) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in table.entries()}
