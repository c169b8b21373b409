"""The thread that reads a table's stream into its view, from the start and then on and on.

A life of the reader: ask what the stream is and where it ends; read a new view from the start; once it has reached
that end, put it in the place of the one before, so that watchers get the difference; keep it up to date. It begins
again where the view can no longer be trusted:

    another topic id    the stream was deleted and recreated; its offsets mean other records now
    a missing offset    the log ends below what was read, or starts above it: it was cut, or deleted in part
    a late end          it took longer than `delete.retention.ms` to reach the end: deletions may be missing

Librdkafka tells of neither of the first two by itself if the new log is long enough, so `checker` asks every few
seconds, and every read that waits for the end tells the reader what it was answered.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from logboom.table.entry import Change
from logboom.table.errors import NoSuchTableError, TableError, error_text
from logboom.table.freshness import Freshness
from logboom.table.live import LiveView
from logboom.table.own_writes import OwnWrites
from logboom.table.stream import Ends, StreamInfo, TableStream, now_s
from logboom.table.trouble import CONNECTION, READING
from logboom.table.view import Selects, TableView

log = logging.getLogger("logboom.table")

_POLL_S: Final = 0.05
_BATCH: Final = 1_000
_RETRY_S: Final = 1.0
_STALE_RETRY_S: Final = 5.0

_OFFSET_IS_NOT_THERE: Final = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE", "_LOG_TRUNCATION")


def consumer_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """librdkafka's configuration of the reader: the user's, with what it relies on over that."""
    return {
        "fetch.queue.backoff.ms": 10,
        "queued.max.messages.kbytes": 16_384,
        "receive.message.max.bytes": 2_147_483_647,
        "check.crcs": True,
        **options,
        "group.id": "logboom-table",  # the client wants one; nothing is committed under it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }


class Reader:
    """See the module. Life: made, `start`, `close`."""

    def __init__(
        self,
        stream: TableStream,
        options: Mapping[str, Any],
        live: LiveView,
        own_writes: OwnWrites,
        selects: Selects | None,
    ) -> None:
        self._stream, self._live, self._own_writes = stream, live, own_writes
        self._selects = selects
        self._consumer = Consumer(consumer_options(options))
        self._thread = threading.Thread(target=self._run, name=f"table-{stream.name}", daemon=True)
        self._stop = threading.Event()
        self._told: tuple[Ends, Mapping[int, int], StreamInfo | None] | None = None
        """The newest answers that somebody asked for; this thread takes them from here."""
        self._loading: Ends | None = None
        """While a view is read from the start: the end that it has to reach."""
        self._distrust: str | None = None
        """Why the view can no longer be trusted."""

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and wait for it."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def tell(self, ends: Ends, starts: Mapping[int, int] | None = None, info: StreamInfo | None = None) -> None:
        """What the broker answered for the ends of the log, its starts and the stream's settings. From any thread."""
        self._told = (ends, starts or {}, info)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._begin_until_it_works()
            while not self._stop.is_set():
                self._step()
        except Exception as error:  # noqa: BLE001 - outermost: raised in the threads that wait for this one
            failure = TableError(f"the reader of table {self._stream.name!r} failed: {error!r}")
            failure.__cause__ = error
            self._live.fail(failure)
        finally:
            self._consumer.close()

    def _step(self) -> None:
        messages = self._arrived()
        if messages:
            self._take_in(messages)
        if self._told is not None:
            (ends, starts, info), self._told = self._told, None
            self._consider(ends, starts, info)
        if self._distrust is None and self._loading is None:
            if self._freshness.reached(self._view.positions, now_s(), self._info.delete_retention_s):
                self._live.fresh(self._freshness.known_at_s)
            else:
                self._distrust = "its end was not reached for longer than delete.retention.ms: deletions may be missing"
        if self._distrust is not None:
            log.warning("table %s is read from the start again: %s", self._stream.name, self._distrust)
            self._begin_until_it_works()
        elif self._loading is not None and self._view.has_read(self._loading.offsets):
            self._attempt(self._finish_loading)

    def _arrived(self) -> list[Message]:
        """What is there, as soon as there is something: `consume` alone would wait for a full batch."""
        first = self._consumer.poll(_POLL_S)
        return [] if first is None else [first, *self._consumer.consume(_BATCH, timeout=0)]

    # --- reading from the start ---------------------------------------------------------------------------------

    def _begin_until_it_works(self) -> None:
        while not self._stop.is_set() and not self._attempt(self._begin):
            pass

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Whether a step worked that asks the broker; after a failure it returns a little later."""
        try:
            step()
        except (KafkaException, TableError) as error:
            self._live.trouble.note(READING, error_text(error))
            self._stop.wait(_RETRY_S)
            return False
        return True

    def _begin(self) -> None:
        began_at_s = now_s()
        info = self._stream.describe()
        ends = self._stream.ends(dict.fromkeys(self._stream.selected(info.partitions), 0))
        if ends.topic_id != info.topic_id:
            raise NoSuchTableError(f"stream {self._stream.name!r} was recreated just now")
        starts = self._stream.starts(ends.offsets)
        self._info, self._loading = info, ends
        self._view = TableView(ends.offsets, self._selects)
        self._freshness = Freshness(ends.offsets, began_at_s)
        self._freshness.expect(ends.offsets, ends.asked_at_s)
        self._told = self._distrust = None
        self._consumer.assign(self._places(starts))

    def _finish_loading(self) -> None:
        # Asked for after the reading: what was deleted before it was read is below these starts.
        starts = self._stream.starts(self._view.positions)
        if not self._freshness.reached(self._view.positions, now_s(), self._info.delete_retention_s):
            self._live.trouble.note(
                READING,
                f"reading it takes longer than its delete.retention.ms of {self._info.delete_retention_s:g} s, so that "
                "deletions may be missed: raise that setting",
            )
            self._stop.wait(_STALE_RETRY_S)
            self._distrust = "reading it took too long"
            return
        self._view.remove_below(starts)
        self._loading = None
        self._live.trouble.clear(READING)
        self._live.replace(self._view, self._info, self._freshness.known_at_s)

    def _places(self, starts: Mapping[int, int]) -> list[TopicPartition]:
        """Where to read from, as offsets: librdkafka would ask for the start behind a fetch that waits for records."""
        return [TopicPartition(self._stream.name, index, offset) for index, offset in starts.items()]

    # --- what arrives -------------------------------------------------------------------------------------------

    def _take_in(self, messages: list[Message]) -> None:
        if self._loading is not None:
            self._apply(messages, {})
            return
        with self._live.changing() as changes:
            self._apply(messages, changes)

    def _apply(self, messages: list[Message], changes: dict[bytes, Change]) -> None:
        view, own, moment_s = self._view, self._own_writes, now_s()
        for message in messages:
            error = message.error()
            if error is not None:
                self._note(message, error)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if own.awaited:
                own.look_at(message)
            change = view.apply(partition, offset, message.key(), message.value(), message.timestamp()[1], moment_s)
            if change is not None:
                changes.pop(change.key, None)
                changes[change.key] = change

    def _note(self, message: Message, error: KafkaError) -> None:
        """Take in an event that is no record."""
        name, partition = error.name(), message.partition()
        if name == "_PARTITION_EOF":
            assert partition is not None
            # Librdkafka reports the end as an event; the offsets before it need not hold records.
            self._view.advance(partition, message.offset() or 0)
            self._live.trouble.clear(partition)
        elif name in _OFFSET_IS_NOT_THERE:
            self._distrust = f"partition {partition} no longer has the offset that was to be read next"
        else:
            where = CONNECTION if partition is None or partition < 0 else partition
            self._live.trouble.note(where, error_text(KafkaException(error)))

    # --- what the broker says of the log ------------------------------------------------------------------------

    def _consider(self, ends: Ends, starts: Mapping[int, int], info: StreamInfo | None) -> None:
        if ends.topic_id != self._info.topic_id:
            self._distrust = "the stream was deleted and recreated"
            return
        if info is not None and info.topic_id == self._info.topic_id:
            self._info = replace(self._info, delete_retention_s=info.delete_retention_s)
        if added := [index for index in ends.offsets if index not in self._view.positions]:
            self._add_partitions(added)
        for index, position in ends.positions_before.items():
            if ends.offsets.get(index, position) < position:
                self._distrust = f"partition {index} ends at {ends.offsets[index]}, but was read to {position} before"
        self._freshness.expect(ends.offsets, ends.asked_at_s)
        if self._loading is None:
            with self._live.changing() as changes:
                self._live.info = self._info
                self._view.forget_deletions(now_s() - self._info.delete_retention_s)
                changes.update((change.key, change) for change in self._view.remove_below(starts))

    def _add_partitions(self, added: Sequence[int]) -> None:
        """The stream has grown: keys may be found in other partitions from now on."""
        self._info = replace(self._info, partitions=tuple(sorted((*self._info.partitions, *added))))
        self._freshness.add_partitions(added, now_s())
        with self._live.changing():
            self._view.add_partitions(added)
            if self._loading is None:
                self._live.info = self._info
        self._consumer.incremental_assign(self._places(dict.fromkeys(added, 0)))
