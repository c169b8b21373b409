"""JSON lines read by columns give what the same lines give one by one."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline_core.batches import parser, raw

from logboom.bench.router import json_lines
from logboom.pipeline.event.schema import HEADERS as HEADERS_TYPE
from logboom.pipeline.parse.json_spans import read_json_columns
from logboom.pipeline.transforms.parse import ParseTransform

FEW = 16
"""So few lines are never read by columns."""
NAMES = (
    *("time", "timestamp", "level", "severity_number", "severity_text", "service", "host", "host.name", "message"),
    *("trace_id", "span_id", "traceparent", "log.file.path", "user.id", "x", "é", ""),
)
TEXTS = (
    *(
        "",
        "info",
        "ERROR",
        "31",
        "2026-11-20T12:00:00Z",
        "20/Nov/2026:12:00:00 +0000",
        "no time",
        "a,b: c",
        "{}",
        "é\u2028",
    ),
    *("0af7651916cd43dd8448eb211c80319c", "0" * 32, "b7ad6b7169203331", "B7AD6B7169203331", "\x7f", " ", "\U0001f600"),
    *("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", '"', "\\", "\n", "\x00"),
)
PLAIN = (
    *("0", "7", "30", "-1", "-0", "1.5", "1.0", "0.10", "1e5", "1E400", "12345678901234567890123", "1532000000"),
    *("true", "false", "null", "01", "+1", "nul", "NaN", "[]", "{}", "[1,2]", '{"a":"b"}', "1 ", " 1", "tru\u00e9", ""),
)
RULES: dict[str, ParseTransform] = {
    "json": parser({"format": "json"}),
    "times": parser({"format": "json", "time_format": ["iso8601", "epoch"]}),
    "http": parser({"format": "json", "map": {"severity": "x"}, "severity": {"numbers": "http"}}),
    "pino": parser(
        {"format": "json", "severity": {"numbers": "pino"}, "defaults": {"service": "s", "severity": "warn"}}
    ),
    "path": parser({"format": "json", "map": {"service": "log.file.path"}}),
    "two": parser({"format": "json", "map": {"service": "x", "host": ["x", "user.id"]}}),
    "rules": parser({"format": "json", "time_format": "iso8601"}, {"format": "json"}, {"format": "text"}),
    "kept": parser({"format": "json"}, otherwise="keep"),
}


@st.composite
def forms(draw: st.DrawFn) -> list[bytes]:
    """Lines of one way of writing, with other values each."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=5, unique=draw(st.integers(0, 9)) > 0))
    comma, colon = draw(st.sampled_from([(", ", ": "), (",", ":"), (" , ", " :  ")]))
    plain = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        fields = []
        for name, is_plain in zip(names, plain, strict=True):
            known = PLAIN if is_plain else TEXTS
            text = draw(st.sampled_from(known[:12]) | st.sampled_from(known))
            fields.append(json.dumps(name, ensure_ascii=False) + colon + (text if is_plain else _quoted(draw, text)))
        lines.append(("{" + comma.join(fields) + "}").encode())
    return lines


def _quoted(draw: st.DrawFn, text: str) -> str:
    """Mostly as it has to be, now and then with what no text of JSON may hold."""
    return f'"{text}"' if draw(st.integers(0, 19)) == 0 else json.dumps(text, ensure_ascii=False)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes | None]:
    """Enough lines of one or several forms for columns, among them damaged ones and none at all."""
    lines: list[bytes | None] = [line for form in draw(st.lists(forms(), min_size=1, max_size=3)) for line in form]
    values = draw(st.lists(st.sampled_from(lines), min_size=4, max_size=12)) * 16
    for _ in range(draw(st.integers(0, 3))):
        values[draw(st.integers(0, len(values) - 1))] = draw(st.none() | st.binary(max_size=12) | _damaged(lines))
    return values


@st.composite
def _damaged(draw: st.DrawFn, lines: list[bytes | None]) -> bytes:
    line = bytearray(draw(st.sampled_from(lines)) or b"")
    at = draw(st.integers(0, len(line)))
    line[at : at + draw(st.integers(0, 2))] = draw(
        st.sampled_from([b"", b'"', b"\\", b",", b"\xff", b"x", b"\x01", b'":'])
    )
    return bytes(line)


def one_by_one(transform: ParseTransform, batch: pa.RecordBatch) -> pa.Table:
    parts = [transform.run(batch.slice(start, FEW), {}) for start in range(0, batch.num_rows, FEW)]
    return pa.Table.from_batches(parts)


HEADERS: tuple[Any, ...] = (None, [("log.file.path", b'/var/"a".log'), ("host.name", b"h")], [("host.name", b"i")])
headers_of_lines = st.lists(st.sampled_from(HEADERS), min_size=1, max_size=3)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("name", RULES)
@settings(max_examples=25, deadline=None)
@given(values=batches(), headers=headers_of_lines)
def test_columns_give_what_lines_give(name: str, values: list[bytes | None], headers: list[Any]) -> None:
    told = pa.array([headers[row % len(headers)] for row in range(len(values))], HEADERS_TYPE)
    batch = raw(values, extra={"headers": told})
    together = RULES[name].run(batch, {})
    together.validate(full=True)
    assert pa.Table.from_batches([together]).equals(one_by_one(RULES[name], batch))


def test_flat_lines_are_cut_whatever_their_values() -> None:
    lines = list(json_lines(100))
    (cut,) = read_json_columns(pa.array([*lines, None, b"no JSON", b'{"a":{}}'], pa.binary()))
    assert cut.rows.tolist() == list(range(100))
    told = [{column.name: column.texts[row].as_py() for column in cut.columns} for row in cut.rows]
    assert told == [{name: str(value) for name, value in json.loads(line).items()} for line in lines]


def test_forms_are_cut_apart_and_rare_ones_left() -> None:
    long, short = [b'{"a":"1","b":2}'] * 40, [b'{"a": true}'] * 50
    mixed = [line for pair in zip(long, short, strict=False) for line in pair] + short[40:] + [b'{"c":1}'] * 5
    first, second = read_json_columns(pa.array(mixed, pa.binary()))
    assert [column.name for column in first.columns] == ["a", "b"]
    assert first.rows.tolist() == list(range(0, 80, 2))
    assert second.columns[0].texts.to_pylist() == ["true"] * 50


def test_lines_that_are_not_flat_are_left() -> None:
    assert read_json_columns(pa.array([b'{"a":{"b":1}}'] * 100, pa.binary())) == []
    assert read_json_columns(pa.array([b'{"a":"\\u0041"}'] * 100, pa.binary())) == []
    assert read_json_columns(pa.array([b'{"a":"\xff"}'] * 100, pa.binary())) == []
