"""Executor side: turns the records of one edge partition into items, sends them, and reports the results.

Knows Arrow, records of an edge and the sender. Must not know Spark, any particular server, or attempts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from logboom.base.errors import LogboomError
from logboom.base.units import MIB
from logboom.pipeline.event.record import NOT_JSON, EventRecord, read_event
from logboom.pipeline.sinks.base import Refused, RefusedLetters
from logboom.pipeline.sinks.bulk.requests import RequestSizeLimits, requests_of
from logboom.pipeline.sinks.bulk.secrets import without_secrets
from logboom.pipeline.sinks.bulk.sender import Sender, Sent, Settings
from logboom.pipeline.sinks.bulk.target import Item, StagingTarget, Target, TargetSpec, UnfitError
from logboom.pipeline.sinks.repeats.origins import RecordKeys, RepeatFilter
from logboom.pipeline.sinks.repeats.ranges import Done, done_of

REPORT_COLUMN: Final = "report"
_CHUNK_ROWS: Final = 512
"""Number of events that are decoded at a time, in addition to those in current requests."""
_LETTERS_MAX_BYTES: Final = 8 * MIB
_NOT_FOR_SERVERS: Final = (*NOT_JSON, ValueError, OverflowError)
"""Errors of encoding for values that no event of the pipeline has: attributes that are not objects, invalid times,
numbers out of range."""


class Staged(msgspec.Struct, frozen=True):
    """The items that a `StagingTarget`'s server holds for one task until the commit."""

    name: str
    rows: int
    done: Done
    """The records that are done when it is committed."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one task about its part of a batch."""

    rows: int = 0
    repeats: int = 0
    dead: int = 0
    done: Done = Done()
    """Records that the next attempt skips: delivered ones, repeats and dead letters."""
    high_water: dict[str, int] = {}
    retried: tuple[str, ...] = ()
    staged: Staged | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BulkTask:
    """Send one partition of a batch; yields one row, the report."""

    spec: TargetSpec
    secrets: Mapping[str, str] = field(repr=False)
    limits: RequestSizeLimits
    settings: Settings
    letters: RefusedLetters
    done: Done
    """What earlier attempts at the batch have done."""
    high_water: Mapping[str, int]
    retried: frozenset[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = msgspec.json.encode(_TaskProgress(self).report(batches))
        yield pa.RecordBatch.from_pydict({REPORT_COLUMN: pa.array([report], pa.binary())})


class _TaskProgress:
    """Running totals of one task."""

    def __init__(self, task: BulkTask) -> None:
        self._task = task
        self._filter = RepeatFilter(task.high_water, task.retried)
        self._letters: list[Refused] = []
        self._letters_bytes = 0
        self._offsets: dict[str, list[int]] = {}
        """Offsets of repeats and dead letters."""
        self._repeats = 0
        self._dead = 0
        self._failure: str | None = None
        """Why dead letters could not be written."""

    def report(self, batches: Iterable[pa.RecordBatch]) -> Report:
        task = self._task
        target = task.spec.open_target(task.secrets)
        try:
            sender = Sender(target, task.settings, self._refuse)
            sent = sender.run(self._undone(requests_of(self._items(target, batches), task.limits)))
            staged = self._stage(target, sent)
        finally:
            target.close()
        self._write_letters()
        error = sent.error or self._failure
        return Report(
            rows=sent.count - sent.repeats,
            repeats=self._repeats + sent.repeats,
            dead=self._dead,
            done=done_of(sent.taken).plus(done_of(self._offsets)),
            high_water=self._filter.high_water,
            retried=tuple(self._filter.retried),
            staged=staged,
            error=None if error is None else without_secrets(error, task.secrets.values()),
        )

    def _stage(self, target: Target, sent: Sent) -> Staged | None:
        """Remove staged records, which wait for a commit, from the delivered ones."""
        if not isinstance(target, StagingTarget):
            return None
        taken, count = sent.taken, sent.count
        sent.taken, sent.count = {}, 0
        try:
            name = target.finish(count)
        except LogboomError as error:
            sent.error = sent.error or str(error)
            return None
        return None if name is None else Staged(name, count, done_of(taken))

    def _undone(self, requests: Iterable[list[Item]]) -> Iterator[list[Item]]:
        """The unsent requests. Requests are formed from all items of the batch, including delivered ones, so that every
        attempt groups the same events: some servers recognise a repeated request by its events."""
        for request in requests:
            left = [item for item in request if not self._task.done.has(item.place, item.offset)]
            if left:
                yield left

    def _items(self, target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[Item]:
        for batch in batches:
            for start in range(0, batch.num_rows, _CHUNK_ROWS):
                yield from self._chunk_items(target, batch.slice(start, _CHUNK_ROWS))

    def _chunk_items(self, target: Target, chunk: pa.RecordBatch) -> Iterator[Item]:
        values = chunk.column("value").to_pylist()
        offsets = chunk.column("offset").to_pylist()
        topics, partitions = chunk.column("topic").to_pylist(), chunk.column("partition").to_pylist()
        places = [f"{topic}/{partition}" for topic, partition in zip(topics, partitions, strict=True)]
        events: list[EventRecord] = []
        rows: list[int] = []
        for row, value in enumerate(values):
            try:
                events.append(read_event(value or b""))
                rows.append(row)
            except NOT_JSON as error:
                if not self._task.done.has(places[row], offsets[row]):
                    self._die(places[row], offsets[row], value or b"", str(error), is_event=False)
        if not events:
            return
        fresh = self._fresh(chunk, events, rows)
        for row, event, is_fresh in zip(rows, events, fresh, strict=True):
            place, offset, value = places[row], offsets[row], values[row]
            is_done = self._task.done.has(place, offset)
            if not is_fresh:
                if not is_done:
                    self._repeats += 1
                    self._offsets.setdefault(place, []).append(offset)
                continue
            try:
                payload, group, order = target.encode(event, value)
            except UnfitError as error:
                if not is_done:
                    self._die(place, offset, value, str(error))
                continue
            except _NOT_FOR_SERVERS as error:
                if not is_done:
                    self._die(place, offset, value, f"the event cannot be encoded for the server: {error}")
                continue
            yield Item(place, offset, value, event.event_id, payload, group, order)

    def _fresh(self, chunk: pa.RecordBatch, events: list[EventRecord], rows: list[int]) -> list[bool]:
        origins = pa.table(
            {
                "stream": pa.array([event.stream for event in events], pa.string()),
                "partition": pa.array([event.partition for event in events], pa.int64()),
                "offset": pa.array([event.offset for event in events], pa.int64()),
                "event_id": pa.array([event.event_id for event in events], pa.string()),
            }
        )
        keys = RecordKeys(chunk.column("key"))
        fresh: list[bool] = self._filter.fresh(origins, np.array(rows, np.int64), chunk.column("topic"), keys).tolist()
        return fresh

    def _refuse(self, item: Item, reason: str) -> None:
        self._die(item.place, item.offset, item.value, reason)

    def _die(self, place: str, offset: int, value: bytes, reason: str, *, is_event: bool = True) -> None:
        stream, _, partition = place.rpartition("/")
        reason = without_secrets(reason, self._task.secrets.values())
        self._letters.append(Refused(stream, int(partition), offset, value, reason, is_event))
        self._letters_bytes += len(value)
        if self._letters_bytes > _LETTERS_MAX_BYTES:
            self._write_letters()

    def _write_letters(self) -> None:
        """Write dead letters. If the log does not accept them, the records are left for the next attempt. The task
        continues, because it must report what the server has accepted; otherwise that would be sent again."""
        letters, self._letters, self._letters_bytes = self._letters, [], 0
        if not letters:
            return
        try:
            self._task.letters(letters)
        except Exception as error:  # noqa: BLE001 - of any kind: the task must still report what the server accepted
            self._failure = f"the dead letters cannot be written: {error}"
            return
        self._dead += len(letters)
        for letter in letters:
            self._offsets.setdefault(f"{letter.stream}/{letter.partition}", []).append(letter.offset)
