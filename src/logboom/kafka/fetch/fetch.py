"""One fetch: read what is there, wait where that is too little, answer with batches exactly as they lie in the log.

What is in memory is read on the loop; a fetch that needs the disk goes on in a task whose reads run in threads. Records
are never decoded and never copied here: the reply is a list of buffers with the log's bytes between a few of our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from kio.schema.errors import ErrorCode

from logboom.base.errors import LogboomError
from logboom.base.ids import NO_EPOCH, Offset
from logboom.base.ports import Bytes
from logboom.base.units import KIB
from logboom.kafka.admin.lookup import find_partition
from logboom.kafka.errors import error_code
from logboom.kafka.fetch.sessions import NO_SESSION, FetchPlan, Position, Refusal
from logboom.kafka.handlers.handler import Encoded, Later, RequestContext
from logboom.kafka.wire import encoding
from logboom.kafka.wire.messages import as_milliseconds

if TYPE_CHECKING:
    from uuid import UUID

    from logboom.broker.broker import Broker
    from logboom.broker.partition.replica import Partition
    from logboom.kafka.fetch.purgatory import Wait

_NOTHING: Final = b""
_READ_AHEAD_FROM_BYTES: Final = 64 * KIB
"""Smaller reads cost less than what would be saved."""
_TOPIC: Final = attrgetter("position.topic")


SESSION_ERRORS: Final = {
    Refusal.NOT_FOUND: ErrorCode.fetch_session_id_not_found,
    Refusal.WRONG_EPOCH: ErrorCode.invalid_fetch_session_epoch,
    Refusal.TOPIC_IDS: ErrorCode.fetch_session_topic_id_error,
}


@dataclass(slots=True)
class Want:
    """One partition of a fetch, and what was found of it."""

    position: Position
    partition: Partition | None
    error: LogboomError | None
    records: Bytes = _NOTHING
    high_watermark: int = -1
    log_start_offset: int = -1
    size_bytes: int = 0
    """The partition's size when it was read, where more than any byte is asked for: what it grew by since is new."""
    offline: bool = False

    @property
    def has_records(self) -> bool:
        return len(self.records) > 0

    @property
    def failed(self) -> bool:
        return self.error is not None

    def fail(self, error: LogboomError) -> None:
        """This partition is answered with an error."""
        self.error = error
        self.records = _NOTHING
        self.high_watermark = self.log_start_offset = -1


def _want(broker: Broker, position: Position) -> Want:
    try:
        return Want(position, find_partition(broker, cast("str | UUID | None", position.topic), position.index), None)
    except LogboomError as error:
        return Want(position, None, error)


class _Round:
    """The limits of one reading: whole batches up to so many bytes, the very first batch always (KIP-74)."""

    __slots__ = ("first", "total", "want_bytes")

    def __init__(self, want_bytes: int) -> None:
        self.want_bytes = want_bytes
        self.total = 0
        self.first = True

    def allowed(self, want: Want) -> int:
        return max(0, min(want.position.max_bytes, self.want_bytes - self.total))

    def take(self, want: Want, data: Bytes, allowed: int) -> None:
        size = len(data)
        if size and (self.first or size <= allowed):
            self.first = False
            self.total += size
            want.records = data


class Fetch:
    """Life: made by the handler; answers at once, or through `later` when records or the time have come."""

    __slots__ = (
        "_committed",
        "_context",
        "_deadline_s",
        "_found_bytes",
        "_later",
        "_loop",
        "_max_bytes",
        "_meters",
        "_min_bytes",
        "_plan",
        "_reserved_bytes",
        "_task",
        "_wait",
        "_wants",
    )

    def __init__(self, context: RequestContext, request: Any, plan: FetchPlan) -> None:
        config, broker = context.shared.config, context.broker
        self._context = context
        self._plan = plan
        self._wants = [_want(broker, position) for position in plan.positions]
        self._min_bytes: int = request.min_bytes
        self._max_bytes = max(0, min(request.max_bytes, config.max_fetch_bytes))
        self._meters = context.shared.quotas.of(context.client_id)
        if self._meters is not None:
            self._max_bytes = self._meters.fetch_bytes_max(self._max_bytes)
        self._found_bytes = 0
        self._committed = bool(request.isolation_level)
        self._loop = asyncio.get_running_loop()
        wait_ms = min(max(0, as_milliseconds(request.max_wait)), config.max_fetch_wait_ms)
        self._deadline_s = self._loop.time() + wait_ms / 1000
        self._reserved_bytes = 0
        self._later: Later | None = None
        self._wait: Wait | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> Encoded | Later:
        """The reply, or where it will be."""
        found = self._read_cached()
        if found is not None and (self._is_enough(found) or not self._sleep()):
            return self._encode()
        later = self._later = Later()
        later.on_abandoned = self._abandon
        if found is None:
            self._read_from_disk()
        return later

    # --- reading ---

    def _round(self) -> _Round:
        return _Round(self._context.shared.reply_room(self._max_bytes))

    def _read_cached(self) -> _Round | None:
        """Read everything from memory; None where the disk is needed."""
        limits = self._round()
        for want in self._wants:
            if not self._prepare(want):
                continue
            assert want.partition is not None
            allowed = limits.allowed(want)
            if not allowed and not limits.first:
                continue
            try:
                data = want.partition.reads.read_cached(Offset(want.position.offset), allowed)
            except LogboomError as error:
                want.fail(error)
                continue
            if data is None:
                return None
            limits.take(want, data, allowed)
        return limits

    async def _read_all(self) -> _Round:
        """As `_read_cached`, waiting for the disk."""
        limits = _Round(self._reserved_bytes)
        for want in self._wants:
            if not self._prepare(want):
                continue
            assert want.partition is not None
            allowed = limits.allowed(want)
            if not allowed and not limits.first:
                continue
            try:
                data = await want.partition.reads.read(Offset(want.position.offset), allowed)
            except LogboomError as error:
                want.fail(error)
                continue
            limits.take(want, data, allowed)
        return limits

    def _prepare(self, want: Want) -> bool:
        """Note where the partition stands; False where there is nothing to read.

        Most partitions of a large fetch are at their end, again and again: that is seen without asking the log.
        """
        want.records = _NOTHING
        partition, position = want.partition, want.position
        if partition is None or want.error is not None:
            return False
        if position.leader_epoch not in (NO_EPOCH, partition.leader_epoch):
            try:
                partition.check_leader_epoch(position.leader_epoch)
            except LogboomError as error:
                want.fail(error)
                return False
        want.high_watermark = high_watermark = partition.high_watermark
        want.log_start_offset = partition.log_start_offset
        want.offline = offline = partition.offline
        if self._min_bytes > 1:
            want.size_bytes = partition.size_bytes
        return offline or position.offset != high_watermark

    def _read_from_disk(self) -> None:
        # What is being read has its room already: many who read at once must not all count on the same.
        wanted = min(self._max_bytes, sum(max(0, want.position.max_bytes) for want in self._wants))
        self._reserved_bytes = self._context.shared.reserve_reply(wanted)
        task = self._loop.create_task(self._finish_from_disk())
        self._task = task
        task.add_done_callback(self._disk_done)

    async def _finish_from_disk(self) -> None:
        found = await self._read_all()
        self._give_back_room()
        if self._is_enough(found) or not self._sleep():
            self._answer()

    def _give_back_room(self) -> None:
        self._context.shared.reply_reserved_bytes -= self._reserved_bytes
        self._reserved_bytes = 0

    def _disk_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._give_back_room()
        if not task.cancelled() and (error := task.exception()) is not None:
            assert self._later is not None
            self._later.fail(error)

    # --- waiting ---

    def _is_enough(self, found: _Round) -> bool:
        self._found_bytes = found.total
        if not self._wants:
            return True  # nothing was asked for, so there is nothing to wait for
        return found.total >= self._min_bytes or any(want.error is not None for want in self._wants)

    def _sleep(self) -> bool:
        """Wait for more; False where there is no time left or no room to wait."""
        left_s = self._deadline_s - self._loop.time()
        if left_s <= 0:
            return False
        partitions = dict.fromkeys(want.partition for want in self._wants if want.partition is not None)
        self._wait = self._context.shared.purgatory.enter(self, partitions, left_s)
        if self._wait is None:
            return False
        for want in self._wants:
            want.records = _NOTHING  # read again when it is enough: whoever waits holds no records
        return True

    def moved(self) -> None:
        """A partition moved: look whether it can be enough now, and only then read."""
        if self._may_be_enough():
            self._wake()

    def time_is_over(self) -> None:
        """Answer with what there is."""
        self._min_bytes = 0
        self._wake()

    def _may_be_enough(self) -> bool:
        """Whether a read can give more than the last one: judged by sizes alone, since this is asked at every flush."""
        expected = self._found_bytes
        for want in self._wants:
            partition = want.partition
            if partition is None:
                continue
            if partition.offline != want.offline:
                return True  # it failed or is gone, which the read will tell
            if partition.high_watermark != want.high_watermark:
                if self._min_bytes <= 1:
                    return True
                expected += partition.size_bytes - want.size_bytes
        return expected >= self._min_bytes

    def _wake(self) -> None:
        self._stop_waiting()
        if self._later is None or self._later.is_set or self._task is not None:
            return
        found = self._read_cached()
        if found is None:
            self._read_from_disk()
        elif self._is_enough(found) or not self._sleep():
            self._answer()

    def _stop_waiting(self) -> None:
        if self._wait is not None:
            self._wait.leave()
            self._wait = None

    def _abandon(self) -> None:
        self._stop_waiting()
        if self._task is not None:
            self._task.cancel()

    # --- answering ---

    def _answer(self) -> None:
        assert self._later is not None
        self._later.set(self._encode())

    def _encode(self) -> Encoded:
        context = self._context
        shared, version = context.shared, context.api_version
        metrics = shared.metrics
        if self._meters is not None:
            wait_ms = self._meters.charge_fetch(sum(len(want.records) for want in self._wants))
            if wait_ms:
                session = self._plan.session
                return encode_throttled(version, wait_ms, NO_SESSION if session is None else session.id)
        answer = shared.fetch_sessions.conclude(self._plan, self._wants, context.now_ms())
        if answer.refusal is not None:
            code = SESSION_ERRORS[answer.refusal]
            metrics.api(1).errors[code.name] += 1
            return encode_refusal(version, code, answer.session_id)
        errors = metrics.api(1).errors
        for want in answer.found:
            if want.error is not None:
                errors[error_code(want.error).name] += 1
            size = len(want.records)
            metrics.fetched_bytes += size
            if size >= _READ_AHEAD_FROM_BYTES:
                self._read_ahead(want)
        return encode_response(version, answer.session_id, answer.found, committed_only=self._committed)

    def _read_ahead(self, want: Want) -> None:
        """While this reply is on its way, read what the client asks for next, if it asks as it did."""
        partition, position = want.partition, want.position
        assert partition is not None
        self._loop.call_soon(partition.reads.read_ahead, Offset(position.offset), position.max_bytes)


# --- the response, by hand (held against kio's reader in the tests) ------------------------------------------------

_HEAD: Final = {False: Struct(">i"), True: Struct(">ihi")}
_PART_V4: Final = Struct(">ihqqii")
_PART_V5: Final = Struct(">ihqqqii")
_PART_V11: Final = Struct(">ihqqqiii")
_PART_V12: Final = Struct(">ihqqqBi")
_NO_REPLICA: Final = -1


def encode_refusal(version: int, code: ErrorCode, session_id: int = NO_SESSION) -> Encoded:
    """A reply that refuses the whole request; only versions from 7 on can say why."""
    head = _HEAD[version >= 7]
    fields = (0, int(code), session_id) if version >= 7 else (0,)
    flexible = version >= 12
    return Encoded((head.pack(*fields) + encoding.count(0, flexible=flexible) + (b"\0" if flexible else b""),))


def encode_throttled(version: int, wait_ms: int, session_id: int) -> Encoded:
    """A reply without records that says how long to wait (KIP-219); the session stays as it is."""
    fields = (wait_ms, 0, session_id) if version >= 7 else (wait_ms,)
    flexible = version >= 12
    body = _HEAD[version >= 7].pack(*fields) + encoding.count(0, flexible=flexible) + (b"\0" if flexible else b"")
    return Encoded((bytearray(body),), throttle_at=0, throttle_ms=wait_ms)


def encode_response(version: int, session_id: int, wants: Sequence[Want], *, committed_only: bool) -> Encoded:
    """The body of a fetch response: the log's buffers with a few bytes of ours between them."""
    flexible = version >= 12
    pieces: list[Bytes] = []
    ours = bytearray(_HEAD[version >= 7].pack(*((0, 0, session_id) if version >= 7 else (0,))))
    topics = [(topic, list(parts)) for topic, parts in groupby(wants, _TOPIC)]
    ours += encoding.count(len(topics), flexible=flexible)
    for topic, parts in topics:
        ours += encoding.uuid(topic) if version >= 13 else encoding.string(topic, flexible=flexible)
        ours += encoding.count(len(parts), flexible=flexible)
        for want in parts:
            ours += _partition_head(version, want, committed_only)
            if want.records:
                pieces += (ours, want.records)
                ours = bytearray()
            if flexible:
                ours += b"\0"
        if flexible:
            ours += b"\0"
    if flexible:
        ours += b"\0"
    pieces.append(ours)
    return Encoded(pieces, throttle_at=0)


def _partition_head(version: int, want: Want, committed_only: bool) -> bytes:
    index, end, start = want.position.index, want.high_watermark, want.log_start_offset
    code, length = error_code(want.error), len(want.records)
    # Without transactions nothing is ever aborted: an empty list for those who ask for committed records, else null.
    if version >= 12:
        head = _PART_V12.pack(index, code, end, end, start, 1 if committed_only else 0, _NO_REPLICA)
        return head + encoding.uvarint(length + 1)
    aborted = 0 if committed_only else -1
    if version >= 11:
        return _PART_V11.pack(index, code, end, end, start, aborted, _NO_REPLICA, length)
    if version >= 5:
        return _PART_V5.pack(index, code, end, end, start, aborted, length)
    return _PART_V4.pack(index, code, end, end, aborted, length)
