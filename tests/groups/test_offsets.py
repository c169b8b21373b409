"""Scenes of committed offsets: who may commit, what is deleted and when, what the log says afterwards."""

import pytest
from tests.groups.town import G, Town, kind, replayed

from logboom.base.errors import DiskFullError, LogboomError, MessageTooLargeError, PolicyViolationError, StorageError
from logboom.base.units import DAY_MS, HOUR_MS
from logboom.groups import (
    CommitReply,
    DeleteGroup,
    DeleteGroupReply,
    DeleteOffsets,
    DeleteOffsetsReply,
    GroupLimits,
    Leaver,
    Protocol,
    StreamsDeleted,
)
from logboom.groups.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToStreamError,
    GroupTooLargeError,
    IllegalGenerationError,
    InvalidCommitOffsetSizeError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberError,
    metadata_store_error,
    offset_store_error,
)


def delete(town: Town, *streams: str) -> list[type[LogboomError] | None]:
    token = town.ask(DeleteOffsets(group_id=G, partitions=tuple((stream, 0) for stream in streams)))
    reply = town.answer(token, DeleteOffsetsReply)
    return [kind(reply.error)] if reply.error else [kind(error) for error in reply.results]


def test_a_simple_consumer_commits_without_a_group() -> None:
    town = Town()
    assert town.commit(42, metadata="note") is None
    value = town.coordinator.committed(G)[("clicks", 0)]
    assert (value.offset, value.leader_epoch, value.metadata) == (42, 3, "note")
    assert town.commit(1, group_id="") is None, "the empty id is for simple consumers"
    town.restart()
    assert town.offset() == 42
    assert town.state == "Empty"


def test_members_commit_and_others_do_not() -> None:
    town = Town()
    (only,) = town.form(None)
    assert town.commit(1, member_id=only.member_id, generation=1) is None
    assert town.commit(2, member_id=only.member_id, generation=0) is IllegalGenerationError
    assert town.commit(2, member_id="nobody", generation=1) is UnknownMemberError
    assert town.commit(2) is UnknownMemberError
    assert town.commit(2, generation=3, member_id="m", group_id="none") is IllegalGenerationError
    later = town.commit(2, generation=3, member_id="m", group_id="none", tells_missing_group=True)
    assert later is GroupIdNotFoundError
    assert town.commit(2, group_id="x" * 5_000) is InvalidGroupIdError
    assert town.offset() == 1


def test_a_commit_in_the_sync_phase_is_told_of_the_rebalance_and_one_in_the_join_phase_is_taken() -> None:
    town = Town()
    first, second = town.form(None, None)
    town.join(first.member_id)
    assert town.commit(5, member_id=second.member_id, generation=1) is None
    reply = town.joined(town.join(second.member_id))
    assert town.commit(6, member_id=second.member_id, generation=reply.generation) is RebalanceInProgressError


def test_a_commit_counts_only_once_it_is_stored() -> None:
    town = Town(slow_disk=True)
    token = town.commit_later(5)
    assert town.waits(token)
    assert town.offset() is None
    town.flush()
    assert town.offset() == 5


def test_commits_of_one_group_go_to_the_disk_together_and_in_order() -> None:
    town = Town(slow_disk=True)
    tokens = [town.commit_later(offset) for offset in range(3)]
    assert len(town.writes) == 3
    town.flush()
    assert all(not town.waits(token) for token in tokens)
    assert town.offset() == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DiskFullError("full"), CoordinatorNotAvailableError),
        (StorageError("EIO"), NotCoordinatorError),
        (MessageTooLargeError("large"), InvalidCommitOffsetSizeError),
        (PolicyViolationError("other"), PolicyViolationError),
    ],
)
def test_a_commit_that_cannot_be_stored_changes_nothing(error: LogboomError, told: type[LogboomError]) -> None:
    town = Town()
    town.commit(1)
    town.disk_error = error
    assert town.commit(2) is told
    assert town.commit(2, group_id="fresh") is told
    assert town.offset() == 1
    assert [group.group_id for group in town.coordinator.overview()] == [G]


def test_how_failures_of_the_disk_are_told() -> None:
    assert kind(metadata_store_error(MessageTooLargeError("x"))) is GroupTooLargeError
    assert kind(offset_store_error(MessageTooLargeError("x"))) is InvalidCommitOffsetSizeError


def test_limits_of_one_commit_are_told_for_each_partition() -> None:
    town = Town(GroupLimits(offset_metadata_bytes_max=4, group_offsets_max=2))
    assert town.commit(1, metadata="12345") is OffsetMetadataTooLargeError
    assert town.commit(1, metadata="1234") is None
    assert town.commit(1, stream="second") is None
    assert town.commit(1, stream="third") is InvalidCommitOffsetSizeError
    assert town.commit(2) is None


def test_offsets_are_deleted_unless_the_group_reads_the_stream() -> None:
    town = Town()
    (only,) = town.form(None)
    for stream in ("clicks", "old"):
        town.commit(5, stream=stream, member_id=only.member_id, generation=1)
    assert delete(town, "clicks", "old", "never") == [GroupSubscribedToStreamError, None, None]
    town.restart()
    assert (town.offset(), town.offset("old")) == (5, None)


def test_offsets_of_a_group_that_cannot_be_understood_are_not_deleted() -> None:
    town = Town()
    town.form(None, protocol_type="connect", protocols=(Protocol("v1", b""),))
    assert delete(town, "clicks") == [NonEmptyGroupError]
    town = Town()
    town.form(None, protocols=(Protocol("range", b"\0\0\xff"),))
    assert delete(town, "clicks") == [GroupSubscribedToStreamError]


def test_deleting_what_is_not_there() -> None:
    town = Town()
    assert delete(town, "clicks") == [GroupIdNotFoundError]
    assert town.delete_group() is GroupIdNotFoundError
    assert town.delete_group("") is InvalidGroupIdError
    town.commit(1)
    assert delete(town, "never") == [None]


def test_a_group_is_deleted_with_all_its_offsets_once_it_is_empty() -> None:
    town = Town()
    (only,) = town.form(None)
    town.commit(5, member_id=only.member_id, generation=1)
    assert town.delete_group() is NonEmptyGroupError
    town.leave(Leaver(only.member_id))
    assert town.delete_group() is None
    assert town.coordinator.describe(G) is None
    town.restart()
    assert town.coordinator.describe(G) is None


def test_a_group_whose_deletion_cannot_be_stored_is_back() -> None:
    town = Town()
    town.commit(5)
    town.slow_disk = True
    token = town.ask(DeleteGroup(group_id=G))
    waiting = town.commit_later(6)
    assert kind(town.answer(waiting, CommitReply).results[0]) is CoordinatorNotAvailableError
    assert town.coordinator.committed(G) == {}
    town.flush(StorageError("EIO"))
    assert kind(town.answer(token, DeleteGroupReply).error) is NotCoordinatorError
    town.slow_disk = False
    assert town.offset() == 5
    assert town.commit(7) is None


def test_a_deletion_takes_commits_along_that_are_under_way() -> None:
    town = Town(slow_disk=True)
    town.commit_later(5)
    token = town.ask(DeleteGroup(group_id=G))
    town.flush()
    assert kind(town.answer(token, DeleteGroupReply).error) is None
    assert replayed(town.log, town.limits, town.now).overview() == []


def test_offsets_of_deleted_streams_go_in_every_group() -> None:
    town = Town(slow_disk=True)
    town.commit_later(1)
    town.commit_later(2, stream="views")
    town.commit_later(3, group_id="other")
    town.play(StreamsDeleted(frozenset({"clicks"})))
    town.flush()
    town.restart()
    assert town.offset("views") == 2
    assert town.offset() is town.offset(group_id="other") is None


# --- retention (KIP-211) ----------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_go_when_it_has_not_committed_for_the_retention_time() -> None:
    town = Town()
    town.commit(1)
    town.sleep(4 * DAY_MS)
    town.commit(2, stream="views")
    town.sleep(3 * DAY_MS + HOUR_MS)
    assert (town.offset(), town.offset("views")) == (None, 2)
    town.sleep(4 * DAY_MS)
    assert town.coordinator.overview() == []
    assert replayed(town.log, town.limits, town.now).overview() == []


def test_offsets_of_a_group_with_members_stay_and_the_time_counts_from_when_it_was_left() -> None:
    town = Town()
    (only,) = town.form(None, session_ms=1_800_000)
    town.commit(1, member_id=only.member_id, generation=1)
    for _ in range(3 * 24 * 10):
        town.sleep(HOUR_MS // 3)
        assert town.heartbeat(only.member_id, 1) is None
    assert town.offset() == 1
    town.leave(Leaver(only.member_id))
    town.sleep(7 * DAY_MS - HOUR_MS)
    assert town.offset() == 1
    town.sleep(2 * HOUR_MS)
    assert town.coordinator.describe(G) is None


def test_offsets_of_streams_a_living_group_reads_no_more_go_after_the_retention_time() -> None:
    town = Town()
    (only,) = town.form(None, session_ms=1_800_000)
    for stream in ("clicks", "old"):
        town.commit(1, stream=stream, member_id=only.member_id, generation=1)
    for _ in range(3 * 24 * 7 + 3):
        town.sleep(HOUR_MS // 3)
        town.heartbeat(only.member_id, 1)
    assert (town.offset(), town.offset("old")) == (1, None)


def test_a_retention_time_named_with_the_commit_wins() -> None:
    town = Town()
    town.commit(1, retention_ms=HOUR_MS)
    town.commit(2, stream="views", retention_ms=30 * DAY_MS)
    town.restart()
    town.sleep(2 * HOUR_MS)
    assert (town.offset(), town.offset("views")) == (None, 2)
    town.sleep(20 * DAY_MS)
    assert town.offset("views") == 2


def test_an_empty_group_without_offsets_goes_at_the_next_check() -> None:
    town = Town()
    (only,) = town.form(None)
    town.leave(Leaver(only.member_id))
    town.sleep(HOUR_MS)
    assert town.coordinator.describe(G) is None
