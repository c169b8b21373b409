"""Events read back from their JSON by columns are those that are read as objects, and those that were written."""

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.pipeline.event import reading
from logboom.pipeline.event.json import event_texts
from logboom.pipeline.event.reading import read_events, read_objects
from logboom.pipeline.event.schema import LIVE_SCHEMA
from logboom.pipeline.event.spans import ROWS_MIN, cut_events

TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
HEX = st.text("0123456789abcdef", max_size=32)
TEXTS = st.text(max_size=12) | st.sampled_from(
    (
        *("", "info", "é\u2028", "\U0001f600", '"', "\\", '\\"', '\\\\"', "\x00", "\x1f", "\x7f", "\n", '","body":"'),
        *('{"attributes":', ',"weight":1.0}', "\\u0041", "null", '"}', ',"offset":', "'", "/"),
    )
)
ATTRIBUTES = st.sampled_from(
    (
        *("{}", '{"a":1}', '{"a":"x\\"y\\\\"}', '{"é":[1,{"b":null}],"c":{}}', '{"a":"\\u0041"}', '{"n":1e400}'),
        *('{"n":123456789012345678901234567890}', '{"a":",\\"time\\":\\"x"}'),
    )
) | st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.integers() | st.none(), max_size=3).map(
    lambda found: json.dumps(found, ensure_ascii=False, separators=(",", ":"))
)


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


EVENTS = st.fixed_dictionaries(
    {
        "time": _maybe(TIMES),
        "observed_time": _maybe(TIMES),
        "severity_number": _maybe(st.integers(-(2**31), 2**31 - 1)),
        "severity_text": _maybe(TEXTS),
        "service": _maybe(TEXTS),
        "host": _maybe(TEXTS),
        "body": _maybe(TEXTS),
        "attributes": ATTRIBUTES,
        "trace_id": _maybe(HEX),
        "span_id": _maybe(HEX),
        "event_id": HEX,
        "weight": st.sampled_from((1.0, 10.0, 1e-5, 1e300, 0.1)),
        "source": TEXTS,
        "stream": st.sampled_from(("web", "a.b-c")),
        "partition": st.integers(0, 2**31 - 1),
        "offset": st.integers(0, 2**63 - 1) | st.integers(0, 10_000),
    }
)


def _written(events: list[dict[str, Any]]) -> pa.Array:
    batch = pa.RecordBatch.from_pylist(events, schema=LIVE_SCHEMA)
    return event_texts(batch, np.array([event["weight"] for event in events])).cast(pa.binary())


def _read(values: pa.Array) -> tuple[list[dict[str, Any]], list[int], list[int]]:
    """Events, their rows and the rows that are none; reasons may name other bytes in either way."""
    events: list[dict[str, Any]] = []
    rows: list[int] = []
    unreadable: list[int] = []
    for piece in read_events(values):
        assert piece.events.schema == LIVE_SCHEMA
        events += piece.events.to_pylist()
        rows += piece.rows.tolist()
        unreadable += [row for row, _ in piece.unreadable]
    return events, rows, unreadable


def check_same(values: pa.Array) -> None:
    singly = read_objects(values)
    assert _read(values) == (singly.events.to_pylist(), singly.rows.tolist(), [row for row, _ in singly.unreadable])


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=6), st.integers(ROWS_MIN, 90))
def test_what_was_written_is_read_by_columns_alone(events: list[dict[str, Any]], count: int) -> None:
    rows = [events[number % len(events)] for number in range(count)]
    cut = cut_events(_written(rows))
    assert cut is not None
    # Numbers of more than 18 digits are left to the objects.
    large = [number for number, event in enumerate(rows) if event["offset"] >= 10**18]
    assert cut.rows.tolist() == [number for number in range(count) if number not in large]
    assert cut.events.to_pylist() == [event for event in rows if event["offset"] < 10**18]


REPLACED = (
    (b'{"attributes":{}', b'{"attributes":{},"x":{"y":"z"}'),
    (b'{"attributes":', b'{"attributes":{},"attributes":'),
    (b'{"attributes":{', b'{"attributes":{"a'),
    (b'{"attributes":{', b'{"attributes":{"a":"\xff",'),
    (b'{"attributes":{', b'{"attributes":' + b"[" * 2_000 + b"{"),
    (b',"stream"', b' ,"stream"'),
    (b'"weight":', b'"weight":0'),
    (b'"weight":1.0', b'"weight":1'),
    (b'"weight":1.0', b'"weight":'),
    (b'"weight":1.0', b'"weight":{}'),
    (b'"offset":', b'"offset":0'),
    (b'"offset":', b'"offset":-'),
    (b'"body":"', b'"body":"\\ud800'),
    (b'"body":"', b'"body":"\\q'),
    (b'"body":"', b'"body":"\n'),
    (b'"source":"', b'"source":"","source":"'),
    (b'"time":"', b'"time":"x'),
)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """The JSON of an event, or what a foreign writer may have made of it."""
    good: bytes = _written([draw(EVENTS)])[0].as_py()
    kind = draw(st.integers(0, 9))
    if kind == 0:
        at = draw(st.integers(0, len(good)))
        end = draw(st.integers(at, min(at + 4, len(good))))
        return b"".join((good[:at], draw(st.binary(max_size=3)), good[end:]))
    if kind == 1:
        return draw(
            st.sampled_from((b"", b"{}", b"null", b"rubbish", b"\xff\xfe", good[:-1], good + good, good + b" "))
        )
    if kind == 2:
        members = json.loads(good)
        members[draw(st.sampled_from(sorted(members)))] = draw(
            st.sampled_from(
                (None, 1, -1, 1.5, True, "x", "", 2**31, 2**63, 10**30, [], {}, [{}], "2026-11-20T12:00:00Z")
            )
        )
        return json.dumps(members, ensure_ascii=draw(st.booleans()), separators=(",", ":")).encode()
    if kind == 3:
        names = draw(st.permutations(sorted(json.loads(good))))
        return json.dumps({name: json.loads(good)[name] for name in names}).encode()
    if kind == 4:
        found, other = draw(st.sampled_from(REPLACED))
        return good.replace(found, other, 1)
    return good


@settings(max_examples=150, deadline=None)
@given(st.lists(spoilt(), min_size=1, max_size=8), st.integers(ROWS_MIN, 120), st.integers(0, 3))
@example([b"", b'{"attributes":{}'], ROWS_MIN, 0)
@example([b'"', b"\\"], ROWS_MIN, 0)
def test_any_batch_is_read_as_its_rows_are_read_singly(values: list[bytes], count: int, cut_off: int) -> None:
    rows: list[bytes | None] = [values[number % len(values)] for number in range(count)]
    check_same(pa.array(rows, pa.binary()).slice(cut_off))


def test_rows_that_only_together_are_json_are_each_refused() -> None:
    """The attributes of one row lack what those of the next have too much."""
    (good,) = _written([{**EXAMPLE, "attributes": '{"a":1}'}]).to_pylist()
    halves = [good.replace(b'{"a":1}', text) for text in (b'{"a":1', b'"b":2}', b'{"a":1},{"b":2}')]
    values = pa.array([good] * ROWS_MIN + halves + [good] * ROWS_MIN, pa.binary())
    _, rows, unreadable = _read(values)
    assert unreadable == [ROWS_MIN, ROWS_MIN + 1, ROWS_MIN + 2]
    assert len(rows) == 2 * ROWS_MIN
    assert [row for row, _ in read_objects(values).unreadable] == unreadable


def test_a_null_is_no_event() -> None:
    values = pa.array([None, *_written([EXAMPLE] * ROWS_MIN).to_pylist(), None], pa.binary())
    events, rows, unreadable = _read(values)
    assert (len(events), rows, unreadable) == (ROWS_MIN, list(range(1, ROWS_MIN + 1)), [0, ROWS_MIN + 1])


@pytest.mark.parametrize("member", ['"partition":3000000000', '"offset":9223372036854775808', '"time":"yesterday"'])
def test_a_value_that_no_column_holds_is_told_and_costs_no_other_row(member: str) -> None:
    name = member.partition(":")[0]
    values = _written([EXAMPLE] * 2 * ROWS_MIN).to_pylist()
    whole = json.loads(values[5])
    whole.pop(json.loads(name))
    values[5] = (json.dumps(whole)[:-1] + "," + member + "}").encode()
    for rows in (values, values[:9]):
        events, _, unreadable = _read(pa.array(rows, pa.binary()))
        assert (len(events), unreadable) == (len(rows) - 1, [5])


def test_large_batches_are_read_in_pieces_and_in_order() -> None:
    body = "x" * (reading.PIECE_MAX_BYTES // 100)
    events = [{**EXAMPLE, "body": body, "offset": number} for number in range(250)]
    events[7]["body"] = "y" * (3 * reading.PIECE_MAX_BYTES)
    pieces = list(read_events(_written(events)))
    assert len(pieces) > 3
    assert [row for piece in pieces for row in piece.rows.tolist()] == list(range(250))
    assert [at for piece in pieces for at in piece.events.column("offset").to_pylist()] == list(range(250))
    assert max(piece.events.nbytes for piece in pieces if 7 not in piece.rows) < 1.5 * reading.PIECE_MAX_BYTES


EXAMPLE: dict[str, Any] = {
    "time": datetime(2026, 11, 20, 12, tzinfo=UTC),
    "observed_time": datetime(2026, 11, 20, 12, tzinfo=UTC),
    "severity_number": 9,
    "severity_text": "info",
    "service": "shop",
    "host": None,
    "body": "hello",
    "attributes": "{}",
    "trace_id": None,
    "span_id": None,
    "event_id": "web:0:1",
    "weight": 1.0,
    "source": "web",
    "stream": "web",
    "partition": 0,
    "offset": 1,
}
