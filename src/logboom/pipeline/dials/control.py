"""The control stream of dials: reads new records up to its end, and writes records.

Knows the log and records. Must not know plans, or which change is in effect.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logboom.base.units import DAY_MS, HOUR_MS, MIB
from logboom.pipeline.dials.changes import Declared, Dials, Snapshot, pipeline_of
from logboom.pipeline.dials.rejections import Faults
from logboom.pipeline.edge.reading import read_ranges
from logboom.pipeline.edge.streams import LogUnreachableError, StreamAdmin
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.plan.names import DIALS_STREAM

_TOMBSTONES_MS: Final = DAY_MS
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    # Compaction skips the active segment, which could otherwise grow to a gibibyte of obsolete changes.
    "segment.bytes": str(MIB),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(_TOMBSTONES_MS),
}
_SNAPSHOT_MAX_MS: Final = _TOMBSTONES_MS - 12 * HOUR_MS
"""A snapshot older than this is not used: changes may have been removed, and their tombstones too, before it was read
on."""
_TIMEOUT_S: Final = 30.0
_CLOCK_EVERY: Final = 100
"""Records between two checks of the clock."""


class ControlStream:
    """The dials of one pipeline on one log. `names`: its dials; changes of others are faults."""

    def __init__(
        self, admin: StreamAdmin, pipeline: str, names: Collection[str], notify: Callable[[str], None]
    ) -> None:
        self._admin = admin
        self._pipeline = pipeline
        self._names = tuple(sorted(names))
        self._stream_id: str | None = None
        self._read_to = 0
        self._faults = Faults(notify, time.monotonic)
        self.dials = Dials(pipeline, names)

    def exists(self) -> bool:
        """Whether any pipeline of this log has dials."""
        return DIALS_STREAM in self._admin.partitions()

    def ensure(self) -> None:
        """Creates the stream if it is missing."""
        self._admin.ensure({DIALS_STREAM: 1}, _CONFIGS)

    @property
    def read_to(self) -> int:
        """The first unread offset."""
        return self._read_to

    def resume(self, snapshot: Snapshot | None, now_ms: int) -> None:
        """Looks up the stream, which must exist, and continues from a snapshot if it belongs to this stream and is
        recent."""
        self._stream_id = self._admin.ids([DIALS_STREAM]).get(DIALS_STREAM)
        self.dials, self._read_to = Dials(self._pipeline, self._names), 0
        mine = (self._pipeline, self._names, self._stream_id)
        if snapshot is None or (snapshot.pipeline, snapshot.names, snapshot.stream_id) != mine:
            return
        end = self._admin.ends({DIALS_STREAM: 1})[DIALS_STREAM]["0"]
        if end == snapshot.read_to or (end > snapshot.read_to and now_ms - snapshot.at_ms < _SNAPSHOT_MAX_MS):
            self.dials.restore(snapshot.changes, snapshot.declared)
            self._read_to = snapshot.read_to

    def snapshot(self, now_ms: int) -> Snapshot:
        """What was read so far."""
        return Snapshot(
            pipeline=self._pipeline,
            names=self._names,
            changes=self.dials.changes(),
            declared=self.dials.declared,
            stream_id=self._stream_id,
            read_to=self._read_to,
            at_ms=now_ms,
        )

    def refresh(self, within_s: float | None = None) -> Dials:
        """The current contents of the stream, which must exist. LogUnreachableError if no broker answers.

        `within_s`: the time for reading, in seconds. The next call reads the remaining records, whose number is
        reported.
        """
        end = self._admin.ends({DIALS_STREAM: 1})[DIALS_STREAM]["0"]
        if end < self._read_to:  # it was deleted and recreated
            self.dials, self._read_to = Dials(self._pipeline, self._names), 0
        until = None if within_s is None else time.monotonic() + within_s
        with closing(read_ranges(self._admin.bootstrap, {(DIALS_STREAM, 0): (self._read_to, end)})) as messages:
            for count, message in enumerate(messages, 1):
                self._take(message)
                self._read_to = int(message.offset() or 0) + 1
                if until is not None and count % _CLOCK_EVERY == 0 and time.monotonic() > until:
                    break
            else:
                self._read_to = max(self._read_to, end)
        self._faults.tell(end - self._read_to)
        return self.dials

    def _take(self, message: Message) -> None:
        record = _record_of(message)
        problem = None if record is None else self.dials.take(*record)
        if problem is not None:
            self._faults.found(problem)

    def write(self, records: Mapping[str, bytes | None]) -> None:
        """Writes records; returns when they are committed. PipelineError if one is refused."""
        failures: list[KafkaError] = []

        def on_delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        producer = Producer(
            {"bootstrap.servers": self._admin.bootstrap, "acks": "all", "message.timeout.ms": int(_TIMEOUT_S * 1_000)}
        )
        try:
            for key, value in records.items():
                producer.produce(DIALS_STREAM, key=key.encode(), value=value, partition=0, on_delivery=on_delivered)
        except KafkaException as error:
            raise PipelineError(f"the dial cannot be written: {error.args[0].str()}") from error
        if producer.flush(_TIMEOUT_S + 5):
            raise LogUnreachableError(
                f"no broker at {self._admin.bootstrap} accepted the change within {_TIMEOUT_S:.0f} s"
            )
        if failures:
            raise PipelineError(f"the dial cannot be written: {failures[0].str()}")


def every_pipeline(admin: StreamAdmin, notify: Callable[[str], None]) -> dict[str, tuple[Declared, Dials]]:
    """The dials of each pipeline that has listed its own in the stream, and their changes, by the pipeline's name in
    alphabetical order. Empty if there is no such stream. LogUnreachableError if no broker answers.

    Reads the stream twice: a change may come before the list of its pipeline's dials, and a stream in which strangers
    have written is too large to be kept until the list is found.
    """
    if DIALS_STREAM not in admin.partitions():
        return {}
    end = admin.ends({DIALS_STREAM: 1})[DIALS_STREAM]["0"]
    lists: dict[str, Dials] = {}
    for key, value in _records(admin, end):
        if key == pipeline_of(key):
            lists.setdefault(key, Dials(key, ())).take(key, value)
    every = {
        name: (found.declared, Dials(name, found.declared.named()))
        for name, found in sorted(lists.items())
        if found.declared is not None
    }
    faults = Faults(notify, time.monotonic)
    for key, value in _records(admin, end):
        if pipeline_of(key) in every:
            problem = every[pipeline_of(key)][1].take(key, value)
            if problem is not None:
                faults.found(problem)
    faults.tell(unread=0)
    return every


def _records(admin: StreamAdmin, end: int) -> Iterator[tuple[str, bytes | None]]:
    with closing(read_ranges(admin.bootstrap, {(DIALS_STREAM, 0): (0, end)})) as messages:
        for message in messages:
            record = _record_of(message)
            if record is not None:
                yield record


def _record_of(message: Message) -> tuple[str, bytes | None] | None:
    """Key and value; None for a record without a key, which is no concern of any pipeline."""
    key, value = message.key(), message.value()
    if not isinstance(key, bytes):
        return None
    return key.decode(errors="replace"), value if isinstance(value, bytes) else None
