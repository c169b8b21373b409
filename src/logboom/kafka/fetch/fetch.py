"""One fetch: read what is there, wait where that is not enough, answer with batches exactly as they lie in the log.

What is in memory is read on the event loop. A fetch that needs the disk goes on in a task, whose reads run in threads.
Records are neither decoded nor copied here: the response is a list of buffers.

The states of a fetch, and what ends each:

    reading from memory -> answered            enough records, an error, no time to wait, or no room to wait
                        -> reading from disk   a read that memory cannot serve
                        -> waiting             not enough (min_bytes, max_wait)
    reading from disk   -> answered | waiting  as above
    waiting             -> reading from memory a partition has changed so that it can be enough
                        -> reading from memory the time is over, and then answered with what there is
    any                 -> abandoned           the connection was closed
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.base.units import KIB
from logboom.kafka.cluster.current_leader import CurrentLeaders
from logboom.kafka.errors import error_code
from logboom.kafka.fetch.partition_fetch import NO_RECORDS, ByteBudget, PartitionFetch, partition_fetch
from logboom.kafka.fetch.response import (
    LEADER_TAG,
    SESSION_ERRORS,
    encode_response,
    encode_session_error,
    encode_throttled,
)
from logboom.kafka.fetch.sessions import NO_SESSION
from logboom.kafka.replies import DeferredReply
from logboom.kafka.wire.messages import as_milliseconds

if TYPE_CHECKING:
    from logboom.kafka.fetch.purgatory import Watch
    from logboom.kafka.fetch.services import FetchServices
    from logboom.kafka.fetch.sessions import FetchPlan
    from logboom.kafka.wire.encoded import EncodedResponse

API_KEY: Final = 1
_FROM_FOLLOWERS: Final = 11
"""The first version whose clients may read from followers (KIP-392)."""
_READ_AHEAD_FROM_BYTES: Final = 64 * KIB
"""Reading ahead costs more than it saves for smaller reads."""


class Fetch:
    """Made by the handler; answers at once, or through a DeferredReply."""

    __slots__ = (
        "_committed_only",
        "_deadline_s",
        "_found_bytes",
        "_loop",
        "_max_bytes",
        "_min_bytes",
        "_partitions",
        "_plan",
        "_quotas",
        "_reply",
        "_reserved_bytes",
        "_services",
        "_task",
        "_version",
        "_watch",
    )

    def __init__(
        self,
        services: FetchServices,
        client_id: str,
        connection: Hashable,
        version: int,
        request: Any,
        plan: FetchPlan,
    ) -> None:
        config, broker = services.config.now, services.broker
        self._services = services
        self._version = version
        self._plan = plan
        leader_only = version < _FROM_FOLLOWERS
        self._partitions = [partition_fetch(broker, position, leader_only=leader_only) for position in plan.positions]
        if not leader_only:
            self._redirect(request.rack_id, connection)
        self._min_bytes: int = request.min_bytes
        self._max_bytes = max(0, min(request.max_bytes, config.max_fetch_bytes))
        self._quotas = services.quotas.of(client_id)
        if self._quotas is not None:
            self._max_bytes = self._quotas.fetch_bytes_max(self._max_bytes)
        self._found_bytes = 0
        self._committed_only = bool(request.isolation_level)
        self._loop = asyncio.get_running_loop()
        wait_ms = min(max(0, as_milliseconds(request.max_wait)), config.max_fetch_wait_ms)
        self._deadline_s = self._loop.time() + wait_ms / 1000
        self._reserved_bytes = 0
        self._reply: DeferredReply | None = None
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> EncodedResponse | DeferredReply:
        """Returns the response, or the DeferredReply that will have it."""
        found = self._read_cached()
        if found is not None and (self._is_enough(found) or not self._delay()):
            return self._encode()
        reply = self._reply = DeferredReply()
        reply.on_abandoned = self._abandon
        if found is None:
            self._read_from_disk()
        return reply

    def _redirect(self, rack: str, connection: Hashable) -> None:
        """Send the consumer to replicas in its own rack, or to observers."""
        read_replicas = self._services.read_replicas
        for fetch in self._partitions:
            partition = fetch.partition
            if partition is not None and (rack or partition.config.observers):
                fetch.read_replica = read_replicas.choose(partition, rack, fetch.position.offset, connection)

    # --- reading ---

    def _read_cached(self) -> ByteBudget | None:
        """Read all partitions from memory; None where one of them needs the disk."""
        budget = ByteBudget(self._services.budget.grant(self._max_bytes))
        note_size = self._min_bytes > 1
        for fetch in self._partitions:
            if not fetch.prepare(note_size=note_size):
                continue
            assert fetch.partition is not None
            allowed = budget.allowed(fetch)
            if not allowed and not budget.is_empty:
                continue
            try:
                records = fetch.partition.reads.read_cached(Offset(fetch.position.offset), allowed)
            except LogboomError as error:
                fetch.fail(error)
                continue
            if records is None:
                return None
            budget.take(fetch, records, allowed)
        return budget

    async def _read_all(self) -> ByteBudget:
        """As `_read_cached`, waiting for the disk."""
        budget = ByteBudget(self._reserved_bytes)
        note_size = self._min_bytes > 1
        for fetch in self._partitions:
            if not fetch.prepare(note_size=note_size):
                continue
            assert fetch.partition is not None
            allowed = budget.allowed(fetch)
            if not allowed and not budget.is_empty:
                continue
            try:
                records = await fetch.partition.reads.read(Offset(fetch.position.offset), allowed)
            except LogboomError as error:
                fetch.fail(error)
                continue
            budget.take(fetch, records, allowed)
        return budget

    def _read_from_disk(self) -> None:
        # Reserved before the read: fetches that read at the same time must not all count on the same memory.
        wanted_bytes = min(self._max_bytes, sum(max(0, fetch.position.max_bytes) for fetch in self._partitions))
        self._reserved_bytes = self._services.budget.reserve(wanted_bytes)
        task = self._loop.create_task(self._finish_from_disk())
        self._task = task
        task.add_done_callback(self._disk_done)

    async def _finish_from_disk(self) -> None:
        found = await self._read_all()
        self._release_budget()
        if self._is_enough(found) or not self._delay():
            self._answer()

    def _release_budget(self) -> None:
        self._services.budget.release(self._reserved_bytes)
        self._reserved_bytes = 0

    def _disk_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._release_budget()
        if not task.cancelled() and (error := task.exception()) is not None:
            assert self._reply is not None
            self._reply.fail(error)

    # --- waiting ---

    def _is_enough(self, found: ByteBudget) -> bool:
        self._found_bytes = found.taken_bytes
        if not self._partitions:
            return True  # a request for no partition has nothing to wait for
        return found.taken_bytes >= self._min_bytes or any(
            fetch.error is not None or fetch.redirected for fetch in self._partitions
        )

    def _delay(self) -> bool:
        """Wait in the purgatory; False where no time or no place is left."""
        left_s = self._deadline_s - self._loop.time()
        if left_s <= 0:
            return False
        partitions = dict.fromkeys(fetch.partition for fetch in self._partitions if fetch.partition is not None)
        self._watch = self._services.purgatory.watch(self, partitions, left_s)
        if self._watch is None:
            return False
        for fetch in self._partitions:
            fetch.records = NO_RECORDS  # a waiting fetch holds no records; they are read again once there are enough
        return True

    def try_complete(self) -> None:
        """A partition has changed: read if that can give enough now."""
        if self._may_be_enough():
            self._wake()

    def on_expiration(self) -> None:
        """The wait is over: answer with what there is."""
        self._min_bytes = 0
        self._wake()

    def _may_be_enough(self) -> bool:
        """Whether a read can give enough, judged by sizes alone: this is asked at every flush of every partition."""
        expected = self._found_bytes
        for fetch in self._partitions:
            partition = fetch.partition
            if partition is None:
                continue
            role = partition.role
            if role.failure is not fetch.failure or role.leads is not fetch.led:
                return True  # it failed, was deleted or has another leader, which a read will report
            if partition.high_watermark != fetch.high_watermark:
                if self._min_bytes <= 1:
                    return True
                grown_bytes = fetch.grown_bytes()
                if grown_bytes is None:
                    return True
                expected += grown_bytes
        return expected >= self._min_bytes

    def _wake(self) -> None:
        self._stop_waiting()
        if self._reply is None or self._reply.is_set or self._task is not None:
            return
        found = self._read_cached()
        if found is None:
            self._read_from_disk()
        elif self._is_enough(found) or not self._delay():
            self._answer()

    def _stop_waiting(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _abandon(self) -> None:
        """The connection was closed."""
        self._stop_waiting()
        if self._task is not None:
            self._task.cancel()

    # --- answering ---

    def _answer(self) -> None:
        assert self._reply is not None
        self._reply.set(self._encode())

    def _encode(self) -> EncodedResponse:
        services, version = self._services, self._version
        metrics = services.metrics
        if self._quotas is not None:
            throttle_ms = self._quotas.charge_fetch(sum(len(fetch.records) for fetch in self._partitions))
            if throttle_ms:
                session = self._plan.session
                return encode_throttled(version, throttle_ms, NO_SESSION if session is None else session.id)
        response = services.sessions.finish(self._plan, self._partitions, services.now_ms())
        errors = metrics.api(API_KEY).errors
        if response.error is not None:
            code = SESSION_ERRORS[response.error]
            errors[code.name] += 1
            return encode_session_error(version, code, response.session_id)
        leaders = None
        for fetch in response.partitions:
            if fetch.error is not None:
                errors[error_code(fetch.error).name] += 1
                leaders = leaders or CurrentLeaders(services.broker.catalog, services.cluster, tag=LEADER_TAG)
            size = len(fetch.records)
            metrics.fetched_bytes += size
            if size >= _READ_AHEAD_FROM_BYTES:
                self._read_ahead(fetch)
        return encode_response(
            version,
            response.session_id,
            response.partitions,
            committed_only=self._committed_only,
            leaders=leaders,
        )

    def _read_ahead(self, fetch: PartitionFetch) -> None:
        """While this response is sent, read what the client will ask for next if it goes on as it did."""
        partition, position = fetch.partition, fetch.position
        assert partition is not None
        self._loop.call_soon(partition.reads.read_ahead, Offset(position.offset), position.max_bytes)
