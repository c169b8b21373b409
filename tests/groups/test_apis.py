"""The APIs of groups at every version that is advertised, against a broker, by kio's own reader and writer."""

from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.groups.harness import subscription
from tests.kafka.door import Client, Running, running
from tests.support.simulated import run

from logboom.base.errors import LogboomError
from logboom.groups.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError
from logboom.kafka.apis import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from logboom.kafka.wire.messages import make, milliseconds, nested

NONE = ErrorCode.none
QUICK = {"groups": {"initial_rebalance_delay_ms": 0}}
METADATA = subscription("clicks")


def versions(handler: Any) -> range:
    return range(handler.min_version, handler.max_version + 1)


async def join(client: Client, version: int = 9, group: str = "g", **fields: Any) -> Any:
    """Join, twice where an id is required first."""
    protocol = nested(load_request_schema(11, version), "protocols")
    asked = {
        "group_id": group,
        "session_timeout": milliseconds(30_000),
        "rebalance_timeout": milliseconds(60_000),
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": (make(protocol, name="range", metadata=METADATA),),
        "reason": None,
    } | fields
    reply = await client.ask(11, version, **asked)
    if reply.error_code is ErrorCode.member_id_required:
        assert version >= 4
        reply = await client.ask(11, version, **(asked | {"member_id": reply.member_id}))
    return reply


async def sync(client: Client, joined: Any, version: int = 5, **fields: Any) -> Any:
    """Sync as the only member."""
    one = nested(load_request_schema(14, version), "assignments")
    asked = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": (make(one, member_id=joined.member_id, assignment=b"mine"),),
    } | fields
    return await client.ask(14, version, **asked)


async def formed(client: Client, **fields: Any) -> Any:
    """A stable group "g" of one member."""
    joined = await join(client, **fields)
    assert (await sync(client, joined, group_instance_id=fields.get("group_instance_id"))).error_code is NONE
    return joined


async def commit(node: Running, client: Client, version: int = 9, *, offset: int = 7, **fields: Any) -> list[Any]:
    """Commit `offset` of clicks 0 and of clicks 9, which does not exist; the error codes."""
    cls = load_request_schema(8, version)
    topic, part = nested(cls, "topics"), nested(cls, "topics", "partitions")
    parts = tuple(
        make(part, partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata="note")
        for index in (0, 9)
    )
    stream = node.broker.catalog.stream("clicks")
    named = {"name": "clicks"} if version < 10 else {"topic_id": uuid4() if stream is None else stream.id}
    asked = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": milliseconds(-1),
        "topics": (make(topic, **named, partitions=parts),),
    } | fields
    reply = await client.ask(8, version, **asked)
    return [part.error_code for topic in reply.topics for part in topic.partitions]


async def offsets(node: Running, client: Client, version: int, *, everything: bool = False) -> Any:
    """The answer's part about group "g"."""
    cls = load_request_schema(9, version)
    stream = node.broker.catalog.stream("clicks")
    named = {"name": "clicks"} if version < 10 else {"topic_id": uuid4() if stream is None else stream.id}
    if version >= 8:
        group = nested(cls, "groups")
        topics = (make(nested(cls, "groups", "topics"), **named, partition_indexes=(0, 1)),)
        one = make(group, group_id="g", member_id=None, member_epoch=-1, topics=None if everything else topics)
        reply = await client.ask(9, version, groups=(one,), require_stable=True)
        assert [found.group_id for found in reply.groups] == ["g"]
        return reply.groups[0]
    topics = (make(nested(cls, "topics"), **named, partition_indexes=(0, 1)),)
    return await client.ask(9, version, group_id="g", topics=None if everything else topics, require_stable=True)


# --- FindCoordinator ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(find_coordinator.HANDLER))
def test_find_coordinator(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            reply = await client.ask(10, version, key="g", key_type=0, coordinator_keys=("g", "h"))
            found = reply.coordinators if version >= 4 else (reply,)
            assert len(found) == (2 if version >= 4 else 1)
            for one in found:
                assert (one.error_code, one.node_id, one.host, one.port) == (NONE, 1, *node.address)
            if version >= 1:
                reply = await client.ask(10, version, key="t", key_type=1, coordinator_keys=("t",))
                one = reply.coordinators[0] if version >= 4 else reply
                assert one.error_code is ErrorCode.transactional_id_authorization_failed
                assert "does not serve transactions" in one.error_message
                reply = await client.ask(10, version, key="s", key_type=2, coordinator_keys=("s",))
                one = reply.coordinators[0] if version >= 4 else reply
                assert one.error_code is ErrorCode.invalid_request
                assert "coordinator type 2 is not served" in one.error_message

    run(body)


# --- members --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(join_group.HANDLER))
def test_join_group(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            reply = await join(client, version)
            assert (reply.error_code, reply.generation_id, reply.protocol_name) == (NONE, 1, "range")
            assert reply.leader == reply.member_id
            assert reply.member_id.startswith("test-")
            assert [(member.member_id, member.metadata) for member in reply.members] == [(reply.member_id, METADATA)]
            if version >= 7:
                assert reply.protocol_type == "consumer"
            refused = await join(client, version, session_timeout=milliseconds(1))
            assert refused.error_code is ErrorCode.invalid_session_timeout
            assert (await join(client, version, group="")).error_code is ErrorCode.invalid_group_id
            unknown = await join(client, version, member_id="nobody")
            assert unknown.error_code is ErrorCode.unknown_member_id

    run(body)


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_comes_back(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            first = await formed(client, version=version, group_instance_id="i")
            again = await join(client, version, group_instance_id="i")
            assert (again.error_code, again.generation_id) == (NONE, 1)
            assert again.member_id != first.member_id
            if version >= 9:
                assert again.skip_assignment
                assert [member.group_instance_id for member in again.members] == ["i"]
            else:
                assert again.leader != again.member_id
            fenced = await client.ask(
                12, 3, group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="i"
            )
            assert fenced.error_code is ErrorCode.fenced_instance_id

    run(body)


@pytest.mark.parametrize("version", versions(sync_group.HANDLER))
def test_sync_group(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            joined = await join(client)
            reply = await sync(client, joined, version)
            assert (reply.error_code, reply.assignment) == (NONE, b"mine")
            if version >= 5:
                assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
                other = await sync(client, joined, version, protocol_name="sticky")
                assert other.error_code is ErrorCode.inconsistent_group_protocol
            stale = await sync(client, joined, version, generation_id=0)
            assert (stale.error_code, stale.assignment) == (ErrorCode.illegal_generation, b"")

    run(body)


@pytest.mark.parametrize("version", versions(heartbeat.HANDLER))
def test_heartbeat(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            joined = await formed(client)
            asked = {"group_id": "g", "generation_id": 1, "group_instance_id": None}
            assert (await client.ask(12, version, member_id=joined.member_id, **asked)).error_code is NONE
            unknown = await client.ask(12, version, member_id="nobody", **asked)
            assert unknown.error_code is ErrorCode.unknown_member_id

    run(body)


@pytest.mark.parametrize("version", versions(leave_group.HANDLER))
def test_leave_group(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            joined = await formed(client)
            ids = (joined.member_id, "nobody")
            members: tuple[Any, ...] = ()
            if version >= 3:
                one = nested(load_request_schema(13, version), "members")
                members = tuple(make(one, member_id=i, group_instance_id=None, reason="done") for i in ids)
            replies = [
                await client.ask(13, version, group_id="g", member_id=member_id, members=members)
                for member_id in (ids if version < 3 else ids[:1])
            ]
            codes = [r.error_code for r in replies] if version < 3 else [m.error_code for m in replies[0].members]
            assert codes == [NONE, ErrorCode.unknown_member_id]
            invalid = await client.ask(13, version, group_id="", member_id="m", members=members)
            assert invalid.error_code is ErrorCode.invalid_group_id

    run(body)


# --- offsets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(offset_commit.HANDLER))
def test_offset_commit(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            unknown = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition
            assert await commit(node, client, version) == [unknown, unknown]
            await node.broker.catalog.create_stream("clicks", partitions=2)
            assert await commit(node, client, version) == [NONE, ErrorCode.unknown_topic_or_partition]
            value = node.broker.groups.committed("g")["clicks", 0]
            assert (value.offset, value.metadata) == (7, "note")
            assert value.leader_epoch == (3 if version >= 6 else -1)
            missing = await commit(node, client, version, group_id="h", generation_id_or_member_epoch=1, member_id="m")
            assert missing[0] is (ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation)
            joined = await formed(client)
            assert (await commit(node, client, version))[0] is ErrorCode.unknown_member_id
            mine = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
            assert (await commit(node, client, version, offset=9, **mine))[0] is NONE

    run(body)


@pytest.mark.parametrize("version", versions(offset_fetch.HANDLER))
def test_offset_fetch(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            nothing = await offsets(node, client, version)
            expected = ErrorCode.unknown_topic_id if version >= 10 else NONE
            assert {(p.committed_offset, p.error_code) for p in nothing.topics[0].partitions} == {(-1, expected)}
            await node.broker.catalog.create_stream("clicks", partitions=2)
            await commit(node, client)
            for everything in (False, True) if version >= 2 else (False,):
                found = await offsets(node, client, version, everything=everything)
                (topic,) = found.topics
                stream = node.broker.catalog.stream("clicks")
                assert stream is not None
                assert topic.topic_id == stream.id if version >= 10 else topic.name == "clicks"
                parts = [(p.partition_index, p.committed_offset, p.metadata) for p in topic.partitions]
                assert parts == [(0, 7, "note")] if everything else parts == [(0, 7, "note"), (1, -1, "")]
                if version >= 5:
                    assert topic.partitions[0].committed_leader_epoch == 3
            if version >= 2:
                assert found.error_code is NONE

    run(body)


@pytest.mark.parametrize("version", versions(offset_fetch.HANDLER))
@pytest.mark.parametrize(
    ("error", "code", "of_partitions"),
    [
        (CoordinatorLoadInProgressError("soon"), *[ErrorCode.coordinator_load_in_progress] * 2),
        (CoordinatorNotAvailableError("no lease"), ErrorCode.coordinator_not_available, ErrorCode.not_coordinator),
        (NotCoordinatorError("elsewhere"), *[ErrorCode.not_coordinator] * 2),
    ],
)
def test_an_offset_fetch_that_is_refused_is_not_taken_for_no_offsets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    error: LogboomError,
    code: ErrorCode,
    of_partitions: ErrorCode,
) -> None:
    """aiokafka asks in version 3 and looks at the errors of partitions alone; others look at the group's."""

    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await node.broker.catalog.create_stream("clicks", partitions=2)
            await commit(node, client)

            def refuse(group: str) -> NoReturn:
                raise error

            monkeypatch.setattr(node.broker.groups, "committed", refuse)
            found = await offsets(node, client, version)
            if version >= 2:
                assert found.error_code is code
            codes = [part.error_code for topic in found.topics for part in topic.partitions]
            assert codes == ([] if version >= 4 else [of_partitions if version >= 2 else code] * 2)

    run(body)


@pytest.mark.parametrize("version", versions(offset_delete.HANDLER))
def test_offset_delete(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            cls = load_request_schema(47, version)
            part = make(nested(cls, "topics", "partitions"), partition_index=0)
            topics = tuple(
                make(nested(cls, "topics"), name=name, partitions=(part,)) for name in ("clicks", "old", "none")
            )
            missing = await client.ask(47, version, group_id="g", topics=topics)
            assert missing.error_code is ErrorCode.group_id_not_found
            for name in ("clicks", "old"):
                await node.broker.catalog.create_stream(name)
            await formed(client)
            reply = await client.ask(47, version, group_id="g", topics=topics)
            assert reply.error_code is NONE
            assert [(topic.name, topic.partitions[0].error_code) for topic in reply.topics] == [
                ("clicks", ErrorCode.group_subscribed_to_topic),
                ("old", NONE),
                ("none", ErrorCode.unknown_topic_or_partition),
            ]

    run(body)


# --- tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(list_groups.HANDLER))
def test_list_groups(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await node.broker.catalog.create_stream("clicks")
            await formed(client)
            await commit(node, client, group_id="simple")

            async def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[Any]:
                reply = await client.ask(16, version, states_filter=states, types_filter=types)
                assert reply.error_code is NONE
                return sorted(reply.groups, key=lambda group: str(group.group_id))

            assert [(group.group_id, group.protocol_type) for group in await listed()] == [
                ("g", "consumer"),
                ("simple", ""),
            ]
            if version >= 4:
                assert [(g.group_id, g.group_state) for g in await listed(("stable",))] == [("g", "Stable")]
            if version >= 5:
                assert {g.group_type for g in await listed(types=("Classic",))} == {"classic"}
                assert await listed(types=("consumer",)) == []

    run(body)


@pytest.mark.parametrize("version", versions(describe_groups.HANDLER))
def test_describe_groups(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            joined = await formed(client, group_instance_id="i")
            reply = await client.ask(15, version, groups=("g", "none"), include_authorized_operations=True)
            group, missing = reply.groups
            assert (group.error_code, group.group_state) == (NONE, "Stable")
            assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
            (member,) = group.members
            assert (member.member_id, member.client_id) == (joined.member_id, "test")
            assert (member.client_host, member.member_metadata) == ("/127.0.0.1", METADATA)
            assert member.member_assignment == b"mine"
            if version >= 3:
                assert group.authorized_operations == 3_400
            if version >= 4:
                assert member.group_instance_id == "i"
            assert missing.group_state == "Dead"
            assert missing.error_code is (ErrorCode.group_id_not_found if version >= 6 else NONE)

    run(body)


@pytest.mark.parametrize("version", versions(delete_groups.HANDLER))
def test_delete_groups(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path, **QUICK) as node, node.client() as client:
            await node.broker.catalog.create_stream("clicks")
            await formed(client)
            await commit(node, client, group_id="simple")
            reply = await client.ask(42, version, groups_names=("g", "simple", "none", ""))
            assert [(result.group_id, result.error_code) for result in reply.results] == [
                ("g", ErrorCode.non_empty_group),
                ("simple", NONE),
                ("none", ErrorCode.group_id_not_found),
                ("", ErrorCode.invalid_group_id),
            ]
            assert node.broker.groups.describe("simple") is None

    run(body)
