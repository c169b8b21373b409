"""Names that no stream may have, asked for in every way there is: refused, and no file comes to be anywhere."""

from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.attack import answered, good, unharmed
from tests.kafka.door import Client, Running
from tests.kafka.door import run as run_on_sockets
from tests.kafka.test_hot_apis import fetch_request
from tests.support.simulated import machine, run

from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.sim.disk import SimDisk

NAMES = {
    "empty": ("", "needs a name"),
    "dot": (".", "cannot be named"),
    "dots": ("..", "cannot be named"),
    "250 characters": ("x" * 250, "250 characters long"),
    "30,000 characters": ("x" * 30_000, "30000 characters long"),
    "NUL": ("a\0b", "characters other than"),
    "a slash": ("../../etc/cron.d/x", "characters other than"),
    "a backslash": ("a\\b", "characters other than"),
    "a newline": ("a\nb", "characters other than"),
    "a newline at its end": ("ab\n", "characters other than"),
    "not ASCII": ("strömung", "characters other than"),
    "a space": ("a b", "characters other than"),
    "collides": ("a_b", "collides with 'a.b'"),
    "collides twice": ("c-d.e_f", "collides with 'c-d_e.f'"),
    "internal": ("__transaction_state", "Logboom's own"),
    "internal and there": ("__consumer_offsets", "Logboom's own"),
    "the log of the metadata": ("__cluster_metadata", "Logboom's own"),
}
THERE = ("a.b", "c-d_e.f")


def create(version: int, name: str, **fields: Any) -> Any:
    cls = load_request_schema(19, version)
    values = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": (), **fields}
    topic = make(nested(cls, "topics"), name=name, **values)
    return make(cls, topics=(topic,), timeout=milliseconds(10_000), validate_only=False)


def metadata(version: int, name: str) -> Any:
    cls = load_request_schema(3, version)
    return make(
        cls,
        topics=(make(nested(cls, "topics"), name=name, topic_id=None),),
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


async def ask(client: Client, api_key: int, version: int, entity: Any) -> Any:
    client.send(api_key, version, entity)
    return await client.reply()


def files(node: Running) -> set[str]:
    """Everything in the data directory; on a real disk, everything beside it too."""
    data_dir = node.broker.config.data_dir
    disk = machine()[1](str(data_dir))
    if isinstance(disk, SimDisk):
        return {*disk.nodes, *disk.directories}
    return {str(path) for path in data_dir.parent.rglob("*")}


async def refused_everywhere(path: Path, warnings_logged: list[dict[str, Any]], case: str) -> None:
    name, why = NAMES[case]
    async with unharmed(path, warnings_logged) as node, node.client() as client:
        for there in THERE:
            await node.broker.catalog.create_stream(there)
        before = files(node)
        (topic,) = (await ask(client, 19, 5, create(5, name))).topics
        assert topic.error_code is ErrorCode.invalid_topic_exception
        assert why in topic.error_message
        for version in (1, 9, 12):
            (found,) = (await ask(client, 3, version, metadata(version, name))).topics
            internal = name == "__consumer_offsets"  # which is there, and may be looked at
            assert found.error_code is (ErrorCode.none if internal else ErrorCode.invalid_topic_exception)
            assert found.name == name
        named: Any = type("Named", (), {"name": name, "id": None})
        part = await answered(client, named, good())
        refused = ErrorCode.invalid_topic_exception if internal else ErrorCode.unknown_topic_or_partition
        assert part.error_code is refused
        if not internal:
            client.send(1, 12, fetch_request(12, named, {0: 0}))
            (fetched,) = (await client.reply()).responses[0].partitions
            assert fetched.error_code is ErrorCode.unknown_topic_or_partition
        deleted = await client.ask(20, 5, topic_names=(name,), timeout=milliseconds(10_000))
        assert deleted.responses[0].error_code is not ErrorCode.none
        assert files(node) == before


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_cannot_be_is_refused_everywhere(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], case: str
) -> None:
    """`refused_everywhere` asserts the error of each API, and that no stream or file was made."""
    run(lambda: refused_everywhere(tmp_path, warnings_logged, case))


@pytest.mark.parametrize("case", ["dots", "a slash"])
def test_a_name_that_is_a_path_leads_nowhere_on_a_real_disk(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], case: str
) -> None:
    """On the real file system, which alone knows where `..` leads."""
    run_on_sockets(lambda: refused_everywhere(tmp_path, warnings_logged, case))


def test_names_at_the_edge_are_taken(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            for name in ("x" * 249, "...", "_", "-", "_private", "a.b-c_D9"):
                (topic,) = (await ask(client, 19, 5, create(5, name))).topics
                assert topic.error_code is ErrorCode.none, name
                stream = node.broker.catalog.stream(name)
                assert stream is not None
                assert (await answered(client, stream, good())).error_code is ErrorCode.none

    run(body)


def test_one_name_twice_in_a_request_is_created_not_once(tmp_path: Path, warnings_logged: list[dict[str, Any]]) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            one = create(5, "twice")
            both = make(type(one), topics=one.topics * 2, timeout=milliseconds(10_000), validate_only=False)
            reply = await ask(client, 19, 5, both)
            assert [topic.error_code for topic in reply.topics] == [ErrorCode.invalid_request]
            assert node.broker.catalog.stream("twice") is None

    run(body)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        ({"num_partitions": -2}, ErrorCode.invalid_partitions),
        ({"num_partitions": 2**31 - 1}, ErrorCode.policy_violation),
        ({"replication_factor": 0}, ErrorCode.invalid_replication_factor),
        ({"replication_factor": -7}, ErrorCode.invalid_replication_factor),
        ({"replication_factor": 2**15 - 1}, ErrorCode.invalid_replication_factor),
    ],
)
def test_shapes_that_cannot_be(
    tmp_path: Path, warnings_logged: list[dict[str, Any]], fields: dict[str, int], code: ErrorCode
) -> None:
    async def body() -> None:
        async with unharmed(tmp_path, warnings_logged) as node, node.client() as client:
            before = files(node)
            (topic,) = (await ask(client, 19, 5, create(5, "s", **fields))).topics
            assert topic.error_code is code
            assert files(node) == before

    run(body)
