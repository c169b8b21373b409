"""Scenes of committed offsets: who may commit, what is deleted and when, what the log says afterwards."""

import pytest
from tests.groups.harness import G, Harness, kind, replayed

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


def delete(harness: Harness, *streams: str) -> list[type[LogboomError] | None]:
    token = harness.ask(DeleteOffsets(group_id=G, partitions=tuple((stream, 0) for stream in streams)))
    reply = harness.answer(token, DeleteOffsetsReply)
    return [kind(reply.error)] if reply.error else [kind(error) for error in reply.results]


def test_a_simple_consumer_commits_without_a_group() -> None:
    harness = Harness()
    assert harness.commit(42, metadata="note") is None
    value = harness.coordinator.committed(G)[("clicks", 0)]
    assert (value.offset, value.leader_epoch, value.metadata) == (42, 3, "note")
    assert harness.commit(1, group_id="") is None, "the empty id is for simple consumers"
    harness.restart()
    assert harness.offset() == 42
    assert harness.state == "Empty"


def test_members_commit_and_others_do_not() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    assert harness.commit(1, member_id=only.member_id, generation=1) is None
    assert harness.commit(2, member_id=only.member_id, generation=0) is IllegalGenerationError
    assert harness.commit(2, member_id="nobody", generation=1) is UnknownMemberError
    assert harness.commit(2) is UnknownMemberError
    assert harness.commit(2, generation=3, member_id="m", group_id="none") is IllegalGenerationError
    later = harness.commit(2, generation=3, member_id="m", group_id="none", tells_missing_group=True)
    assert later is GroupIdNotFoundError
    assert harness.commit(2, group_id="x" * 5_000) is InvalidGroupIdError
    assert harness.offset() == 1


def test_a_commit_in_the_sync_phase_is_told_of_the_rebalance_and_one_in_the_join_phase_is_taken() -> None:
    harness = Harness()
    first, second = harness.form(None, None)
    harness.join(first.member_id)
    assert harness.commit(5, member_id=second.member_id, generation=1) is None
    reply = harness.joined(harness.join(second.member_id))
    assert harness.commit(6, member_id=second.member_id, generation=reply.generation) is RebalanceInProgressError


def test_a_commit_counts_only_once_it_is_stored() -> None:
    harness = Harness(slow_disk=True)
    token = harness.commit_later(5)
    assert harness.waits(token)
    assert harness.offset() is None
    harness.flush()
    assert harness.offset() == 5


def test_commits_of_one_group_go_to_the_disk_together_and_in_order() -> None:
    harness = Harness(slow_disk=True)
    tokens = [harness.commit_later(offset) for offset in range(3)]
    assert len(harness.writes) == 3
    harness.flush()
    assert all(not harness.waits(token) for token in tokens)
    assert harness.offset() == 2


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
    harness = Harness()
    harness.commit(1)
    harness.disk_error = error
    assert harness.commit(2) is told
    assert harness.commit(2, group_id="fresh") is told
    assert harness.offset() == 1
    assert [group.group_id for group in harness.coordinator.overview()] == [G]


def test_how_failures_of_the_disk_are_told() -> None:
    assert kind(metadata_store_error(MessageTooLargeError("x"))) is GroupTooLargeError
    assert kind(offset_store_error(MessageTooLargeError("x"))) is InvalidCommitOffsetSizeError


def test_limits_of_one_commit_are_told_for_each_partition() -> None:
    harness = Harness(GroupLimits(offset_metadata_bytes_max=4, group_offsets_max=2))
    assert harness.commit(1, metadata="12345") is OffsetMetadataTooLargeError
    assert harness.commit(1, metadata="1234") is None
    assert harness.commit(1, stream="second") is None
    assert harness.commit(1, stream="third") is InvalidCommitOffsetSizeError
    assert harness.commit(2) is None


def test_offsets_are_deleted_unless_the_group_reads_the_stream() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    for stream in ("clicks", "old"):
        harness.commit(5, stream=stream, member_id=only.member_id, generation=1)
    assert delete(harness, "clicks", "old", "never") == [GroupSubscribedToStreamError, None, None]
    harness.restart()
    assert (harness.offset(), harness.offset("old")) == (5, None)


def test_offsets_of_a_group_that_cannot_be_understood_are_not_deleted() -> None:
    harness = Harness()
    harness.form(None, protocol_type="connect", protocols=(Protocol("v1", b""),))
    assert delete(harness, "clicks") == [NonEmptyGroupError]
    harness = Harness()
    harness.form(None, protocols=(Protocol("range", b"\0\0\xff"),))
    assert delete(harness, "clicks") == [GroupSubscribedToStreamError]


def test_deleting_what_is_not_there() -> None:
    harness = Harness()
    assert delete(harness, "clicks") == [GroupIdNotFoundError]
    assert harness.delete_group() is GroupIdNotFoundError
    assert harness.delete_group("") is InvalidGroupIdError
    harness.commit(1)
    assert delete(harness, "never") == [None]


def test_a_group_is_deleted_with_all_its_offsets_once_it_is_empty() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    harness.commit(5, member_id=only.member_id, generation=1)
    assert harness.delete_group() is NonEmptyGroupError
    harness.leave(Leaver(only.member_id))
    assert harness.delete_group() is None
    assert harness.coordinator.describe(G) is None
    harness.restart()
    assert harness.coordinator.describe(G) is None


def test_a_group_whose_deletion_cannot_be_stored_is_back() -> None:
    harness = Harness()
    harness.commit(5)
    harness.slow_disk = True
    token = harness.ask(DeleteGroup(group_id=G))
    waiting = harness.commit_later(6)
    assert kind(harness.answer(waiting, CommitReply).results[0]) is CoordinatorNotAvailableError
    assert harness.coordinator.committed(G) == {}
    harness.flush(StorageError("EIO"))
    assert kind(harness.answer(token, DeleteGroupReply).error) is NotCoordinatorError
    harness.slow_disk = False
    assert harness.offset() == 5
    assert harness.commit(7) is None


def test_a_deletion_takes_commits_along_that_are_under_way() -> None:
    harness = Harness(slow_disk=True)
    harness.commit_later(5)
    token = harness.ask(DeleteGroup(group_id=G))
    harness.flush()
    assert kind(harness.answer(token, DeleteGroupReply).error) is None
    assert replayed(harness.log, harness.limits, harness.now).overview() == []


def test_offsets_of_deleted_streams_go_in_every_group() -> None:
    harness = Harness(slow_disk=True)
    harness.commit_later(1)
    harness.commit_later(2, stream="views")
    harness.commit_later(3, group_id="other")
    harness.play(StreamsDeleted(frozenset({"clicks"})))
    harness.flush()
    harness.restart()
    assert harness.offset("views") == 2
    assert harness.offset() is harness.offset(group_id="other") is None


# --- retention (KIP-211) ----------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_go_when_it_has_not_committed_for_the_retention_time() -> None:
    harness = Harness()
    harness.commit(1)
    harness.sleep(4 * DAY_MS)
    harness.commit(2, stream="views")
    harness.sleep(3 * DAY_MS + HOUR_MS)
    assert (harness.offset(), harness.offset("views")) == (None, 2)
    harness.sleep(4 * DAY_MS)
    assert harness.coordinator.overview() == []
    assert replayed(harness.log, harness.limits, harness.now).overview() == []


def test_offsets_of_a_group_with_members_stay_and_the_time_counts_from_when_it_was_left() -> None:
    harness = Harness()
    (only,) = harness.form(None, session_ms=1_800_000)
    harness.commit(1, member_id=only.member_id, generation=1)
    for _ in range(3 * 24 * 10):
        harness.sleep(HOUR_MS // 3)
        assert harness.heartbeat(only.member_id, 1) is None
    assert harness.offset() == 1
    harness.leave(Leaver(only.member_id))
    harness.sleep(7 * DAY_MS - HOUR_MS)
    assert harness.offset() == 1
    harness.sleep(2 * HOUR_MS)
    assert harness.coordinator.describe(G) is None


def test_offsets_of_streams_a_living_group_reads_no_more_go_after_the_retention_time() -> None:
    harness = Harness()
    (only,) = harness.form(None, session_ms=1_800_000)
    for stream in ("clicks", "old"):
        harness.commit(1, stream=stream, member_id=only.member_id, generation=1)
    for _ in range(3 * 24 * 7 + 3):
        harness.sleep(HOUR_MS // 3)
        harness.heartbeat(only.member_id, 1)
    assert (harness.offset(), harness.offset("old")) == (1, None)


def test_a_retention_time_named_with_the_commit_wins() -> None:
    harness = Harness()
    harness.commit(1, retention_ms=HOUR_MS)
    harness.commit(2, stream="views", retention_ms=30 * DAY_MS)
    harness.restart()
    harness.sleep(2 * HOUR_MS)
    assert (harness.offset(), harness.offset("views")) == (None, 2)
    harness.sleep(20 * DAY_MS)
    assert harness.offset("views") == 2


def test_an_empty_group_without_offsets_goes_at_the_next_check() -> None:
    harness = Harness()
    (only,) = harness.form(None)
    harness.leave(Leaver(only.member_id))
    harness.sleep(HOUR_MS)
    assert harness.coordinator.describe(G) is None
