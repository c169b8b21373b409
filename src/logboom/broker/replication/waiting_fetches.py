"""Sends records to in-sync followers as soon as the leader has written them, before the leader's own sync begins.

An in-sync follower usually has an open fetch at the log end, in a waiting request. Waking the task of that request
would take two turns of the loop, after what clients send meanwhile. Producers wait for the followers' disks, so the
records are sent in the call that reports their write. All other cases are left to the task: another partition with data
is first, a replica has to catch up, records are not in memory, or too much is in flight.

Knows sessions, responses and shared reads. Must not decide what a follower may have. Use on the loop only.
"""

import asyncio

from logboom.base.errors import LogboomError
from logboom.base.ids import Offset
from logboom.broker.metrics import Counters
from logboom.broker.partition.replica import Partition
from logboom.broker.partition.replication_port import StreamIdPartition
from logboom.broker.replication import wire
from logboom.broker.replication.fetch_response import FetchResponse
from logboom.broker.replication.fetch_session import FetchSession
from logboom.broker.replication.shared_reads import ON_LOOP_BYTES, ReadOf, SharedReads


class WaitingFetches:
    """The requests of followers that wait for something new. Life: that of the broker."""

    __slots__ = ("_counters", "_reads", "_waiting")

    def __init__(self, reads: SharedReads, counters: Counters) -> None:
        self._reads = reads
        self._counters = counters
        self._waiting: dict[FetchSession, FetchResponse] = {}

    async def wait(self, response: FetchResponse) -> None:
        """Wait until the session of a request is woken; meanwhile `send` adds to its response."""
        session = response.session
        waiter = session.waiter = asyncio.get_running_loop().create_future()
        self._waiting[session] = response
        try:
            await waiter
        finally:
            if self._waiting.get(session) is response:
                del self._waiting[session]

    def send(self, session: FetchSession, key: StreamIdPartition, item: wire.FetchItem, partition: Partition) -> bool:
        """Send written records of a partition to a follower with an open fetch for it. Returns False, without doing
        anything, if the waiting request must be woken instead."""
        waiter = session.waiter
        response = self._waiting.get(session) if waiter is not None else None
        if waiter is None or waiter.done() or response is None or not session.stands(key) or session.has_ready:
            return False
        if session.replica not in partition.role.leader.isr or item.epoch != partition.leader_epoch:
            return False
        try:
            return self._send(response, key, item, partition)
        except LogboomError:
            return False  # the task will get the same error, and answers with it
        except Exception as error:  # noqa: BLE001 - a bug fails this fetch, not the partition that has written
            session.waiter = None
            waiter.set_exception(error)
            return True

    def _send(
        self, response: FetchResponse, key: StreamIdPartition, item: wire.FetchItem, partition: Partition
    ) -> bool:
        session, log, offset = response.session, partition.log, Offset(item.offset)
        max_bytes = min(response.left_bytes, response.request.partition_max_bytes, ON_LOOP_BYTES)
        if max_bytes <= 0 or offset < partition.log_start_offset:
            return False
        found = self._reads.read(ReadOf(log, partition.leader_epoch, offset, log.written_end, max_bytes))
        if found is None:
            return False
        data, end = found
        stands = session.stand(key, item, partition, len(data), end)
        if stands is None:
            return False
        answer = session.answer(key, item, partition, len(data), stands=True)
        session.answered(key, item, stands)
        response.add(answer, data)
        response.send()
        self._counters.replicated_bytes_out += len(data)
        if session.has_ready:
            session.wake()  # there is more than one read brings
        return True
