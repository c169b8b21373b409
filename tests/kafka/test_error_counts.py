"""Error codes are counted wherever in a response they stand."""

import dataclasses
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from tests.kafka.door import running
from tests.kafka.entities import random_entity
from tests.support.simulated import run

from logboom.kafka.apis import load_handlers
from logboom.kafka.wire.error_counts import count_errors
from logboom.kafka.wire.messages import make, nested, response_class


def walked(value: Any, errors: Counter[str]) -> Counter[str]:
    """The same, by looking at everything."""
    if isinstance(value, ErrorCode):
        if value is not ErrorCode.none:
            errors[value.name] += 1
    elif isinstance(value, tuple):
        for item in value:
            walked(item, errors)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            walked(getattr(value, field.name), errors)
    return errors


@pytest.mark.parametrize("api_key", list(load_handlers()))
def test_every_code_of_every_response_is_counted(api_key: int) -> None:
    handler, chance = load_handlers()[api_key], random.Random(api_key)
    for version in range(handler.min_version, handler.max_version + 1):
        cls = response_class(api_key, version)
        for _ in range(30):
            entity, errors = random_entity(cls, chance), Counter[str]()
            count_errors(entity, errors)
            assert errors == walked(entity, Counter())


def test_errors_of_partitions_are_in_the_metrics(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(tmp_path) as node, node.client() as client:
            cls = load_request_schema(2, 5)
            topic = nested(cls, "topics")
            part = nested(topic, "partitions")
            parts = tuple(make(part, partition_index=index, current_leader_epoch=-1, timestamp=-1) for index in (7, 8))
            fields = {"replica_id": -1, "isolation_level": 0}
            await client.ask(2, 5, topics=(make(topic, name="nowhere", partitions=parts),), **fields)
            assert node.metrics.api(2).errors == {"unknown_topic_or_partition": 2}

    run(body)
