"""Writes advisories to the internal stream `__advisories`: see the package. Its partition may be led by another broker,
which then appends them for this one.

Life: created with the broker; `start` once its partitions are open; `stop` before they close. On the loop.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Final

import msgspec
from structlog.typing import FilteringBoundLogger

from logboom.base.errors import InvalidRequestError, LogboomError, NotLeaderError, UnsupportedLevelError
from logboom.base.ids import Offset, StreamName
from logboom.base.ports import Bytes
from logboom.base.units import DAY_MS, MIB
from logboom.broker.advisories.pending import PendingAdvisories, Written, records
from logboom.broker.internal_streams import InternalStreams
from logboom.broker.metrics import Counters
from logboom.broker.partition.replica import AppendResult
from logboom.broker.peers import FrameKind, PeerIdentity, Peers
from logboom.broker.rate_limited_log import RateLimitedLog
from logboom.broker.runtime import Runtime
from logboom.metadata import Stream
from logboom.metadata.levels import ADVISORIES_FROM
from logboom.records import Record, build_batch

ADVISORIES_STREAM: Final = StreamName("__advisories")
_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message.timestamp.type": "CreateTime",
        "retention.bytes": str(64 * MIB),
        "retention.ms": str(7 * DAY_MS),
        "segment.bytes": str(8 * MIB),
    }
)
_INTERVAL_S: Final = 1.0
_RETRY_S: Final = 5.0
_WRITE_S: Final = 10.0
"""How long the creation of the stream or an append may take."""
_STOP_S: Final = 0.5
_BATCH_RECORDS: Final = 200
"""Of less than a kilobyte each."""
_Record = tuple[int, Annotated[bytes, msgspec.Meta(max_length=1_000)], Annotated[bytes, msgspec.Meta(max_length=8_000)]]
_RECORDS: Final = msgspec.msgpack.Decoder(Annotated[list[_Record], msgspec.Meta(min_length=1, max_length=1_000)])


class Advisories:
    """See the module."""

    def __init__(
        self,
        streams: InternalStreams,
        replication_factor: Callable[[], int],
        *,
        peers: Peers,
        runtime: Runtime,
        counters: Counters,
        log: FilteringBoundLogger,
    ) -> None:
        """`replication_factor`: of the stream, when it is created."""
        self._streams = streams
        self._replication_factor = replication_factor
        self._peers = peers
        self._clock = runtime.clock
        self._counters = counters
        self._log = RateLimitedLog(log, runtime.clock, Counter())
        self._pending = PendingAdvisories()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[bool] | None = None
        self._stopped = False

    def start(self) -> None:
        """Append what other brokers have noted, where this one leads the stream."""
        self._peers.serve(FrameKind.ADVISORIES, self.asked)

    def expect(self) -> None:
        """There may be advisories: create the stream now, so that people can wait for them."""
        self._write_in(0.0)

    def note(self, kind: str, *, stream: str = "", reason: str = "", count: int = 1, message: str = "") -> None:
        """Something has happened that an operator should know of, `count` times: written soon, with others of its
        kind."""
        self._counters.advisories[kind] += count
        self._pending.note(kind, stream, reason, count, message, self._clock.wall_ms())
        self._write_in(_INTERVAL_S)

    async def stop(self) -> None:
        """Write what was noted, if that takes no time, and no more. Idempotent."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        if self._pending:
            with contextlib.suppress(TimeoutError, LogboomError):
                await asyncio.wait_for(self._write_all(), _STOP_S)

    # --- writing ------------------------------------------------------------------------------------------------

    def _write_in(self, delay_s: float) -> None:
        if self._timer is None and self._writing is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write())
        self._writing.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[bool]") -> None:
        self._writing = None
        if task.cancelled():
            return
        if (fault := task.exception()) is not None:
            self._log.failure("writing advisories failed on an internal error", fault)
        elif not task.result():
            self._write_in(_RETRY_S)
        elif self._pending:
            self._write_in(_INTERVAL_S)

    async def _write(self) -> bool:
        """Whether all were written that waited."""
        try:
            async with asyncio.timeout(_WRITE_S):
                await self._write_all()
        except (LogboomError, TimeoutError) as error:
            self._counters.failed_advisory_writes += 1
            self._log.warning(
                "advisories",
                "advisories could not be written and wait",
                stream=ADVISORIES_STREAM,
                waiting=len(self._pending),
                reason=str(error) or "no answer in time",
            )
            return False
        return True

    async def _write_all(self) -> None:
        """Raises LogboomError."""
        stream = await self._stream()
        waiting = len(self._pending)
        while waiting > 0:
            taken = self._pending.take(_BATCH_RECORDS)
            waiting -= len(taken)
            try:
                await self._append(stream, records(taken, self._streams.broker_id))
            except BaseException:  # cancelled too
                self._pending.put_back(taken)
                raise
            self._counters.advisory_records += len(taken)

    async def _stream(self) -> Stream:
        stream = self._streams.find(ADVISORIES_STREAM)
        if stream is None:
            stream = await self._streams.ensure(
                ADVISORIES_STREAM,
                partitions=1,
                replication_factor=self._replication_factor(),
                config=_SETTINGS,
            )
        if not stream.internal:
            raise InvalidRequestError(f"a client has made a stream {ADVISORIES_STREAM}: delete it")
        return stream

    async def _append(self, stream: Stream, some: Sequence[Written]) -> None:
        image = self._streams.metadata.image
        stream = image.by_id.get(stream.id, stream)
        leader = stream.assignments[0].leader if stream.assignments else self._streams.broker_id
        if leader == self._streams.broker_id:
            await self._append_here(some)
        elif image.level < ADVISORIES_FROM:
            raise UnsupportedLevelError(
                f"advisories go to other brokers from metadata level {ADVISORIES_FROM} on: logboom cluster upgrade"
            )
        else:
            body = msgspec.msgpack.encode(list(some))
            await self._peers.call(leader, FrameKind.ADVISORIES, (body,), timeout_s=_WRITE_S)

    async def _append_here(self, some: Sequence[Written]) -> None:
        partition = self._streams.find_partition(ADVISORIES_STREAM, 0)
        if not partition.leads:
            raise NotLeaderError(f"another broker leads {ADVISORIES_STREAM}")
        batch = build_batch(Record(Offset(0), one.time_ms, one.key, one.value) for one in some)
        appended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition.append(batch, acks=-1, done=partial(_settle, appended))
        await appended

    # --- for other brokers --------------------------------------------------------------------------------------

    async def asked(self, peer: PeerIdentity, body: memoryview) -> Sequence[Bytes]:
        """`broker.peers.RequestHandler`: another broker has noted these."""
        try:
            some = [Written(*one) for one in _RECORDS.decode(body)]
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"advisories of broker {peer.broker_id} cannot be read: {error}") from None
        await self._append_here(some)
        return (b"",)


def _settle(appended: "asyncio.Future[None]", result: AppendResult | LogboomError) -> None:
    if appended.done():
        return  # nobody waits any more
    if isinstance(result, LogboomError):
        appended.set_exception(result)
    else:
        appended.set_result(None)
