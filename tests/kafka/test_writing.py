"""Writers compiled from kio's schema give the very bytes that kio's own writer gives."""

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.schema.metadata.v1.response import MetadataResponseBroker
from kio.static.primitive import Records
from tests.kafka.door import written
from tests.kafka.entities import random_entity

from logboom.kafka.apis import load_handlers
from logboom.kafka.handlers.handler import Handler
from logboom.kafka.wire.messages import make
from logboom.kafka.wire.writing import encode

HANDLERS = list(load_handlers().values())
SERVED = [(api.api_key, version) for api in HANDLERS for version in range(api.min_version, api.max_version + 1)]

st.register_type_strategy(Records, st.binary(max_size=100))


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_writes_what_kio_writes(api_key: int, version: int) -> None:
    chance = random.Random(version)
    for _ in range(40):
        entity = random_entity(load_response_schema(api_key, version), chance)
        assert encode(entity) == written(entity)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: str(handler.api_key))
def test_writes_whatever_kio_writes(handler: Handler) -> None:
    @settings(max_examples=10, deadline=None, database=None)
    @given(entity=st.from_type(load_response_schema(handler.api_key, handler.max_version)))
    def check(entity: Any) -> None:
        assert encode(entity) == written(entity)

    check()


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(struct.error):
        encode(make(MetadataResponseBroker, node_id=2**31, host="a", port=1, rack=None))
    with pytest.raises(struct.error):
        encode(make(MetadataResponseBroker, node_id=1, host="a" * 40_000, port=1, rack=None))
    with pytest.raises(AttributeError):
        encode(make(MetadataResponseBroker, node_id=1, host=None, port=1, rack=None))
