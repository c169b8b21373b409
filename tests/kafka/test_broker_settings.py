"""Settings of the broker that change while it runs: what is taken, where each value comes from, what is seen of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.cluster import commit
from tests.kafka.door import Client, batch, running, until
from tests.kafka.door import run as run_on_sockets
from tests.kafka.test_altering_apis import APPEND, BROKER, DELETE, NONE, TOPIC, altered
from tests.kafka.test_hot_apis import produced
from tests.support.simulated import run
from tests.support.waiting import WAIT_S

from logboom.kafka.wire.messages import make, nested
from logboom.metadata import BrokerConfigChanged

MINE, ALL = (BROKER, "1"), (BROKER, "")
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = range(1, 6)


async def told(client: Client, kind: int, name: str, *keys: str) -> dict[str, Any]:
    """Settings as DescribeConfigs tells them, by name."""
    cls = load_request_schema(32, 4)
    one = make(nested(cls, "resources"), resource_type=kind, resource_name=name, configuration_keys=keys or None)
    reply = await client.ask(32, 4, resources=(one,), include_synonyms=True, include_documentation=True)
    (result,) = reply.results
    assert result.error_code is NONE
    return {config.name: config for config in result.configs}


def synonyms(config: Any) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in config.synonyms]


def test_where_clients_connect_is_described_as_kafka_describes_it(tmp_path: Path) -> None:
    """The answer of Kafka 4.1; tools of its ecosystem look for the name."""

    async def body() -> None:
        name = "advertised.listeners"
        async with running(tmp_path) as node, node.client() as client:
            value = f"PLAINTEXT://127.0.0.1:{node.address[1]}"
            (config,) = (await told(client, *MINE, name)).values()
            assert (config.name, config.value, config.config_source) == (name, value, STATIC)
            assert config.read_only
            assert not config.is_sensitive
            assert synonyms(config) == [(name, value, STATIC)]
            assert name in await told(client, *MINE)
            for api_key, version in ((44, 1), (33, 2)):
                code, why = await altered(client, api_key, version, [(name, "PLAINTEXT://10.0.0.1:1")], resource=MINE)
                assert code is ErrorCode.invalid_config
                assert why is not None
                assert "change kafka.advertised" in why
            assert await altered(client, 44, 1, [(name, None, DELETE)], resource=MINE) == (NONE, None)

    run(body)


def test_a_value_comes_from_the_broker_then_the_default_of_all_then_the_start_then_the_table(tmp_path: Path) -> None:
    async def body() -> None:
        async with (
            running(tmp_path, stream_defaults={"retention_ms": 4000}) as node,
            node.client() as client,
        ):
            await node.broker.catalog.create_stream("s")
            name = "log.retention.ms"
            layers = [(name, "4000", STATIC), (name, "-1", DEFAULT)]
            assert await told(client, *ALL) == {}
            for resource, value, source in ((ALL, "3000", DYNAMIC_DEFAULT), (MINE, "2000", DYNAMIC_BROKER)):
                assert await altered(client, 44, 1, [(name, value)], resource=resource) == (NONE, None)
                layers.insert(0, (name, value, source))
                (config,) = (await told(client, *MINE, name)).values()
                assert (config.value, config.config_source, config.read_only) == (value, source, False)
                assert synonyms(config) == layers
                stream = (await told(client, TOPIC, "s"))["retention.ms"]
                assert (stream.value, stream.config_source, synonyms(stream)) == (value, source, layers)
            (config,) = (await told(client, *ALL)).values()
            assert (config.name, config.value, synonyms(config)) == (name, "3000", layers[1:])
            assert await altered(client, 44, 1, [("retention.ms", "1000")]) == (NONE, None)
            stream = (await told(client, TOPIC, "s"))["retention.ms"]
            assert synonyms(stream) == [("retention.ms", "1000", DYNAMIC_TOPIC), *layers]
            assert "by their own timestamps" in stream.documentation
            for resource in (MINE, ALL):
                assert await altered(client, 44, 1, [(name, None, DELETE)], resource=resource) == (NONE, None)
            assert synonyms((await told(client, *MINE, name))[name]) == layers[2:]

    run(body)


def test_a_change_that_many_partitions_take_lets_others_have_their_turn(tmp_path: Path) -> None:
    """On a real loop: it looks at every turn, and in simulated time no time passes while something can run."""
    count, seen = 1_200, set[int]()

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s", partitions=count)

            async def look() -> None:
                while True:
                    partitions = [one for one in node.broker.replicas if one.stream.name == "s"]
                    seen.add(sum(one.config.retention_ms == 5 for one in partitions))
                    await asyncio.sleep(0)

            looking = asyncio.create_task(look())
            assert await altered(client, 44, 1, [("log.retention.ms", "5")], resource=MINE) == (NONE, None)
            looking.cancel()
            assert {0 < of < count for of in seen} == {False, True}
            assert all(one.config.retention_ms == 5 for one in node.broker.replicas if not one.stream.internal)

    run_on_sockets(body)


def test_settings_outlive_a_restart_and_are_written_as_the_wire_has_them(tmp_path: Path) -> None:
    changes = [("log.retention.ms", "2d"), ("max.connections", " 77 "), ("logboom.flush", "none")]

    async def set_them() -> None:
        async with running(tmp_path) as node, node.client() as client:
            assert await altered(client, 44, 1, changes, resource=MINE) == (NONE, None)
            assert await altered(client, 33, 1, [("num.partitions", "3")], resource=ALL) == (NONE, None)

    async def see_them() -> None:
        async with running(tmp_path) as node, node.client() as client:
            mine = await told(client, *MINE)
            assert mine["log.retention.ms"].value == "172800000"
            assert node.services.server.config.now.max_connections == 77
            stream = await node.broker.catalog.create_stream("s")
            assert (stream.partitions, node.broker.config.stream_config(stream).flush) == (3, "none")
            # AlterConfigs takes back what it does not name.
            assert await altered(client, 33, 1, [("num.partitions", "2")], resource=MINE) == (NONE, None)
            assert (await told(client, *MINE))["max.connections"].config_source == DEFAULT
            assert (await node.broker.catalog.create_stream("t")).partitions == 2
            unset = await node.broker.catalog.create_stream("u")
            assert node.broker.config.stream_config(unset).flush == "commit"

    async def body() -> None:
        await set_them()
        await see_them()

    run(body)


@pytest.mark.parametrize("key", [33, 44])
@pytest.mark.parametrize("resource", [MINE, ALL])
def test_all_faults_are_told_in_one_sentence_and_nothing_changes(
    tmp_path: Path, key: int, resource: tuple[int, str]
) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            wrong = [
                ("num.partitions", "7"),
                ("max.connections", "many"),
                ("message.max.byte", "1"),
                ("logboom.broker.read_threads", "9"),
                ("log.dirs", "/elsewhere"),
            ]
            code, text = await altered(client, key, 1, wrong, resource=resource)
            assert code is ErrorCode.invalid_config
            assert text is not None
            assert "max.connections='many': should be a whole number" in text
            assert "unknown setting 'message.max.byte' (did you mean 'message.max.bytes'?)" in text
            assert "logboom.broker.read_threads is read when the broker starts: change broker.read_threads in" in text
            assert "log.dirs is read when the broker starts: change broker.data_dir in" in text
            assert node.broker.config.default_partitions == 1
            timeouts = [("group.min.session.timeout.ms", "50000"), ("group.max.session.timeout.ms", "40000")]
            code, text = await altered(client, key, 1, timeouts, resource=resource)
            assert (code, text) == (
                ErrorCode.invalid_config,
                "groups: session_timeout_min_ms must not be above session_timeout_max_ms",
            )
            fine = [("num.partitions", "7")]
            assert await altered(client, key, 1, fine, resource=resource, validate_only=True) == (NONE, None)
            assert node.broker.config.default_partitions == 1
            if key == 44:
                code, text = await altered(client, key, 1, [("num.partitions", "7", APPEND)], resource=resource)
                assert (code, text) == (
                    ErrorCode.invalid_config,
                    "'num.partitions' is no list: use set or delete, not append",
                )

    run(body)


async def changed(client: Client, name: str, value: str | None) -> None:
    one = (name, value) if value is not None else (name, None, DELETE)
    assert await altered(client, 44, 1, [one], resource=MINE) == (NONE, None)


def test_streams_without_a_value_of_their_own_see_a_change_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            follows = await node.broker.catalog.create_stream("s")
            own = await node.broker.catalog.create_stream(
                "own", config={"max.message.bytes": "5000", "logboom.flush": "commit"}
            )

            async def sent(stream: Any, size: int) -> Any:
                return await produced(client, 9, stream, 0, batch(bytes(size)))

            await changed(client, "message.max.bytes", "400")
            assert (await sent(follows, 500)).error_code is ErrorCode.message_too_large
            assert (await sent(own, 500)).error_code is NONE
            await changed(client, "log.message.timestamp.type", "LogAppendTime")
            assert (await sent(follows, 1)).log_append_time is not None
            await changed(client, "logboom.flush", "none")
            partitions = {name: node.broker.replicas.find(name, 0) for name in ("s", "own")}
            assert [one.syncs for one in partitions.values()] == [False, True]
            await changed(client, "logboom.flush", None)
            await changed(client, "log.segment.bytes", "16KiB")
            assert {one.log.config.segment_bytes for one in partitions.values()} == {16384}
            assert (await sent(follows, 300)).error_code is NONE
            await changed(client, "logboom.broker.max_batch_records", "1")
            two = await produced(client, 9, follows, 0, batch(b"a", b"b"))
            assert two.error_code is not NONE
            offsets = node.broker.catalog.stream("__consumer_offsets")
            assert offsets is not None
            config = node.broker.config.stream_config(offsets)
            assert (config.retention_messages, config.flush) == (-1, "commit")

    run(body)


def test_a_pause_that_goes_on_follows_its_setting(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            stream = await node.broker.catalog.create_stream("s")
            assert (await produced(client, 9, stream, 0, batch(b"a"))).error_code is NONE
            partition = node.broker.replicas.find("s", 0)
            await changed(client, "logboom.retention.messages", "0")
            assert partition.log_start_offset == 0, "the next look at old segments is five minutes off"
            await changed(client, "log.retention.check.interval.ms", "20")
            await until(lambda: partition.log_start_offset == partition.log_end_offset == 1)

    run(body)


def test_the_door_and_the_connections_that_are_open_take_new_limits(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client, node.client() as other:
            assert await told(other, *MINE)
            await changed(client, "max.connections", "2")
            third = await Client.connect(node.address)
            assert await third.closed() == b""
            await third.close()
            await changed(client, "max.connections", None)
            async with node.client() as third:
                assert await told(third, *MINE)
            await changed(client, "socket.request.max.bytes", "2000")
            other.writer.write((2001).to_bytes(4, "big"))
            assert await other.closed() == b""
            await changed(client, "connections.max.idle.ms", "100")
            assert node.services.server.config.now.idle_timeout_s == 0.1
            await asyncio.wait_for(client.closed(), WAIT_S)

    run(body)


def test_values_that_no_longer_fit_are_left_out_at_the_start_and_can_be_taken_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await changed(client, "group.min.session.timeout.ms", "9000")
            await changed(client, "num.partitions", "4")
        async with running(tmp_path, groups={"session_timeout_max_ms": 8000}) as node, node.client() as client:
            mine = await told(client, *MINE)
            told_min = mine["group.min.session.timeout.ms"]
            assert (told_min.value, told_min.config_source) == ("6000", DEFAULT)
            assert mine["num.partitions"].value == "4", "what fits stays"
            said = [str(call.args) for call in node.log.calls if call.method_name == "error"]
            assert any("do not fit" in text for text in said)
            await changed(client, "group.min.session.timeout.ms", None)

    run(body)


def test_what_another_broker_took_and_does_not_fit_here_is_left_out(tmp_path: Path) -> None:
    """The controller checks settings of all brokers against its own file."""

    async def body() -> None:
        async with running(tmp_path, groups={"session_timeout_max_ms": 8000}) as node, node.client() as client:
            everybody = {"group.min.session.timeout.ms": "9000", "num.partitions": "4"}
            await commit(node, BrokerConfigChanged(broker="", config=everybody))
            mine = await told(client, *MINE)
            assert mine["group.min.session.timeout.ms"].value == "6000"
            assert mine["num.partitions"].value == "4", "what fits is in force"
            await node.broker.catalog.create_stream("s")
            stream = node.broker.catalog.stream("s")
            assert stream is not None
            assert stream.partitions == 4

    run(body)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("1000000.0", 1_000_000), ("1.7976931348623157E308", None), ("2E6", 2_000_000), ("-1", None), ("1MiB", 1 << 20)],
)
def test_a_rate_is_taken_as_kafka_writes_it(tmp_path: Path, text: str, limit: int | None) -> None:
    """Kafka has it as a double, and the largest double for no limit."""

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            name = "log.cleaner.io.max.bytes.per.second"
            assert await altered(client, 44, 1, [(name, text)], resource=MINE) == (NONE, None)
            assert node.broker.config.cleaner.max_io_bytes_per_s == limit
            for wrong in ("1000000.0.0", "nan", "inf", "-2.5", "5"):
                code, why = await altered(client, 44, 1, [(name, wrong)], resource=MINE)
                assert code is ErrorCode.invalid_config
                assert name in str(why)

    run(body)
