"""Trims the streams of edges: deletes records that every delivery has durably read.

Knows Spark's checkpoint on disk and Kafka's DeleteRecords. Must not know sinks, batches or a session.

After a restart a delivery continues where its last committed batch ended, according to Spark's files. They are synced
here before anything is deleted, since Spark does not sync them: they must be the same after a power cut.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from logboom.pipeline.checkpoint.checked import read_checked
from logboom.pipeline.checkpoint.spark_log import Offsets, by_partition, durably_committed
from logboom.pipeline.edge.streams import StreamAdmin

Committed = Callable[[Path], Offsets | None]
"""The end offsets of the last durably committed batch of a query; None before the first."""
_PERIOD_S: Final = 60.0
_FINISH_S: Final = 5.0
# Errors of the client itself have only names that begin with an underscore.
_NEVER: Final = frozenset((KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION))  # noqa: SLF001
_NOT_NOW: Final = frozenset(
    (
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
    )
)
"""The last one: deleted, but not yet on all replicas."""


class Trimmer:
    """Deletes from the edges of one pipeline. It is called often, acts once a minute, and waits only in `finish`."""

    def __init__(
        self,
        admin: StreamAdmin,
        deliveries: Path,
        readers: Mapping[str, Mapping[str, int]],
        notify: Callable[[str], None],
        *,
        committed: Committed = durably_committed,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`deliveries`: directory of their checkpoints. `readers`: delivery -> the streams it reads -> partitions."""
        self._committed = committed
        self._admin = admin
        self._deliveries = deliveries
        self._readers = readers
        self._notify = notify
        self._now = now
        self._due = now() + _PERIOD_S
        self._asked: dict[tuple[str, int], Future[Any]] = {}
        self._done: dict[tuple[str, int], int] = {}
        self._told = False
        self._able = bool(readers)

    def tick(self) -> None:
        """Called regularly; deletes what is no longer needed once a minute."""
        if self._able and self._now() >= self._due:
            self._due = self._now() + _PERIOD_S
            self._settle(wait_s=0)
            self._trim()

    def finish(self) -> None:
        """Deletes what is no longer needed at the end of a run, within a time limit."""
        if self._able:
            self._settle(wait_s=0)
            self._trim()
            self._settle(wait_s=_FINISH_S)

    def _trim(self) -> None:
        wanted = {
            (stream, partition): offset
            for stream, partitions in read_by_all(self._deliveries, self._readers, self._committed).items()
            for partition, offset in partitions.items()
            if offset > self._done.get((stream, partition), 0) and (stream, partition) not in self._asked
        }
        if self._able and wanted:
            self._asked.update(self._admin.delete_before(wanted))
            self._done.update(wanted)

    def _settle(self, wait_s: float) -> None:
        """Checks the outcome of the last request."""
        until = self._now() + wait_s
        for place, future in list(self._asked.items()):
            try:
                future.result(timeout=max(0.0, until - self._now()))
            except TimeoutError:
                continue
            except KafkaException as error:
                self._failed(place, error.args[0])
            del self._asked[place]

    def _failed(self, place: tuple[str, int], error: KafkaError) -> None:
        self._done.pop(place, None)
        if error.code() in _NOT_NOW:
            return
        self._able = self._able and error.code() not in _NEVER
        if self._told:
            return
        self._told = True
        self._notify(
            f"delivered records stay in {place[0]}, since the server does not delete them ({error.str()}); set "
            "retention.ms on that stream, well above the longest outage of a sink"
        )


def read_by_all(
    deliveries: Path, readers: Mapping[str, Mapping[str, int]], committed: Committed = durably_committed
) -> dict[str, dict[int, int]]:
    """The offset of each edge below which no delivery needs the records any more.

    The delivery of a removed sink counts as long as its checkpoint exists: the sink may be added again.
    """
    there = {path.name for path in deliveries.iterdir() if path.is_dir()} if deliveries.exists() else set()
    floors = {
        name: restart_offsets(deliveries / name, readers.get(name, {}), committed) for name in there | set(readers)
    }
    found: dict[str, dict[int, int]] = {}
    for stream, count in {stream: count for edges in readers.values() for stream, count in edges.items()}.items():
        reading = [floor[stream] for floor in floors.values() if stream in floor]
        found[stream] = {partition: min(floor.get(partition, 0) for floor in reading) for partition in range(count)}
    return found


def read_start(delivery: Path) -> dict[str, dict[str, int]]:
    """The start offsets of a delivery that has committed nothing yet: stream -> partition -> offset; empty if not
    recorded."""
    path = delivery / "start.json"
    advice = "remove the file: the sink then begins with new records"
    return read_checked(path, dict[str, dict[str, int]], advice) if path.exists() else {}


def restart_offsets(delivery: Path, reads: Iterable[str] = (), committed: Committed = durably_committed) -> Offsets:
    """The offsets at which a delivery continues after a restart, for each stream that it is known to read; 0 if
    unknown."""
    found = committed(delivery / "query")
    if found is None:
        found = by_partition(read_start(delivery))
    return {**{stream: {} for stream in reads}, **found}
