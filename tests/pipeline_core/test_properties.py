"""What holds for any bytes: no kernel raises, rows stay rows, what was written is read back."""

import csv
import io
import json
import math
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.pipeline_core.batches import events, parser, raw

from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.normalise.fields import body_names
from logboom.pipeline.parse.formats.registry import format_types

OPTIONS: dict[str, dict[str, Any]] = {
    "csv": {"columns": ["time", "level", "x"]},
    "key_value": {"pair_separator": ";", "key_value_separator": ":"},
    "pattern": {"pattern": "%{NOTSPACE:time} (?:%{INT:n:int}|%{NUMBER:n:float})? ?%{GREEDYDATA:body}"},
}
FORMATS = tuple(format_types())
TRANSFORMS = {form: parser({"format": form, **OPTIONS.get(form, {})}) for form in FORMATS}
EVERYTHING = parser(*({"format": form, **OPTIONS.get(form, {})} for form in FORMATS))

ALPHABET = b' \t\r\n"\\=[]{}<>:;,.-+/@%0123456789TZaeflnrstu\x00\x7f\x80\xc3\xa9\xef\xbb\xbf\xff'
rough = st.lists(st.sampled_from(ALPHABET), max_size=60).map(bytes)
lines = st.one_of(st.none(), st.binary(max_size=80), rough)
SEEDS = [
    b'{"time":"2026-11-20T12:00:00Z","level":"info","msg":"m","trace_id":"0af7651916cd43dd8448eb211c80319c","n":[1,{}]}',
    b'ts=2026-11-20T12:00:00Z level=err msg="a \\"q\\"" flag',
    b"<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed",
    b'<165>1 2003-10-11T22:14:15.003Z h app 12 ID47 [a@1 b="c\\]"] m',
    b'1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326 "r" "ua"',
    b"[Wed Oct 11 14:32:52.123456 2017] [core:error] [pid 1:tid 2] [client 1.2.3.4:5] m",
    b"2015-07-29 19:04:12,394 - INFO  [/10.1.1.1:3888:Q$L@493] - m",
    b'2026-11-20T12:00:00Z,info,"a ""b"""',
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good line with a few bytes changed, cut out or put in."""
    line = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(line) - 1, 0)))
        line[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(line)


def check_shape(form: str, values: list[bytes | None]) -> None:
    batch = TRANSFORMS[form].run(raw(values), {})
    assert batch.schema.equals(EVENT_SCHEMA)
    assert batch.num_rows == len(values)
    batch.validate(full=True)
    for index, row in enumerate(batch.to_pylist()):
        assert row["offset"] == 100 + index
        assert (row["dead_reason"] is None) == (row["dead_stage"] is None)
        if row["dead_reason"] is None:
            assert isinstance(json.loads(row["attributes"]), dict)
            assert row["value"] is None
            assert 0 <= row["severity_number"] <= 24
        else:
            assert row["value"] == values[index]


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.one_of(lines, damaged()), max_size=6))
def test_no_format_raises_on_any_bytes(form: str, values: list[bytes | None]) -> None:
    check_shape(form, values)


@settings(max_examples=25, deadline=None)
@given(values=st.lists(st.one_of(lines, damaged()), max_size=12))
def test_all_rules_together_keep_rows_and_order(values: list[bytes | None]) -> None:
    batch = EVERYTHING.run(raw(values), {})
    assert batch.column("offset").to_pylist() == list(range(100, 100 + len(values)))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TAKEN = {
    *(
        "time",
        "timestamp",
        "ts",
        "level",
        "severity",
        "service",
        "host",
        "message",
        "msg",
        "event",
        "log",
        "text",
        "app",
    ),
}


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, float) and isinstance(ours, int | float):
        return math.isclose(float(ours), theirs, rel_tol=0, abs_tol=0)
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=6).map(lambda key: f"x{key}"), json_values, max_size=5))
@example({"xa": "\u2028\x7f\x00 \U0001f600", "xb": [[], {}, -0.0, 1e300]})
def test_json_attributes_are_what_was_written(fields: dict[str, Any]) -> None:
    (row,) = events(TRANSFORMS["json"], raw([msgspec.json.encode(fields)]))
    assert row["dead_reason"] is None
    assert same(row["attributes"], fields)


NO_SURROGATES = st.characters(exclude_categories=["Cs"])
key_characters = st.characters(
    min_codepoint=33, exclude_characters="=\"'\\`|,;(){}<>", exclude_categories=["Cs", "Z", "Cc"]
)
plain_key = st.text(key_characters, min_size=1)
no_nul = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
any_text = st.text(NO_SURROGATES, max_size=12)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(plain_key.map(lambda key: f"x{key}"), any_text, min_size=1, max_size=5))
def test_logfmt_is_read_as_it_was_written(fields: dict[str, str]) -> None:
    line = " ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in fields.items())
    (row,) = events(TRANSFORMS["logfmt"], raw([line.encode()]))
    assert row["attributes"] == fields


@settings(max_examples=80, deadline=None)
@given(st.lists(st.text(no_nul, max_size=10), min_size=3, max_size=3))
def test_csv_is_read_as_it_was_written(values: list[str]) -> None:
    columns = ["c1", "c2", "c3"]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(values)
    (row,) = events(parser({"format": "csv", "columns": columns}), raw([out.getvalue().encode()]))
    assert row["attributes"] == {name: value for name, value in zip(columns, values, strict=True) if value}


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*sorted(TAKEN), "trace_id", "span_id", "traceparent", "@timestamp"]), json_values)
)
def test_no_value_of_a_known_name_is_lost(fields: dict[str, Any]) -> None:
    """What a name of the shape promises and does not keep stays an attribute."""
    (row,) = events(TRANSFORMS["json"], raw([msgspec.json.encode(fields)]))
    assert row["dead_reason"] is None
    filled = [row[name] for name in ("service", "host", "body", "trace_id", "span_id", "severity_text")]
    for name, value in fields.items():
        if isinstance(value, dict | list):
            assert same(row["attributes"][name], value)
        elif (
            isinstance(value, str) and name not in row["attributes"] and name in body_names(TRANSFORMS["json"].rules[0])
        ):
            assert value in filled


def test_large_lines_of_every_format_are_one_rows_affair() -> None:
    big = b"x" * 1_000_000
    values: list[bytes | None] = [
        big,
        b'{"msg":"' + big + b'"}',
        b"a=" + big,
        b'"' + big,
        b"<34>" + big,
        None,
        b"\0" * 100_000,
    ]
    for form in FORMATS:
        check_shape(form, values)


def test_many_different_shapes_are_read_alike() -> None:
    values = [json.dumps({f"k{index}": index, "msg": f"m{index}"}).encode() for index in range(5_000)]
    batch = TRANSFORMS["json"].run(raw(values), {})
    assert batch.column("body").to_pylist() == [f"m{index}" for index in range(5_000)]
    assert json.loads(batch.column("attributes")[4_999].as_py()) == {"k4999": 4999}


def test_slices_of_batches_are_read_like_whole_ones() -> None:
    whole = raw([json.dumps({"msg": str(index)}).encode() for index in range(100)], headers=[("host.name", b"h")])
    part = whole.slice(40, 20)
    batch = TRANSFORMS["json"].run(part, {})
    assert batch.column("body").to_pylist() == [str(index) for index in range(40, 60)]
    assert batch.column("host").to_pylist() == ["h"] * 20
    assert pa.types.is_string(batch.schema.field("attributes").type)
