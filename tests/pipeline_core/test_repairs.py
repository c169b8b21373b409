"""Lines and records that were read wrongly once, each with what is right."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline_core.batches import NOON, events, parser, raw, read

from logboom.pipeline.plan.nodes import DROPPED
from logboom.pipeline.sinks.parquet.partitioning import directory_value

COLLECTED = [
    ("host.name", b"h1"),
    ("log.file.path", b'/var/log/"x"'),
    ("log.file.id", b"5f00aa0011223344"),
    ("log.file.position", b"4096"),
]


@pytest.mark.parametrize("millis", [1, -5_000, 0, -2_000, 1_763_640_000_000])
def test_the_timestamp_of_a_record_counts_whatever_it_is(millis: int) -> None:
    stamp = datetime.fromtimestamp(millis / 1_000, UTC)
    (row,) = events(parser({"format": "json"}), raw([b'{"msg":"a"}'], timestamp=stamp))
    assert row["time"] == row["observed_time"] == stamp


def test_no_timestamp_of_kafka_is_none() -> None:
    stamp = datetime.fromtimestamp(-0.001, UTC)
    (row,) = events(parser({"format": "json"}), raw([b'{"msg":"a"}'], timestamp=stamp))
    assert row["time"] is None


def test_year_one_is_a_date_of_four_digits() -> None:
    assert directory_value("date", datetime(1, 1, 1, tzinfo=UTC)) == "0001-01-01"


def test_numbers_no_double_can_hold_stay_as_text() -> None:
    (row,) = read("json", '{"msg": "a", "big": 1e999, "small": -1E+400, "fine": 1.5, "deep": [{"x": 2e308}]}')
    assert row["dead_reason"] is None
    assert row["attributes"] == {"big": "1e999", "small": "-1E+400", "fine": 1.5, "deep": [{"x": "2e308"}]}


def test_many_lines_of_one_form_keep_such_numbers_as_well() -> None:
    lines = [f'{{"msg": "a", "n": {number}}}' for number in ["1.5"] * 50 + ["1e999"] * 50]
    rows = read("json", *lines)
    assert [row["attributes"]["n"] for row in rows] == [1.5] * 50 + ["1e999"] * 50


@pytest.mark.parametrize("text", [r"\ud800", r"x\uDFFFy", r"\ud800\ud800\udc00", r"\\\ud800", r"\uDc00\ud800"])
def test_half_a_surrogate_pair_is_called_so(text: str) -> None:
    (row,) = read("json", f'{{"msg": "{text}"}}')
    assert row["dead_reason"] == r"json: JSON has half a surrogate pair (\uD800 to \uDFFF), which is not a character"


@pytest.mark.parametrize("line", [r'{"msg": "\\ud800"', r'{"msg": "\ud83d\ude00"', r'{"msg": "\u00e9"'])
def test_other_faults_keep_their_reason(line: str) -> None:
    (row,) = read("json", line)
    assert "surrogate" not in row["dead_reason"]


def test_an_empty_header_says_nothing() -> None:
    headers = [("service.name", b""), ("host.name", b"")]
    (row,) = events(parser({"format": "json", "defaults": {"service": "d"}}), raw([b'{"msg":"a"}'], headers=headers))
    assert (row["service"], row["host"]) == ("d", None)


# --- blank lines ------------------------------------------------------------------------------------------------

BLANKS = [b"level=info", b"", b" \t\r\n", b"\xef\xbb\xbf", None, b"x"]


def test_blank_lines_are_dead_letters_unless_a_file_says_otherwise() -> None:
    rows = events(parser({"format": "logfmt"}), raw(BLANKS))
    assert [row["dead_reason"] is not None for row in rows] == [False, True, True, True, True, True]


def test_blank_lines_are_dropped_by_choice() -> None:
    batch = parser({"format": "logfmt"}, blank_lines="drop").run(raw(BLANKS), {})
    assert batch.column(DROPPED).to_pylist() == [0, 1, 1, 1, 0, 0]
    reasons = batch.column("dead_reason").to_pylist()
    assert [reason is not None for reason in reasons] == [False, False, False, False, True, True]
    assert reasons[4] == "the record has no value"


def test_blank_lines_are_kept_by_choice() -> None:
    rows = events(parser({"format": "logfmt"}, blank_lines="keep"), raw(BLANKS, headers=COLLECTED))
    assert [row["body"] for row in rows] == [None, "", "", "", None, None]
    assert [row["dead_reason"] is None for row in rows] == [True, True, True, True, False, False]
    assert rows[1]["time"] == NOON
    assert rows[1]["attributes"]["log.file.position"] == 4096


# --- formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "service", "pid", "about", "body"),
    [
        ("Jul  1 09:00:55 mac-1 sandboxd[129] ([31211]): deny file-read", "sandboxd", 129, "[31211]", "deny file-read"),
        (
            "Jul  2 10:11:12 mac com.apple.xpc.launchd[1] (com.apple.imagent): exited",
            "com.apple.xpc.launchd",
            1,
            "com.apple.imagent",
            "exited",
        ),
        ("Jul  1 09:00:55 sandboxd[129] ([31211]): deny", "sandboxd", 129, "[31211]", "deny"),
        ("Jul  1 09:00:55 mac-1 sshd[7]: a (b): c", "sshd", 7, None, "a (b): c"),
    ],
)
def test_syslog_of_macos_has_service_and_process(
    line: str, service: str, pid: int, about: str | None, body: str
) -> None:
    (row,) = read("syslog_rfc3164", line)
    assert (row["service"], row["attributes"]["process.pid"], row["body"]) == (service, pid, body)
    assert row["attributes"].get("syslog.about") == about


@pytest.mark.parametrize(("text", "micros"), [("11", 11_000), ("7", 7_000), ("007", 7_000), ("636", 636_000)])
def test_milliseconds_without_padding_have_a_directive(text: str, micros: int) -> None:
    (row,) = read(
        "pattern",
        f"20171223-22:15:35:{text}|x",
        pattern=["(?P<time>[^|]*)[|]%{GREEDYDATA:body}"],
        time_format="%Y%m%d-%H:%M:%S:%i",
    )
    assert row["time"] == datetime(2017, 12, 23, 22, 15, 35, micros, tzinfo=UTC)


def test_a_key_of_logfmt_has_the_characters_of_a_key() -> None:
    (row,) = read("logfmt", "20171223-22:15:29:636|Step_SPUtils|30002312|x=1")
    assert row["dead_reason"] == "logfmt: no pair at character 1"
    (row,) = read("logfmt", "http.url=/a?b=c|d user@host=1 a:b/c-d=2 (flag) größe=3")
    assert row["attributes"] == {"http.url": "/a?b=c|d", "user@host": "1", "a:b/c-d": "2", "(flag)": True, "größe": "3"}


# --- where a line was read --------------------------------------------------------------------------------------


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["host"], row["attributes"]["log.file.id"], row["attributes"]["log.file.position"])


@pytest.mark.parametrize(("form", "line"), [("json", '{"msg":"a","n":1}'), ("json", "{}"), ("text", "a")])
@pytest.mark.parametrize("count", [1, 100])
def test_what_identifies_a_line_stays_with_the_event(form: str, line: str, count: int) -> None:
    rows = events(parser({"format": form}), raw([line.encode()] * count, headers=COLLECTED))
    for row in rows:
        assert _identity(row) == ("h1", "5f00aa0011223344", 4096)
        assert row["attributes"]["log.file.path"] == '/var/log/"x"'


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([COLLECTED, COLLECTED[:1], COLLECTED[2:], [], None]), min_size=40, max_size=60))
def test_rows_with_and_without_such_headers_are_read_alike(headers: list[list[tuple[str, bytes]] | None]) -> None:
    """By columns, as many lines of one form are, and one by one."""
    batch = raw([b'{"msg":"a","n":1}'] * len(headers))
    index = batch.schema.get_field_index("headers")
    batch = batch.set_column(index, "headers", pa.array(headers, batch.schema.field(index).type))
    transform = parser({"format": "json"})
    together = transform.run(batch, {})
    one_by_one = [transform.run(batch.slice(row, 1), {}).to_pylist()[0] for row in range(len(headers))]
    for both, single in zip(together.to_pylist(), one_by_one, strict=True):
        assert json.loads(both.pop("attributes")) == json.loads(single.pop("attributes"))
        assert both == single
