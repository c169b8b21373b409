"""Where a record came from stands in its headers in one form, whichever part of the pipeline wrote it.

`dead-letters retry`, `pipeline repin` and readers that drop repeats all read that form back (`names.parse_origin`).
"""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.support import needs_java

from logboom.pipeline.edge.dead_letter_task import WriteDeadLetters
from logboom.pipeline.edge.record_encoder import OutputBinding, RecordEncoder
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.execute.stages import conform
from logboom.pipeline.plan import names
from logboom.pipeline.plan.nodes import EVENT_COLUMNS
from logboom.pipeline.route.rows import Rows
from logboom.pipeline.run.dead_letters import edge_letter
from logboom.pipeline.sinks.base import Refused
from logboom.pipeline.sinks.stream import RemoteStreamWriter

STREAMS = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True)
PARTITIONS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
DIRECT, DEAD = 10_000, 10_001


@settings(deadline=None)
@given(STREAMS, PARTITIONS, OFFSETS)
def test_an_origin_is_read_back_as_it_was_written(stream: str, partition: int, offset: int) -> None:
    assert names.parse_origin(names.origin_text(stream, partition, offset)) == (stream, partition, offset)


def _leaving(stream: str, partition: int, offset: int, *, dead: bool) -> tuple[Rows, RecordEncoder]:
    """One event that leaves for a stream, or as a dead letter, and what encodes it."""
    given = {"stream": stream, "partition": partition, "offset": offset, "event_id": "id", "source": "w", "weight": 1.0}
    given["attributes"] = "{}"  # every event has some text here, a record that no rule has read has none
    schema = pa.schema([field for field in EVENT_SCHEMA if field.name in given])
    batch = conform(pa.RecordBatch.from_pylist([given], schema=schema), EVENT_SCHEMA)
    bindings = {
        DIRECT: OutputBinding("out", 1, "out", announced=True, too_large=DEAD),
        DEAD: OutputBinding("shop.dead.out", 1, "out", dead=True),
    }
    return Rows(batch, np.array([DEAD if dead else DIRECT], np.int32)), RecordEncoder("shop", bindings)


@settings(max_examples=50, deadline=None)
@given(STREAMS, PARTITIONS, OFFSETS, st.booleans())
def test_what_the_router_writes_has_its_origin_in_that_form(
    stream: str, partition: int, offset: int, dead: bool
) -> None:
    rows, encoder = _leaving(stream, partition, offset, dead=dead)
    packed = b"".join(bytes(piece.records) for _, found in encoder.encoded(rows) for _, piece in found.pieces)
    assert names.HEADER_ORIGIN.encode() in packed
    written = packed.partition(names.HEADER_ORIGIN.encode())[2]
    # A header's value follows its name behind a varint of its length.
    assert names.origin_text(stream, partition, offset).encode() in written[: 3 + len(stream) + 40]


@settings(max_examples=50, deadline=None)
@given(STREAMS, PARTITIONS, OFFSETS)
def test_letters_of_a_sink_have_their_origin_in_that_form(stream: str, partition: int, offset: int) -> None:
    wanted = names.origin_text(stream, partition, offset)
    assert edge_letter("shop", "archive", Refused(stream, partition, offset, b"{}", "no")).origin == wanted
    task = WriteDeadLetters("127.0.0.1:1", "shop", "archive", "no", 1_000_000)
    row = {"topic": stream, "partition": partition, "offset": offset, "key": None, "value": b"{}"}
    assert task._letter(row).origin == wanted


@pytest.mark.spark
@needs_java
def test_a_stream_of_another_log_gets_origins_in_that_form(spark: Any) -> None:
    sink: Any = SimpleNamespace(stream="out", key=None, encoding="json", name="out")
    event = {"stream": "web.1", "partition": 3, "offset": 2**53 + 1, "event_id": "web.1:3:7"}
    row = ("edge", 0, 5, None, bytearray(json.dumps(event).encode()))
    rows = spark.createDataFrame([row], "topic string, partition int, offset bigint, key binary, value binary")
    context: Any = SimpleNamespace(write_dead_letters=None)
    (record,) = RemoteStreamWriter(sink, "127.0.0.1:1", context)._records(rows).collect()
    headers = {pair["key"]: bytes(pair["value"]).decode() for pair in record["headers"]}
    assert headers[names.HEADER_ORIGIN] == names.origin_text("web.1", 3, 2**53 + 1)


@pytest.mark.spark
@needs_java
@pytest.mark.parametrize(
    ("attributes", "key"),
    [({"order": {"id": 7}}, b"7"), ({"order.id": "a b"}, b"a b"), ({"order": {}}, None), (None, None)],
)
def test_a_stream_of_another_log_gets_the_text_of_an_attribute_as_its_key(
    spark: Any, attributes: dict[str, Any] | None, key: bytes | None
) -> None:
    sink: Any = SimpleNamespace(stream="out", key="attributes.order.id", encoding="json", name="out")
    event = {"stream": "web", "partition": 0, "offset": 1, "event_id": "web:0:1", "attributes": attributes}
    row = ("edge", 0, 5, bytearray(json.dumps(event).encode()))
    rows = spark.createDataFrame([row], "topic string, partition int, offset bigint, value binary")
    context: Any = SimpleNamespace(write_dead_letters=None)
    (record,) = RemoteStreamWriter(sink, "127.0.0.1:1", context)._records(rows).collect()
    assert record["key"] == key


def test_every_event_carries_what_an_origin_is_made_of() -> None:
    assert {"stream", "partition", "offset"} <= {name for name, _ in EVENT_COLUMNS}
