"""Each limit that is reached is counted under the name of its setting, told to the client, and said in the log once."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from structlog.testing import capture_logs
from tests.kafka.door import Client, Running, batch, running, until
from tests.kafka.test_back_pressure import fetch_body, send
from tests.support.simulated import run

from logboom.app.limit_metrics import limit_metrics
from logboom.broker.limits import broker_limits
from logboom.kafka.wire.messages import make, milliseconds, nested
from logboom.records import Codec


async def create(client: Client, name: str, partitions: int = 1, **config: str) -> Any:
    cls = load_request_schema(19, 5)
    topic = nested(cls, "topics")
    configs = tuple(make(nested(topic, "configs"), name=key, value=value) for key, value in config.items())
    one = make(topic, name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=configs)
    reply = await client.ask(19, 5, topics=(one,), timeout=milliseconds(10_000), validate_only=False)
    return reply.topics[0].error_code


async def join(client: Client, group: str) -> Any:
    protocols = (make(nested(load_request_schema(11, 3), "protocols"), name="range", metadata=bytes(2_000)),)
    return await client.ask(
        11,
        3,
        group_id=group,
        session_timeout=milliseconds(10_000),
        rebalance_timeout=milliseconds(10_000),
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )


async def _batch_size(node: Running, client: Client) -> None:
    send(client, batch(bytes(2_000_000)), -1)
    await client.reply()


async def _batch_records(node: Running, client: Client) -> None:
    send(client, batch(*[b"x"] * 30), -1)
    await client.reply()


async def _decompressed(node: Running, client: Client) -> None:
    send(client, batch(bytes(500_000), codec=Codec.ZSTD), -1)
    await client.reply()


async def _streams(node: Running, client: Client) -> None:
    await create(client, "one")
    await create(client, "one-too-many")


async def _partitions(node: Running, client: Client) -> None:
    await create(client, "many", partitions=1_000)


async def _members_metadata(node: Running, client: Client) -> None:
    await node.broker.groups.loaded()
    await join(client, "g")


async def _length(node: Running, client: Client) -> None:
    async with node.client() as other:
        other.writer.write((1 << 30).to_bytes(4, "big") + bytes(100))
        await other.closed()


async def _elements(node: Running, client: Client) -> None:
    async with node.client() as other:
        topic = nested(load_request_schema(3, 5), "topics")
        other.send(
            3,
            5,
            make(load_request_schema(3, 5), topics=(make(topic, name="t"),) * 500, allow_auto_topic_creation=False),
        )
        await other.closed()


async def _connections(node: Running, client: Client) -> None:
    others = [await Client.connect(node.address) for _ in range(5)]
    await until(lambda: node.metrics.connections_refused)
    for other in others:
        await other.close()


async def _waiting_fetches(node: Running, client: Client) -> None:
    client.send(1, 4, dataclasses.replace(fetch_body(1_000), max_wait=milliseconds(60_000)))
    await client.reply()


CASES: dict[str, Callable[[Running, Client], Any]] = {
    "max.message.bytes": _batch_size,
    "broker.max_batch_records": _batch_records,
    "broker.max_decompressed_bytes": _decompressed,
    "broker.max_streams": _streams,
    "broker.max_partitions": _partitions,
    "broker.groups.member_metadata_max_bytes": _members_metadata,
    "kafka.max_request_bytes": _length,
    "kafka.max_request_elements": _elements,
    "kafka.max_connections": _connections,
    "kafka.max_waiting_fetches": _waiting_fetches,
}


@pytest.mark.parametrize("limit", CASES)
def test_a_limit_that_is_reached_is_counted_and_logged_once(tmp_path: Path, limit: str) -> None:
    kafka = {"max_request_elements": 200, "max_connections": 4, "max_waiting_fetches": 0}
    broker: dict[str, Any] = {
        "max_batch_records": 20,
        "max_decompressed_bytes": 100_000 if limit == "broker.max_decompressed_bytes" else 10_000_000,
        "max_partitions": 100,
        "max_streams": 3,
        "groups": {"member_metadata_max_bytes": 1_000},
    }

    async def body() -> None:
        async with running(tmp_path, kafka, **broker) as node, node.client() as client:
            await node.broker.catalog.create_stream("t")
            with capture_logs() as logs:
                for _ in range(3):
                    await CASES[limit](node, client)
            assert node.metrics.limit_hits[limit] >= 3
            told = [line for line in logs if line.get("limit") == limit or line["event"] == "records refused"]
            assert len(told) == 1, logs

    run(body)


def test_how_near_each_limit_is_can_be_asked(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path, {"max_connections_per_address": 50}) as node, node.client() as client:
            await node.broker.catalog.create_stream("t", partitions=3)
            await create(client, "u" * 300)
            fillings = {one.name: one for one in (*broker_limits(node.broker), *node.door.limits())}
            assert fillings["broker.max_streams"].used == 2, "one is the broker's own"
            assert fillings["kafka.max_connections"].used == 1
            assert fillings["kafka.max_connections_per_address"].used == 1
            assert all(0 <= one.used <= one.limit for one in fillings.values())
            families = {family.name: family for family in limit_metrics(fillings.values(), {"max.message.bytes": 7})}
            counts = {sample.labels["limit"]: sample.value for sample in families["logboom_limit_crossed"].samples}
            assert counts["max.message.bytes"] == 7
            assert counts["kafka.max_connections"] == 0
            used = {sample.labels["limit"]: sample.value for sample in families["logboom_limit_used"].samples}
            assert used.keys() == fillings.keys()

    run(body)
