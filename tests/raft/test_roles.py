"""What the thesis and etcd say of elections, replication, reads and members, one rule a test."""

from dataclasses import replace

import pytest
from tests.raft.group import CONFIG, Group

from logboom.raft import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeTransition,
    ConfChangeType,
    ConfChangeV2,
    EntryType,
    Index,
    Message,
    MessageType,
    NodeId,
    ProposalDroppedError,
    ReadOnlyOption,
    Role,
    Term,
)
from logboom.raft.errors import LocalMessageError, LogLostError, UnknownPeerError, WrongAddresseeError
from logboom.raft.progress import ProgressState


def change(kind: ConfChangeType, node_id: int) -> ConfChangeSingle:
    return ConfChangeSingle(kind, NodeId(node_id))


def add(node_id: int) -> ConfChangeSingle:
    return change(ConfChangeType.ADD_NODE, node_id)


def remove(node_id: int) -> ConfChangeSingle:
    return change(ConfChangeType.REMOVE_NODE, node_id)


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """Figure 3.7 of the thesis: an entry on a majority can still be overwritten until one of the own term is on top."""
    group = Group(5, config=replace(CONFIG, max_message_bytes=0, max_applying_bytes=1000))
    group.load(1, 2, term=3)
    group.load(2, 2, term=3)
    group[1].campaign()
    # The entry of term 2 reaches a third member, so a majority has it; the leader's own arrives nowhere.
    group.run(drop=lambda message: bool(message.entries) and (2, 2) in group.log(message.to), only=[1, 2, 3])
    assert group.role(1) is Role.LEADER
    assert [(2, 2) in group.log(node_id) for node_id in (1, 2, 3)] == [True] * 3
    assert group[1].status.hard_state.commit == 1
    group[1].raft.tick()
    group.run(only=[1, 2, 3])  # now the next one arrives, and commits both
    group[1].propose(b"x")
    group.run(only=[1, 2, 3])
    assert group[1].status.hard_state.commit == 4


@pytest.mark.parametrize(
    ("terms", "wins"), [((1, 1), False), ((1, 2), False), ((1, 2, 2), True), ((3,), True), ((1, 2, 2, 2), True)]
)
def test_a_member_votes_only_for_logs_that_have_all_of_its_own(terms: tuple[int, ...], wins: bool) -> None:
    """Section 3.6.1."""
    group = Group(3)
    for node_id in (2, 3):
        group.load(node_id, 1, 2, 2, term=3)
    group.load(1, *terms, term=3)
    group[1].campaign()
    group.run()
    assert (group.role(1) is Role.LEADER) is wins


def test_a_follower_takes_over_the_log_of_a_leader_whose_log_differs() -> None:
    """Figure 3.6: whatever a follower has too much or too little; and one message for each term finds the place."""
    leader = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    for follower in (
        (),
        (1, 1, 1, 4),
        leader[:-1],
        (*leader, 6),
        (*leader, 7, 7),
        (1, 1, 1, 4, 4, 4),
        (1, 1, 1, 2, 2, 3),
    ):
        group = Group(3)
        group.load(1, *leader, term=8)
        group.load(2, *follower, term=8)
        group.load(3, *leader, term=8)
        group.elect(1, only=[1, 3])
        rejections: list[Message] = []

        def see(message: Message, seen: list[Message] = rejections) -> bool:
            seen.extend([message] if message.reject else [])
            return False

        group[1].propose(b"x")
        group[1].raft.tick()
        group.run(drop=see)
        group[1].raft.tick()
        group.run(drop=see)
        assert group.log(2) == group.log(1)
        assert len(rejections) <= len(set(leader)) + 1


def test_a_message_that_comes_late_cuts_nothing_off() -> None:
    group = Group(2)
    group.elect(1)
    group[1].propose(b"first")
    group.run(only=[1])
    late = Message(
        type=MessageType.APP,
        sender=NodeId(1),
        to=NodeId(2),
        term=Term(1),
        index=Index(1),
        log_term=Term(1),
        entries=group[1].raft.log.slice(Index(2), Index(3)),
        commit=Index(1),
    )
    group[1].raft.tick()
    group.run()
    before = group.log(2)
    assert len(before) == 2
    group[2].step(late)
    group.run()
    assert group.log(2) == before


def test_a_cut_off_member_does_not_end_the_term_when_it_comes_back() -> None:
    """Pre-vote (section 9.6) and the lease of the leader (4.2.3)."""
    group = Group(3, config=replace(CONFIG, pre_vote=True, check_quorum=True))
    group.elect(1)
    for _ in range(50):
        group[3].tick()
        group.run(only=[3])
    assert group[3].status.hard_state.term == 1
    group.run()
    for _ in range(3):
        group[1].tick()
        group.run()
    assert group.role(1) is Role.LEADER
    assert group[3].status.soft_state.lead == 1


def test_a_leader_that_hears_of_no_majority_steps_down() -> None:
    group = Group(3, config=replace(CONFIG, check_quorum=True))
    group.elect(1)
    for _ in range(2 * CONFIG.election_ticks):
        group[1].tick()
        group.run(only=[1])
    assert group.role(1) is Role.FOLLOWER
    with pytest.raises(ProposalDroppedError):
        group[1].propose(b"nobody would commit it")


def test_a_transfer_brings_the_next_leader_up_to_date_first() -> None:
    """Section 3.10."""
    group = Group(3, config=replace(CONFIG, pre_vote=True, check_quorum=True))
    group.elect(1)
    for number in range(5):
        group[1].propose(b"%d" % number)
        group.run(only=[1, 3])
    group[1].report_unreachable(NodeId(2))
    group[1].transfer_leader(NodeId(2))
    with pytest.raises(ProposalDroppedError):
        group[1].propose(b"while leadership moves")
    group.run()
    assert group.role(2) is Role.LEADER
    assert group.log(2)[:-1] == group.log(1)[: len(group.log(2)) - 1]


def test_a_transfer_that_leads_nowhere_ends_after_an_election_timeout() -> None:
    group = Group(3)
    group.elect(1)
    group[1].transfer_leader(NodeId(2))
    for _ in range(CONFIG.election_ticks):
        group[1].tick()
    group.messages.clear()
    group[1].propose(b"it goes on")
    group.run(drop=lambda message: message.type is MessageType.TIMEOUT_NOW)
    assert group.role(1) is Role.LEADER


def test_a_learner_is_not_elected_and_counts_for_nothing() -> None:
    group = Group(1, learners=2)
    group[2].campaign()
    group.run()
    assert group.role(2) is Role.FOLLOWER
    group.elect(1, only=[1])
    group[1].propose(b"x")
    group.run(only=[1])
    assert group[1].status.hard_state.commit == 3
    with_learners = group[1].status
    group[1].transfer_leader(NodeId(2))
    group.run()
    assert group.role(1) is Role.LEADER
    assert {node_id for node_id, each in with_learners.progress.items() if each.is_learner} == {2, 3}


@pytest.mark.parametrize(
    "refused",
    [
        ConfChangeV2((remove(1), remove(2), remove(3))),
        ConfChangeV2(),
        ConfChangeV2((), ConfChangeTransition.JOINT_EXPLICIT),
        ConfChangeV2((remove(1), remove(2), remove(3)), ConfChangeTransition.JOINT_EXPLICIT),
    ],
    ids=["all removed", "not joint", "not joint explicitly", "all removed explicitly"],
)
def test_a_change_that_cannot_be_made_is_never_committed_as_one(refused: ConfChangeV2) -> None:
    """In etcd the first stops every member when it is applied."""
    group = Group(3)
    group.elect(1)
    group[1].propose_conf_change(refused)
    group.run()
    assert group.applied[NodeId(2)][-1].type is EntryType.NORMAL
    group[1].propose(b"it goes on")
    group.run()
    assert group.applied[NodeId(2)][-1].data == b"it goes on"


def test_one_change_of_members_at_a_time() -> None:
    group = Group(3)
    group.elect(1)
    group[1].propose_conf_change(ConfChange(add(4)))
    group[1].propose_conf_change(ConfChange(add(5)))
    group.run()
    assert group[1].status.config.voters.ids == {1, 2, 3, 4}


def test_a_majority_of_both_sets_decides_in_a_joint_configuration() -> None:
    group = Group(3)
    group.elect(1)
    group[1].propose_conf_change(
        ConfChangeV2((add(4), add(5), remove(2), remove(3)), ConfChangeTransition.JOINT_EXPLICIT)
    )
    group.run()
    assert str(group[1].status.config.voters) == "(1 4 5)&&(1 2 3)"
    commit = group[1].status.hard_state.commit
    group[1].propose(b"the new set has one member that lives")
    group.run()
    assert group[1].status.hard_state.commit == commit


def test_a_removed_leader_steps_down() -> None:
    group = Group(3, config=replace(CONFIG, step_down_on_removal=True))
    group.elect(1)
    group[1].propose_conf_change(ConfChange(remove(1)))
    group.run()
    assert group.role(1) is Role.FOLLOWER
    group[1].campaign()
    group.run()
    assert group.role(1) is Role.FOLLOWER


def test_reads_are_confirmed_by_a_majority() -> None:
    group = Group(3)
    group.elect(1)
    group[1].read_index(b"one")
    group.run(only=[1])
    assert not group.reads
    group[1].tick()
    group.run(only=[1, 2])
    assert [(read.index, read.context) for read in group.reads] == [(2, b"one")]
    group[3].read_index(b"at a follower")
    group.run()
    assert group.reads[-1].context == b"at a follower"


@pytest.mark.parametrize("voters", [1, 3])
def test_no_read_is_answered_before_an_entry_of_the_term_is_committed(voters: int) -> None:
    """Before, a leader does not know what is committed; nor does a single voter that was restarted."""
    group = Group(voters)
    group.load(1, 1, 1, term=1)
    group[1].campaign()
    while group.role(1) is not Role.LEADER:  # only as far as that: its first entry is not durable
        group.messages.extend(group[1].ready().messages)
        group[1].advance()
        for message in group.messages:
            group[message.to].step(message)
            group.handle(message.to)
        group.messages, answers = [], group.messages[2 * (voters - 1) // 2 :]
        for message in answers:
            if message.to == NodeId(1):
                group[1].step(message)
    group[1].read_index(b"early")
    assert not group[1].raft.core.read_states
    group.run()
    group[1].tick()
    group.run()
    assert [read.index for read in group.reads] == [4]


def test_reads_by_lease_need_no_message() -> None:
    group = Group(3, config=replace(CONFIG, check_quorum=True, read_only=ReadOnlyOption.LEASE_BASED))
    group.elect(1)
    group[1].read_index(b"one")
    group.run(only=[1])
    assert [read.index for read in group.reads] == [2]


def test_a_member_that_is_far_behind_gets_a_snapshot() -> None:
    group = Group(3)
    group.elect(1)
    for number in range(5):
        group[1].propose(b"%d" % number)
        group.run(only=[1, 2])
    storage = group.storages[NodeId(1)]
    storage.create_snapshot(Index(6), group[1].status.config.conf_state, b"state")
    storage.compact(Index(6))
    group[1].tick()
    group.run(drop=lambda message: message.type is MessageType.SNAP)
    assert group[1].status.progress[NodeId(3)].state is ProgressState.SNAPSHOT
    group[1].report_snapshot(NodeId(3), failed=True)
    group[1].tick()
    group.run()
    assert group[1].status.progress[NodeId(3)].state is ProgressState.REPLICATE
    assert group.storages[NodeId(3)].snapshot().data == b"state"
    assert group.log(3) == group.log(1)


def test_what_is_under_way_to_one_member_is_bounded() -> None:
    group = Group(2, config=replace(CONFIG, max_message_bytes=100, max_inflight_messages=8, max_inflight_bytes=250))
    group.elect(1)
    group.run()
    for _ in range(20):
        group[1].propose(b"x" * 90)
    group.handle(NodeId(1))
    sent = [message for message in group.messages if message.entries]
    assert len(sent) == 3  # the third crosses the 250 bytes
    group.run()
    assert group.log(2) == group.log(1)


def test_the_uncommitted_log_is_bounded() -> None:
    group = Group(3, config=replace(CONFIG, max_uncommitted_bytes=100))
    group.elect(1)
    group[1].propose(b"x" * 90)
    with pytest.raises(ProposalDroppedError):
        group[1].propose(b"x" * 90)
    group.run()
    group[1].propose(b"x" * 1000)  # one of any size where nothing else waits
    group.run()
    assert len(group.applied[NodeId(3)]) == 3


def test_what_is_not_for_this_node_is_refused() -> None:
    group = Group(3)
    with pytest.raises(LocalMessageError):
        group[1].step(Message(type=MessageType.HUP, sender=NodeId(2), to=NodeId(1)))
    with pytest.raises(UnknownPeerError):
        group[1].step(Message(type=MessageType.VOTE_RESP, sender=NodeId(9), to=NodeId(1), term=Term(1)))
    with pytest.raises(WrongAddresseeError):
        group[1].step(Message(type=MessageType.VOTE, sender=NodeId(2), to=NodeId(7), term=Term(1)))


def test_a_member_that_lost_its_log_does_not_go_on() -> None:
    group = Group(3)
    group.elect(1)
    lost = Message(type=MessageType.HEARTBEAT, sender=NodeId(1), to=NodeId(2), term=Term(1), commit=Index(9))
    with pytest.raises(LogLostError, match="add it again as a new one"):
        group[2].step(lost)
