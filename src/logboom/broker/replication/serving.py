"""The leader's side of fetches: those that are not answered yet, and the reads for them.

A fetch is examined when it comes and whenever its partition has something new. The rules, in this order: the leader
epoch is the same on both sides (KIP-320); the follower's log agrees with this one up to what it asks for, else the
answer says where they diverge (KIP-101, KIP-279, KIP-595); only then its durable end counts, and only then it gets
records. Records come from what is written, synced or not, whole batches only: staged records may be taken back on a
full disk, written ones may not.

If only the high-water mark is new, the answer waits a little: usually the next records come soon, and the mark is sent
with them at no cost.

A fetch stands while its follower has what it was sent, or nearly: the leader answers it in parts, and itself moves it
behind the records of each part. In a steady stream each part therefore costs one frame to the follower and one back,
with its durable end, and records follow each other without waiting for either. The amount in flight is limited
(`fetch_session`); a fetch that finds the limit reached is answered once, and the follower sends the next one. A few
records wait while others of their partition are on their way, until the follower has synced those, for 20 ms at most.

Followers that are in sync go first, since producers wait for them. A follower that has more to catch up with gets a
limited part of an answer, one read at a time, so that new records for the others wait for one read at most; under a
throttle it may have to wait for its turn.
"""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from logboom.base.errors import (
    InvalidRequestError,
    LogboomError,
    NotLeaderError,
    StaleBrokerEpochError,
    StorageError,
    UnknownBrokerError,
)
from logboom.base.ids import BrokerEpoch, BrokerId, Epoch, Offset
from logboom.base.ports import Bytes
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.peers import PeerIdentity, SendPart
from logboom.broker.replication import wire
from logboom.broker.replication.context import ReplicationContext
from logboom.broker.replication.fetch_response import FetchResponse
from logboom.broker.replication.fetch_session import FetchSession, Has, has_of
from logboom.broker.replication.shared_reads import ON_LOOP_BYTES, ReadOf, SharedReads
from logboom.broker.replication.throttle import ReplicationThrottle
from logboom.broker.replication.waiting_fetches import WaitingFetches
from logboom.records import read_header
from logboom.replication.leadership import FollowerFetched
from logboom.replication.reconciliation import divergence
from logboom.storage import LogStart

_LOOP_BYTES_PER_TURN: Final = 1 << 20
"""After this much for one request, others get their turn of the loop."""
_PARTITIONS_PER_TURN: Final = 200
"""The same for partitions: a session that begins may name thousands, and heartbeats must not wait for all of them."""
_MARK_DELAY_S: Final = 0.02
_SILENCE_MAX_S: Final = 5.0
"""After this long without a request a follower may be gone."""
_MAX_WAIT_MS: Final = 60_000
_OBSERVERS_DISK_READS: Final = 1
"""Reads for observers that wait for the disk at a time, in addition to those for followers: readers wait for an
observer, producers for a follower."""


class FetchServing:
    """See the module. Life: that of the broker. On the loop."""

    def __init__(
        self,
        context: ReplicationContext,
        throttle: ReplicationThrottle,
    ) -> None:
        """`throttle`: of what leaders send."""
        self._find = context.find
        self._registered = context.registered_epoch
        self._clock = context.runtime.clock
        self._counters = context.counters
        self._throttle = throttle
        self._log = context.log
        self._reads = SharedReads()
        self._standing = WaitingFetches(self._reads, context.counters)
        self._sessions: dict[tuple[BrokerId, bool], FetchSession] = {}
        """By broker, and whether the session is for its observers."""
        self._disk_reads = asyncio.Semaphore(context.config.now.replica_disk_reads)
        """Reads that wait for the disk at a time are few, so that those of consumers do not wait behind them."""
        self._disk_reads_of_observers = asyncio.Semaphore(_OBSERVERS_DISK_READS)

    # --- requests -----------------------------------------------------------------------------------------------

    async def fetch(self, identity: PeerIdentity, body: memoryview, send_part: SendPart) -> Sequence[Bytes]:
        """Answer a FETCH frame. Raises InvalidRequestError, UnknownBrokerError, StaleBrokerEpochError."""
        request = wire.decode_request(body)
        session = self._session_of(identity.broker_id, request)
        session.latest, session.last_request_s = request, self._clock.monotonic_s()
        session.wake()  # a request that waits gives its place to this one
        session.add(request.items)
        response = FetchResponse(request, session, send_part)
        wait_s = min(request.max_wait_ms, _MAX_WAIT_MS) / 1_000
        timer = asyncio.get_running_loop().call_later(wait_s, _expire, response)
        try:
            while True:
                await self._answer_all(response)
                if response.send() and session.has_ready:
                    await asyncio.sleep(0)
                if response.is_over or not await self._waited(response):
                    return response.whole()
        finally:
            timer.cancel()

    def _session_of(self, replica: BrokerId, request: wire.FetchRequest) -> FetchSession:
        registered = self._registered(replica)
        if registered < 0:
            raise UnknownBrokerError(f"no broker is registered as {replica} yet, as far as this one knows")
        if request.broker_epoch < registered:
            raise StaleBrokerEpochError(f"a fetch of broker {replica} comes from an earlier process of it")
        session = self._sessions.get((replica, request.observer))
        if session is not None and session.number == request.session:
            if request.reports_sent > session.ends_received:
                raise InvalidRequestError("durable ends of this session were lost on the way")
            return session
        if not request.begins:
            raise InvalidRequestError("a fetch continues a session that this broker does not know")
        if session is not None:
            session.end()
        fresh = FetchSession(request.session, replica, request.observer, BrokerEpoch(request.broker_epoch))
        self._sessions[replica, request.observer] = fresh
        return fresh

    async def _waited(self, response: FetchResponse) -> bool:
        """Wait for something new. Returns False if the request is to be answered as it is: it has waited long enough,
        or another one has replaced it."""
        session = response.session
        is_current = self._sessions.get((session.replica, session.observer)) is session
        if response.has_expired or session.latest is not response.request or not is_current:
            return False
        if session.has_ready:
            return True
        await self._standing.wait(response)
        return session.has_ready

    # --- answers ------------------------------------------------------------------------------------------------

    async def _answer_all(self, response: FetchResponse) -> None:
        """Answer all fetches for which there is something, as far as the answer has room."""
        session, request = response.session, response.request
        catch_up_bytes = request.partition_max_bytes
        looked_at = turn_bytes = 0
        while (left_bytes := response.left_bytes) > 0:
            found = self._next(session, catch_up=catch_up_bytes > 0)
            if found is None:
                return
            key, item, catches_up = found
            looked_at += 1
            if looked_at % _PARTITIONS_PER_TURN == 0:
                await _others_turn(response)
            most = min(left_bytes, catch_up_bytes if catches_up else request.partition_max_bytes)
            size_bytes = await self._answer(response, key, item, most, catches_up=catches_up)
            catch_up_bytes -= size_bytes if catches_up else 0
            turn_bytes += size_bytes
            if turn_bytes >= _LOOP_BYTES_PER_TURN:
                turn_bytes = 0
                await _others_turn(response)

    def _next(self, session: FetchSession, *, catch_up: bool) -> tuple[StreamIdPartition, wire.FetchItem, bool] | None:
        """The next fetch to look at, and whether its replica has to catch up; None if there is none for now."""
        while session.ready:
            key = next(iter(session.ready))
            del session.ready[key]
            item = session.pending.get(key)
            if item is None or key in session.held:
                continue
            if not self._catches_up(session, key, item):
                return key, item, False
            session.behind[key] = None
        while catch_up and session.behind:
            key = next(iter(session.behind))
            del session.behind[key]
            item = session.pending.get(key)
            if item is not None:
                return key, item, True
        return None

    def _catches_up(self, session: FetchSession, key: StreamIdPartition, item: wire.FetchItem) -> bool:
        try:
            partition = self._find(key)
        except LogboomError:
            return False
        leader = partition.role.leader
        return partition.role.leads and session.replica not in leader.isr and item.offset < partition.log.written_end

    async def _answer(
        self, response: FetchResponse, key: StreamIdPartition, item: wire.FetchItem, max_bytes: int, *, catches_up: bool
    ) -> int:
        """Answer a fetch, if there is something to send; returns the bytes of records."""
        session = response.session
        try:
            found = await self._found(response, key, item, max_bytes, catches_up=catches_up)
        except LogboomError as error:
            refusal = f"{type(error).__name__}: {error}"
            found = wire.AnswerItem(item.stream, item.index, item.number, refusal=refusal), b"", None
        if found is None:
            return 0
        answer, data, stands = found
        session.answered(key, item, stands)
        response.add(answer, data)
        self._counters.replicated_bytes_out += len(data)
        return len(data)

    async def _found(
        self, response: FetchResponse, key: StreamIdPartition, item: wire.FetchItem, max_bytes: int, *, catches_up: bool
    ) -> tuple[wire.AnswerItem, Bytes, wire.FetchItem | None] | None:
        """The answer to a fetch, its records, and the number under which it stands; None if there is nothing to send
        yet. Raises LogboomError."""
        session = response.session
        partition = self._find(key)
        _check_leads(partition, item)
        log = partition.log
        parted = divergence(
            log.epochs,
            log.written_end,
            last_epoch=Epoch(item.last_epoch),
            fetch_offset=Offset(item.offset),
        )
        if parted is not None:
            return _elsewhere(item, log.start, diverging=(parted.epoch, parted.end_offset)), b"", None
        if key in session.new:
            session.new.discard(key)
            self._follower_has(partition, session, session.has(key, item))
        if item.offset < partition.log_start_offset:
            begin = await self._first_batch(response, partition)
            if item.offset < begin:
                _check_has_nothing_else(partition, item, begin)
                return _elsewhere(item, log.start, begin=begin), b"", None
        throttled = catches_up and self._throttle.holds(key, session.replica)
        if throttled:
            if (wait_s := self._throttle.wait_s()) > 0:
                session.hold(key, wait_s)
                return None
            max_bytes = min(max_bytes, self._throttle.turn_bytes)
        # What lies below the log start is read with the batch that the log start is in.
        offset = Offset(max(item.offset, partition.log_start_offset))
        data, end = await self._read(response, partition, offset, max_bytes)
        if throttled:
            self._throttle.charge(len(data))
            self._counters.throttled_bytes_out += len(data)
        _check_leads(partition, item)
        if session.pending.get(key) is not item:
            return None  # the follower has asked again during the read: it takes no answer to this, nor its mark
        if not data and not self._is_mark_due(session, key, partition):
            return None
        may_stand = response.request.takes_parts and not catches_up
        stands = session.stand(key, item, partition, len(data), end) if may_stand else None
        return session.answer(key, item, partition, len(data), stands=stands is not None), data, stands

    async def _first_batch(self, response: FetchResponse, partition: Partition) -> Offset:
        """Where an empty copy begins: the log start may lie inside a batch, and batches are sent whole."""
        start = partition.log_start_offset
        data, _ = await self._read(response, partition, start, 1)
        return min(start, read_header(data).base_offset) if data else start

    async def _read(
        self, response: FetchResponse, partition: Partition, offset: Offset, max_bytes: int
    ) -> tuple[Bytes, Offset | None]:
        """Records, and the offset behind them; None where they came from the disk, and more are likely to."""
        log = partition.log
        end = log.written_end
        if offset >= end:
            return b"", offset
        found = self._reads.read(ReadOf(log, partition.leader_epoch, offset, end, min(max_bytes, ON_LOOP_BYTES)))
        if found is not None:
            return found
        response.send()
        async with self._disk_reads_of_observers if response.session.observer else self._disk_reads:
            data = await partition.reads.in_thread(partial(log.reader.read, offset, max_bytes, ceiling=end))
        assert data is not None, "only a read of what is in memory may find nothing"
        return data, None

    # --- what followers have ------------------------------------------------------------------------------------

    def durable_ends(self, identity: PeerIdentity, body: memoryview) -> None:
        """Process a DURABLE_END frame: durable ends of logs that a fetch of the same leadership has shown to match this
        one."""
        try:
            received = wire.decode_ends(body)
        except InvalidRequestError as error:
            self._log.warning("a message of a follower is dropped", follower=identity.broker_id, reason=str(error))
            return
        sessions = [self._sessions.get((identity.broker_id, observer)) for observer in (False, True)]
        known = (received.session, received.broker_epoch)
        session = next((one for one in sessions if one is not None and (one.number, one.broker_epoch) == known), None)
        if session is None:
            return
        session.ends_received += 1
        for one in received.ends:
            try:
                key = wire.key_of(one.stream, one.index)
                partition = self._find(key)
            except LogboomError:
                continue
            in_epoch = partition.role.leads and partition.leader_epoch == one.epoch
            if in_epoch and one.durable_end <= partition.log_end_offset:
                session.ahead.durable(key, Offset(one.durable_end))
                session.ends[key] = one  # it may overtake the fetch, which is a task here
                self._follower_has(partition, session, has_of(one))
                item = session.pending.get(key)
                if item is not None and session.has_enough(key, item, partition):
                    session.look_at(key)  # this has waited for the follower's sync

    def _follower_has(self, partition: Partition, session: FetchSession, has: Has) -> None:
        partition.role.leader.replication_step(
            FollowerFetched(
                session.replica,
                session.broker_epoch,
                has.durable_end,
                partition.log_end_offset,
                self._clock.monotonic_s(),
                has.partition_epoch,
                has.log_start,
                partition.log.start.deleted_below,
                has.lacks_room,
            )
        )

    def heard_of(self) -> frozenset[BrokerId]:
        """Followers whose last request was recent."""
        now_s = self._clock.monotonic_s()
        sessions = self._sessions.values()
        return frozenset(one.replica for one in sessions if now_s - one.last_request_s < _SILENCE_MAX_S)

    def confirm(self, partition: Partition, key: StreamIdPartition) -> None:
        """Feed the reports of followers outside the ISR again. They ask for nothing new while nothing is written, and
        may have been refused when they reported first."""
        now_s = self._clock.monotonic_s()
        for session in self._sessions.values():
            item = session.pending.get(key)
            is_there = item is not None and key not in session.new and now_s - session.last_request_s < _SILENCE_MAX_S
            if item is None or not is_there or session.replica in partition.role.leader.isr:
                continue
            if item.epoch == partition.leader_epoch:
                self._follower_has(partition, session, session.has(key, item))

    # --- changes of partitions ------------------------------------------------------------------------------------

    def copies(self, key: StreamIdPartition, brokers: Collection[BrokerId]) -> None:
        """These brokers have a copy of a partition, and no others: what was sent to any other broker will never be
        reported durable."""
        for session in self._sessions.values():
            if session.replica not in brokers:
                session.ahead.forget(key)

    def written(self, key: StreamIdPartition) -> None:
        """Records of a partition that this broker leads were just written, on the loop: followers that wait for them
        are sent them before anything else is done."""
        for session, item, partition in self._with_news(key):
            if partition is None or not self._standing.send(session, key, item, partition):
                session.look_at(key)

    def moved(self, key: StreamIdPartition) -> None:
        """A partition that this broker leads or led has changed: fetches that wait for it are answered."""
        for session, _, _ in self._with_news(key):
            session.look_at(key)

    def _with_news(self, key: StreamIdPartition) -> list[tuple[FetchSession, wire.FetchItem, Partition | None]]:
        """The followers for whose fetch of a partition there is something to send; others hear of it later. Without the
        partition, if this broker does not lead it any more."""
        waiting = [(session, item) for session in self._sessions.values() if (item := session.pending.get(key))]
        if not waiting:
            return []
        try:
            partition = self._find(key)
        except LogboomError:
            partition = None
        if partition is None or not partition.role.leads:
            return [(session, item, None) for session, item in waiting]
        news: list[tuple[FetchSession, wire.FetchItem, Partition | None]] = []
        for session, item in waiting:
            if session.has_enough(key, item, partition):
                news.append((session, item, partition))
            elif partition.log.written_end > item.offset or session.is_behind(key, partition):
                self._send_mark_later(session, key)
        return news

    def mark_moved(self, key: StreamIdPartition) -> None:
        """The high-water mark of a partition that this broker leads has moved: followers hear of it with the next
        records, or a little later."""
        for session in self._sessions.values():
            if key in session.pending and (key not in session.mark_due or session.mark_timer is None):
                self._send_mark_later(session, key)

    def forget(self, key: StreamIdPartition) -> None:
        """A partition is gone from this broker: fetches that wait for it are refused, and nothing is known of it."""
        self._reads.forget()
        for session in self._sessions.values():
            session.forget(key)

    def _is_mark_due(self, session: FetchSession, key: StreamIdPartition, partition: Partition) -> bool:
        if not session.is_behind(key, partition):
            return False
        if key in session.mark_due:
            return True
        self._send_mark_later(session, key)
        return False

    def _send_mark_later(self, session: FetchSession, key: StreamIdPartition) -> None:
        session.mark_due.add(key)
        if session.mark_timer is None:
            loop = asyncio.get_running_loop()
            session.mark_timer = loop.call_later(_MARK_DELAY_S, self._send_marks, session)

    def _send_marks(self, session: FetchSession) -> None:
        session.mark_timer = None
        session.ready.update(dict.fromkeys(key for key in session.mark_due if key in session.pending))
        if session.ready:
            session.wake()

    def stop(self) -> None:
        """Answer all requests that wait."""
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()
        self._reads.forget()


def _expire(response: FetchResponse) -> None:
    """The request has waited long enough."""
    response.has_expired = True
    if response.session.latest is response.request:
        response.session.wake()


async def _others_turn(response: FetchResponse) -> None:
    response.send()
    await asyncio.sleep(0)


def _elsewhere(
    item: wire.FetchItem, start: LogStart, *, begin: Offset | None = None, diverging: tuple[int, int] | None = None
) -> wire.AnswerItem:
    """The answer to a follower whose log is to be cut, or restarted at `begin`, first: of the high-water mark it takes
    nothing."""
    log_start = start.deleted_below if begin is None else begin
    return wire.AnswerItem(
        item.stream,
        item.index,
        item.number,
        log_start=log_start,
        diverging=diverging,
        start_is_known=start.is_known,
    )


def _check_has_nothing_else(partition: Partition, item: wire.FetchItem, begin: Offset) -> None:
    """Raises StorageError if this broker's log may have lost its beginning and the follower has records of it: it would
    discard them to go on where this log begins."""
    if not partition.log.start.is_known and item.log_start != item.offset:
        raise StorageError(
            f"the log of {partition} begins at offset {begin} on its leader, whose disk may have lost what is below, "
            f"and this replica has records of that, up to offset {item.offset}. If they are not needed, delete the "
            f"records below offset {begin} (kafka-delete-records)"
        )


def _check_leads(partition: Partition, item: wire.FetchItem) -> None:
    """Raises NotLeaderError, FencedLeaderEpochError, UnknownLeaderEpochError."""
    if not partition.role.leads:
        raise NotLeaderError(f"this broker does not lead {partition}")
    partition.check_leader_epoch(item.epoch)
