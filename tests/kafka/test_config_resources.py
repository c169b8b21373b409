"""Every kind of resource with settings in the protocol is listed, described and altered, or refused with a reason."""

from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, running
from tests.support.simulated import run

from logboom.app.config import LogConfig
from logboom.kafka.apis import list_config_resources
from logboom.kafka.wire.messages import make, nested

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
NONE = ErrorCode.none


async def listed(client: Client, version: int, *kinds: int) -> tuple[ErrorCode, set[tuple[int, str]]]:
    reply = await client.ask(74, version, **({} if version == 0 else {"resource_types": kinds}))
    return reply.error_code, {(getattr(one, "resource_type", 16), one.resource_name) for one in reply.config_resources}


async def described(client: Client, kind: int, name: str) -> Any:
    cls = load_request_schema(32, 4)
    resource = make(nested(cls, "resources"), resource_type=kind, resource_name=name, configuration_keys=None)
    reply = await client.ask(32, 4, resources=(resource,), include_synonyms=False, include_documentation=True)
    return reply.results[0]


async def altered(client: Client, kind: int, name: str, setting: str, value: str | None, operation: int = 0) -> Any:
    cls = load_request_schema(44, 1)
    config = make(nested(cls, "resources", "configs"), name=setting, value=value, config_operation=operation)
    resource = make(nested(cls, "resources"), resource_type=kind, resource_name=name, configs=(config,))
    return (await client.ask(44, 1, resources=(resource,), validate_only=False)).responses[0]


def test_resources_are_listed_by_kind(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            await node.broker.catalog.create_stream("s")
            broker = {(BROKER, "1"), (LOGGER, "1")}
            streams = {(TOPIC, "s"), (TOPIC, "__consumer_offsets")}
            assert list_config_resources.HANDLER.max_version == 1
            assert await listed(client, 0) == (NONE, set())
            assert await listed(client, 1) == (NONE, broker | streams)
            assert await listed(client, 1, TOPIC, TOPIC) == (NONE, streams)
            assert await listed(client, 1, GROUP, CLIENT_METRICS) == (NONE, set())
            assert await listed(client, 1, TOPIC, 64) == (ErrorCode.unsupported_version, set())

    run(body)


def test_the_level_of_the_brokers_log_is_a_logger(tmp_path: Path) -> None:
    async def level(client: Client) -> str:
        (root,) = (await described(client, LOGGER, "1")).configs
        return str(root.value)

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            assert (await described(client, LOGGER, "1")).configs == ()
            current = node.broker.dynamic_settings.add("log", LogConfig())
            assert await level(client) == "INFO"
            for given, ours, shown in (
                ("DEBUG", "debug", "DEBUG"),
                ("FATAL", "error", "ERROR"),
                ("warn", "warning", "WARN"),
            ):
                assert (await altered(client, LOGGER, "1", "root", given)).error_code is NONE
                assert (current.now.level.value, await level(client)) == (ours, shown)
            assert (await altered(client, LOGGER, "1", "root", None, 1)).error_code is NONE
            assert current.now.level.value == "info"
            for logger, value, why in (
                ("kafka.server", "INFO", "there is one logger, 'root'"),
                ("root", "LOUD", "expected TRACE"),
            ):
                refused = await altered(client, LOGGER, "1", logger, value)
                assert refused.error_code is ErrorCode.invalid_config
                assert why in refused.error_message
            for name in ("", "7"):
                assert (await described(client, LOGGER, name)).error_code is ErrorCode.invalid_request
                assert (await altered(client, LOGGER, name, "root", "INFO")).error_code is ErrorCode.invalid_request

    run(body)


@pytest.mark.parametrize(("kind", "why"), [(CLIENT_METRICS, "KIP-714"), (GROUP, "their members bring them")])
def test_what_has_no_settings_is_described_as_empty_and_refuses_all(tmp_path: Path, kind: int, why: str) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            found = await described(client, kind, "some")
            assert (found.error_code, found.configs) == (NONE, ())
            assert (await described(client, kind, "")).error_code is ErrorCode.invalid_request
            refused = await altered(client, kind, "some", "interval.ms", "1000")
            assert refused.error_code is ErrorCode.invalid_config
            assert why in refused.error_message

    run(body)


def test_no_user_has_credentials(tmp_path: Path) -> None:
    async def asked(client: Client, *names: str) -> list[tuple[str, ErrorCode]]:
        cls = load_request_schema(50, 0)
        users = tuple(make(nested(cls, "users"), name=name) for name in names) or None
        reply = await client.ask(50, 0, users=users)
        assert reply.error_code is NONE
        return [(one.user, one.error_code) for one in reply.results]

    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            assert await asked(client) == []
            assert await asked(client, "alice", "bob", "bob") == [
                ("alice", ErrorCode.resource_not_found),
                ("bob", ErrorCode.duplicate_resource),
            ]

    run(body)


def test_what_cannot_be_other_is_described_and_refused_with_the_reason(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            found = {one.name: one for one in (await described(client, BROKER, "1")).configs}
            fixed = found["auto.leader.rebalance.enable"]
            assert (fixed.value, fixed.read_only, fixed.config_source) == ("true", True, 5)
            assert found["delete.topic.enable"].value == "true"
            refused = await altered(client, BROKER, "1", "auto.leader.rebalance.enable", "false")
            assert refused.error_code is ErrorCode.invalid_config
            assert "is true and cannot be changed: Preferred leaders" in refused.error_message
            back = await altered(client, BROKER, "1", "leader.replication.throttled.rate", None, operation=1)
            assert back.error_code is ErrorCode.none, "as kafka-reassign-partitions asks for when replicas have moved"

    run(body)
