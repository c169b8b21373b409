"""Sessions alone: a client that has one is told all that a full fetch would tell, and there are never too many."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from logboom.kafka.fetch.sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPlan,
    FetchSessions,
    Key,
    Kind,
    Position,
    SessionError,
    SessionRequest,
    SessionResponse,
    next_epoch,
)

KEYS: list[Key] = [("a", 0), ("a", 1), ("b", 0), ("c", 0)]


@dataclass
class Found:
    """What a read of the world below gave."""

    position: Position
    high_watermark: int
    log_start_offset: int
    has_records: bool = False
    failed: bool = False
    redirected: bool = False


def ids() -> Iterator[int]:
    yield from range(1, 1_000_000)


def sessions(sessions_max: int = 10, partitions_max: int = 1_000) -> FetchSessions:
    source = ids()
    return FetchSessions(sessions_max, partitions_max, lambda: next(source))


def asked(
    session_id: int,
    epoch: int,
    keys: list[Key] | None = None,
    *,
    forgotten: tuple[Key, ...] = (),
    by_id: bool = False,
    owner: Hashable = "connection",
) -> SessionRequest:
    positions = [
        Position(topic, index, 0, 1 << 20, -1) for topic, index in KEYS if keys is None or (topic, index) in keys
    ]
    return SessionRequest(session_id, epoch, by_id, positions, forgotten, owner)


def quiet(plan: FetchPlan) -> list[Found]:
    return [Found(position, 5, 0) for position in plan.positions]


def fetch(cache: FetchSessions, one: SessionRequest, now_ms: int = 0) -> SessionResponse[Found]:
    plan = cache.begin(one, now_ms)
    assert isinstance(plan, FetchPlan), plan
    return cache.finish(plan, quiet(plan), now_ms)


# --- what a client is told ------------------------------------------------------------------------------------------


class Told(RuleBasedStateMachine):
    """A world of partitions, and a client with a session whose picture of it must be that of a full fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = sessions()
        self.world = {key: [0, 0, False] for key in KEYS}  # high-water mark, log start, failed
        self.following: dict[Key, int] = {}
        self.named: dict[Key, int] = {}
        self.forgotten: set[Key] = set()
        self.picture: dict[Key, tuple[int, int, bool]] = {}
        self.records: dict[Key, int] = {}
        self.session = (NO_SESSION, INITIAL_EPOCH)

    @rule(key=st.sampled_from(KEYS), by=st.integers(1, 3))
    def records_come(self, key: Key, by: int) -> None:
        self.world[key][0] += by

    @rule(key=st.sampled_from(KEYS))
    def the_start_moves(self, key: Key) -> None:
        self.world[key][1] = self.world[key][0]

    @rule(key=st.sampled_from(KEYS))
    def it_fails_or_heals(self, key: Key) -> None:
        self.world[key][2] = not self.world[key][2]

    @rule(key=st.sampled_from(KEYS))
    def follow(self, key: Key) -> None:
        if key not in self.following:
            self.following[key] = self.named[key] = self.world[key][0]
            self.forgotten.discard(key)

    @rule(key=st.sampled_from(KEYS))
    def stop_following(self, key: Key) -> None:
        if self.following.pop(key, None) is not None:
            self.named.pop(key, None)
            self.forgotten.add(key)

    @rule()
    def lose_the_session(self) -> None:
        self.session = (self.session[0], INITIAL_EPOCH)

    @rule(budget=st.integers(1, 5))
    def fetch(self, budget: int) -> None:
        session_id, epoch = self.session
        whole = epoch == INITIAL_EPOCH
        names = self.following if whole else self.named
        positions = [Position(topic, index, names[topic, index], 1, -1) for topic, index in names]
        one = SessionRequest(session_id, epoch, False, positions, () if whole else tuple(self.forgotten), "connection")
        plan = self.cache.begin(one, 0)
        assert isinstance(plan, FetchPlan)
        assert {position.key: position.offset for position in plan.positions} == self.following
        answer = self.cache.finish(plan, list(self._read(plan, budget)), 0)
        self.picture = {key: told for key, told in self.picture.items() if key in self.following}
        self.named.clear()
        self.forgotten.clear()
        self._take(answer, plan.kind)
        self.session = (answer.session_id, next_epoch(epoch) if answer.session_id else INITIAL_EPOCH)

    def _read(self, plan: FetchPlan, budget: int) -> Iterator[Found]:
        for position in plan.positions:
            high_watermark, start, failed = self.world[position.key]
            if failed:
                yield Found(position, -1, -1, failed=True)
                continue
            has_records = budget > 0 and position.offset < high_watermark
            budget -= has_records
            yield Found(position, high_watermark, start, has_records)

    def _take(self, answer: SessionResponse[Found], kind: Kind) -> None:
        for found in answer.partitions:
            key = found.position.key
            self.picture[key] = (found.high_watermark, found.log_start_offset, found.failed)
            if found.has_records:
                self.following[key] += 1
                self.named[key] = self.following[key]
        full = {
            key: (-1, -1, True) if failed else (high_watermark, start, False)
            for key, (high_watermark, start, failed) in self.world.items()
            if key in self.following
        }
        assert self.picture == full, kind


TestTold = Told.TestCase


def test_changes_alone_are_told() -> None:
    cache = sessions()
    session_id = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    assert fetch(cache, asked(session_id, 1, [])).partitions == []
    plan = cache.begin(asked(session_id, 2, []), 0)
    assert isinstance(plan, FetchPlan)
    news = quiet(plan)
    news[2].high_watermark = 6
    assert list(cache.finish(plan, news, 0).partitions) == [news[2]]


def test_what_had_records_goes_to_the_end_of_the_line() -> None:
    cache = sessions()
    session_id = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    seen = []
    for epoch in range(1, 9):
        plan = cache.begin(asked(session_id, epoch, []), 0)
        assert isinstance(plan, FetchPlan)
        found = quiet(plan)
        found[0].has_records = True
        seen.append(found[0].position.key)
        cache.finish(plan, found, 0)
    assert seen == KEYS + KEYS, "a partition that always has records starves nobody"


def test_an_error_is_told_each_time_and_so_is_its_end() -> None:
    cache = sessions()
    session_id = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    told = []
    for epoch, failed in ((1, True), (2, True), (3, False), (4, False)):
        plan = cache.begin(asked(session_id, epoch, []), 0)
        assert isinstance(plan, FetchPlan)
        found = quiet(plan)
        found[0] = Found(found[0].position, -1 if failed else 5, -1 if failed else 0, failed=failed)
        told.append(len(cache.finish(plan, found, 0).partitions))
    assert told == [1, 1, 1, 0]


# --- epochs and ends ------------------------------------------------------------------------------------------------


def test_wrong_epochs_and_ids_are_refused_and_the_session_stays() -> None:
    cache = sessions()
    session_id = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    assert cache.begin(asked(session_id + 1, 1), 0) is SessionError.NOT_FOUND
    assert cache.begin(asked(session_id, 2), 0) is SessionError.WRONG_EPOCH
    assert cache.begin(asked(session_id, 1, by_id=True), 0) is SessionError.TOPIC_IDS
    assert fetch(cache, asked(session_id, 1, [])).session_id == session_id
    assert cache.begin(asked(session_id, 1, []), 0) is SessionError.WRONG_EPOCH, "an epoch is taken once"


def test_of_two_requests_under_way_the_first_is_refused() -> None:
    cache = sessions()
    session_id = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    first = cache.begin(asked(session_id, 1, []), 0)
    assert isinstance(first, FetchPlan)
    assert fetch(cache, asked(session_id, 2, [])).error is None
    late = cache.finish(first, quiet(first), 0)
    assert (late.error, late.session_id, list(late.partitions)) == (SessionError.WRONG_EPOCH, session_id, [])


def test_the_epoch_behind_the_last_is_one() -> None:
    assert next_epoch(2**31 - 1) == 1
    assert next_epoch(INITIAL_EPOCH) == 1


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_it_names(epoch: int) -> None:
    cache = sessions()
    session_id = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    again = fetch(cache, asked(session_id, epoch))
    assert (again.session_id == NO_SESSION) is (epoch == FINAL_EPOCH)
    assert len(again.partitions) == len(KEYS)
    assert cache.begin(asked(session_id, 1), 0) is SessionError.NOT_FOUND
    assert cache.counts.sessions == (epoch == INITIAL_EPOCH)


def test_a_session_that_forgets_everything_ends() -> None:
    cache = sessions()
    session_id = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    last = fetch(cache, asked(session_id, 1, [], forgotten=tuple(KEYS)))
    assert (last.session_id, list(last.partitions)) == (NO_SESSION, [])
    assert (cache.counts.sessions, cache.counts.partitions) == (0, 0)


# --- room -----------------------------------------------------------------------------------------------------------


def test_without_room_a_fetch_is_answered_without_a_session() -> None:
    cache = sessions(sessions_max=1)
    first = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    second = fetch(cache, asked(0, INITIAL_EPOCH))
    assert (second.session_id, len(second.partitions)) == (NO_SESSION, len(KEYS))
    assert cache.counts.declined == 1
    assert fetch(cache, asked(first, 1, [])).session_id == first


def test_no_sessions_at_all() -> None:
    cache = sessions(sessions_max=0)
    assert fetch(cache, asked(0, INITIAL_EPOCH)).session_id == NO_SESSION


def test_who_was_silent_for_long_gives_way() -> None:
    cache = sessions(sessions_max=2)
    old = fetch(cache, asked(0, INITIAL_EPOCH), 0).session_id
    used = fetch(cache, asked(0, INITIAL_EPOCH), 0).session_id
    fetch(cache, asked(used, 1, []), EVICTION_MS)
    assert fetch(cache, asked(0, INITIAL_EPOCH), EVICTION_MS).session_id == NO_SESSION, "not before its time"
    assert fetch(cache, asked(0, INITIAL_EPOCH), EVICTION_MS + 1).session_id != NO_SESSION
    assert cache.begin(asked(old, 1), EVICTION_MS + 1) is SessionError.NOT_FOUND
    assert fetch(cache, asked(used, 2, []), EVICTION_MS + 1).session_id == used
    assert cache.counts.evictions == 1


def test_an_old_session_gives_way_to_a_larger_one_alone() -> None:
    cache = sessions(sessions_max=1)
    small = fetch(cache, asked(0, INITIAL_EPOCH, KEYS[:2]), 0).session_id
    late = EVICTION_MS + 1
    fetch(cache, asked(small, 1, []), EVICTION_MS)
    assert fetch(cache, asked(0, INITIAL_EPOCH), EVICTION_MS).session_id == NO_SESSION, "too young"
    fetch(cache, asked(small, 2, []), late)
    assert fetch(cache, asked(0, INITIAL_EPOCH, KEYS[2:]), late).session_id == NO_SESSION, "no larger"
    assert fetch(cache, asked(0, INITIAL_EPOCH, KEYS[:3]), late).session_id != NO_SESSION
    assert cache.begin(asked(small, 3), late) is SessionError.NOT_FOUND


def test_sessions_of_closed_connections_go_first_and_live_until_then() -> None:
    cache = sessions(sessions_max=2)
    left = fetch(cache, asked(0, INITIAL_EPOCH, owner="left")).session_id
    moved = fetch(cache, asked(0, INITIAL_EPOCH, owner="moved")).session_id
    cache.connection_closed("left")
    cache.connection_closed("moved")
    assert fetch(cache, asked(moved, 1, [], owner="other")).session_id == moved, "it goes on elsewhere"
    assert fetch(cache, asked(0, INITIAL_EPOCH)).session_id != NO_SESSION
    assert cache.begin(asked(left, 1), 0) is SessionError.NOT_FOUND
    assert fetch(cache, asked(0, INITIAL_EPOCH)).session_id == NO_SESSION
    assert fetch(cache, asked(moved, 2, [], owner="other")).session_id == moved


def test_partitions_are_bounded_over_all_sessions() -> None:
    cache = sessions(partitions_max=6)
    first = fetch(cache, asked(0, INITIAL_EPOCH)).session_id
    assert fetch(cache, asked(0, INITIAL_EPOCH)).session_id == NO_SESSION
    second = fetch(cache, asked(0, INITIAL_EPOCH, KEYS[:2])).session_id
    assert second != NO_SESSION
    assert cache.begin(asked(second, 1, KEYS[2:]), 0) is SessionError.NOT_FOUND, "the client begins anew"
    assert (cache.counts.sessions, cache.counts.partitions) == (1, 4)
    assert fetch(cache, asked(first, 1, [])).session_id == first
    assert fetch(sessions(partitions_max=3), asked(0, INITIAL_EPOCH)).session_id == NO_SESSION


class Room(RuleBasedStateMachine):
    """Any number of clients that come, go on, leave and grow: the books agree, and the bounds hold."""

    live = Bundle("live")

    def __init__(self) -> None:
        super().__init__()
        self.cache = sessions(sessions_max=3, partitions_max=8)
        self.now_ms = 0

    @rule(by=st.sampled_from([1, EVICTION_MS // 2, EVICTION_MS + 1]))
    def time_goes_by(self, by: int) -> None:
        self.now_ms += by

    @rule(target=live, keys=st.lists(st.sampled_from(KEYS), unique=True), owner=st.integers(0, 2))
    def come(self, keys: list[Key], owner: int) -> object:
        answer = fetch(self.cache, asked(0, INITIAL_EPOCH, keys, owner=owner), self.now_ms)
        return (answer.session_id, 1, owner) if answer.session_id else multiple()

    @rule(
        target=live,
        one=consumes(live),
        keys=st.lists(st.sampled_from(KEYS), unique=True),
        forgotten=st.lists(st.sampled_from(KEYS), unique=True),
    )
    def go_on(self, one: tuple[int, int, int], keys: list[Key], forgotten: list[Key]) -> object:
        session_id, epoch, owner = one
        ask = asked(session_id, epoch, keys, forgotten=tuple(forgotten), owner=owner)
        plan = self.cache.begin(ask, self.now_ms)
        if isinstance(plan, SessionError):
            assert plan is SessionError.NOT_FOUND
            return multiple()
        answer = self.cache.finish(plan, quiet(plan), self.now_ms)
        return (session_id, next_epoch(epoch), owner) if answer.session_id else multiple()

    @rule(owner=st.integers(0, 2))
    def leave(self, owner: int) -> None:
        self.cache.connection_closed(owner)

    @invariant()
    def the_books_agree(self) -> None:
        cache = self.cache
        live = cache._sessions
        assert len(live) == cache.counts.sessions <= 3
        assert sum(len(one.positions) for one in live.values()) == cache.counts.partitions <= 8
        assert cache._ranked == sorted(one.ranked for one in live.values() if one.ranked is not None)
        owned = {session_id for ids_ in cache._owned.values() for session_id in ids_}
        assert owned | set(cache._orphaned) == set(live)
        assert not owned & set(cache._orphaned)
        assert [one.last_used_ms for one in live.values()] == sorted(one.last_used_ms for one in live.values())


TestRoom = Room.TestCase


@given(st.lists(st.integers(1, 4), max_size=20))
def test_an_id_is_given_once_at_a_time(drawn: list[int]) -> None:
    source = iter([*drawn, *range(5, 100)])
    cache = FetchSessions(100, 1_000, lambda: next(source))
    given_ids = [fetch(cache, asked(0, INITIAL_EPOCH)).session_id for _ in range(8)]
    assert len(set(given_ids)) == 8
