"""Drives the coordinator of one partition of `__consumer_offsets`: performs its effects and reports their outcomes.

    request -> Coordinator.step -> effects: Persist -> GroupWriter.write -> Persisted -> step -> Reply -> future

Events are processed one by one. An event that an effect causes at once (an append that is refused) is queued behind the
effects of the current one. Appends are not waited for, so no group waits for another's write, and the writes of one
group keep their order because a partition appends in order.

States: LOADING (requests are answered COORDINATOR_LOAD_IN_PROGRESS) -> SERVING, or FAILED for good -> RESIGNED.
A resigned shard writes nothing any more, whatever the outcomes of its last writes make its coordinator want: the next
shard of the partition reads the log up to where it ends at that moment, and must miss nothing that comes behind it.

Time stands still while the broker may not act, having no lease: members whose heartbeats it refuses do not lose their
sessions by that.

Life: one leadership. Created; `load`; any number of `submit` and `process`; `resign`, then `drain`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from logboom.base.errors import LogboomError
from logboom.base.ports import Clock
from logboom.broker.groups.log import latest_records
from logboom.broker.groups.writer import GroupWriter
from logboom.broker.partition.replica import Partition
from logboom.broker.settled_clock import SettledClock
from logboom.groups import (
    Coordinator,
    Effect,
    Event,
    GroupLimits,
    LogRecord,
    Note,
    Now,
    Persist,
    Persisted,
    Reply,
    Request,
    RequestBody,
    Resign,
    Resumed,
    StreamsDeleted,
    Tick,
    Ticket,
    Token,
)
from logboom.groups.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupRecordError,
    NotCoordinatorError,
)

_STALL_MS: Final = 1_000
STALL_GRACE_S: Final = 0.5
"""How long after such a stall sessions are let live, at least."""
_PAUSE_POLL_S: Final = 0.25
"""How often a shard looks whether it may act again."""
_REPLAY_SLICE: Final = 1_000
_DRAIN_S: Final = 2.0


class _Phase(Enum):
    LOADING = "loading"
    SERVING = "serving"
    FAILED = "failed"
    RESIGNED = "resigned"


class GroupShard:
    """See the module. Everything is called on the loop."""

    def __init__(
        self,
        find_partition: Callable[[], Partition],
        limits: GroupLimits,
        *,
        clock: Clock,
        settled_clock: SettledClock,
        log: FilteringBoundLogger,
        max_decompressed_bytes: int,
        may_act: Callable[[], bool],
        found_damage: Callable[[], bool],
        on_stall: Callable[[int], None],
    ) -> None:
        """`may_act` says whether this broker has a lease. `found_damage` is told that the log is damaged, and says
        whether another broker has the records and takes over. `on_stall` is told by how many milliseconds a timer was
        late because nothing ran for a while."""
        self._may_act = may_act
        self._found_damage = found_damage
        self._on_stall = on_stall
        self._find_partition = find_partition
        self._clock = clock
        self._settled_clock = settled_clock
        self._log = log
        self._max_decompressed_bytes = max_decompressed_bytes
        self._coordinator = Coordinator(limits)
        self._writer = GroupWriter(find_partition, clock=clock, log=log)
        self._is_damaged = False
        """Whether something in the log could not be read at the start."""
        self._phase = _Phase.LOADING
        self._gone: set[str] = set()
        """Streams that were deleted while this loaded, of which there may be new ones of the same name."""
        self._events: deque[Event] = deque()
        self._stepping = False
        self._last_token = 0
        self._waiting: dict[Token, asyncio.Future[Any]] = {}
        self._in_time: deque[tuple[float, asyncio.Future[Any]]] = deque()
        """Answers that are given up at a time of the loop's clock, the earliest first."""
        self._in_time_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._in_grace = False
        self._is_paused = False

    def configure(self, limits: GroupLimits) -> None:
        """Apply other limits from now on."""
        self._coordinator.configure(limits)

    # --- loading ------------------------------------------------------------------------------------------------

    async def load(self, existing_streams: Callable[[], frozenset[str]]) -> None:
        """Read the state from the log and begin to serve, or refuse all requests from then on where that fails."""
        try:
            partition = self._find_partition()
            records = await latest_records(
                partition, self._max_decompressed_bytes, self._report_damage, is_elsewhere=self._found_damage
            )
        except LogboomError as error:
            self._phase = _Phase.FAILED
            self._log.error("groups cannot be served", reason=str(error))
            return
        await self._replay(records)
        if self._is_damaged and self._phase is _Phase.LOADING:
            await self._writer.mend(records)
        if self._phase is _Phase.LOADING:
            self._serve(len(records), existing_streams())

    def _report_damage(self, what: str) -> None:
        self._is_damaged = True
        self._report(what)

    async def _replay(self, records: list[LogRecord]) -> None:
        for index, record in enumerate(records):
            if index % _REPLAY_SLICE == 0:
                await asyncio.sleep(0)
            try:
                self._coordinator.replay(record, self._now())
            except GroupRecordError as error:
                self._report(f"skipped a record: {error}")

    def _serve(self, record_count: int, existing_streams: frozenset[str]) -> None:
        self._phase = _Phase.SERVING
        self._perform(self._coordinator.start(self._now()))
        self.process(StreamsDeleted(frozenset(self._coordinator.streams() - existing_streams | self._gone)))
        self._log.debug("groups loaded", groups=len(self._coordinator.overview()), records=record_count)

    def _report(self, what: str) -> None:
        self._log.warning("offsets stream damaged", reason=what)

    @property
    def serves(self) -> bool:
        """Whether requests are served: the state is loaded and the shard has not resigned."""
        return self._phase is _Phase.SERVING

    @property
    def coordinator(self) -> Coordinator:
        """For queries. Raises the error with which a request would be answered now."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        return self._coordinator

    def _refusal(self) -> LogboomError | None:
        match self._phase:
            case _Phase.SERVING:
                return None
            case _Phase.LOADING:
                return CoordinatorLoadInProgressError("groups are being loaded")
            case _Phase.FAILED:
                return CoordinatorNotAvailableError("groups could not be loaded; the broker's log says why")
            case _Phase.RESIGNED:
                return _resigned()

    # --- events -------------------------------------------------------------------------------------------------

    def submit(self, body: RequestBody) -> asyncio.Future[Any]:
        """Pass a request to the coordinator; the future holds its answer. Raises as `coordinator` does."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        self._last_token += 1
        token = Token(self._last_token)
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        self.process(Request(token, body))
        return future

    def submit_in_time(self, body: RequestBody, timeout_s: float) -> asyncio.Future[Any]:
        """As `submit`, for a request that waits for nothing but its write: where that takes longer, the future has an
        error; it may yet be committed. The time is the same for all requests."""
        future, waiting = self.submit(body), self._in_time
        if not future.done():
            # One timer for all: a timer for each would be a tenth of what a commit costs.
            while waiting and waiting[0][1].done():
                waiting.popleft()
            waiting.append((asyncio.get_running_loop().time() + timeout_s, future))
            self._set_in_time_timer()
        return future

    def _set_in_time_timer(self) -> None:
        if self._in_time and self._in_time_timer is None:
            self._in_time_timer = asyncio.get_running_loop().call_at(self._in_time[0][0], self._time_is_over)

    def _time_is_over(self) -> None:
        self._in_time_timer = None
        now_s, waiting = asyncio.get_running_loop().time(), self._in_time
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now_s):
            _, future = waiting.popleft()
            if not future.done():
                future.set_exception(CoordinatorNotAvailableError("not committed in time; it may still be"))
        self._set_in_time_timer()

    def process(self, event: Event) -> None:
        """Process an event, and all events that its effects cause at once."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                self._perform(self._coordinator.step(self._events.popleft(), self._now()))
        finally:
            self._stepping = False
        self._set_timer()

    def streams_deleted(self, names: frozenset[str]) -> None:
        """Delete all offsets of deleted streams, at the latest when the groups are loaded."""
        if self.serves:
            self.process(StreamsDeleted(names))
        else:
            self._gone |= names

    def _now(self) -> Now:
        monotonic_ms = int(self._clock.monotonic_s() * 1_000)
        return Now(monotonic_ms, self._clock.wall_ms(), self._settled_clock.now_ms())

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(token, answer):
                    future = self._waiting.pop(token)
                    if not future.done():  # cancelled when its connection was lost
                        future.set_result(answer)
                case Persist(ticket, _) if self._phase is _Phase.RESIGNED:
                    self._written(ticket, _resigned())
                case Persist(ticket, records):
                    self._writer.write(records, partial(self._written, ticket))
                case Note(text, group_id, details):
                    self._log.info(text, group=group_id, **dict(details))

    def _written(self, ticket: Ticket, error: LogboomError | None) -> None:
        self.process(Persisted(ticket, error))

    # --- time ---------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Keep one timer for the earliest deadline. One that is set too early stays, since most are postponed."""
        deadline_ms = self._coordinator.deadline_ms()
        if deadline_ms is None or not self.serves:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_ms = max(deadline_ms + 1 - self._now().monotonic_ms, 0)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        if not self._may_act():
            self._is_paused = True
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_POLL_S, self._timer_fired)
            return
        if self._is_paused:
            self._is_paused = self._in_grace = False
            self.process(Resumed())
            return
        late_ms = self._now().monotonic_ms - self._timer_ms
        if late_ms > _STALL_MS and not self._in_grace:
            # The process was suspended, or its loop was blocked. Heartbeats that members sent meanwhile wait in socket
            # buffers: give the loop time to read them before any session is declared expired.
            self._in_grace = True
            self._on_stall(late_ms)
            self._timer = asyncio.get_running_loop().call_later(STALL_GRACE_S, self._timer_fired)
            return
        self._in_grace = False
        self.process(Tick())

    # --- the end ------------------------------------------------------------------------------------------------

    def resign(self) -> None:
        """Answer the held requests NOT_COORDINATOR, and refuse new ones from now on."""
        if self.serves:
            self.process(Resign())
        self._phase = _Phase.RESIGNED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def drain(self) -> None:
        """Wait for pending writes and their answers, for at most _DRAIN_S; then fail what is left."""
        if self._waiting:
            await asyncio.wait(self._waiting.values(), timeout=_DRAIN_S)
        if self._in_time_timer is not None:
            self._in_time_timer.cancel()
            self._in_time_timer = None
        error = _resigned()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


def _resigned() -> NotCoordinatorError:
    return NotCoordinatorError("this broker does not coordinate the group any more")
