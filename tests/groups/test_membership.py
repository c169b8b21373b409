"""Scenes of classic groups, each after a rule of Kafka's coordinator, in virtual time."""

import pytest
from tests.groups.town import G, Town, kind, subscription

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
    town = Town()
    first = town.join()
    assert town.state == "PreparingRebalance"
    town.sleep(2_000)
    second = town.join()
    town.sleep(1_000)
    assert town.waits(first), "a newcomer prolongs the delay"
    town.sleep(3_000)
    replies = [town.joined(first), town.joined(second)]
    assert {reply.generation for reply in replies} == {1}
    assert replies[0].leader == replies[1].leader == replies[0].member_id
    assert [member.member_id for member in replies[0].members] == [reply.member_id for reply in replies]
    assert replies[1].members == ()
    assert town.state == "CompletingRebalance"
    assert [reply.assignment for reply in town.assign(replies)] == [b"0", b"1"]
    assert town.state == "Stable"


def test_the_initial_delay_never_exceeds_the_rebalance_timeout() -> None:
    town = Town()
    first = town.join(rebalance_ms=7_000)
    for _ in range(6):
        town.sleep(1_000)
        town.join(rebalance_ms=7_000)
    assert town.waits(first)
    town.sleep(1_000)
    assert town.joined(first).error is None


def test_a_follower_syncs_before_the_leader_and_waits() -> None:
    town = Town()
    tokens = [town.join(), town.join()]
    town.sleep(6_000)
    leader, follower = (town.joined(token) for token in tokens)
    early = town.sync(follower)
    assert town.waits(early)
    town.sync(leader, {follower.member_id: b"all"})
    assert town.synced(early).assignment == b"all"
    assert town.synced(early).protocol_name == "range"


def test_a_newcomer_of_version_4_is_given_an_id_first() -> None:
    town = Town(NO_DELAY)
    told = town.joined(town.join(v4=True))
    assert kind(told.error) is MemberIdRequiredError
    assert told.member_id.startswith("app-")
    token = town.join(told.member_id, v4=True)
    town.sleep(0)
    assert town.joined(token).generation == 1


def test_an_id_that_was_given_out_holds_a_rebalance_until_its_session_ends() -> None:
    town = Town()
    (only,) = town.form(None)
    town.join(v4=True, session_ms=6_000)
    assert town.state == "Stable"
    rejoin = town.join(only.member_id)
    assert town.waits(rejoin)
    town.sleep(6_001)
    assert town.joined(rejoin).generation == 2


def test_an_id_that_nobody_comes_back_with_leaves_no_group_behind() -> None:
    town = Town()
    town.join(v4=True, session_ms=6_000)
    assert town.coordinator.describe(G) is not None
    town.sleep(6_001)
    assert town.coordinator.describe(G) is None


def test_members_that_do_not_rejoin_in_time_are_out() -> None:
    town = Town()
    stays, _gone = town.form(None, None, rebalance_ms=5_000, session_ms=30_000)
    rejoin = town.join(stays.member_id, rebalance_ms=5_000, session_ms=30_000)
    assert town.waits(rejoin)
    town.sleep(5_000)
    assert town.joined(rejoin).generation == 2
    assert [member.member_id for member in town.group().members] == [stays.member_id]


def test_a_leader_that_does_not_rejoin_loses_its_office() -> None:
    town = Town()
    _leader, follower = town.form(None, None, rebalance_ms=5_000, session_ms=30_000)
    changed = (Protocol("range", subscription("clicks", "views")),)
    rejoin = town.join(follower.member_id, rebalance_ms=5_000, session_ms=30_000, protocols=changed)
    town.sleep(5_000)
    assert town.joined(rejoin).leader == follower.member_id


def test_a_session_without_heartbeats_ends_and_the_others_share_anew() -> None:
    town = Town()
    alive, _dead = town.form(None, None, session_ms=10_000)
    for _ in range(4):
        town.sleep(2_000)
        assert town.heartbeat(alive.member_id, 1) is None
    town.sleep(2_001)
    assert town.heartbeat(alive.member_id, 1) is RebalanceInProgressError
    rejoin = town.join(alive.member_id)
    assert town.joined(rejoin).generation == 2


def test_the_last_session_to_end_leaves_an_empty_group_in_the_log() -> None:
    town = Town()
    town.form(None)
    town.sleep(70_000)
    assert town.state == "Empty"
    town.restart()
    assert town.state == "Empty"


def test_offset_commits_keep_a_session_alive() -> None:
    town = Town()
    (only,) = town.form(None, session_ms=10_000)
    for offset in range(5):
        town.sleep(8_000)
        assert town.commit(offset, member_id=only.member_id, generation=1) is None
    assert town.state == "Stable"


def test_a_new_member_that_waits_too_long_in_its_join_is_given_up() -> None:
    town = Town()
    (only,) = town.form(None, session_ms=30_000, rebalance_ms=600_000)
    waiting = town.join(rebalance_ms=600_000)
    for _ in range(60):
        town.sleep(5_001)
        town.heartbeat(only.member_id, 1)
    assert kind(town.joined(waiting).error) is UnknownMemberError


def test_who_syncs_never_is_removed_when_the_rebalance_timeout_ends() -> None:
    town = Town()
    tokens = [town.join(rebalance_ms=5_000), town.join(rebalance_ms=5_000)]
    town.sleep(5_000)
    leader, silent = (town.joined(token) for token in tokens)
    town.sync(leader, {leader.member_id: b"all"})
    assert town.state == "Stable"
    town.sleep(3_000)
    assert town.heartbeat(silent.member_id, 1) is None
    town.sleep(2_001)
    assert town.heartbeat(silent.member_id, 1) is UnknownMemberError
    assert town.heartbeat(leader.member_id, 1) is RebalanceInProgressError


def test_fencing_of_generations_and_members() -> None:
    town = Town()
    (only,) = town.form(None)
    assert town.heartbeat(only.member_id, 0) is IllegalGenerationError
    assert town.heartbeat(only.member_id, 2) is IllegalGenerationError
    assert town.heartbeat("nobody", 1) is UnknownMemberError
    stale = town.ask(Sync(group_id=G, generation=0, member_id=only.member_id))
    assert kind(town.synced(stale).error) is IllegalGenerationError
    wrong = town.ask(Sync(group_id=G, generation=1, member_id=only.member_id, protocol_name="sticky"))
    assert kind(town.synced(wrong).error) is InconsistentGroupProtocolError
    stranger = town.ask(Sync(group_id="other", generation=1, member_id=only.member_id))
    assert kind(town.synced(stranger).error) is UnknownMemberError
    assert kind(town.joined(town.join("nobody")).error) is UnknownMemberError
    assert kind(town.joined(town.join("nobody", group_id="other")).error) is UnknownMemberError


def test_during_a_rebalance_syncs_and_heartbeats_are_told_to_rejoin() -> None:
    town = Town()
    first, second = town.form(None, None)
    town.join(first.member_id)
    assert town.heartbeat(second.member_id, 1) is RebalanceInProgressError
    assert kind(town.synced(town.sync(second)).error) is RebalanceInProgressError


def test_a_join_in_the_sync_phase_sends_those_who_wait_back() -> None:
    town = Town()
    tokens = [town.join(), town.join()]
    town.sleep(6_000)
    _leader, follower = (town.joined(token) for token in tokens)
    waiting = town.sync(follower)
    town.join()
    assert kind(town.synced(waiting).error) is RebalanceInProgressError


def test_a_follower_that_rejoins_unchanged_is_told_of_the_generation_it_is_in() -> None:
    town = Town()
    _leader, follower = town.form(None, None)
    again = town.joined(town.join(follower.member_id))
    assert (again.generation, again.error, again.members) == (1, None, ())
    assert town.state == "Stable"
    assert town.synced(town.sync(again)).assignment == b"1"


def test_a_leader_that_rejoins_or_a_follower_that_changes_starts_a_rebalance() -> None:
    town = Town()
    leader, _follower = town.form(None, None)
    assert town.waits(town.join(leader.member_id))
    town = Town()
    _leader, follower = town.form(None, None)
    changed = (Protocol("range", subscription("clicks", "views")),)
    assert town.waits(town.join(follower.member_id, protocols=changed))


def test_a_lost_join_answer_is_given_again() -> None:
    town = Town()
    token = town.join()
    town.sleep(3_000)
    reply = town.joined(token)
    assert town.joined(town.join(reply.member_id)) == reply


def test_cooperative_members_rejoin_at_once_with_what_they_own() -> None:
    """KIP-429: the second of two rebalances follows the first sync, driven by the members' changed metadata."""

    def owns(what: str) -> tuple[Protocol, ...]:
        return (Protocol("cooperative-sticky", subscription("clicks") + what.encode()),)

    town = Town()
    tokens = [town.join(protocols=owns("")), town.join(protocols=owns(""))]
    town.sleep(6_000)
    replies = [town.joined(token) for token in tokens]
    town.assign(replies)
    again = [town.join(reply.member_id, protocols=owns(f"{index}")) for index, reply in enumerate(replies)]
    replies = [town.joined(token) for token in again]
    assert [reply.generation for reply in replies] == [2, 2]
    assert [reply.assignment for reply in town.assign(replies)] == [b"0", b"1"]
    assert town.state == "Stable"


def test_the_protocol_with_most_votes_that_all_can_do_is_chosen() -> None:
    def can(*names: str) -> tuple[Protocol, ...]:
        return tuple(Protocol(name, b"") for name in names)

    town = Town()
    tokens = [
        town.join(protocols=can("a", "b", "c")),
        town.join(protocols=can("c", "b")),
        town.join(protocols=can("x", "b", "c")),
    ]
    town.sleep(6_000)
    assert {town.joined(token).protocol_name for token in tokens} == {"b"}
    assert kind(town.joined(town.join(protocols=can("a"))).error) is InconsistentGroupProtocolError
    assert kind(town.joined(town.join(protocols=())).error) is InconsistentGroupProtocolError
    other_type = town.join(protocols=can("b"), protocol_type="connect")
    assert kind(town.joined(other_type).error) is InconsistentGroupProtocolError


def test_bounds_of_sessions_names_and_sizes() -> None:
    town = Town(GroupLimits(member_metadata_bytes_max=100, groups_max=1))
    assert kind(town.joined(town.join(session_ms=5_999)).error) is InvalidSessionTimeoutError
    assert kind(town.joined(town.join(session_ms=1_800_001)).error) is InvalidSessionTimeoutError
    assert kind(town.joined(town.join(group_id="")).error) is InvalidGroupIdError
    assert kind(town.joined(town.join(group_id="x" * 2_000)).error) is InvalidGroupIdError
    assert kind(town.joined(town.join(instance_id="x" * 2_000)).error) is InvalidRequestError
    large = (Protocol("range", b"x" * 101),)
    assert kind(town.joined(town.join(protocols=large)).error) is PolicyViolationError
    assert town.coordinator.overview() == []
    town.join()
    assert kind(town.joined(town.join(group_id="second")).error) is PolicyViolationError


def test_a_full_group_takes_nobody_but_those_it_has() -> None:
    town = Town(GroupLimits(group_members_max=2))
    first, second = town.form(None, None)
    assert kind(town.joined(town.join()).error) is GroupMaxSizeReachedError
    assert kind(town.joined(town.join(v4=True)).error) is GroupMaxSizeReachedError
    town.join(first.member_id)
    town.join(second.member_id)
    assert town.state == "CompletingRebalance"


def test_ids_given_out_are_bounded() -> None:
    town = Town(GroupLimits(group_members_max=2))
    answers = [kind(town.joined(town.join(v4=True)).error) for _ in range(4)]
    assert answers == [MemberIdRequiredError] * 2 + [GroupMaxSizeReachedError] * 2


def test_leaving_alone_together_and_twice() -> None:
    town = Town()
    first, second, third = town.form(None, None, None)
    reply = town.leave(Leaver(second.member_id), Leaver("nobody"))
    assert [kind(error) for error in reply.results] == [None, UnknownMemberError]
    assert town.state == "PreparingRebalance"
    rejoin = town.join(first.member_id)
    assert town.waits(rejoin)
    assert [kind(e) for e in town.leave(Leaver(third.member_id)).results] == [None]
    assert town.joined(rejoin).generation == 2
    assert [kind(e) for e in town.leave(Leaver(third.member_id)).results] == [UnknownMemberError]
    assert [kind(e) for e in town.leave(Leaver("x"), group_id="none").results] == [UnknownMemberError]
    town.leave(Leaver(first.member_id))
    assert town.state == "Empty"


def test_a_leave_that_empties_the_group_is_answered_when_that_is_stored() -> None:
    town = Town()
    (only,) = town.form(None)
    town.slow_disk = True
    before = len(town.replies)
    with pytest.raises(KeyError):
        town.leave(Leaver(only.member_id))
    assert len(town.replies) == before
    town.flush()
    assert len(town.replies) == before + 1


def test_a_member_that_leaves_while_its_join_waits_gets_an_answer() -> None:
    town = Town()
    first, _second = town.form(None, None)
    waiting = town.join(first.member_id)
    town.leave(Leaver(first.member_id))
    assert kind(town.joined(waiting).error) is UnknownMemberError


def test_a_join_or_sync_sent_again_replaces_the_one_that_waits() -> None:
    town = Town()
    first, second = town.form(None, None)
    old = town.join(first.member_id)
    new = town.join(first.member_id)
    assert kind(town.joined(old).error) is RebalanceInProgressError
    third = town.join(second.member_id)
    assert town.joined(new).generation == town.joined(third).generation == 2
    old_sync, new_sync = town.sync(town.joined(third)), town.sync(town.joined(third))
    assert kind(town.synced(old_sync).error) is RebalanceInProgressError
    assert town.waits(new_sync)


def test_an_empty_group_starts_again_with_the_next_generation() -> None:
    town = Town()
    (only,) = town.form(None)
    town.leave(Leaver(only.member_id))
    token = town.join(protocol_type="connect", protocols=(Protocol("v1", b""),))
    town.sleep(3_000)
    assert town.joined(token).generation == 3
    assert town.group().protocol_type == "connect"


# --- static members ---------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_takes_over_without_a_rebalance() -> None:
    town = Town()
    first, second = town.form("a", "b")
    back = town.joined(town.join(instance_id="b", v9=True))
    assert (back.error, back.generation) == (None, 1)
    assert back.member_id != second.member_id
    assert town.state == "Stable"
    assert town.synced(town.sync(back, instance_id="b")).assignment == b"1"
    assert town.heartbeat(first.member_id, 1, "a") is None
    assert town.heartbeat(back.member_id, 1, "b") is None
    assert town.heartbeat(second.member_id, 1, "b") is FencedInstanceIdError
    assert town.heartbeat(second.member_id, 1) is UnknownMemberError
    assert town.commit(5, member_id=second.member_id, generation=1, instance_id="b") is FencedInstanceIdError


def test_a_static_leader_that_comes_back_skips_the_assignment_or_is_not_told_that_it_leads() -> None:
    town = Town()
    first, _second = town.form("a", "b")
    back = town.joined(town.join(instance_id="a", v9=True))
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 2
    assert town.synced(town.sync(back, instance_id="a")).assignment == b"0"
    older = town.joined(town.join(instance_id="a"))
    assert not older.skip_assignment
    assert older.leader == back.member_id != older.member_id
    assert older.members == ()
    assert first.member_id != back.member_id


def test_a_static_member_that_does_not_come_back_is_kept_until_its_session_ends() -> None:
    town = Town()
    first, second = town.form("a", "b", session_ms=20_000, rebalance_ms=60_000)
    town.sleep(15_000)
    town.heartbeat(first.member_id, 1, "a")
    assert town.state == "Stable"
    town.sleep(5_001)
    assert town.state == "PreparingRebalance"
    assert town.heartbeat(second.member_id, 1, "b") is UnknownMemberError


def test_a_static_member_with_another_choice_of_protocols_causes_a_rebalance() -> None:
    town = Town()
    both = (Protocol("range", subscription("clicks")), Protocol("sticky", subscription("clicks")))
    tokens = [town.join(instance_id="a", protocols=both), town.join(instance_id="b", protocols=both)]
    town.sleep(6_000)
    town.assign([town.joined(token) for token in tokens])
    only = (Protocol("sticky", subscription("clicks")),)
    assert town.waits(town.join(instance_id="b", protocols=only))
    assert town.state == "PreparingRebalance"


def test_a_static_member_that_comes_back_in_the_sync_phase_causes_a_rebalance_and_fences_the_old_one() -> None:
    town = Town()
    tokens = [town.join(instance_id="a"), town.join(instance_id="b")]
    town.sleep(6_000)
    _leader, second = (town.joined(token) for token in tokens)
    waiting = town.sync(second, instance_id="b")
    back = town.join(instance_id="b")
    assert kind(town.synced(waiting).error) is FencedInstanceIdError
    assert town.waits(back)
    assert town.state == "PreparingRebalance"


def test_two_processes_with_one_instance_id_fence_each_other_in_the_join_phase() -> None:
    town = Town()
    old = town.join(instance_id="a")
    new = town.join(instance_id="a")
    assert kind(town.joined(old).error) is FencedInstanceIdError
    town.sleep(3_000)
    assert town.joined(new).error is None


def test_a_static_return_that_cannot_be_stored_leaves_the_old_member_in_place() -> None:
    town = Town()
    _first, second = town.form("a", "b")
    town.disk_error = DiskFullError("full")
    back = town.joined(town.join(instance_id="b", v9=True))
    assert kind(back.error) is CoordinatorNotAvailableError
    assert town.heartbeat(second.member_id, 1, "b") is None
    town.disk_error = None
    assert town.joined(town.join(instance_id="b", v9=True)).error is None
    assert town.heartbeat(second.member_id, 1, "b") is FencedInstanceIdError


def test_static_returns_wait_for_one_that_is_being_stored() -> None:
    town = Town()
    town.form("a", "b")
    town.slow_disk = True
    tokens = [town.join(instance_id="a", v9=True), town.join(instance_id="b", v9=True)]
    assert all(town.waits(token) for token in tokens)
    assert len(town.writes) == 1
    town.flush(StorageError("gone"))
    first, second = (town.joined(token) for token in tokens)
    assert kind(first.error) is kind(second.error) is NotCoordinatorError
    assert town.state == "Stable"
    assert not town.writes


def test_a_rebalance_that_starts_while_a_static_return_is_stored_takes_it_along() -> None:
    town = Town()
    first, _second = town.form("a", "b")
    town.slow_disk = True
    back = town.join(instance_id="b", v9=True)
    rejoin = town.join(first.member_id, instance_id="a")
    assert town.joined(rejoin).generation == 2
    town.flush()
    assert town.joined(back).generation == 2


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    town = Town()
    town.form("a", "b")
    results = town.leave(Leaver("", "b"), Leaver("", "c"), Leaver("wrong", "a")).results
    assert [kind(error) for error in results] == [None, UnknownMemberError, FencedInstanceIdError]
    assert len(town.group().members) == 1


# --- the disk ---------------------------------------------------------------------------------------------------


def test_an_assignment_is_told_only_once_it_is_stored() -> None:
    town = Town()
    token = town.join()
    town.sleep(3_000)
    town.slow_disk = True
    reply = town.joined(token)
    sync = town.sync(reply, {reply.member_id: b"all"})
    assert town.waits(sync)
    assert town.heartbeat(reply.member_id, 1) is None, "heartbeats do not wait for the disk"
    again = town.sync(reply, {reply.member_id: b"other"})
    assert len(town.writes) == 1, "one generation has one assignment"
    town.flush()
    assert town.synced(again).assignment == b"all"


@pytest.mark.parametrize(
    ("error", "told"),
    [(DiskFullError("full"), CoordinatorNotAvailableError), (StorageError("EIO"), NotCoordinatorError)],
)
def test_an_assignment_that_cannot_be_stored_sends_everyone_back_to_join(
    error: StorageError, told: type[Exception]
) -> None:
    town = Town()
    tokens = [town.join(), town.join()]
    town.sleep(6_000)
    replies = [town.joined(token) for token in tokens]
    town.disk_error = error
    for answer in town.assign(replies):
        assert kind(answer.error) is told
        assert answer.assignment == b""
    assert town.state == "PreparingRebalance"
    town.disk_error = None
    rejoined = [town.joined(token) for token in [town.join(reply.member_id) for reply in replies]]
    assert [answer.assignment for answer in town.assign(rejoined)] == [b"0", b"1"]


def test_an_assignment_stored_too_late_is_not_told() -> None:
    town = Town()
    token = town.join()
    town.sleep(3_000)
    town.slow_disk = True
    reply = town.joined(token)
    sync = town.sync(reply, {reply.member_id: b"all"})
    town.join()
    assert kind(town.synced(sync).error) is RebalanceInProgressError
    town.flush()
    assert town.state == "PreparingRebalance"


def test_members_work_on_after_a_restart_and_sessions_run_anew() -> None:
    town = Town()
    first, second = town.form("a", None, session_ms=10_000)
    town.sleep(9_000)
    town.restart()
    town.sleep(9_000)
    assert town.heartbeat(first.member_id, 1, "a") is None
    assert town.heartbeat(second.member_id, 1) is None
    assert town.synced(town.sync(second)).assignment == b"1"
    town.sleep(5_000)
    assert town.commit(7, member_id=second.member_id, generation=1) is None
    town.sleep(5_001)
    assert town.heartbeat(first.member_id, 1, "a") is UnknownMemberError
    assert town.heartbeat(second.member_id, 1) is RebalanceInProgressError


def test_a_crash_in_the_sync_phase_falls_back_to_the_generation_before() -> None:
    town = Town()
    (only,) = town.form(None)
    newer = town.joined(town.join(only.member_id))
    assert newer.generation == 2
    town.restart()
    assert kind(town.synced(town.sync(newer)).error) is IllegalGenerationError
    assert town.joined(town.join(only.member_id)).generation == 2


def test_a_group_above_a_limit_that_was_lowered_sheds_the_last_to_come() -> None:
    town = Town()
    replies = town.form(None, None, None)
    town.limits = GroupLimits(group_members_max=2)
    town.restart()
    assert town.state == "PreparingRebalance"
    tokens = [town.join(reply.member_id) for reply in replies]
    assert kind(town.joined(tokens[2]).error) is GroupMaxSizeReachedError
    assert len(town.group().members) == 2


def test_resigning_answers_all_who_wait() -> None:
    town = Town()
    first, _second = town.form(None, None)
    waiting = town.join(first.member_id)
    town.play(Resign())
    assert kind(town.joined(waiting).error) is NotCoordinatorError
    assert town.coordinator.deadline_ms() is None
