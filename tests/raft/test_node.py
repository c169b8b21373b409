"""The order of a node's effects, and what it makes of time: what a broker relies on."""

from dataclasses import replace

import pytest
from tests.raft.group import CONFIG

from logboom.raft import (
    Applied,
    Apply,
    ConfChange,
    ConfChangeSingle,
    ConfChangeType,
    ConfigurationChanged,
    Effect,
    HardState,
    Ignored,
    Index,
    Message,
    MessageType,
    Node,
    NodeId,
    Persist,
    Persisted,
    ProposalAppended,
    ProposalDropped,
    Propose,
    ProposeConfChange,
    ReadReady,
    Received,
    RequestRead,
    Role,
    RoleChanged,
    Send,
    SnapshotTaken,
    SnapshotWanted,
    Stored,
    Term,
    TimePassed,
    bootstrap,
)

TICK_MS = 10
TIMEOUT_MS = CONFIG.election_ticks * TICK_MS


def node(*voters: int, stored: Stored | None = None, eager_reads: bool = True, longest: bool = False) -> Node:
    """`longest`: with the longest election timeout that there may be, instead of the shortest."""
    config = replace(CONFIG, check_quorum=True, pre_vote=True, eager_reads=eager_reads)
    if longest:
        config = replace(config, draw=lambda bound: bound - 1)
    start = stored or bootstrap(tuple(NodeId(voter) for voter in voters))
    return Node(config, start, now_ms=0, tick_ms=TICK_MS, catch_up_entries=0)


def settle(of: Node, effects: tuple[Effect, ...], now_ms: int) -> list[Effect]:
    """Finish all writes and applications at once; everything that was answered."""
    done = list(effects)
    for effect in done:
        if isinstance(effect, Persist):
            done.extend(of.step(Persisted(effect.number), now_ms))
        elif isinstance(effect, Apply):
            done.extend(of.step(Applied(effect.entries[-1].index), now_ms))
    return done


def single() -> Node:
    of = node(1)
    settle(of, of.step(TimePassed(), 0), 0)
    assert of.status.soft_state.role is Role.LEADER
    return of


def leader_of_two(*, eager_reads: bool = True) -> Node:
    of = node(1, 2, eager_reads=eager_reads)
    settle(of, of.step(TimePassed(), TIMEOUT_MS), TIMEOUT_MS)
    for kind, term in ((MessageType.PRE_VOTE_RESP, 1), (MessageType.VOTE_RESP, 1)):
        answer = Message(type=kind, sender=NodeId(2), to=NodeId(1), term=Term(term))
        settle(of, of.step(Received(answer), TIMEOUT_MS), TIMEOUT_MS)
    assert of.status.soft_state.role is Role.LEADER
    return of


def take_snapshot(of: Node) -> None:
    point = of.snapshot_point
    assert point is not None
    of.step(SnapshotTaken(point), TIMEOUT_MS)


def test_nothing_rests_on_a_write_that_is_under_way() -> None:
    of = node(1, 2, 3)
    vote = Message(
        type=MessageType.VOTE, sender=NodeId(2), to=NodeId(1), term=Term(1), index=Index(1), log_term=Term(1)
    )
    effects = of.step(Received(vote), 0)
    (write,) = (effect for effect in effects if isinstance(effect, Persist))
    assert write.must_sync
    assert write.hard_state == HardState(Term(1), NodeId(2), Index(1))
    assert not [effect for effect in effects if isinstance(effect, Send)]
    (sent,) = of.step(Persisted(write.number), 0)
    assert isinstance(sent, Send)
    assert sent.message.type is MessageType.VOTE_RESP


def test_a_leader_sends_its_entries_while_it_writes_them() -> None:
    of = leader_of_two()
    acked = Message(type=MessageType.APP_RESP, sender=NodeId(2), to=NodeId(1), term=Term(1), index=Index(2))
    settle(of, of.step(Received(acked), TIMEOUT_MS), TIMEOUT_MS)
    effects = of.step(Propose("p", b"data"), TIMEOUT_MS)
    kinds = [type(effect) for effect in effects]
    assert kinds == [ProposalAppended, Persist, Send]
    # The follower has it durably and this node not yet: one of two is no majority.
    acked = Message(type=MessageType.APP_RESP, sender=NodeId(2), to=NodeId(1), term=Term(1), index=Index(3))
    assert not [each for each in of.step(Received(acked), TIMEOUT_MS) if isinstance(each, Apply)]
    write = effects[1]
    assert isinstance(write, Persist)
    answered = of.step(Persisted(write.number), TIMEOUT_MS)
    applied = [entry.data for effect in answered if isinstance(effect, Apply) for entry in effect.entries]
    assert applied == [b"data"]


def test_one_voter_commits_with_one_write() -> None:
    of = single()
    effects = of.step(Propose("p", b"data"), TIMEOUT_MS)
    assert [type(effect) for effect in effects] == [ProposalAppended, Persist]
    write = effects[1]
    assert isinstance(write, Persist)
    answered = of.step(Persisted(write.number), TIMEOUT_MS)
    assert [type(effect) for effect in answered] == [Persist, Apply]
    again = answered[0]
    assert isinstance(again, Persist)
    assert not again.must_sync
    assert not again.entries
    assert of.due_ms is None


def beat_of_two(now_ms: int) -> Received:
    return Received(Message(type=MessageType.HEARTBEAT, sender=NodeId(2), to=NodeId(1), term=Term(1)))


@pytest.mark.parametrize("beats", [(), (40, 90, 130, 300), (99, 100, 101, 155, 230, 231, 480, 500)])
def test_a_host_that_only_wakes_when_time_is_due_misses_nothing(beats: tuple[int, ...]) -> None:
    """A node that is stepped with every tick and one that is stepped only when it says so begin the same at the same
    time: as a follower, as a candidate that nobody answers, and as one that hears of a leader again."""

    def life(*, each_tick: bool) -> list[tuple[int, Effect]]:
        of = node(1, 2, 3)
        begun = [(0, effect) for effect in of.step(TimePassed(), 0)]
        for now_ms in range(1, 1_000):
            if now_ms in beats:
                begun.extend((now_ms, effect) for effect in of.step(beat_of_two(now_ms), now_ms))
            if now_ms % TICK_MS == 0 if each_tick else of.due_ms is not None and now_ms >= of.due_ms:
                begun.extend((now_ms, effect) for effect in of.step(TimePassed(), now_ms))
            for effect in [effect for at_ms, effect in begun if at_ms == now_ms]:
                if isinstance(effect, Persist):
                    begun.extend((now_ms, answer) for answer in of.step(Persisted(effect.number), now_ms))
        return begun

    seldom = life(each_tick=False)
    assert [effect for _, effect in seldom if isinstance(effect, Send)]
    assert seldom == life(each_tick=True)


def test_a_follower_that_hears_its_leader_and_a_leader_between_heartbeats_need_no_time() -> None:
    of = node(1, 2, 3)
    of.step(TimePassed(), 0)
    for now_ms in range(0, 2_000, 2 * TICK_MS):
        of.step(beat_of_two(now_ms), now_ms)
        assert of.due_ms is not None
        assert of.due_ms >= now_ms + TIMEOUT_MS
    leader = leader_of_two()
    leader.step(TimePassed(), TIMEOUT_MS + CONFIG.heartbeat_ticks * TICK_MS)
    assert leader.due_ms == TIMEOUT_MS + 2 * CONFIG.heartbeat_ticks * TICK_MS


def test_only_what_goes_beyond_the_time_that_was_due_counts_as_a_pause() -> None:
    of = node(1, 2, 3, longest=True)
    of.step(TimePassed(), 0)
    due_ms = of.due_ms
    assert due_ms == TIMEOUT_MS + TIMEOUT_MS - TICK_MS
    effects = of.step(beat_of_two(due_ms - 1), due_ms - 1)  # longer than the shortest timeout, and still in time
    assert [effect.role for effect in effects if isinstance(effect, RoleChanged)] == [Role.FOLLOWER]


def test_the_only_voter_leads_at_once() -> None:
    of = node(1)
    assert [type(effect) for effect in of.step(TimePassed(), 0)] == [RoleChanged, Persist]
    assert of.status.soft_state.role is Role.PRE_CANDIDATE


def test_a_read_of_one_voter_is_answered_at_once() -> None:
    of = single()
    assert of.step(RequestRead(7), TIMEOUT_MS) == (ReadReady(7, Index(2)),)


def test_a_read_that_is_not_urgent_goes_with_the_next_heartbeats() -> None:
    of = leader_of_two(eager_reads=False)
    acked = Message(type=MessageType.APP_RESP, sender=NodeId(2), to=NodeId(1), term=Term(1), index=Index(2))
    settle(of, of.step(Received(acked), TIMEOUT_MS), TIMEOUT_MS)
    assert of.step(RequestRead(1, urgent=False), TIMEOUT_MS) == ()
    (sent,) = of.step(TimePassed(), TIMEOUT_MS + CONFIG.heartbeat_ticks * TICK_MS)
    (urgent,) = of.step(RequestRead(2), TIMEOUT_MS + CONFIG.heartbeat_ticks * TICK_MS)
    for number, effect in ((1, sent), (2, urgent)):
        assert isinstance(effect, Send)
        beat = effect.message
        assert beat.type is MessageType.HEARTBEAT
        answer = Message(
            type=MessageType.HEARTBEAT_RESP, sender=NodeId(2), to=NodeId(1), term=Term(1), context=beat.context
        )
        ready = of.step(Received(answer), TIMEOUT_MS + CONFIG.heartbeat_ticks * TICK_MS)
        assert ReadReady(number, Index(2)) in ready


def test_what_does_not_lead_drops_proposals() -> None:
    of = node(1, 2)
    (dropped,) = of.step(Propose("p", b"data"), 0)
    assert isinstance(dropped, ProposalDropped)
    assert dropped.token == "p"


def test_a_leader_is_not_removed_before_it_has_handed_over() -> None:
    of = leader_of_two()
    removal = ConfChange(ConfChangeSingle(ConfChangeType.REMOVE_NODE, NodeId(1)))
    (dropped,) = of.step(ProposeConfChange("c", removal), TIMEOUT_MS)
    assert isinstance(dropped, ProposalDropped)
    assert "transfer leadership first" in dropped.reason


def test_a_change_while_another_is_under_way_is_dropped_with_a_reason() -> None:
    of = leader_of_two()
    addition = ConfChange(ConfChangeSingle(ConfChangeType.ADD_LEARNER_NODE, NodeId(3)))
    of.step(ProposeConfChange("first", addition), TIMEOUT_MS)
    effects = of.step(ProposeConfChange("second", addition), TIMEOUT_MS)
    dropped = next(effect for effect in effects if isinstance(effect, ProposalDropped))
    assert "another change is in progress" in dropped.reason


def test_a_leader_that_stood_still_steps_down_before_it_answers() -> None:
    of = leader_of_two()
    effects = of.step(RequestRead(1), 100 * TIMEOUT_MS)
    assert not [effect for effect in effects if isinstance(effect, ReadReady)]
    assert any(isinstance(effect, RoleChanged) and effect.role is not Role.LEADER for effect in effects)


def test_a_new_member_gets_a_snapshot_that_names_it() -> None:
    of = single()
    settle(of, of.step(Propose("p", b"data"), TIMEOUT_MS), TIMEOUT_MS)
    take_snapshot(of)
    addition = ConfChange(ConfChangeSingle(ConfChangeType.ADD_LEARNER_NODE, NodeId(2)))
    effects = settle(of, of.step(ProposeConfChange("c", addition), TIMEOUT_MS), TIMEOUT_MS)
    changed = next(effect for effect in effects if isinstance(effect, ConfigurationChanged))
    assert changed.conf_state.learners == (NodeId(2),)
    # It has nothing: it refuses what comes first, and needs a snapshot.
    nothing = Message(
        type=MessageType.APP_RESP, sender=NodeId(2), to=NodeId(1), term=Term(1), index=Index(3), reject=True
    )
    assert SnapshotWanted() in of.step(Received(nothing), TIMEOUT_MS)
    take_snapshot(of)
    heartbeat = Message(type=MessageType.HEARTBEAT_RESP, sender=NodeId(2), to=NodeId(1), term=Term(1))
    sent = [each.message for each in of.step(Received(heartbeat), TIMEOUT_MS) if isinstance(each, Send)]
    assert [message.type for message in sent] == [MessageType.SNAP]
    assert sent[0].snapshot is not None
    assert sent[0].snapshot.conf_state.learners == (NodeId(2),)


def test_messages_of_strangers_are_ignored_with_a_reason() -> None:
    of = leader_of_two()
    for message, reason in (
        (Message(type=MessageType.APP_RESP, sender=NodeId(9), to=NodeId(1), term=Term(1)), "peer not found"),
        (Message(type=MessageType.HEARTBEAT, sender=NodeId(2), to=NodeId(8), term=Term(1)), "for node 8"),
    ):
        (ignored,) = of.step(Received(message), TIMEOUT_MS)
        assert isinstance(ignored, Ignored)
        assert reason in ignored.reason


@pytest.mark.parametrize("kept", [0, 2])
def test_a_node_goes_on_from_what_is_stored(kept: int) -> None:
    of = single()
    for number in range(5):
        settle(of, of.step(Propose(number, b"%d" % number), TIMEOUT_MS), TIMEOUT_MS)
    log = of._raw.raft.log
    point = of.snapshot_point
    assert point is not None
    entries = log.slice(Index(point.index - kept + 1), Index(point.index + 1)) if kept else ()
    again = node(1, stored=Stored(HardState(Term(1), NodeId(1), Index(0)), point, entries))
    assert again.status.hard_state.commit == point.index
    assert again.status.applied == point.index
    settle(again, again.step(TimePassed(), TIMEOUT_MS), TIMEOUT_MS)
    assert again.status.soft_state.role is Role.LEADER
    assert again.status.hard_state.term == 2
