"""Incremental fetch sessions (KIP-227): the server remembers what a consumer fetches, so that it sends changes alone.

Pure: requests come in as positions, and a selection of the results goes out; the time and new ids are arguments. Kafka
4.1's FetchManager is the reference for epochs, errors and eviction. The sessions of followers, which Kafka calls
privileged, belong to replication and are not handled here.

A full fetch (epoch 0) is answered whole and creates a session if there is room. An incremental fetch (epoch 1, 2, ...)
is answered with the partitions that have records, whose offsets have changed, that fail, or that the consumer should
read from another replica. A partition that had records is read last the next time, so that a busy partition cannot keep
the others from the response's bytes.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from logboom.kafka.metrics import FetchSessionMetrics

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
NEVER_SENT: Final = -1

EVICTION_MS: Final = 120_000
"""As in Kafka: a session unused for this long may be evicted by any other, and one that is so old by any larger one."""

Key: TypeAlias = tuple[Hashable, int]
"""A topic, by name or by id as the request has it, and a partition's index."""


@dataclass(slots=True)
class Position:
    """Where a consumer reads one partition, and the offsets it was last sent."""

    topic: Hashable
    index: int
    offset: int
    max_bytes: int
    leader_epoch: int
    last_sent_high_watermark: int = NEVER_SENT
    last_sent_log_start: int = NEVER_SENT

    @property
    def key(self) -> Key:
        return (self.topic, self.index)


class PartitionResult(Protocol):
    """What was read of one position."""

    @property
    def position(self) -> Position:
        """The position."""

    @property
    def high_watermark(self) -> int:
        """As it is sent; -1 with an error."""

    @property
    def log_start_offset(self) -> int:
        """As it is sent; -1 with an error."""

    @property
    def has_records(self) -> bool:
        """Whether records are sent."""

    @property
    def failed(self) -> bool:
        """Whether an error is sent."""

    @property
    def redirected(self) -> bool:
        """Whether the consumer is redirected to another replica (KIP-392)."""


F = TypeVar("F", bound=PartitionResult)


class SessionError(Enum):
    """Why a session cannot be continued; clients then create a new one."""

    NOT_FOUND = "no such session"
    WRONG_EPOCH = "not the next request of the session"
    TOPIC_IDS = "a session names its topics by name or by id, from first to last"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The part of a Fetch request that concerns sessions."""

    session_id: int
    epoch: int
    by_id: bool
    positions: Sequence[Position]
    forgotten: Sequence[Key]
    owner: Hashable
    """The connection it came on."""


@dataclass(slots=True, eq=False)
class Session:
    """One consumer's fetch, kept between requests."""

    id: int
    by_id: bool
    positions: dict[Key, Position]
    """In the order in which they are read."""
    created_ms: int
    owner: Hashable
    last_used_ms: int = 0
    epoch: int = 1
    """The epoch that the next request must have."""
    counted: int = 0
    """The number of positions that the cache's total includes."""
    ranked: tuple[int, int] | None = None
    """Its entry in the list of sessions that a larger one may evict."""


class Kind(Enum):
    """How a request is answered."""

    SESSIONLESS = 0
    FULL = 1
    INCREMENTAL = 2


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What to read for a request, in this order."""

    kind: Kind
    positions: Sequence[Position]
    request: SessionRequest
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class SessionResponse(Generic[F]):
    """What to send."""

    session_id: int
    partitions: Sequence[F]
    error: SessionError | None = None


def next_epoch(epoch: int) -> int:
    """The epoch after `epoch`, which is not FINAL_EPOCH; INITIAL_EPOCH is used once."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


@dataclass(slots=True)
class FetchSessions:
    """The sessions of one server, bounded in number and in partitions.

    A request goes through `begin`; once its partitions are read, through `finish`.
    """

    sessions_max: int
    partitions_max: int
    draw_id: Callable[[], int]
    """Returns a random id from 1 to 2^31 - 1, which may be in use already."""
    counts: FetchSessionMetrics = field(default_factory=FetchSessionMetrics)
    _sessions: dict[int, Session] = field(default_factory=dict)
    """By id, least recently used first."""
    _ranked: list[tuple[int, int]] = field(default_factory=list)
    """(positions, id) of the sessions that are old enough to be evicted by a larger one, ascending."""
    _owned: dict[Hashable, set[int]] = field(default_factory=dict)
    _orphaned: dict[int, None] = field(default_factory=dict)
    """Sessions whose connection was closed. Their consumers mostly create new ones, so these are evicted first."""

    # --- before the partitions are read -------------------------------------------------------------------------

    def begin(self, request: SessionRequest, now_ms: int) -> FetchPlan | SessionError:
        """What to read for a request, or the error to answer with."""
        if request.epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._continue(request, now_ms)
        # As in Kafka, a full fetch ends the session that it names.
        self._remove(request.session_id)
        kind = Kind.SESSIONLESS if request.epoch == FINAL_EPOCH else Kind.FULL
        return FetchPlan(kind, request.positions, request)

    def _continue(self, request: SessionRequest, now_ms: int) -> FetchPlan | SessionError:
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionError.NOT_FOUND
        if session.epoch != request.epoch:
            return SessionError.WRONG_EPOCH
        if session.by_id is not request.by_id:
            return SessionError.TOPIC_IDS
        _update(session.positions, request)
        if not session.positions:
            self._remove(session.id)
            return FetchPlan(Kind.SESSIONLESS, (), request)
        self._use(session, request.owner, now_ms)
        if not self._make_room(len(session.positions) - session.counted, 0, now_ms):
            self._remove(session.id)
            return SessionError.NOT_FOUND
        session.epoch = next_epoch(request.epoch)
        self._count(session, now_ms)
        self.counts.incremental += 1
        return FetchPlan(Kind.INCREMENTAL, tuple(session.positions.values()), request, session)

    # --- after the partitions were read -------------------------------------------------------------------------

    def finish(self, plan: FetchPlan, results: Sequence[F], now_ms: int) -> SessionResponse[F]:
        """What to send of the results, which are in the plan's order."""
        if plan.kind is Kind.SESSIONLESS:
            return SessionResponse(NO_SESSION, results)
        if plan.kind is Kind.FULL:
            return SessionResponse(self._create(plan.request, results, now_ms), results)
        session = plan.session
        assert session is not None
        if session.epoch != next_epoch(plan.request.epoch):
            return SessionResponse(session.id, (), SessionError.WRONG_EPOCH)
        return SessionResponse(session.id, [one for one in results if _has_changed(session.positions, one)])

    def _create(self, request: SessionRequest, results: Iterable[PartitionResult], now_ms: int) -> int:
        positions = {position.key: position for position in request.positions}
        if self.sessions_max == 0 or not self._make_room(len(positions), 1, now_ms):
            self.counts.declined += 1
            return NO_SESSION
        for one in results:
            _note_sent(one)
        while (new := self.draw_id()) in self._sessions:
            pass
        session = self._sessions[new] = Session(new, request.by_id, positions, now_ms, request.owner)
        self._use(session, request.owner, now_ms)
        self._count(session, now_ms)
        return new

    # --- the connection was closed ------------------------------------------------------------------------------

    def connection_closed(self, owner: Hashable) -> None:
        """A connection was closed. Its sessions may be continued on another one until their room is needed."""
        self._orphaned.update(dict.fromkeys(self._owned.pop(owner, ())))

    # --- room ---------------------------------------------------------------------------------------------------

    def _make_room(self, partitions: int, sessions: int, now_ms: int) -> bool:
        """Evict less useful sessions; returns whether there is room then for this many more partitions and sessions."""
        if partitions > self.partitions_max:
            return False
        while (
            len(self._sessions) + sessions > self.sessions_max
            or self.counts.partitions + partitions > self.partitions_max
        ):
            evicted = self._to_evict(partitions if sessions else 0, now_ms)
            if evicted is None:
                return False
            self._remove(evicted)
            self.counts.evictions += 1
        return True

    def _to_evict(self, size: int, now_ms: int) -> int | None:
        """The session to evict: one whose connection was closed, else unused for long, else old and smaller than
        `size`; None where no session may be evicted."""
        for orphaned in self._orphaned:
            return orphaned
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest.id
        if self._ranked and self._ranked[0][0] < size:
            return self._ranked[0][1]
        return None

    def _use(self, session: Session, owner: Hashable, now_ms: int) -> None:
        """Note that a session is in use on a connection."""
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        self._disown(session)
        session.owner = owner
        self._owned.setdefault(owner, set()).add(session.id)

    def _count(self, session: Session, now_ms: int) -> None:
        """Update the totals and ranks after a session's size or age may have changed."""
        self._unrank(session)
        size = len(session.positions)
        self.counts.partitions += size - session.counted
        session.counted = size
        if now_ms - session.created_ms > EVICTION_MS:
            session.ranked = (size, session.id)
            insort(self._ranked, session.ranked)
        self.counts.sessions = len(self._sessions)

    def _unrank(self, session: Session) -> None:
        if session.ranked is not None:
            del self._ranked[bisect_left(self._ranked, session.ranked)]
            session.ranked = None

    def _disown(self, session: Session) -> None:
        self._orphaned.pop(session.id, None)
        owned = self._owned.get(session.owner)
        if owned is not None:
            owned.discard(session.id)
            if not owned:
                del self._owned[session.owner]

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        self._unrank(session)
        self._disown(session)
        self.counts.partitions -= session.counted
        self.counts.sessions = len(self._sessions)


def _update(positions: dict[Key, Position], request: SessionRequest) -> None:
    """Add what a request names and remove what it forgets."""
    for new in request.positions:
        known = positions.get(new.key)
        if known is None:
            positions[new.key] = new
        else:
            known.offset, known.max_bytes, known.leader_epoch = new.offset, new.max_bytes, new.leader_epoch
    for key in request.forgotten:
        positions.pop(key, None)


def _note_sent(result: PartitionResult) -> bool:
    """Remember what is sent for a partition; returns whether that differs from what was sent last."""
    position = result.position
    # An error is sent every time, and what follows it is a change again.
    high_watermark = NEVER_SENT if result.failed else result.high_watermark
    changed = (
        position.last_sent_high_watermark != high_watermark or position.last_sent_log_start != result.log_start_offset
    )
    position.last_sent_high_watermark, position.last_sent_log_start = high_watermark, result.log_start_offset
    return changed


def _has_changed(positions: dict[Key, Position], result: PartitionResult) -> bool:
    changed = _note_sent(result)
    if result.has_records:
        key = result.position.key
        positions[key] = positions.pop(key)
        return True
    return changed or result.failed or result.redirected
