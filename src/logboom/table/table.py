"""The table that users open: reads, writes, merges, watching."""

import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException

from logboom.client.partitioner import partition_of
from logboom.table.checker import Checker
from logboom.table.documents import encode, merge_patch, parse
from logboom.table.entry import ABSENT, Entry, key_bytes, quoted
from logboom.table.errors import (
    AmbiguousKeyError,
    NotATableError,
    TableError,
    TableTimeoutError,
    UnknownOutcomeError,
    VersionConflictError,
    WriteRefusedError,
    error_text,
)
from logboom.table.live import LiveView
from logboom.table.own_writes import OwnWrites
from logboom.table.position import Position
from logboom.table.reader import Reader, log
from logboom.table.stream import Ends, SharedAsking, StreamInfo, TableStream
from logboom.table.trouble import Trouble
from logboom.table.view import TableView
from logboom.table.watch import Watch
from logboom.table.writer import Condition, Stored, Unknown, Writer

_DEFAULTS: Final = {
    "client.id": "logboom-table",
    "logger": logging.getLogger("logboom.table.librdkafka"),
    "reconnect.backoff.max.ms": 1_000,
}
_RETRY_S: Final = 0.1
_PAUSE_MIN_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0
_REFUSED: Final = ("AUTHORIZATION", "AUTHENTICATION", "UNSUPPORTED", "INVALID", "TOPIC_EXCEPTION")
"""Parts of the names of errors that asking again does not change; all others pass, as while a broker starts."""
Got = TypeVar("Got")


class Table:
    """A live, local view of a compacted stream, and writes to it. Thread-safe.

    Reads are linearizable: they see every record that was acknowledged before they began. With `stale_ok` they are
    answered from memory, without asking the broker, and see at least what this table has written itself.

    It belongs to the process that opened it: one that is forked off opens its own.

    Keys are text, which stands for its UTF-8, or bytes. Every method that waits gives up after `timeout_s`
    (TableTimeoutError: nothing was written; UnknownOutcomeError: it may have been).
    """

    def __init__(
        self,
        bootstrap: str,
        stream: str,
        *,
        prefix: str | bytes = b"",
        partitions: Collection[int] | None = None,
        timeout_s: float = 30.0,
        check_interval_s: float = 10.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Connects and reads nothing yet; `open` does both.

        `prefix` and `partitions` keep a part of the table in memory; the rest of it can neither be read nor written
        here. Each `check_interval_s` the broker is asked whether the stream is still the same one. `options` are
        librdkafka's, for TLS and SASL for instance.
        """
        self.stream = stream
        self.timeout_s = timeout_s
        config = {**_DEFAULTS, **(options or {}), "bootstrap.servers": bootstrap}
        self._process_id = os.getpid()
        self._prefix = key_bytes(prefix)
        self._partitions = None if partitions is None else frozenset(partitions)
        self._trouble = Trouble(stream, log)
        self._live = LiveView(self._trouble)
        self._own_writes = OwnWrites()
        self._source = TableStream(config, stream, self._partitions, timeout_s)
        self._asking = SharedAsking(self._ask)
        selects = self._is_selected if self._prefix else None
        self._reader = Reader(self._source, config, self._live, self._own_writes, selects)
        self._checker = Checker(self._source, self._asking.answer, self._reader, self._trouble, check_interval_s)
        self._writer = Writer(config, stream, timeout_s)

    @classmethod
    def open(cls, bootstrap: str, stream: str, **more: Any) -> Self:
        """A table that has been read to its end. `more` is what the constructor takes.

        NoSuchTableError where there is no such stream, NotATableError where it is not compacted.
        """
        table = cls(bootstrap, stream, **more)
        try:
            table._start()
        except BaseException:  # an interrupt, too: its thread ends
            table.close()
            raise
        return table

    @staticmethod
    def create(
        bootstrap: str,
        stream: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> bool:
        """Make a compacted stream for a table. False where a stream of this name exists, which is left as it is.

        NotATableError where `settings` has a cleanup.policy without compact.
        """
        config = {**_DEFAULTS, **(options or {}), "bootstrap.servers": bootstrap}
        return TableStream(config, stream).create(partitions, settings or {})

    def close(self) -> None:
        """End its threads and connections. Watchers end; writes under way have an unknown outcome.

        In a process that was forked off it does nothing: the threads are those of the other one.
        """
        if os.getpid() != self._process_id:
            return
        self._live.close()
        self._checker.close()
        self._writer.close()
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- reading ------------------------------------------------------------------------------------------------

    def get(self, key: str | bytes, *, stale_ok: bool = False) -> Entry | None:
        """The value of a key, None where it has none. AmbiguousKeyError where it has several."""
        name = self._checked(key)
        return self._read(lambda view, info: self._value(view, info, name), stale_ok=stale_ok)

    def entries(self, prefix: str | bytes = b"", *, stale_ok: bool = False) -> list[Entry]:
        """All values whose keys begin with `prefix`, in the order of keys; of an ambiguous key the latest by time."""
        chosen = key_bytes(prefix)
        return sorted(self._read(lambda view, info: view.entries(chosen), stale_ok=stale_ok), key=lambda each: each.key)

    def ambiguous_keys(self) -> list[bytes]:
        """The keys that have values in more than one partition; reading or writing one raises AmbiguousKeyError."""
        return self._read(lambda view, info: sorted(view.ambiguous))

    def watch(self, prefix: str | bytes = b"", *, since: str | None = None) -> Watch:
        """What the table holds, then every change, without gaps over reconnects and restarts of the broker.

        `since` is the `position` of an earlier watch of the same prefix: only what changed since is given, if that is
        known completely (`Watch.resumed`). It is not where a deletion may have been compacted away meanwhile, or where
        the stream was recreated. ValueError where it is no position.
        """
        position = None if since is None else Position.parse(since)
        chosen = key_bytes(prefix)
        return self._read(lambda view, info: self._live.watch(view, info, chosen, position))

    # --- writing ------------------------------------------------------------------------------------------------

    def put(self, key: str | bytes, value: bytes, *, expected: int | None = None) -> Entry:
        """Set the value of a key, and wait until this table has it in its view.

        Without `expected` the last writer wins. With it, the key must have this version, or no value (`ABSENT`): the
        broker compares, and where another writer was first nothing is written (VersionConflictError).
        """
        if expected is not None and expected < ABSENT:
            raise ValueError(f"there is no version {expected}: it is the version of an entry, or ABSENT")
        return self._written(self._checked(key), bytes(value), expected, None)

    def put_json(self, key: str | bytes, document: Any, *, expected: int | None = None) -> Entry:
        """The same with a value that is written as JSON. DocumentError where it cannot be."""
        return self.put(key, encode(document), expected=expected)

    def merge(self, key: str | bytes, patch: Mapping[str, Any]) -> Entry | None:
        """Merge a patch into a JSON document (RFC 7386): names are set, null removes, other writers' names stay.

        Compares and tries again until no other writer came between. A key without a value begins as an empty document.
        None where that has none and the patch sets nothing. DocumentError where the value is not JSON.
        """
        deadline_s = time.monotonic() + self.timeout_s
        name = self._checked(key)
        while True:
            entry = self.get(name)
            before = parse(entry.value, f"the value of key {quoted(name)}") if entry else {}
            after = merge_patch(before, patch)
            if after == before and encode(after) == encode(before):
                return entry
            try:
                return self.put_json(name, after, expected=entry.version if entry else ABSENT)
            except VersionConflictError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(random.uniform(0, _PAUSE_MIN_S))  # noqa: S311  # spreads writers only

    def delete(self, key: str | bytes, *, expected: int | None = None, partition: int | None = None) -> bool:
        """Delete a key. False where it had no value, and nothing was written.

        `expected` as with `put`, but for ABSENT, which is a ValueError. `partition` deletes one of the values of an
        ambiguous key.
        """
        name = self._checked(key)
        if expected is not None and expected < 0:
            raise ValueError("a deletion cannot expect that there is nothing to delete")
        if expected is None and self._read(lambda view, info: self._value(view, info, name, partition)) is None:
            return False
        self._written(name, None, expected, partition)
        return True

    # --- inside -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        info = self._reaching(self._source.describe, time.monotonic() + self.timeout_s)
        if self._partitions is not None and (unknown := self._partitions - set(info.partitions)):
            raise NotATableError(
                f"table {self.stream!r} has no partition {min(unknown)}: it has {len(info.partitions)}, counted from 0"
            )
        self._reader.start()
        self._checker.start(info.delete_retention_s)
        self._read(lambda view, info: None)

    def _ask(self) -> Ends:
        return self._source.ends(self._live.positions)

    def _reaching(self, ask: Callable[[], Got], deadline_s: float) -> Got:
        """What the broker answers, asking again until the deadline while there is no connection."""
        while True:
            try:
                return ask()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                text = error_text(error)
                if not reason.retriable() and any(part in reason.name() for part in _REFUSED):
                    raise TableError(f"the broker refused to say what table {self.stream!r} is: {text}") from None
                if time.monotonic() >= deadline_s:
                    raise TableTimeoutError(
                        f"no broker answered for table {self.stream!r} within {self.timeout_s:g} s: {text}"
                    ) from None
                time.sleep(_RETRY_S)

    def _read(self, get: Callable[[TableView, StreamInfo], Got], *, stale_ok: bool = False) -> Got:
        """What `get` makes of the view once it has everything that was acknowledged before this was called."""
        if os.getpid() != self._process_id:  # before any lock, which the other process may have held
            raise TableError(
                f"table {self.stream!r} was opened before this process was forked, and its threads are not here: "
                "open it again in each process"
            )
        deadline_s = time.monotonic() + self.timeout_s
        if stale_ok:
            return self._live.now(get, deadline_s)
        ends = self._reaching(self._asking.answer, deadline_s)
        self._reader.tell(ends)
        return self._live.when_read(ends.topic_id, ends.offsets, get, deadline_s)

    def _is_selected(self, key: bytes) -> bool:
        return key.startswith(self._prefix)

    def _checked(self, key: str | bytes) -> bytes:
        name = key_bytes(key)
        if not self._is_selected(name):
            raise ValueError(f"key {quoted(name)} does not begin with {quoted(self._prefix)}, as this view was opened")
        return name

    def _home(self, info: StreamInfo, key: bytes) -> int:
        """The partition of a key that has no value."""
        partition = partition_of(key, len(info.partitions))
        if self._partitions is not None and partition not in self._partitions:
            raise ValueError(f"key {quoted(key)} belongs to partition {partition}, which this view does not read")
        return partition

    def _value(self, view: TableView, info: StreamInfo, key: bytes, partition: int | None = None) -> Entry | None:
        """The one value of a key, or the one it has in a partition."""
        rivals = view.rivals(key)
        if partition is not None:
            held = [*rivals, view.get(key)]
            return next((entry for entry in held if entry and entry.partition == partition), None)
        if rivals:
            raise AmbiguousKeyError(self.stream, key, rivals)
        entry = view.get(key)
        if entry is None:
            self._home(info, key)  # which has to be among the partitions that are read
        return entry

    def _written(self, key: bytes, value: bytes | None, expected: int | None, partition: int | None) -> Entry:
        """Send a record, and again where its condition is refused although no other writer's record can be seen.

        It can be that the record in the way is appended and not committed yet, or that it is this very record, the
        answer to whose first sending was lost.
        """
        deadline_s = time.monotonic() + self.timeout_s
        write_id = self._own_writes.begin()
        pause_s = _PAUSE_MIN_S
        try:
            while True:
                place = self._read(lambda view, info: self._place(view, info, write_id, key, expected, partition))
                fate = place.done or self._writer.send(
                    place.partition, key, value, write_id, place.condition, deadline_s - time.monotonic()
                )
                if isinstance(fate, Unknown) and (seen := self._own_writes.seen(write_id)) is not None:
                    fate = Stored(seen.offset, seen.timestamp_ms)
                if isinstance(fate, Stored):
                    self._wait_for(place, fate.offset, write_id, deadline_s)
                    return Entry(key, value or b"", fate.offset, place.partition, fate.timestamp_ms)
                if isinstance(fate, Unknown):
                    raise UnknownOutcomeError(
                        f"no answer came for the write of key {quoted(key)} to table {self.stream!r} within "
                        f"{self.timeout_s:g} s: it may be there, now or later, or not at all; read the key to find out"
                    )
                if time.monotonic() >= deadline_s:
                    raise WriteRefusedError(
                        f"the broker refuses the write of key {quoted(key)}, although nothing that can be read stands "
                        "in its way: its log says why"
                    )
                time.sleep(random.uniform(pause_s / 2, pause_s))  # noqa: S311  # spreads writers only
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        finally:
            self._own_writes.end(write_id)

    def _place(
        self,
        view: TableView,
        info: StreamInfo,
        write_id: bytes,
        key: bytes,
        expected: int | None,
        partition: int | None,
    ) -> "_Place":
        """Where a record goes and on which condition, or where it is already."""
        entry = self._value(view, info, key, partition)
        home = entry.partition if entry else self._home(info, key)
        if (seen := self._own_writes.seen(write_id)) is not None:
            return _Place(home, info.topic_id, None, Stored(seen.offset, seen.timestamp_ms))
        if expected is None:
            return _Place(home, info.topic_id, None, None)
        if not info.compares_versions:
            raise NotATableError(f"the server of table {self.stream!r} does not compare versions: write without one")
        if expected != (entry.version if entry else ABSENT):
            raise VersionConflictError(self.stream, key, expected, entry)
        return _Place(home, info.topic_id, Condition(expected, view.positions[home], info.topic_id), None)

    def _wait_for(self, place: "_Place", offset: int, write_id: bytes, deadline_s: float) -> None:
        """Return once the view has a record that was acknowledged, or the deadline is over."""
        with contextlib.suppress(TableTimeoutError):
            self._live.when_read(place.topic_id, {place.partition: offset + 1}, lambda view, info: None, deadline_s)
        seen = self._own_writes.seen(write_id)
        if place.condition is not None and seen is not None and seen.has_condition:
            raise NotATableError(
                f"the server of table {self.stream!r} stored the record without comparing its version: "
                "another writer's value may be lost"
            )


class _Place(NamedTuple):
    partition: int
    topic_id: str
    condition: Condition | None
    done: Stored | None
