"""Incremental fetch sessions (KIP-227): what a consumer fetches is remembered here, so that it names only what changed.

Pure: requests come in as positions, results go out as a selection of them; the time and the new ids are given. Kafka
4.1's FetchManager is the reference for epochs, errors and eviction. Sessions of followers (Kafka calls them privileged)
belong to replication and are no affair of this module.

A full fetch (epoch 0) is answered whole and begins a session where there is room; an incremental one (epoch 1, 2, ...)
is answered with the partitions that have records, moved or fail. What had records goes to the end of the line, so that
no partition starves behind a busy one.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
UNTOLD: Final = -1

EVICTION_MS: Final = 120_000
"""As in Kafka: a session unused for so long gives way to any other, and one that is so old to any larger one."""

Key: TypeAlias = tuple[Hashable, int]
"""A topic, by name or by id as the request has it, and a partition's index."""


@dataclass(slots=True)
class Position:
    """Where a consumer reads one partition, and what it was last told of it."""

    topic: Hashable
    index: int
    offset: int
    max_bytes: int
    leader_epoch: int
    told_high_watermark: int = UNTOLD
    told_log_start: int = UNTOLD

    @property
    def key(self) -> Key:
        return (self.topic, self.index)


class Found(Protocol):
    """What was found of a position."""

    @property
    def position(self) -> Position:
        """Which one."""

    @property
    def high_watermark(self) -> int:
        """As it is told; -1 with an error."""

    @property
    def log_start_offset(self) -> int:
        """As it is told; -1 with an error."""

    @property
    def has_records(self) -> bool:
        """Whether there is anything to read."""

    @property
    def failed(self) -> bool:
        """Whether it is told as an error."""


F = TypeVar("F", bound=Found)


class Refusal(Enum):
    """Why a session cannot be continued; every client then begins a new one."""

    NOT_FOUND = "no such session"
    WRONG_EPOCH = "another request of the session came before"
    TOPIC_IDS = "a session names its topics by name or by id, from first to last"


@dataclass(frozen=True, slots=True)
class FetchAsked:
    """One request as far as sessions are concerned."""

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
    """That of the next request."""
    counted: int = 0
    """Positions as they are in the cache's sum."""
    ranked: tuple[int, int] | None = None
    """Its place among those that a larger session may push out."""


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
    asked: FetchAsked
    session: Session | None = None


@dataclass(frozen=True, slots=True)
class FetchAnswer(Generic[F]):
    """What to tell."""

    session_id: int
    found: Sequence[F]
    refusal: Refusal | None = None


@dataclass(slots=True)
class SessionCounts:
    """How it goes; plain ints for `/metrics`."""

    sessions: int = 0
    partitions: int = 0
    evictions: int = 0
    declined: int = 0
    """Full fetches that got no session for lack of room."""
    incremental: int = 0
    """Fetches answered with changes alone."""


def next_epoch(epoch: int) -> int:
    """The epoch behind one that is no FINAL_EPOCH; 0 is used once."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


@dataclass(slots=True)
class FetchSessions:
    """The sessions of one door, bounded in number and in partitions. Life: that of the door.

    A request goes through `begin`; once its partitions are read, through `conclude`.
    """

    sessions_max: int
    partitions_max: int
    draw_id: Callable[[], int]
    """A random id from 1 to 2^31 - 1, perhaps one that is taken."""
    counts: SessionCounts = field(default_factory=SessionCounts)
    _sessions: dict[int, Session] = field(default_factory=dict)
    """The one that was used longest ago comes first."""
    _ranked: list[tuple[int, int]] = field(default_factory=list)
    """(positions, id) of the sessions old enough to give way to a larger one, rising."""
    _owned: dict[Hashable, set[int]] = field(default_factory=dict)
    _left: dict[int, None] = field(default_factory=dict)
    """Sessions whose connection is closed: their consumers begin anew, so they go first."""

    # --- a request comes ----------------------------------------------------------------------------------------

    def begin(self, asked: FetchAsked, now_ms: int) -> FetchPlan | Refusal:
        """What to read, or why not."""
        if asked.epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._continue(asked, now_ms)
        # A full fetch ends the session it names.
        self._remove(asked.session_id)
        kind = Kind.SESSIONLESS if asked.epoch == FINAL_EPOCH else Kind.FULL
        return FetchPlan(kind, asked.positions, asked)

    def _continue(self, asked: FetchAsked, now_ms: int) -> FetchPlan | Refusal:
        session = self._sessions.get(asked.session_id)
        if session is None:
            return Refusal.NOT_FOUND
        if session.epoch != asked.epoch:
            return Refusal.WRONG_EPOCH
        if session.by_id is not asked.by_id:
            return Refusal.TOPIC_IDS
        _update(session.positions, asked)
        if not session.positions:
            self._remove(session.id)
            return FetchPlan(Kind.SESSIONLESS, (), asked)
        self._use(session, asked.owner, now_ms)
        if not self._make_room(len(session.positions) - session.counted, 0, now_ms):
            self._remove(session.id)
            return Refusal.NOT_FOUND
        session.epoch = next_epoch(asked.epoch)
        self._count(session, now_ms)
        self.counts.incremental += 1
        return FetchPlan(Kind.INCREMENTAL, tuple(session.positions.values()), asked, session)

    # --- its partitions are read --------------------------------------------------------------------------------

    def conclude(self, plan: FetchPlan, found: Sequence[F], now_ms: int) -> FetchAnswer[F]:
        """What to tell of what was found; the plan's own order."""
        if plan.kind is Kind.SESSIONLESS:
            return FetchAnswer(NO_SESSION, found)
        if plan.kind is Kind.FULL:
            return FetchAnswer(self._create(plan.asked, found, now_ms), found)
        session = plan.session
        assert session is not None
        if session.epoch != next_epoch(plan.asked.epoch):
            return FetchAnswer(session.id, (), Refusal.WRONG_EPOCH)
        return FetchAnswer(session.id, [one for one in found if _is_news(session.positions, one)])

    def _create(self, asked: FetchAsked, found: Iterable[Found], now_ms: int) -> int:
        positions = {position.key: position for position in asked.positions}
        if self.sessions_max == 0 or not self._make_room(len(positions), 1, now_ms):
            self.counts.declined += 1
            return NO_SESSION
        for one in found:
            _note(one)
        while (new := self.draw_id()) in self._sessions:
            pass
        session = self._sessions[new] = Session(new, asked.by_id, positions, now_ms, asked.owner)
        self._use(session, asked.owner, now_ms)
        self._count(session, now_ms)
        return new

    # --- the connection closes ----------------------------------------------------------------------------------

    def owner_gone(self, owner: Hashable) -> None:
        """The connection is closed. Its sessions may be continued on another one until their room is needed."""
        self._left.update(dict.fromkeys(self._owned.pop(owner, ())))

    # --- room ---------------------------------------------------------------------------------------------------

    def _make_room(self, partitions: int, sessions: int, now_ms: int) -> bool:
        """Whether there is room for so many more, after less useful sessions have gone."""
        if partitions > self.partitions_max:
            return False
        while (
            len(self._sessions) + sessions > self.sessions_max
            or self.counts.partitions + partitions > self.partitions_max
        ):
            victim = self._victim(partitions if sessions else 0, now_ms)
            if victim is None:
                return False
            self._remove(victim)
            self.counts.evictions += 1
        return True

    def _victim(self, size: int, now_ms: int) -> int | None:
        """The session that goes first: left by its connection, else long unused, else old and smaller than `size`."""
        for left in self._left:
            return left
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return None
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest.id
        if self._ranked and self._ranked[0][0] < size:
            return self._ranked[0][1]
        return None

    def _use(self, session: Session, owner: Hashable, now_ms: int) -> None:
        """It is in use, on this connection."""
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        self._disown(session)
        session.owner = owner
        self._owned.setdefault(owner, set()).add(session.id)

    def _count(self, session: Session, now_ms: int) -> None:
        """Its size may have changed, and it may have become old."""
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
        self._left.pop(session.id, None)
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


def _update(positions: dict[Key, Position], asked: FetchAsked) -> None:
    """Put in what a request names and take out what it forgets."""
    for new in asked.positions:
        known = positions.get(new.key)
        if known is None:
            positions[new.key] = new
        else:
            known.offset, known.max_bytes, known.leader_epoch = new.offset, new.max_bytes, new.leader_epoch
    for key in asked.forgotten:
        positions.pop(key, None)


def _note(found: Found) -> bool:
    """Remember what is told of a partition; whether it was told otherwise before."""
    position = found.position
    # An error is told each time, and what follows it is news again.
    high_watermark = UNTOLD if found.failed else found.high_watermark
    moved = position.told_high_watermark != high_watermark or position.told_log_start != found.log_start_offset
    position.told_high_watermark, position.told_log_start = high_watermark, found.log_start_offset
    return moved


def _is_news(positions: dict[Key, Position], found: Found) -> bool:
    moved = _note(found)
    if found.has_records:
        key = found.position.key
        positions[key] = positions.pop(key)
        return True
    return moved or found.failed
