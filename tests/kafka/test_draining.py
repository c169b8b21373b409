"""`logboom.draining` among the settings of a broker."""

from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import Client, running
from tests.support.simulated import run

from logboom.kafka.wire.messages import make, nested

BROKER = 4
SET, DELETE = 0, 1
DRAINING = "logboom.draining"


async def alter(client: Client, broker: str, *changes: tuple[str, str | None], operation: int = SET) -> Any:
    cls = load_request_schema(44, 1)
    one = nested(cls, "resources", "configs")
    configs = tuple(make(one, name=name, value=value, config_operation=operation) for name, value in changes)
    resource = make(nested(cls, "resources"), resource_type=BROKER, resource_name=broker, configs=configs)
    return (await client.ask(44, 1, resources=(resource,), validate_only=False)).responses[0]


async def told(client: Client) -> str:
    cls = load_request_schema(32, 4)
    resource = make(nested(cls, "resources"), resource_type=BROKER, resource_name="1", configuration_keys=(DRAINING,))
    reply = await client.ask(32, 4, resources=(resource,), include_synonyms=True, include_documentation=False)
    (config,) = reply.results[0].configs
    return str(config.value)


def test_a_broker_is_drained_and_taken_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:

            def is_draining() -> bool:
                return node.broker.catalog.image.brokers[node.broker.identity.broker_id].draining

            assert (await told(client), is_draining()) == ("false", False)
            assert (await alter(client, "1", (DRAINING, "true"))).error_code is ErrorCode.none
            assert (await told(client), is_draining()) == ("true", True)
            assert (await alter(client, "1", (DRAINING, None), operation=DELETE)).error_code is ErrorCode.none
            assert (await told(client), is_draining()) == ("false", False)

    run(body)


@pytest.mark.parametrize(
    ("broker", "changes", "code", "said"),
    [
        ("1", [(DRAINING, "yes")], ErrorCode.invalid_config, "is true or false, not 'yes'"),
        (
            "1",
            [(DRAINING, "true"), ("num.partitions", "3")],
            ErrorCode.invalid_config,
            "must be changed without other settings",
        ),
        ("7", [(DRAINING, "true")], ErrorCode.invalid_request, "no broker is registered as '7'"),
        ("", [(DRAINING, "true")], ErrorCode.invalid_request, "no broker is registered as ''"),
    ],
)
def test_what_is_no_draining_is_refused(
    tmp_path: Path, broker: str, changes: list[tuple[str, str | None]], code: ErrorCode, said: str
) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            answer = await alter(client, broker, *changes)
            assert answer.error_code is code
            assert said in answer.error_message

    run(body)
