"""Events as nobody writes them, and what has to become of them in any sink: taken once, or a dead letter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.pipeline_sinks.harness import Delivering, event

TEN_MB: Final = 10_000_000
MARK: Final = "@ATTRIBUTES@"


def raw(attributes: bytes, **fields: Any) -> Any:
    """An event whose attributes are these bytes, by its number."""
    return lambda number: (
        json.dumps(event(number, attributes=MARK, **fields)).encode().replace(f'"{MARK}"'.encode(), attributes)
    )


def made(**fields: Any) -> Any:
    """An event with these fields instead of the usual ones; those that are None are left out, as in an edge."""

    def make(number: int) -> bytes:
        fields_of_it = {name: value for name, value in event(number, **fields).items() if value is not None}
        return json.dumps(fields_of_it, ensure_ascii=False).encode()

    return make


def nested(levels: int) -> bytes:
    return b'{"x":' + b"[" * levels + b"]" * levels + b"}"


ODD: Final[Mapping[str, Any]] = {
    "a body of 10 MB": made(body="x" * TEN_MB),
    "attributes of 10 MB": made(attributes={"x": "y" * TEN_MB}),
    "NUL": made(body="a\0b", attributes={"a\0": "b\0"}),
    "control characters and lines": made(body="a\r\nb\x0b\x0c\x1b\x7f\x85\u2028\u2029", attributes={"\n": "\t"}),
    "characters beyond the plane": made(body="\U0001f600\ufffe\ufdd0", attributes={"\U0001f600": "\u202e"}),
    "no UTF-8 in the body": lambda number: made(body="@")(number).replace(b'"@"', b'"\xff"'),
    "no UTF-8 in an attribute": raw(b'{"x":"\xff"}'),
    "half a surrogate pair": raw(b'{"x":"\\ud800"}'),
    "400 digits": raw(b'{"x":' + b"9" * 400 + b"}"),
    "5000 digits": raw(b'{"x":' + b"9" * 5_000 + b"}"),
    "400 digits behind the point": raw(b'{"x":0.' + b"1" * 400 + b"}"),
    "a number beyond doubles": raw(b'{"x":1e999}'),
    "more than 64 bits": raw(b'{"x":18446744073709551616,"y":-9223372036854775809}'),
    "NaN": raw(b'{"x":NaN}'),
    "Infinity": raw(b'{"x":-Infinity}'),
    "the year 1": made(time="0001-01-01T00:00:00.000Z"),
    "the year 9999": made(time="9999-12-31T23:59:59.999999Z"),
    "before 1970": made(time="1969-12-31T23:59:59.999999Z"),
    "no time at all": made(time=None, observed_time=None),
    "a time without a zone": made(time="2026-11-23T07:00:00"),
    "a time that is none": made(time="yesterday"),
    "an empty body": made(body=""),
    "a blank body": made(body=" \n"),
    "no body": made(body=None),
    "no attributes": raw(b"{}"),
    "5000 attributes": made(attributes={f"key{at}": at for at in range(5_000)}),
    "a name of 1000 characters": made(attributes={"n" * 1_000: 1}),
    "an empty name": made(attributes={"": 1, ".": 2, "..": 3}),
    "names that are equal up to case": made(attributes={"Status": 1, "status": 2, "STATUS": "3"}),
    "a name twice": raw(b'{"x":1,"x":2}'),
    "names of the product's own": made(
        attributes={
            **dict.fromkeys(("message", "body", "timestamp", "time", "@timestamp", "service", "event_id"), "forged"),
            **dict.fromkeys(("logboom.event_id", "insertId", "ddtags", "ddsource", "eventType", "_id"), "forged"),
        }
    ),
    "100 levels": raw(nested(100)),
    "900 levels": raw(nested(900)),
    "10,000 levels": raw(nested(10_000)),
    "attributes that are a list": raw(b"[1]"),
    "attributes that are null": raw(b"null"),
    "a trace that is no hexadecimal number": made(trace_id="z" * 32, span_id="z" * 16),
    "no service": made(host=None, severity_text=None, severity_number=None, trace_id=None, span_id=None),
    "a tombstone": lambda _: None,
    "nothing": lambda _: b"",
    "no object": lambda _: b"[7]",
    "no JSON": lambda _: b"\xde\xad",
}
NAMES: Final = tuple(ODD)
UNREADABLE = frozenset(("a tombstone", "nothing", "no object", "no JSON", "NaN", "Infinity", "10,000 levels"))
UNREADABLE |= {"no UTF-8 in the body", "no UTF-8 in an attribute", "half a surrogate pair"}
"""What is not an event."""


def odd_batch() -> list[Any]:
    """Each odd event behind one as usual: their offsets are even and odd."""
    values: list[Any] = []
    for place, name in enumerate(NAMES):
        values += [event(2 * place), ODD[name](2 * place + 1)]
    return values


def dead_of(batch: Delivering) -> dict[str, str]:
    """By name of the odd event: why it is a dead letter."""
    assert all(one.offset % 2 for one in batch.letters.refused), "one of the usual events is a dead letter"
    return {NAMES[one.offset // 2]: one.reason for one in batch.letters.refused}


def check_all(batch: Delivering, taken: Mapping[str, int]) -> dict[str, str]:
    """Each event was taken once or is a dead letter, and only one of both; the reasons by name."""
    dead = dead_of(batch)
    assert all(dead.values())
    assert dead.keys() >= UNREADABLE
    expected = {f"web:0:{number}" for number in range(0, 2 * len(NAMES), 2)}
    expected |= {f"web:0:{2 * place + 1}" for place, name in enumerate(NAMES) if name not in dead}
    assert dict(taken) == dict.fromkeys(expected, 1)
    assert batch.dead == len(dead) == len(batch.letters.refused)
    return dead


def assert_reasons(dead: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Those are dead letters, for these reasons, beside what is not an event."""
    assert dead.keys() - UNREADABLE == expected.keys()
    for name, words in expected.items():
        assert words in dead[name]


NO_OBJECT: Final = {
    "5000 digits": "Integer value out of range",
    "a number beyond doubles": "Number out of range",
    "attributes that are a list": "Expected `object`",
    "attributes that are null": "Expected `object`",
}
"""Of sinks that read the attributes, and why."""
NO_RECORD: Final = {"900 levels": "recursion depth", "a trace that is no hexadecimal number": "non-hexadecimal"}
"""Of OTLP."""
NO_TIME: Final = {"a time without a zone": "has no zone", "a time that is none": "isoformat string"}
