"""Quorums, inflights and changes of members against plain definitions of what they are."""

from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from logboom.raft import ConfChangeSingle, ConfChangeType, ConfState, Index, NodeId
from logboom.raft.confchange import Changer, restore
from logboom.raft.errors import ConfChangeError
from logboom.raft.inflights import Inflights
from logboom.raft.quorum import JointConfig, VoteResult
from logboom.raft.tracker import ProgressTracker

IDS = st.integers(1, 9).map(NodeId)
SETS = st.frozensets(IDS, max_size=7)
CHANGES = st.lists(
    st.builds(ConfChangeSingle, st.sampled_from(ConfChangeType), st.integers(2, 9).map(NodeId)), max_size=9
)


def is_majority(some: frozenset[NodeId], voters: frozenset[NodeId]) -> bool:
    return not voters or 2 * len(some & voters) > len(voters)


@given(SETS, SETS, st.dictionaries(IDS, st.integers(0, 20).map(Index)))
def test_an_index_is_committed_if_both_majorities_have_it(
    incoming: frozenset[NodeId], outgoing: frozenset[NodeId], acked: dict[NodeId, Index]
) -> None:
    config = JointConfig(incoming, outgoing)
    committed = config.committed_index(acked.get)
    for index in range(25):
        have = frozenset(node_id for node_id, each in acked.items() if each >= index) if index else config.ids
        assert (index <= committed) is (is_majority(have, incoming) and is_majority(have, outgoing))


@given(SETS, SETS, st.dictionaries(IDS, st.booleans()))
def test_a_vote_is_decided_when_no_other_answer_can_change_it(
    incoming: frozenset[NodeId], outgoing: frozenset[NodeId], votes: dict[NodeId, bool]
) -> None:
    config = JointConfig(incoming, outgoing)
    missing = sorted(config.ids - votes.keys())
    yes = frozenset(node_id for node_id, granted in votes.items() if granted)
    ends = {
        all(is_majority(yes | frozenset(more), half) for half in (incoming, outgoing))
        for count in range(len(missing) + 1)
        for more in combinations(missing, count)
    }
    expected = {frozenset({True}): VoteResult.WON, frozenset({False}): VoteResult.LOST}
    assert config.vote_result(votes) is expected.get(frozenset(ends), VoteResult.PENDING)


def fresh() -> ProgressTracker:
    tracker = ProgressTracker(10, 0)
    tracker.config, tracker.progress = Changer(tracker, Index(10)).simple(
        [ConfChangeSingle(ConfChangeType.ADD_NODE, NodeId(1))]
    )
    return tracker


@given(CHANGES, CHANGES)
def test_changes_one_by_one_and_through_a_joint_configuration_end_alike(
    before: list[ConfChangeSingle], changes: list[ConfChangeSingle]
) -> None:
    """etcd's TestConfChangeQuick. Member 1 always stays, so that nothing is refused."""
    one_by_one, joint = fresh(), fresh()
    for tracker in (one_by_one, joint):
        for change in before:
            tracker.config, tracker.progress = Changer(tracker, Index(10)).simple([change])
    for change in changes:
        one_by_one.config, one_by_one.progress = Changer(one_by_one, Index(10)).simple([change])
    joint.config, joint.progress = Changer(joint, Index(10)).enter_joint(changes, auto_leave=False)
    joint.config, joint.progress = Changer(joint, Index(10)).leave_joint()
    assert joint.config == one_by_one.config
    assert {node_id: str(each) for node_id, each in joint.members()} == {
        node_id: str(each) for node_id, each in one_by_one.members()
    }


@given(CHANGES, CHANGES, st.booleans(), st.booleans())
def test_a_stored_configuration_is_restored_as_it_was(
    before: list[ConfChangeSingle], changes: list[ConfChangeSingle], joint: bool, auto_leave: bool
) -> None:
    tracker = fresh()
    for change in before:
        tracker.config, tracker.progress = Changer(tracker, Index(10)).simple([change])
    if joint:
        tracker.config, tracker.progress = Changer(tracker, Index(10)).enter_joint(changes, auto_leave=auto_leave)
    restored, progress = restore(ProgressTracker(10, 0), Index(10), tracker.config.conf_state)
    assert restored == tracker.config
    assert progress.keys() == tracker.progress.keys()


@given(
    st.builds(
        ConfState,
        st.lists(IDS).map(tuple),
        st.lists(IDS).map(tuple),
        st.lists(IDS).map(tuple),
        st.lists(IDS).map(tuple),
    )
)
def test_any_stored_configuration_is_restored_or_refused(state: ConfState) -> None:
    """It is refused with the error of configurations; any other exception fails the test."""
    try:
        restore(ProgressTracker(10, 0), Index(10), state)
    except ConfChangeError:
        return


@given(st.integers(1, 5), st.integers(0, 40), st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_the_window_holds_what_was_sent_and_not_acknowledged(
    max_messages: int, max_bytes: int, steps: list[tuple[bool, int]]
) -> None:
    window, sent, last = Inflights(max_messages, max_bytes), list[tuple[int, int]](), 0
    for sends, number in steps:
        if sends and not window.is_full:
            last += 1 + number
            sent.append((last, number))
            window.add(Index(last), number)
        elif not sends:
            sent = [(index, size) for index, size in sent if index > number]
            window.free_up_to(Index(number))
        assert len(window) == len(sent)
        too_many_bytes = max_bytes != 0 and sum(size for _, size in sent) >= max_bytes
        assert window.is_full is (len(sent) == max_messages or too_many_bytes)
    assume(steps)
