"""Fetches from one leader, for all partitions that follow it, or for all that observe it: replicas, for which producers
wait, never wait behind observers.

One request is at the leader at a time, which holds it until there is something to answer. A fetch that comes up
meanwhile is sent at once, in a second request that replaces the first. After a failure everything is asked for again,
in a new session, after a pause that grows with each failure.

Durable ends that are reported separately from fetches are not answered, and may get lost with a connection. Each
request says how many reports were sent in its session before it, so that a leader that has not received all of them
refuses it; the fetches of the next session report them again.

While as much waits to be written here as allowed, nothing more is asked for: otherwise a broker that comes back to
thousands of partitions would get some megabytes of each in memory. Requests continue without fetches, so that the
leader knows of it.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from logboom.base.errors import LogboomError
from logboom.base.ids import BrokerEpoch, BrokerId, Epoch, Offset
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.peers import FrameKind
from logboom.broker.replication import wire
from logboom.broker.replication.context import ReplicationContext
from logboom.replication.following import Fetch, FetchAnswered, ReportDurableEnd
from logboom.replication.reconciliation import EpochEnd

_IN_FLIGHT_MAX: Final = 2
_BYTES_PER_TURN: Final = 1 << 20
"""Records that are checked and appended in one turn of the loop."""
_PARTITIONS_PER_TURN: Final = 200
"""Answers that are processed in one turn of the loop."""
_GRACE_S: Final = 10.0
"""How long an answer may take beyond the longest wait of its request, since it may carry megabytes."""
_BACKOFF_MIN_MS: Final = 50
_BACKOFF_MAX_MS: Final = 1_000
_REFUSED_MIN_S: Final = 0.1
_REFUSED_MAX_S: Final = 0.8
"""How long a partition waits after a refusal before it asks again, twice as long each time. Usually either side has not
applied the metadata yet that the other one has."""
_SESSIONS: Final = 1 << 31


class Fetcher:
    """See the module. Life: from the first fetch of a leader on, until `stop`. On the loop."""

    def __init__(
        self,
        context: ReplicationContext,
        leader: BrokerId,
        *,
        observer: bool,
        records_came: Callable[[StreamIdPartition, int], None],
        has_room: Callable[[], bool],
    ) -> None:
        """`observer`: whether it fetches for observers. `records_came`: called with the size in bytes of the records of
        each answer. `has_room`: whether more may wait to be written; if not, `go_on` is called once it may."""
        self._leader = leader
        self._peers = context.cluster.peers
        self._observer = observer
        self._clock = context.runtime.clock
        self._own_epoch = context.cluster.own_epoch
        self._find = context.find_or_none
        self._records_came = records_came
        self._has_room = has_room
        self._config = context.config
        self._ids = context.runtime.ids
        self._log = context.log
        self._limited_log = context.limited_log
        self._wanted: dict[StreamIdPartition, Fetch] = {}
        """Fetches to be sent with the next request."""
        self._sent: dict[StreamIdPartition, Fetch] = {}
        """Fetches that the leader has not answered yet."""
        self._sent_s: dict[StreamIdPartition, float] = {}
        """For observers: when each fetch was sent, or when the leader last had something for it that it did not send
        yet."""
        self._answered_s = -math.inf
        """When the latest request that the leader has answered was sent."""
        self._ends: dict[StreamIdPartition, ReportDurableEnd] = {}
        self._refusals: dict[StreamIdPartition, float] = {}
        """How long to wait after the next refusal, for partitions that were refused last."""
        self._calls: set[asyncio.Task[None]] = set()
        self._session = self._new_session()
        self._begins = True
        """Whether the leader has not been asked in this session yet."""
        self._reports_sent = 0
        """Messages with durable ends that were sent in this session."""
        self._scheduled = False
        self._failures = 0
        self._pause: asyncio.TimerHandle | None = None
        self._stopped = False

    def _new_session(self) -> int:
        return self._ids.below(_SESSIONS)

    # --- what is to be sent -------------------------------------------------------------------------------------

    def fetch(self, key: StreamIdPartition, request: Fetch) -> None:
        """Ask for a partition; replaces an earlier fetch of it."""
        self._sent.pop(key, None)
        self._wanted[key] = request
        self._send_soon()

    def report(self, key: StreamIdPartition, end: ReportDurableEnd) -> None:
        """Report a durable end to the leader, with all others of this turn of the loop."""
        wanted = self._wanted.get(key)
        if wanted is not None and wanted.epoch == end.epoch:  # the next fetch must not report less than this
            self._wanted[key] = wanted._replace(durable_end=end.durable_end)
        self._ends[key] = end
        self._send_soon()

    def drop(self, key: StreamIdPartition) -> None:
        """The partition follows another leader, or is gone from this broker."""
        self._wanted.pop(key, None)
        self._sent.pop(key, None)
        self._ends.pop(key, None)
        self._sent_s.pop(key, None)
        self._refusals.pop(key, None)

    def quiet_s(self, key: StreamIdPartition) -> float | None:
        """When the leader, which had been asked for a partition, was last known to have nothing new of it: it answered
        others, or nothing, a request that was sent then. None where there was no such answer. For observers."""
        sent_s = self._sent_s.get(key)
        return self._answered_s if key in self._sent and sent_s is not None and sent_s <= self._answered_s else None

    def go_on(self) -> None:
        """There is space again for what is asked for."""
        if self._wanted:
            self._send_soon()

    def _send_soon(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        own_epoch = self._own_epoch()
        if self._stopped or own_epoch is None:
            return
        self._post_ends(own_epoch)
        if self._pause is not None or len(self._calls) >= _IN_FLIGHT_MAX:
            return
        may_ask = self._has_room()
        if (self._wanted and may_ask) or (not self._calls and (self._sent or self._wanted)):
            request = self._next_request(own_epoch, may_ask=may_ask)
            call = asyncio.ensure_future(self._call(request))
            self._calls.add(call)
            call.add_done_callback(self._call_ended)

    def _post_ends(self, own_epoch: BrokerEpoch) -> None:
        ends, self._ends = self._ends, {}
        if not ends or self._begins:  # the fetches that begin a session have them
            return
        items = [
            wire.DurableEnd(
                key.stream_bytes,
                key.index,
                end.number,
                end.epoch,
                end.durable_end,
                end.partition_epoch,
                self._log_start(key),
            )
            for key, end in ends.items()
        ]
        body = wire.encode_ends(wire.DurableEnds(self._session, own_epoch, items))
        self._reports_sent += 1
        self._peers.post(self._leader, FrameKind.DURABLE_END, body)

    def _log_start(self, key: StreamIdPartition) -> Offset:
        partition = self._find(key)
        return Offset(0) if partition is None else partition.log_start_offset

    def _next_request(self, own_epoch: BrokerEpoch, *, may_ask: bool) -> wire.FetchRequest:
        wanted: dict[StreamIdPartition, Fetch] = {}
        if may_ask:
            wanted, self._wanted = self._wanted, {}
        self._sent.update(wanted)
        if self._observer:
            self._sent_s.update(dict.fromkeys(wanted, self._clock.monotonic_s()))
        begins, self._begins = self._begins, False
        config = self._config.now
        items = [
            wire.FetchItem(
                key.stream_bytes,
                key.index,
                one.number,
                one.epoch,
                one.offset,
                one.last_epoch,
                one.durable_end,
                one.partition_epoch,
                one.last_answer,
                self._log_start(key),
                one.lacks_room,
            )
            for key, one in wanted.items()
        ]
        return wire.FetchRequest(
            session=self._session,
            begins=begins,
            broker_epoch=own_epoch,
            max_wait_ms=config.replica_fetch_wait_ms,
            max_bytes=config.replica_fetch_bytes,
            partition_max_bytes=config.replica_fetch_partition_bytes,
            items=items,
            reports_sent=self._reports_sent,
            observer=self._observer,
            takes_parts=not self._observer,  # the age of an observer is counted from when it asked
        )

    # --- answers ------------------------------------------------------------------------------------------------

    async def _call(self, request: wire.FetchRequest) -> None:
        asked_s = self._clock.monotonic_s()
        try:
            answer = await self._peers.call(
                self._leader,
                FrameKind.FETCH,
                wire.encode_request(request),
                timeout_s=request.max_wait_ms / 1_000 + _GRACE_S,
                on_part=partial(self._part, request.session, asked_s),
            )
            items, left = wire.decode_answer(answer)
        except LogboomError as error:
            self._failed(request.session, error)
            return
        self._failures = 0
        if self._observer and request.session == self._session:
            self._note_answer(asked_s, left)
        taken_bytes = 0
        for number, (item, records) in enumerate(items, 1):
            self._answered(item, records, asked_s)
            taken_bytes += len(records)
            if taken_bytes >= _BYTES_PER_TURN or number % _PARTITIONS_PER_TURN == 0:
                taken_bytes = 0
                await asyncio.sleep(0)

    def _part(self, session: int, asked_s: float, body: memoryview) -> None:
        """Process a part of the answer to a request, which the leader keeps small enough to be processed at once."""
        if session != self._session or self._stopped:
            return
        try:
            items, _ = wire.decode_answer(body)
        except LogboomError as error:
            self._failed(session, error)
            return
        self._failures = 0
        for item, records in items:
            self._answered(item, records, asked_s)

    def _note_answer(self, asked_s: float, left: Sequence[StreamIdPartition]) -> None:
        """For fetches that the leader neither answered nor deferred, nothing was new after the request had been
        sent."""
        self._answered_s = max(self._answered_s, asked_s)
        self._sent_s.update(dict.fromkeys(left, self._clock.monotonic_s()))

    def _answered(self, item: wire.AnswerItem, records: memoryview, asked_s: float) -> None:
        key = wire.key_of(item.stream, item.index)
        sent = self._sent.get(key)
        if sent is None or sent.number != item.number:
            return
        if not item.stands:
            del self._sent[key]
        self._records_came(key, len(records))
        partition = self._find(key)
        if partition is None:
            self._refusals.pop(key, None)
            return
        follower = partition.role.follower
        if item.refusal:
            self._refused(key, partition, item)
            return
        self._refusals.pop(key, None)
        diverging = None
        if item.diverging is not None:
            diverging = EpochEnd(Epoch(item.diverging[0]), Offset(item.diverging[1]))
        elif item.log_start <= max(sent.offset, item.offset):  # else the answer has no mark
            follower.freshness.mark_received(Offset(item.high_watermark), asked_s)
        answer = FetchAnswered(
            item.number,
            Offset(item.high_watermark),
            Offset(item.log_start),
            diverging=diverging,
            offset=None if item.offset < 0 else Offset(item.offset),
            stands=item.stands,
            start_is_known=item.start_is_known,
        )
        follower.answered(answer, records)

    def _refused(self, key: StreamIdPartition, partition: Partition, item: wire.AnswerItem) -> None:
        self._limited_log.info(
            f"refused by {self._leader}",
            "a fetch was refused",
            leader=self._leader,
            partition=str(partition),
            reason=item.refusal,
        )
        delay_s = self._refusals.get(key, _REFUSED_MIN_S)
        self._refusals[key] = min(2 * delay_s, _REFUSED_MAX_S)
        partition.role.follower.failed(item.number, after_s=delay_s)

    def _failed(self, session: int, error: LogboomError) -> None:
        """The outcome of what was sent is unknown: ask for all of it again, a little later."""
        if session != self._session or self._stopped:
            return
        self._session, self._begins, self._reports_sent = self._new_session(), True, 0
        if not self._failures:
            self._log.warning("fetching from a leader fails", leader=self._leader, reason=str(error))
        longest_ms = min(_BACKOFF_MIN_MS << min(self._failures, 10), _BACKOFF_MAX_MS)
        self._failures += 1
        delay_ms = longest_ms // 2 + self._ids.below(longest_ms // 2 + 1)
        if self._pause is None:
            self._pause = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._resume)
        sent, self._sent = self._sent, {}
        for key, request in sent.items():
            partition = self._find(key)
            if partition is not None:
                partition.role.follower.failed(request.number)

    def _resume(self) -> None:
        self._pause = None
        self._send_soon()

    def _call_ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if not call.cancelled() and (fault := call.exception()) is not None:
            self._log.error("fetching failed on an internal error", leader=self._leader, exc_info=fault)
        self._send_soon()

    async def stop(self) -> None:
        """Send nothing more, and leave what is under way."""
        self._stopped = True
        if self._pause is not None:
            self._pause.cancel()
        calls = tuple(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
