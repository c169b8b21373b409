"""Metadata and DescribeCluster name the operations a client may use, as Kafka without an authorizer does."""

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode
from tests.kafka.door import running
from tests.support.simulated import run

from logboom.kafka.apis import describe_cluster, metadata

NOT_ASKED = -(2**31)
CLUSTER = 8_096
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE: bits 5, 7 to 12."""
TOPIC = 3_576
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: bits 3 to 8, 10 and 11."""


@pytest.mark.parametrize("version", range(8, metadata.HANDLER.max_version + 1))
@pytest.mark.parametrize("names", [["s", "no"], None], ids=["some", "all"])
def test_metadata_names_operations_where_they_are_asked_for(
    tmp_path: Path, version: int, names: list[str] | None
) -> None:
    async def body() -> None:
        async with running(tmp_path, auto_create_streams=False) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            # In turns, for what was written for one client is sent to the next.
            for topic, cluster in ((False, False), (True, True), (False, True), (True, False), (False, False)):
                reply = await client.metadata(version, names, topic=topic, cluster=cluster)
                told = {one.name: one.topic_authorized_operations for one in reply.topics}
                assert told["s"] == (TOPIC if topic else NOT_ASKED)
                if names is not None:
                    missing = reply.topics[1]
                    assert missing.error_code is ErrorCode.unknown_topic_or_partition
                    # Kafka answers for the name, whether the topic is there or not.
                    assert missing.topic_authorized_operations == (TOPIC if topic else NOT_ASKED)
                if version <= 10:
                    assert reply.cluster_authorized_operations == (CLUSTER if cluster else NOT_ASKED)

    run(body)


@pytest.mark.parametrize("version", range(describe_cluster.HANDLER.max_version + 1))
def test_describe_cluster_names_operations_where_they_are_asked_for(tmp_path: Path, version: int) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            for asked, operations in ((True, CLUSTER), (False, NOT_ASKED)):
                fields = {"include_cluster_authorized_operations": asked, "include_fenced_brokers": False}
                reply = await client.ask(60, version, endpoint_type=1, **fields)
                assert reply.cluster_authorized_operations == operations

    run(body)
