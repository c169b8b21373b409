"""Members that lie and commits that cannot be: each is told Kafka's error; an honest member beside them works on."""

from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.attack import unharmed
from tests.kafka.door import Client, Running
from tests.support.simulated import run

from logboom.kafka.wire.messages import make, milliseconds, nested

SUBSCRIPTION = bytes.fromhex("0000 0000 0001 0001") + b"s" + bytes.fromhex("ffffffff")
ASSIGNMENT = bytes.fromhex("0000 0000 0001 0001") + b"s" + bytes.fromhex("0000 0001 0000 0000 ffffffff")

AT_ONCE = {"initial_rebalance_delay_ms": 0}


def joining(
    member: str = "",
    *,
    group: str = "g",
    kind: str = "consumer",
    protocols: Any = None,
    session_ms: int = 10_000,
    rebalance_ms: int = 1_000,
) -> Any:
    """A JoinGroup of version 3, which gives a member its id at once."""
    cls = load_request_schema(11, 3)
    protocol = nested(cls, "protocols")
    named = (("range", SUBSCRIPTION),) if protocols is None else protocols
    return make(
        cls,
        group_id=group,
        session_timeout=milliseconds(session_ms),
        rebalance_timeout=milliseconds(rebalance_ms),
        member_id=member,
        protocol_type=kind,
        protocols=tuple(make(protocol, name=name, metadata=data) for name, data in named),
    )


async def ask(client: Client, api_key: int, version: int, entity: Any) -> Any:
    client.send(api_key, version, entity)
    return await client.reply()


async def sync(client: Client, member: str, generation: int, assignments: Any, group: str = "g") -> Any:
    cls = load_request_schema(14, 3)
    one = nested(cls, "assignments")
    named = tuple(make(one, member_id=name, assignment=data) for name, data in assignments)
    return await client.ask(
        14,
        3,
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=None,
        assignments=named,
    )


async def beat(client: Client, member: str, generation: int, group: str = "g") -> ErrorCode:
    reply = await client.ask(12, 1, group_id=group, generation_id=generation, member_id=member)
    code: ErrorCode = reply.error_code
    return code


class Honest:
    """A member alone in its group, with an assignment."""

    def __init__(self, client: Client, member: str, generation: int) -> None:
        self.client, self.member, self.generation = client, member, generation

    @classmethod
    async def joined(cls, client: Client) -> "Honest":
        reply = await ask(client, 11, 3, joining())
        assert reply.error_code is ErrorCode.none
        one = cls(client, reply.member_id, reply.generation_id)
        synced = await sync(client, one.member, one.generation, ((one.member, ASSIGNMENT),))
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, ASSIGNMENT)
        return one

    async def works(self) -> bool:
        """Whether it is in its generation and commits."""
        (committed,) = await commit(self.client, ("s", 0, 5, "note"), member=self.member, generation=self.generation)
        return (await beat(self.client, self.member, self.generation), committed) == (ErrorCode.none,) * 2


async def commit(
    client: Client, *offsets: tuple[str, int, int, str | None], group: str = "g", member: str = "", generation: int = -1
) -> list[ErrorCode]:
    """An OffsetCommit of version 6: (stream, partition, offset, note) each; the codes."""
    cls = load_request_schema(8, 6)
    topic, part = nested(cls, "topics"), nested(cls, "topics", "partitions")
    topics = tuple(
        make(
            topic,
            name=name,
            partitions=(
                make(
                    part,
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    committed_metadata=note,
                ),
            ),
        )
        for name, index, offset, note in offsets
    )
    reply = await client.ask(
        8, 6, group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=topics
    )
    return [part.error_code for topic in reply.topics for part in topic.partitions]


async def committed(client: Client, group: str = "g") -> dict[tuple[str, int], int]:
    """All offsets of a group."""
    reply = await client.ask(9, 5, group_id=group, topics=None)
    return {
        (topic.name, part.partition_index): part.committed_offset for topic in reply.topics for part in topic.partitions
    }


LIES: dict[str, tuple[Any, ErrorCode]] = {
    "no protocol": (joining(protocols=()), ErrorCode.inconsistent_group_protocol),
    "no kind": (joining(kind=""), ErrorCode.inconsistent_group_protocol),
    "another kind": (joining(kind="connect"), ErrorCode.inconsistent_group_protocol),
    "a protocol nobody has": (joining(protocols=(("alien", b""),)), ErrorCode.inconsistent_group_protocol),
    "a member nobody knows": (joining("nobody"), ErrorCode.unknown_member_id),
    "a member with a name of 30 KB": (joining("x" * 30_000), ErrorCode.unknown_member_id),
    "no group": (joining(group=""), ErrorCode.invalid_group_id),
    "a group with a name of 30 KB": (joining(group="x" * 30_000), ErrorCode.invalid_group_id),
    "a session of a millisecond": (joining(session_ms=1), ErrorCode.invalid_session_timeout),
    "a session of weeks": (joining(session_ms=2**31 - 1), ErrorCode.invalid_session_timeout),
    "a negative session": (joining(session_ms=-1), ErrorCode.invalid_session_timeout),
    "a megabyte about itself": (joining(protocols=(("range", bytes(1 << 20)),)), ErrorCode.policy_violation),
}


async def with_honest(node: Running, client: Client) -> Honest:
    await node.broker.catalog.create_stream("s")
    return await Honest.joined(client)


def test_an_invalid_member_is_refused_and_the_group_goes_on(
    tmp_path: Path, warnings_logged: list[dict[str, Any]]
) -> None:
    async def body() -> None:
        async with (
            unharmed(tmp_path, warnings_logged, groups=AT_ONCE) as node,
            node.client() as client,
            node.client() as liar,
        ):
            honest = await with_honest(node, client)
            for lie, (request, code) in LIES.items():
                reply = await ask(liar, 11, 3, request)
                assert (reply.error_code, reply.members) == (code, ()), lie
                assert await honest.works(), lie

    run(body)


def test_an_unknown_member_changes_nothing(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    async def body() -> None:
        async with (
            unharmed(tmp_path, warnings_logged, groups=AT_ONCE) as node,
            node.client() as client,
            node.client() as liar,
        ):
            honest = await with_honest(node, client)
            unknown, stale = ErrorCode.unknown_member_id, ErrorCode.illegal_generation
            now = honest.generation
            for member, generation, code in (
                ("nobody", now, unknown),
                ("", now, unknown),
                (honest.member, now - 1, stale),
                (honest.member, now + 1, stale),
                (honest.member, -1, stale),
                (honest.member, 2**31 - 1, stale),
            ):
                assert await beat(liar, member, generation) is code
                assert (await sync(liar, member, generation, ((honest.member, b"mine"),))).error_code is code
                assert await commit(liar, ("s", 0, 99, ""), member=member, generation=generation) == [code]
            # A lone committer without a generation is a simple consumer, and the group is not empty.
            assert await commit(liar, ("s", 0, 99, "")) == [unknown]
            assert await committed(client) == {}
            assert await honest.works()
            assert await committed(client) == {("s", 0): 5}

    run(body)


def test_assignments_to_others_and_of_garbage_stay_where_they_are(
    tmp_path: Path, warnings_logged: list[dict[str, Any]]
) -> None:
    """The leader names members that are not there and gives bytes that mean nothing: the group's own affair."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged, groups=AT_ONCE) as node, node.client() as client:
            garbage = b"\xff" * 1_000
            for number, data in enumerate((b"", b"\x7f\xff\xff\xff", garbage, SUBSCRIPTION[:7])):
                group = f"group{number}"
                reply = await ask(client, 11, 3, joining(group=group, protocols=(("range", data), ("range", b""))))
                assert reply.error_code is ErrorCode.none
                named = ((reply.member_id, garbage), ("nobody", garbage), ("nobody", b""), ("", b""))
                synced = await sync(client, reply.member_id, reply.generation_id, named, group)
                assert (synced.error_code, synced.assignment) == (ErrorCode.none, garbage)
                described = (await client.ask(15, 4, groups=(group,), include_authorized_operations=False)).groups
                assert [member.member_assignment for member in described[0].members] == [garbage]
                left = await client.ask(13, 1, group_id=group, member_id=reply.member_id)
                assert left.error_code is ErrorCode.none

    run(body)


def test_commits_that_cannot_be_are_refused_one_by_one(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged, groups=AT_ONCE) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", partitions=2)
            unknown, large = ErrorCode.unknown_topic_or_partition, ErrorCode.offset_metadata_too_large
            codes = await commit(
                client,
                *(("nowhere", 0, 1, ""), ("..", 0, 1, ""), ("s", 2, 1, ""), ("s", -1, 1, ""), ("s", 2**31 - 1, 1, "")),
                *(("s", 0, 1, "x" * 4_097), ("s", 0, 1, "ż" * 2_049), ("s", 0, 1, "x" * 30_000)),
                *(("s", 0, 7, "x" * 4_096), ("s", 1, 2**63 - 1, None)),
            )
            assert codes == [unknown] * 5 + [large] * 3 + [ErrorCode.none] * 2
            assert await committed(client) == {("s", 0): 7, ("s", 1): 2**63 - 1}

    run(body)


@pytest.mark.parametrize("group", ["", "x" * 1_025])
def test_a_group_without_a_proper_name_holds_nothing(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], group: str
) -> None:
    """Kafka lets simple consumers commit to the group without a name; nobody joins it."""

    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged, groups=AT_ONCE) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            expected = ErrorCode.none if group == "" else ErrorCode.invalid_group_id
            assert await commit(client, ("s", 0, 1, ""), group=group) == [expected]
            assert (await ask(client, 11, 3, joining(group=group))).error_code is ErrorCode.invalid_group_id

    run(body)
