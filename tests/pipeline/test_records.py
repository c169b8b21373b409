"""From events to the bytes of records, columns at a time: the same as one by one."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.client.messages import TopicPartition
from logboom.pipeline.edge.letters import packed_records, whole_letters
from logboom.pipeline.edge.record_columns import PACKED_MAX_BYTES, Packed, RecordColumns, select
from logboom.pipeline.edge.record_encoder import OutputBinding, RecordEncoder, key_partition
from logboom.pipeline.event.json import closed_texts, event_texts, open_texts
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.execute.stages import conform, flat_columns
from logboom.pipeline.plan.nodes import EVENT_COLUMNS
from logboom.pipeline.plan.sampling import xxh64
from logboom.pipeline.route.rows import Rows
from logboom.pipeline.route.sample_columns import hashes
from logboom.records import Record, build_batch, iter_records, read_header
from logboom.records.header import HEADER_BYTES

TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))


def _records(pieces: list[Packed]) -> list[Record]:
    """What a reader of the log makes of the pieces."""
    found: list[Record] = []
    for piece in pieces:
        batch = build_batch([Record(0, 0, None, None)] * piece.count)[:HEADER_BYTES] + bytes(piece.records)  # type: ignore[arg-type]
        header = read_header(batch)._replace(batch_length=len(batch) - 12)
        found += iter_records(bytes(batch), 0, header, 1 << 30)
    return found


def _column(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


FIELDS = st.none() | st.binary(max_size=200)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(FIELDS, FIELDS, FIELDS), min_size=1, max_size=150), st.booleans(), st.booleans())
def test_records_by_column_are_those_made_one_by_one(
    rows: list[tuple[bytes | None, bytes | None, bytes | None]], keyed: bool, headed: bool
) -> None:
    values, keys, texts = (_column(list(column)) for column in zip(*rows, strict=True))
    columns = RecordColumns(values, keys if keyed else None, (("näme", texts),) if headed else ())
    made = [
        Record(0, 0, key if keyed else None, value, (("näme", text),) if headed else ())  # type: ignore[arg-type]
        for value, key, text in rows
    ]
    (piece,) = columns.packed()
    assert bytes(piece.records) == bytes(build_batch(made)[HEADER_BYTES:])
    (one,) = select(columns, [len(rows) - 1]).packed()
    assert bytes(one.records) == bytes(build_batch(made[-1:])[HEADER_BYTES:])


def test_pieces_stay_below_what_servers_take_and_keep_the_order() -> None:
    sizes = [10, 600_000, 299_000, 2_000, 1_000_000, 5, 450_000, 450_000, 450_000]
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    pieces = list(RecordColumns(_column(list(values))).packed())
    assert [record.value for record in _records(pieces)] == values
    assert all(piece.count == 1 or len(piece.records) <= PACKED_MAX_BYTES for piece in pieces)
    singly = list(packed_records([Record(0, 0, None, value) for value in values]))  # type: ignore[arg-type]
    assert [record.value for record in _records(singly)] == values
    assert all(piece.count == 1 or len(piece.records) <= PACKED_MAX_BYTES for piece in singly)


def _event(row: dict[str, Any]) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist([row], schema=pa.schema([(field.name, field.type) for field in EVENT_SCHEMA]))
    return conform(batch, EVENT_SCHEMA)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            **{name: TEXTS for name, kind in EVENT_COLUMNS if kind == "string" and not name.endswith("_id")},
            "time": TIMES,
            "observed_time": TIMES,
            "severity_number": st.none() | st.integers(0, 24),
            "trace_id": st.none() | st.just("0a" * 16),
            "offset": st.integers(0, 2**60),
            "partition": st.integers(0, 2**30),
            "attributes": st.none() | st.just('{"a.b":{"c":[1,"\\u00e4\\n"]}}'),
        }
    ),
    st.sampled_from((1.0, 10.0, 2.5, 1e9)),
)
def test_the_json_of_an_event_says_what_its_columns_say(row: dict[str, Any], weight: float) -> None:
    row = {**row, "stream": "web", "event_id": "web:0:1"}
    events = _event(row)
    text = event_texts(events, np.array([weight]))[0].as_py()
    assert text == closed_texts(open_texts(events), np.array([weight]))[0].as_py()
    said = json.loads(text)
    assert said.pop("attributes") == json.loads(row.pop("attributes") or "{}")
    assert said.pop("weight") == weight
    for name in ("time", "observed_time"):
        moment = row.pop(name)
        written = said.pop(name, None)
        assert (written is None) == (moment is None)
        if moment is not None:
            assert written.endswith("Z")
            assert not written.split(".")[-1].endswith("0Z") or "." not in written
            assert datetime.fromisoformat(written) == moment
    assert said == {name: value for name, value in row.items() if value is not None}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=70), max_size=30))
def test_hashes_by_column_are_those_of_single_texts(texts: list[str | None]) -> None:
    found = hashes(pa.array(texts, pa.string())).tolist()
    assert found == [42 if text is None else xxh64(text.encode()) for text in texts]
    repeated = hashes(pa.array(texts * 5, pa.string())).tolist()
    assert repeated == found * 5


ENCODER = RecordEncoder(
    "shop",
    {
        10_000: OutputBinding("errors", 3, "errors", announced=True, too_large=10_002),
        10_001: OutputBinding("bodies", 2, "bodies", announced=True, body_only=True, key="service", too_large=10_002),
        10_002: OutputBinding(
            "shop.dead.errors", 1, "errors", dead=True, why="the condition of errors failed on it: x"
        ),
    },
)


def _rows(places: list[int], **columns: list[Any]) -> Rows:
    count = len(places)
    given = {
        "offset": list(range(count)),
        "stream": ["web"] * count,
        "event_id": [f"web:0:{number}" for number in range(count)],
        "partition": [0] * count,
        "weight": [1.0] * count,
        "source": ["w"] * count,
        **columns,
    }
    schema = pa.schema([field for field in EVENT_SCHEMA if field.name in given])
    return Rows(conform(pa.RecordBatch.from_pydict(given, schema=schema), EVENT_SCHEMA), np.array(places, np.int32))


class _Message:
    """A record as a consumer gives it."""

    def __init__(self, record: Record) -> None:
        self.key, self.value, self.headers = (
            (lambda: record.key),
            (lambda: record.value),
            (lambda: list(record.headers)),
        )

    topic = staticmethod(lambda: "shop.dead.errors")
    partition = offset = staticmethod(lambda: 0)
    timestamp = staticmethod(lambda: (1, 0))


def _sent(rows: Rows, encoder: RecordEncoder = ENCODER) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Packed]] = {}
    for _, encoded in encoder.encoded(rows):
        for tp, piece in encoded.pieces:
            found.setdefault(tp, []).append(piece)
    return {tp: _records(pieces) for tp, pieces in found.items()}


def test_records_carry_their_ids_and_keep_their_order() -> None:
    sent = _sent(_rows([10_000] * 3, body=["a", 'b"\n', None], service=["s", None, "t"]))
    ((tp, records),) = sent.items()
    assert tp.stream == "errors"
    assert [json.loads(record.value or b"")["offset"] for record in records] == [0, 1, 2]
    assert dict(records[1].headers) == {"logboom-event-id": b"web:0:1", "logboom-origin": b"web/0/1"}


def test_a_body_without_text_is_a_record_without_value_and_keys_choose_the_partition() -> None:
    sent = _sent(_rows([10_001] * 3, body=["a", None, "c"], service=["s", "s", "t"]))
    by_key = {record.key: tp.partition for tp, records in sent.items() for record in records}
    assert by_key == {b"s": key_partition(b"s", 0, 2), b"t": key_partition(b"t", 0, 2)}
    assert sorted(str(record.value) for records in sent.values() for record in records) == ["None", "b'a'", "b'c'"]


def test_the_text_of_an_attribute_is_a_key() -> None:
    encoder = RecordEncoder("shop", {10_000: OutputBinding("orders", 2, "orders", key="attributes.order.id")})
    attributes = ['{"order":{"id":7}}', '{"order.id":"7"}', '{"order":{}}', None]
    sent = _sent(_rows([10_000] * 4, body=["a"] * 4, attributes=attributes), encoder)
    by_key = {record.key: tp.partition for tp, records in sent.items() for record in records if record.key is not None}
    assert by_key == {b"7": key_partition(b"7", 0, 2)}
    assert sum(record.key == b"7" for records in sent.values() for record in records) == 2
    assert sum(record.key is None for records in sent.values() for record in records) == 2


def test_what_is_too_large_for_its_stream_is_a_dead_letter_with_the_whole_event() -> None:
    sent = _sent(_rows([10_000] * 2, body=["x" * 1_100_000, "fits"], service=[None, None]))
    parts = sent[TopicPartition("shop.dead.errors", 0)]
    told = {name: (value or b"").decode() for name, value in parts[0].headers}
    assert [dict(part.headers)["logboom-dead-part"] for part in parts] == [b"1/2", b"2/2"]
    assert told["logboom-dead-form"] == "event"
    assert told["logboom-dead-reason"].startswith("the event takes 1100")
    assert "more than errors accepts in one record (max.message.bytes is 1048588)" in told["logboom-dead-reason"]
    (letter,) = whole_letters([_Message(part) for part in parts])
    assert json.loads(letter.value or b"")["body"] == "x" * 1_100_000
    assert sum(len(records) for records in sent.values()) == 3


def test_a_stream_that_takes_more_gets_more() -> None:
    wide = replace(ENCODER.bindings[10_000], max_message_bytes=3_000_000)
    encoder = replace(ENCODER, bindings={**ENCODER.bindings, 10_000: wide})
    sent = _sent(_rows([10_000] * 2, body=["x" * 2_000_000, "y" * 3_000_000]), encoder)
    assert {tp.stream: len(records) for tp, records in sent.items()} == {
        "errors": 1,
        "shop.dead.errors": 3,
    }


def test_a_tombstone_that_is_no_event_is_a_letter_without_value() -> None:
    ((_, (letter,)),) = _sent(_rows([10_002], dead_reason=["it has no value"], body=[None])).items()
    assert letter.value is None
    assert dict(letter.headers)["logboom-dead-form"] == b"raw"


def test_copies_of_one_event_have_weights_of_their_own() -> None:
    rows = _rows([10_000])
    copies = Rows(rows.batch, np.array([10_000, 10_000], np.int32), np.array([0, 0]), np.array([1.0, 10.0]))
    ((_, records),) = _sent(copies).items()
    assert [json.loads(record.value or b"")["weight"] for record in records] == [1.0, 10.0]


def test_an_event_that_a_condition_failed_on_is_a_letter_with_the_event() -> None:
    ((_, (letter,)),) = _sent(_rows([10_002], body=["b"])).items()
    told = {name: (value or b"").decode() for name, value in letter.headers}
    assert json.loads(letter.value or b"")["body"] == "b"
    assert told["logboom-dead-form"] == "event"
    assert told["logboom-dead-reason"] == "the condition of errors failed on it: x"


@pytest.mark.parametrize(("moment", "text"), [(0, "1970-01-01T00:00:00Z"), (1_500_000, "1970-01-01T00:00:01.5Z")])
def test_times_have_no_zeros_they_do_not_need(moment: int, text: str) -> None:
    row = {"time": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)}
    assert json.loads(event_texts(_event(row), None)[0].as_py())["time"] == text


def test_the_flat_columns_are_those_of_events() -> None:
    assert [name for name, _ in flat_columns()][:-1] == EVENT_SCHEMA.names
