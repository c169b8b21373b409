"""Scenes of classic groups, each after a rule of Kafka's coordinator, in virtual time."""

import pytest
from tests.groups.harness import G, Harness, kind, subscription

from logboom.base.errors import DiskFullError, InvalidRequestError, PolicyViolationError, StorageError
from logboom.groups import GroupLimits, Leaver, Protocol
from logboom.groups.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from logboom.groups.events import Resign, Sync

NO_DELAY = GroupLimits(initial_rebalance_delay_ms=0)


def test_the_first_rebalance_waits_for_more_members_and_ends_stable() -> None:
    harness = Harness()
    first = harness.join()
    assert harness.state == "PreparingRebalance"
    harness.sleep(2_000)
    second = harness.join()
    harness.sleep(1_000)
    assert harness.waits(first), "a newcomer prolongs the delay"
    harness.sleep(3_000)
    replies = [harness.joined(first), harness.joined(second)]
    assert {reply.generation for reply in replies} == {1}
    assert replies[0].leader == replies[1].leader == replies[0].member_id
    assert [member.member_id for member in replies[0].members] == [reply.member_id for reply in replies]
    assert replies[1].members == ()
    assert harness.state == "CompletingRebalance"
    assert [reply.assignment for reply in harness.assign(replies)] == [b"0", b"1"]
    assert harness.state == "Stable"


def test_the_initial_delay_never_exceeds_the_rebalance_timeout() -> None:
    harness = Harness()
    first = harness.join(rebalance_ms=7_000)
    for _ in range(6):
        harness.sleep(1_000)
        harness.join(rebalance_ms=7_000)
    assert harness.waits(first)
    harness.sleep(1_000)
    assert harness.joined(first).error is None


def test_a_follower_syncs_before_the_leader_and_waits() -> None:
    harness = Harness()
    tokens = [harness.join(), harness.join()]
    harness.sleep(6_000)
    leader, follower = (harness.joined(token) for token in tokens)
    early = harness.sync(follower)
    assert harness.waits(early)
    harness.sync(leader, {follower.member_id: b"all"})
    assert harness.synced(early).assignment == b"all"
    assert harness.synced(early).protocol_name == "range"


def test_a_newcomer_of_version_4_is_given_an_id_first() -> None:
    harness = Harness(NO_DELAY)
    told = harness.joined(harness.join(v4=True))
    assert kind(told.error) is MemberIdRequiredError
    assert told.member_id.startswith("app-")
    token = harness.join(told.member_id, v4=True)
    harness.sleep(0)
    assert harness.joined(token).generation == 1


def test_an_id_that_was_given_out_holds_a_rebalance_until_its_session_ends() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    harness.join(v4=True, session_ms=6_000)
    assert harness.state == "Stable"
    rejoin = harness.join(only.member_id)
    assert harness.waits(rejoin)
    harness.sleep(6_001)
    assert harness.joined(rejoin).generation == 2


def test_a_member_id_that_is_never_used_leaves_no_group_behind() -> None:
    harness = Harness()
    harness.join(v4=True, session_ms=6_000)
    assert harness.coordinator.describe(G) is not None
    harness.sleep(6_001)
    assert harness.coordinator.describe(G) is None


def test_members_that_do_not_rejoin_in_time_are_out() -> None:
    harness = Harness()
    stays, _gone = harness.form(None, None, rebalance_ms=5_000, session_ms=30_000)
    rejoin = harness.join(stays.member_id, rebalance_ms=5_000, session_ms=30_000)
    assert harness.waits(rejoin)
    harness.sleep(5_000)
    assert harness.joined(rejoin).generation == 2
    assert [member.member_id for member in harness.group().members] == [stays.member_id]


def test_a_leader_that_does_not_rejoin_is_replaced() -> None:
    harness = Harness()
    _leader, follower = harness.form(None, None, rebalance_ms=5_000, session_ms=30_000)
    changed = (Protocol("range", subscription("clicks", "views")),)
    rejoin = harness.join(follower.member_id, rebalance_ms=5_000, session_ms=30_000, protocols=changed)
    harness.sleep(5_000)
    assert harness.joined(rejoin).leader == follower.member_id


def test_a_session_without_heartbeats_ends_and_the_others_rebalance() -> None:
    harness = Harness()
    alive, _dead = harness.form(None, None, session_ms=10_000)
    for _ in range(4):
        harness.sleep(2_000)
        assert harness.heartbeat(alive.member_id, 1) is None
    harness.sleep(2_001)
    assert harness.heartbeat(alive.member_id, 1) is RebalanceInProgressError
    rejoin = harness.join(alive.member_id)
    assert harness.joined(rejoin).generation == 2


def test_the_last_session_to_end_leaves_an_empty_group_in_the_log() -> None:
    harness = Harness()
    harness.form(None)
    harness.sleep(70_000)
    assert harness.state == "Empty"
    harness.restart()
    assert harness.state == "Empty"


def test_offset_commits_keep_a_session_alive() -> None:
    harness = Harness()
    (only,) = harness.form(None, session_ms=10_000)
    for offset in range(5):
        harness.sleep(8_000)
        assert harness.commit(offset, member_id=only.member_id, generation=1) is None
    assert harness.state == "Stable"


def test_a_new_member_that_waits_too_long_in_its_join_is_given_up() -> None:
    harness = Harness()
    (only,) = harness.form(None, session_ms=30_000, rebalance_ms=600_000)
    waiting = harness.join(rebalance_ms=600_000)
    for _ in range(60):
        harness.sleep(5_001)
        harness.heartbeat(only.member_id, 1)
    assert kind(harness.joined(waiting).error) is UnknownMemberError


def test_a_member_that_never_syncs_is_removed_at_the_rebalance_timeout() -> None:
    harness = Harness()
    tokens = [harness.join(rebalance_ms=5_000), harness.join(rebalance_ms=5_000)]
    harness.sleep(5_000)
    leader, silent = (harness.joined(token) for token in tokens)
    harness.sync(leader, {leader.member_id: b"all"})
    assert harness.state == "Stable"
    harness.sleep(3_000)
    assert harness.heartbeat(silent.member_id, 1) is None
    harness.sleep(2_001)
    assert harness.heartbeat(silent.member_id, 1) is UnknownMemberError
    assert harness.heartbeat(leader.member_id, 1) is RebalanceInProgressError


def test_fencing_of_generations_and_members() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    assert harness.heartbeat(only.member_id, 0) is IllegalGenerationError
    assert harness.heartbeat(only.member_id, 2) is IllegalGenerationError
    assert harness.heartbeat("nobody", 1) is UnknownMemberError
    stale = harness.ask(Sync(group_id=G, generation=0, member_id=only.member_id))
    assert kind(harness.synced(stale).error) is IllegalGenerationError
    wrong = harness.ask(Sync(group_id=G, generation=1, member_id=only.member_id, protocol_name="sticky"))
    assert kind(harness.synced(wrong).error) is InconsistentGroupProtocolError
    stranger = harness.ask(Sync(group_id="other", generation=1, member_id=only.member_id))
    assert kind(harness.synced(stranger).error) is UnknownMemberError
    assert kind(harness.joined(harness.join("nobody")).error) is UnknownMemberError
    assert kind(harness.joined(harness.join("nobody", group_id="other")).error) is UnknownMemberError


def test_during_a_rebalance_syncs_and_heartbeats_are_told_to_rejoin() -> None:
    harness = Harness()
    first, second = harness.form(None, None)
    harness.join(first.member_id)
    assert harness.heartbeat(second.member_id, 1) is RebalanceInProgressError
    assert kind(harness.synced(harness.sync(second)).error) is RebalanceInProgressError


def test_a_join_in_the_sync_phase_makes_waiting_members_rejoin() -> None:
    harness = Harness()
    tokens = [harness.join(), harness.join()]
    harness.sleep(6_000)
    _leader, follower = (harness.joined(token) for token in tokens)
    waiting = harness.sync(follower)
    harness.join()
    assert kind(harness.synced(waiting).error) is RebalanceInProgressError


def test_a_follower_that_rejoins_unchanged_is_told_of_the_generation_it_is_in() -> None:
    harness = Harness()
    _leader, follower = harness.form(None, None)
    again = harness.joined(harness.join(follower.member_id))
    assert (again.generation, again.error, again.members) == (1, None, ())
    assert harness.state == "Stable"
    assert harness.synced(harness.sync(again)).assignment == b"1"


def test_a_leader_that_rejoins_or_a_follower_that_changes_starts_a_rebalance() -> None:
    harness = Harness()
    leader, _follower = harness.form(None, None)
    assert harness.waits(harness.join(leader.member_id))
    harness = Harness()
    _leader, follower = harness.form(None, None)
    changed = (Protocol("range", subscription("clicks", "views")),)
    assert harness.waits(harness.join(follower.member_id, protocols=changed))


def test_a_lost_join_answer_is_given_again() -> None:
    harness = Harness()
    token = harness.join()
    harness.sleep(3_000)
    reply = harness.joined(token)
    assert harness.joined(harness.join(reply.member_id)) == reply


def test_cooperative_members_rejoin_at_once_with_what_they_own() -> None:
    """KIP-429: the second of two rebalances follows the first sync, driven by the members' changed metadata."""

    def owns(what: str) -> tuple[Protocol, ...]:
        return (Protocol("cooperative-sticky", subscription("clicks") + what.encode()),)

    harness = Harness()
    tokens = [harness.join(protocols=owns("")), harness.join(protocols=owns(""))]
    harness.sleep(6_000)
    replies = [harness.joined(token) for token in tokens]
    harness.assign(replies)
    again = [harness.join(reply.member_id, protocols=owns(f"{index}")) for index, reply in enumerate(replies)]
    replies = [harness.joined(token) for token in again]
    assert [reply.generation for reply in replies] == [2, 2]
    assert [reply.assignment for reply in harness.assign(replies)] == [b"0", b"1"]
    assert harness.state == "Stable"


def test_the_protocol_with_most_votes_that_all_can_do_is_chosen() -> None:
    def can(*names: str) -> tuple[Protocol, ...]:
        return tuple(Protocol(name, b"") for name in names)

    harness = Harness()
    tokens = [
        harness.join(protocols=can("a", "b", "c")),
        harness.join(protocols=can("c", "b")),
        harness.join(protocols=can("x", "b", "c")),
    ]
    harness.sleep(6_000)
    assert {harness.joined(token).protocol_name for token in tokens} == {"b"}
    assert kind(harness.joined(harness.join(protocols=can("a"))).error) is InconsistentGroupProtocolError
    assert kind(harness.joined(harness.join(protocols=())).error) is InconsistentGroupProtocolError
    other_type = harness.join(protocols=can("b"), protocol_type="connect")
    assert kind(harness.joined(other_type).error) is InconsistentGroupProtocolError


def test_bounds_of_sessions_names_and_sizes() -> None:
    harness = Harness(GroupLimits(member_metadata_bytes_max=100, groups_max=1))
    assert kind(harness.joined(harness.join(session_ms=5_999)).error) is InvalidSessionTimeoutError
    assert kind(harness.joined(harness.join(session_ms=1_800_001)).error) is InvalidSessionTimeoutError
    assert kind(harness.joined(harness.join(group_id="")).error) is InvalidGroupIdError
    assert kind(harness.joined(harness.join(group_id="x" * 2_000)).error) is InvalidGroupIdError
    assert kind(harness.joined(harness.join(instance_id="x" * 2_000)).error) is InvalidRequestError
    large = (Protocol("range", b"x" * 101),)
    assert kind(harness.joined(harness.join(protocols=large)).error) is PolicyViolationError
    assert harness.coordinator.overview() == []
    harness.join()
    assert kind(harness.joined(harness.join(group_id="second")).error) is PolicyViolationError


def test_a_full_group_accepts_only_its_own_members() -> None:
    harness = Harness(GroupLimits(group_members_max=2))
    first, second = harness.form(None, None)
    assert kind(harness.joined(harness.join()).error) is GroupMaxSizeReachedError
    assert kind(harness.joined(harness.join(v4=True)).error) is GroupMaxSizeReachedError
    harness.join(first.member_id)
    harness.join(second.member_id)
    assert harness.state == "CompletingRebalance"


def test_ids_given_out_are_bounded() -> None:
    harness = Harness(GroupLimits(group_members_max=2))
    answers = [kind(harness.joined(harness.join(v4=True)).error) for _ in range(4)]
    assert answers == [MemberIdRequiredError] * 2 + [GroupMaxSizeReachedError] * 2


def test_leaving_alone_together_and_twice() -> None:
    harness = Harness()
    first, second, third = harness.form(None, None, None)
    reply = harness.leave(Leaver(second.member_id), Leaver("nobody"))
    assert [kind(error) for error in reply.results] == [None, UnknownMemberError]
    assert harness.state == "PreparingRebalance"
    rejoin = harness.join(first.member_id)
    assert harness.waits(rejoin)
    assert [kind(e) for e in harness.leave(Leaver(third.member_id)).results] == [None]
    assert harness.joined(rejoin).generation == 2
    assert [kind(e) for e in harness.leave(Leaver(third.member_id)).results] == [UnknownMemberError]
    assert [kind(e) for e in harness.leave(Leaver("x"), group_id="none").results] == [UnknownMemberError]
    harness.leave(Leaver(first.member_id))
    assert harness.state == "Empty"


def test_a_leave_that_empties_the_group_is_answered_when_that_is_stored() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    harness.slow_disk = True
    before = len(harness.replies)
    with pytest.raises(KeyError):
        harness.leave(Leaver(only.member_id))
    assert len(harness.replies) == before
    harness.flush()
    assert len(harness.replies) == before + 1


def test_a_member_that_leaves_while_its_join_waits_gets_an_answer() -> None:
    harness = Harness()
    first, _second = harness.form(None, None)
    waiting = harness.join(first.member_id)
    harness.leave(Leaver(first.member_id))
    assert kind(harness.joined(waiting).error) is UnknownMemberError


def test_a_join_or_sync_sent_again_replaces_the_one_that_waits() -> None:
    harness = Harness()
    first, second = harness.form(None, None)
    old = harness.join(first.member_id)
    new = harness.join(first.member_id)
    assert kind(harness.joined(old).error) is RebalanceInProgressError
    third = harness.join(second.member_id)
    assert harness.joined(new).generation == harness.joined(third).generation == 2
    old_sync, new_sync = harness.sync(harness.joined(third)), harness.sync(harness.joined(third))
    assert kind(harness.synced(old_sync).error) is RebalanceInProgressError
    assert harness.waits(new_sync)


def test_an_empty_group_starts_again_with_the_next_generation() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    harness.leave(Leaver(only.member_id))
    token = harness.join(protocol_type="connect", protocols=(Protocol("v1", b""),))
    harness.sleep(3_000)
    assert harness.joined(token).generation == 3
    assert harness.group().protocol_type == "connect"


# --- static members ---------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_takes_over_without_a_rebalance() -> None:
    harness = Harness()
    first, second = harness.form("a", "b")
    back = harness.joined(harness.join(instance_id="b", v9=True))
    assert (back.error, back.generation) == (None, 1)
    assert back.member_id != second.member_id
    assert harness.state == "Stable"
    assert harness.synced(harness.sync(back, instance_id="b")).assignment == b"1"
    assert harness.heartbeat(first.member_id, 1, "a") is None
    assert harness.heartbeat(back.member_id, 1, "b") is None
    assert harness.heartbeat(second.member_id, 1, "b") is FencedInstanceIdError
    assert harness.heartbeat(second.member_id, 1) is UnknownMemberError
    assert harness.commit(5, member_id=second.member_id, generation=1, instance_id="b") is FencedInstanceIdError


def test_a_static_leader_that_comes_back_skips_the_assignment_or_is_not_told_that_it_leads() -> None:
    harness = Harness()
    first, _second = harness.form("a", "b")
    back = harness.joined(harness.join(instance_id="a", v9=True))
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 2
    assert harness.synced(harness.sync(back, instance_id="a")).assignment == b"0"
    older = harness.joined(harness.join(instance_id="a"))
    assert not older.skip_assignment
    assert older.leader == back.member_id != older.member_id
    assert older.members == ()
    assert first.member_id != back.member_id


def test_a_static_member_that_does_not_come_back_is_kept_until_its_session_ends() -> None:
    harness = Harness()
    first, second = harness.form("a", "b", session_ms=20_000, rebalance_ms=60_000)
    harness.sleep(15_000)
    harness.heartbeat(first.member_id, 1, "a")
    assert harness.state == "Stable"
    harness.sleep(5_001)
    assert harness.state == "PreparingRebalance"
    assert harness.heartbeat(second.member_id, 1, "b") is UnknownMemberError


def test_a_static_member_with_another_choice_of_protocols_causes_a_rebalance() -> None:
    harness = Harness()
    both = (Protocol("range", subscription("clicks")), Protocol("sticky", subscription("clicks")))
    tokens = [harness.join(instance_id="a", protocols=both), harness.join(instance_id="b", protocols=both)]
    harness.sleep(6_000)
    harness.assign([harness.joined(token) for token in tokens])
    only = (Protocol("sticky", subscription("clicks")),)
    assert harness.waits(harness.join(instance_id="b", protocols=only))
    assert harness.state == "PreparingRebalance"


def test_a_static_member_that_comes_back_in_the_sync_phase_causes_a_rebalance_and_fences_the_old_one() -> None:
    harness = Harness()
    tokens = [harness.join(instance_id="a"), harness.join(instance_id="b")]
    harness.sleep(6_000)
    _leader, second = (harness.joined(token) for token in tokens)
    waiting = harness.sync(second, instance_id="b")
    back = harness.join(instance_id="b")
    assert kind(harness.synced(waiting).error) is FencedInstanceIdError
    assert harness.waits(back)
    assert harness.state == "PreparingRebalance"


def test_two_processes_with_one_instance_id_fence_each_other_in_the_join_phase() -> None:
    harness = Harness()
    old = harness.join(instance_id="a")
    new = harness.join(instance_id="a")
    assert kind(harness.joined(old).error) is FencedInstanceIdError
    harness.sleep(3_000)
    assert harness.joined(new).error is None


def test_a_static_return_that_cannot_be_stored_leaves_the_old_member_in_place() -> None:
    harness = Harness()
    _first, second = harness.form("a", "b")
    harness.disk_error = DiskFullError("full")
    back = harness.joined(harness.join(instance_id="b", v9=True))
    assert kind(back.error) is CoordinatorNotAvailableError
    assert harness.heartbeat(second.member_id, 1, "b") is None
    harness.disk_error = None
    assert harness.joined(harness.join(instance_id="b", v9=True)).error is None
    assert harness.heartbeat(second.member_id, 1, "b") is FencedInstanceIdError


def test_static_returns_wait_for_one_that_is_being_stored() -> None:
    harness = Harness()
    harness.form("a", "b")
    harness.slow_disk = True
    tokens = [harness.join(instance_id="a", v9=True), harness.join(instance_id="b", v9=True)]
    assert all(harness.waits(token) for token in tokens)
    assert len(harness.writes) == 1
    harness.flush(StorageError("gone"))
    first, second = (harness.joined(token) for token in tokens)
    assert kind(first.error) is kind(second.error) is NotCoordinatorError
    assert harness.state == "Stable"
    assert not harness.writes


def test_a_rebalance_that_starts_while_a_static_return_is_stored_takes_it_along() -> None:
    harness = Harness()
    first, _second = harness.form("a", "b")
    harness.slow_disk = True
    back = harness.join(instance_id="b", v9=True)
    rejoin = harness.join(first.member_id, instance_id="a")
    assert harness.joined(rejoin).generation == 2
    harness.flush()
    assert harness.joined(back).generation == 2


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    harness = Harness()
    harness.form("a", "b")
    results = harness.leave(Leaver("", "b"), Leaver("", "c"), Leaver("wrong", "a")).results
    assert [kind(error) for error in results] == [None, UnknownMemberError, FencedInstanceIdError]
    assert len(harness.group().members) == 1


# --- the disk ---------------------------------------------------------------------------------------------------


def test_an_assignment_is_told_only_once_it_is_stored() -> None:
    harness = Harness()
    token = harness.join()
    harness.sleep(3_000)
    harness.slow_disk = True
    reply = harness.joined(token)
    sync = harness.sync(reply, {reply.member_id: b"all"})
    assert harness.waits(sync)
    assert harness.heartbeat(reply.member_id, 1) is None, "heartbeats do not wait for the disk"
    again = harness.sync(reply, {reply.member_id: b"other"})
    assert len(harness.writes) == 1, "one generation has one assignment"
    harness.flush()
    assert harness.synced(again).assignment == b"all"


@pytest.mark.parametrize(
    ("error", "told"),
    [(DiskFullError("full"), CoordinatorNotAvailableError), (StorageError("EIO"), NotCoordinatorError)],
)
def test_an_assignment_that_cannot_be_stored_sends_everyone_back_to_join(
    error: StorageError, told: type[Exception]
) -> None:
    harness = Harness()
    tokens = [harness.join(), harness.join()]
    harness.sleep(6_000)
    replies = [harness.joined(token) for token in tokens]
    harness.disk_error = error
    for answer in harness.assign(replies):
        assert kind(answer.error) is told
        assert answer.assignment == b""
    assert harness.state == "PreparingRebalance"
    harness.disk_error = None
    rejoined = [harness.joined(token) for token in [harness.join(reply.member_id) for reply in replies]]
    assert [answer.assignment for answer in harness.assign(rejoined)] == [b"0", b"1"]


def test_an_assignment_stored_too_late_is_not_told() -> None:
    harness = Harness()
    token = harness.join()
    harness.sleep(3_000)
    harness.slow_disk = True
    reply = harness.joined(token)
    sync = harness.sync(reply, {reply.member_id: b"all"})
    harness.join()
    assert kind(harness.synced(sync).error) is RebalanceInProgressError
    harness.flush()
    assert harness.state == "PreparingRebalance"


def test_members_work_on_after_a_restart_and_sessions_run_anew() -> None:
    harness = Harness()
    first, second = harness.form("a", None, session_ms=10_000)
    harness.sleep(9_000)
    harness.restart()
    harness.sleep(9_000)
    assert harness.heartbeat(first.member_id, 1, "a") is None
    assert harness.heartbeat(second.member_id, 1) is None
    assert harness.synced(harness.sync(second)).assignment == b"1"
    harness.sleep(5_000)
    assert harness.commit(7, member_id=second.member_id, generation=1) is None
    harness.sleep(5_001)
    assert harness.heartbeat(first.member_id, 1, "a") is UnknownMemberError
    assert harness.heartbeat(second.member_id, 1) is RebalanceInProgressError


def test_a_crash_in_the_sync_phase_falls_back_to_the_generation_before() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    newer = harness.joined(harness.join(only.member_id))
    assert newer.generation == 2
    harness.restart()
    assert kind(harness.synced(harness.sync(newer)).error) is IllegalGenerationError
    assert harness.joined(harness.join(only.member_id)).generation == 2


def test_a_group_above_a_lowered_limit_drops_its_newest_members() -> None:
    harness = Harness()
    replies = harness.form(None, None, None)
    harness.limits = GroupLimits(group_members_max=2)
    harness.restart()
    assert harness.state == "PreparingRebalance"
    tokens = [harness.join(reply.member_id) for reply in replies]
    assert kind(harness.joined(tokens[2]).error) is GroupMaxSizeReachedError
    assert len(harness.group().members) == 2


def test_resigning_answers_all_waiting_requests() -> None:
    harness = Harness()
    first, _second = harness.form(None, None)
    waiting = harness.join(first.member_id)
    harness.play(Resign())
    assert kind(harness.joined(waiting).error) is NotCoordinatorError
    assert harness.coordinator.deadline_ms() is None
