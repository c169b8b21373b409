"""Requests with any values the wire can carry: each is answered once or waits, and the log can be read back."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.groups.harness import replayed, subscription

from logboom.groups import (
    Commit,
    Coordinator,
    DeleteGroup,
    DeleteOffsets,
    Event,
    GroupLimits,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    LogRecord,
    Now,
    OffsetToCommit,
    Persist,
    Persisted,
    Protocol,
    Reply,
    Request,
    RequestBody,
    Sync,
    Tick,
    Token,
)

INT32 = st.sampled_from([-(2**31), -1, 0, 1, 2, 10_000, 2**31 - 1])
INT64 = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
GROUP = st.sampled_from(["", "g", "h", "x" * 2_000])
MEMBER = st.sampled_from(["", "c-0", "c-1", "c-2", "i-3", "ż" * 40_000])
INSTANCE = st.sampled_from([None, "", "i", "y" * 2_000])
NAME = st.sampled_from(["", "range", "consumer", "z" * 2_000])
BYTES = st.sampled_from([b"", b"\0\0\xff\xff\xff\xff", subscription("clicks"), bytes(1_000)])
STREAM = st.sampled_from(["clicks", "views"])
BODIES: st.SearchStrategy[RequestBody] = st.one_of(
    st.builds(
        Join,
        group_id=GROUP,
        member_id=MEMBER,
        instance_id=INSTANCE,
        client_id=st.sampled_from(["c", "ż" * 20_000]),
        client_host=st.just("/h"),
        session_timeout_ms=INT32,
        rebalance_timeout_ms=INT32,
        protocol_type=NAME,
        protocols=st.lists(st.builds(Protocol, NAME, BYTES), max_size=3).map(tuple),
        member_id_required=st.booleans(),
        can_skip_assignment=st.booleans(),
        reason=st.none() | st.just("r"),
    ),
    st.builds(
        Sync,
        group_id=GROUP,
        generation=INT32,
        member_id=MEMBER,
        instance_id=INSTANCE,
        protocol_type=st.none() | NAME,
        protocol_name=st.none() | NAME,
        assignments=st.lists(st.tuples(MEMBER, BYTES), max_size=3).map(tuple),
    ),
    st.builds(Heartbeat, group_id=GROUP, generation=INT32, member_id=MEMBER, instance_id=INSTANCE),
    st.builds(Leave, group_id=GROUP, leavers=st.lists(st.builds(Leaver, MEMBER, INSTANCE), max_size=3).map(tuple)),
    st.builds(
        Commit,
        group_id=GROUP,
        generation=INT32,
        member_id=MEMBER,
        instance_id=INSTANCE,
        offsets=st.lists(
            st.builds(OffsetToCommit, STREAM, INT32, INT64, INT32, st.sampled_from(["", "ż" * 3_000])), max_size=3
        ).map(tuple),
        retention_ms=INT64,
    ),
    st.builds(DeleteOffsets, group_id=GROUP, partitions=st.lists(st.tuples(STREAM, INT32), max_size=3).map(tuple)),
    st.builds(DeleteGroup, group_id=GROUP),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(BODIES, st.sampled_from([0, 1, 10_000, 2**31])), max_size=25))
def test_any_request_is_answered_once_or_waits(requests: list[tuple[RequestBody, int]]) -> None:
    limits = GroupLimits(session_timeout_ms_min=0, session_timeout_ms_max=2**31 - 1, initial_rebalance_delay_ms=0)
    coordinator, log, answered, now = Coordinator(limits), list[LogRecord](), set[Token](), Now(0, 0, 0)
    coordinator.start(now)
    for number, (body, delay_ms) in enumerate(requests):
        if isinstance(body, Join):
            object.__setattr__(body, "unique_id", str(number))
        events: list[Event] = [Request(Token(number), body), Tick()]
        while events:
            for effect in coordinator.step(events.pop(0), now):
                if isinstance(effect, Reply):
                    assert effect.token not in answered
                    answered.add(effect.token)
                elif isinstance(effect, Persist):
                    log.extend(effect.records)
                    events.append(Persisted(effect.ticket, None))
        assert Token(number) in answered or isinstance(body, Join | Sync)
        now = Now(now.monotonic_ms + delay_ms, now.wall_ms + delay_ms, now.settled_ms + delay_ms)
    other = replayed(log, limits, now)
    for group_id in ("", "g", "h"):
        there, here = other.committed(group_id), coordinator.committed(group_id)
        assert {place: value.offset for place, value in there.items()} == {p: v.offset for p, v in here.items()}
