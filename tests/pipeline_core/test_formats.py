"""Every format on lines as programs write them, whole and broken."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline_core.batches import NOON, events, parser, raw, read

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.schema import EVENT_SCHEMA
from logboom.pipeline.registry import read_plan


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def one(form: str, line: str | bytes, **options: Any) -> dict[str, Any]:
    (row,) = read(form, line, **options)
    assert row["dead_reason"] is None
    return row


def reason(form: str, line: str | bytes, **options: Any) -> str:
    (row,) = read(form, line, **options)
    assert row["dead_reason"] is not None
    assert row["dead_stage"] == "parsed"
    assert row["value"] == (line.encode() if isinstance(line, str) else line)
    assert row["body"] is None
    return str(row["dead_reason"])


# --- the shape --------------------------------------------------------------------------------------------------


def test_an_event_has_its_origin_and_nothing_of_the_raw_record() -> None:
    batch = parser({"format": "json"}).run(raw([b'{"msg":"a"}'], extra={"at": pa.array([7])}), {})
    assert batch.schema.names == [*EVENT_SCHEMA.names, "at"]
    (row,) = batch.to_pylist()
    assert (row["stream"], row["partition"], row["offset"], row["source"]) == ("web", 3, 100, "s")
    assert (row["event_id"], row["weight"], row["at"]) == ("web:3:100", 1.0, 7)
    assert row["time"] == row["observed_time"] == NOON
    assert [row[name] for name in ("key", "value", "headers", "timestamp", "dead_reason")] == [None] * 5


def test_a_dead_row_keeps_its_record_and_disturbs_no_other() -> None:
    rows = events(parser({"format": "json"}), raw([b'{"msg":"a"}', b"{", None, b'{"msg":"b"}'], headers=[("h", b"1")]))
    assert [row["body"] for row in rows] == ["a", None, None, "b"]
    assert [row["dead_reason"] for row in rows] == [
        None,
        "json: not a JSON object: Input data was truncated",
        "the record has no value",
        None,
    ]
    assert (rows[1]["key"], rows[1]["value"], rows[1]["timestamp"]) == (b"k", b"{", NOON)
    assert rows[1]["headers"] == [{"key": "h", "value": b"1"}]
    assert rows[1]["event_id"] == "web:3:101"


def test_the_collectors_headers_fill_what_the_line_does_not_say() -> None:
    headers = [("host.name", b"h1"), ("log.file.path", b"/var/log/x"), ("log.observed_time_ms", b"1763640000123")]
    first, second = events(parser({"format": "json"}), raw([b'{"msg":"a"}', b'{"host":"own"}'], headers=headers))
    assert (first["host"], second["host"]) == ("h1", "own")
    assert first["attributes"] == {"log.file.path": "/var/log/x"}
    assert first["observed_time"] == datetime(2025, 11, 20, 12, 0, 0, 123000, tzinfo=UTC)
    assert first["time"] == NOON


def test_broken_headers_are_no_reason_to_fail() -> None:
    headers = [("host.name", b"\xff"), ("log.observed_time_ms", b"soon"), ("traceparent", b"?")]
    (row,) = events(parser({"format": "json"}), raw([b'{"msg":"a"}'], headers=headers))
    assert (row["host"], row["observed_time"], row["trace_id"]) == ("\ufffd", NOON, None)


def test_an_empty_batch_gives_an_empty_batch() -> None:
    for form in ("json", "syslog_rfc3164", "logfmt", "text", "nginx_access"):
        assert parser({"format": form}).run(raw([]), {}).num_rows == 0


def test_no_record_time_leaves_the_time_open() -> None:
    (row,) = events(parser({"format": "json"}), raw([b'{"msg":"a"}'], timestamp=None))
    assert row["time"] is None


# --- rules ------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_applies_and_parses_wins() -> None:
    transform = parser({"format": "json"}, {"format": "logfmt", "name": "pairs"}, {"format": "syslog_rfc3164"})
    rows = events(transform, raw([b"a=1 b=2", b'{"msg":"x"}', b"<13>Jan  1 00:00:00 h p: y", b"?"]))
    assert [row["body"] for row in rows] == [None, "x", "y", None]
    assert rows[0]["attributes"] == {"a": "1", "b": "2"}
    assert rows[3]["dead_reason"] == (
        "json: JSON is malformed: invalid character (byte 0); pairs: the first word is not a pair; "
        "syslog_rfc3164: begins with neither a priority nor a time"
    )


def test_a_rule_applies_by_its_source_and_its_condition() -> None:
    transform = parser({"format": "json", "when": "stream = 'x'"}, {"format": "text", "source": "s"})
    assert transform.rules[0].when_column is not None
    whens = {transform.rules[0].when_column: pa.array([True, False, None])}
    rows = events(transform, raw([b'{"msg":"1"}'] * 3, extra=whens))
    assert [row["body"] for row in rows] == ["1", '{"msg":"1"}', '{"msg":"1"}']
    other = events(transform, raw([b"x"], source="t", extra={transform.rules[0].when_column: pa.array([False])}))
    assert other[0]["dead_reason"] == "no rule applies to it"


def test_kept_lines_become_bodies() -> None:
    transform = parser({"format": "json"}, otherwise="keep")
    rows = events(transform, raw([b"plain\xff", b'{"msg":"x"}', None]))
    assert [row["body"] for row in rows] == ["plain\ufffd", "x", None]
    assert [row["dead_reason"] for row in rows] == [None] * 3


# --- JSON -------------------------------------------------------------------------------------------------------


def test_json_fields_fill_the_shape_and_the_rest_stays_nested() -> None:
    row = one(
        "json",
        '{"time":"2026-11-20T12:00:00.5+01:00","level":"warning","service":"shop","host":"h","message":"m",'
        '"trace_id":"0AF7651916CD43DD8448EB211C80319C","span_id":"b7ad6b7169203331","user":{"id":7,"tags":["a",null]}}',
    )
    assert row["time"] == moment("2026-11-20T11:00:00.5+00:00")
    assert (row["severity_number"], row["severity_text"]) == (13, "warning")
    assert (row["service"], row["host"], row["body"]) == ("shop", "h", "m")
    assert row["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert row["span_id"] == "b7ad6b7169203331"
    assert row["attributes"] == {"user": {"id": 7, "tags": ["a", None]}}


def test_json_names_of_many_programs_are_known() -> None:
    structlog = one("json", '{"event":"hi","level":"info","timestamp":"2026-11-20T12:00:00Z"}')
    assert (structlog["body"], structlog["severity_number"]) == ("hi", 9)
    ecs = one("json", '{"@timestamp":"2026-11-20T12:00:00Z","log":{"level":"error","logger":"x"},"message":"m"}')
    assert (ecs["severity_number"], ecs["body"], ecs["attributes"]) == (17, "m", {"log": {"logger": "x"}})
    trace = f'"trace":{{"id":"{5:032x}"}}'
    nested = one("json", '{"service":{"name":"shop","version":"1"},"host":{"name":"h"},' + trace + "}")
    assert (nested["service"], nested["host"], nested["trace_id"]) == ("shop", "h", f"{5:032x}")
    assert nested["attributes"] == {"service": {"version": "1"}, "host": {}, "trace": {}}


def test_json_fields_that_are_not_what_they_claim_stay_attributes() -> None:
    row = one("json", '{"time":"soon","trace_id":"xyz","span_id":12,"message":{"a":1},"severity_number":99}')
    assert row["time"] == NOON
    assert (row["trace_id"], row["span_id"], row["body"], row["severity_number"]) == (None, None, None, 0)
    assert row["attributes"] == {
        "time": "soon",
        "trace_id": "xyz",
        "span_id": 12,
        "message": {"a": 1},
        "severity_number": 99,
    }


def test_json_takes_the_next_name_where_the_first_is_empty_handed() -> None:
    row = one("json", '{"message":null,"msg":"second","level":{"x":1},"lvl":"error"}')
    assert (row["body"], row["severity_number"]) == ("second", 17)
    assert row["attributes"] == {"level": {"x": 1}}


def test_json_of_mapped_names() -> None:
    options: dict[str, Any] = {
        "map": {"body": ["what", "http.note"], "time": "when", "service": "app.id"},
        "defaults": {"host": "d"},
    }
    rows = read(
        "json", '{"what":"w","message":"m","when":1763640000}', '{"http":{"note":"n"},"app":{"id":3}}', **options
    )
    assert (rows[0]["body"], rows[0]["attributes"]) == ("w", {"message": "m"})
    assert rows[0]["time"] == datetime(2025, 11, 20, 12, tzinfo=UTC)
    assert (rows[1]["body"], rows[1]["service"], rows[1]["host"]) == ("n", "3", "d")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"", "the line is empty"),
        (b" \r\n", "the line is empty"),
        (b"[1]", "json: not a JSON object: Expected `object`, got `array`"),
        (b"7", "json: not a JSON object: Expected `object`, got `int`"),
        (b'{"a":NaN}', "json: JSON is malformed: invalid character (byte 5)"),
        (b'{"a":"\xff"}', "json: JSON is not UTF-8"),
        (b'{"a":1}{"b":2}', "json: JSON is malformed: trailing characters (byte 8)"),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "json: JSON is nested deeper than 100"),
        (b"[" * 200_000, "json: not a JSON object: Expected `object`, got `array`"),
        (b'{"a":' * 200_000, "json: JSON is nested deeper than 100"),
    ],
)
def test_json_that_is_none_says_why(line: bytes, text: str) -> None:
    assert reason("json", line) == text


def test_json_oddities_are_defined() -> None:
    assert one("json", b'\xef\xbb\xbf{"a":1}')["attributes"] == {"a": 1}
    assert one("json", b'{"a":1,"a":2}')["attributes"] == {"a": 2}
    assert one("json", b'{"a":123456789012345678901234567890}')["attributes"] == {"a": 123456789012345678901234567890}
    assert one("json", b'{"a":"\\u0000","msg":"n\\u0000l"}')["body"] == "n\0l"
    assert one("json", b'{"a":' + b"[" * 99 + b"]" * 99 + b"}")["dead_reason"] is None
    assert one("json", b'{"msg":"' + b"x" * 1_000_000 + b'"}')["body"] == "x" * 1_000_000
    assert one("json", b"{}")["attributes"] == {}


def test_traceparent_of_field_or_header() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    row = one("json", f'{{"traceparent":"{parent}"}}')
    assert (row["trace_id"], row["span_id"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert row["attributes"] == {}
    (row,) = events(parser({"format": "json"}), raw([b"{}"], headers=[("traceparent", parent.encode())]))
    assert row["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    zero = one("json", f'{{"trace_id":"{0:032x}","traceparent":"00-{0:032x}-{1:016x}-01"}}')
    assert zero["trace_id"] is None
    assert set(zero["attributes"]) == {"trace_id", "traceparent"}


@pytest.mark.parametrize(
    ("scale", "value", "number"),
    [("pino", 30, 9), ("python", 30, 13), ("syslog", 3, 17), ("otel", 18, 18), ("otel", 30, 0), ("http", 503, 17)],
)
def test_severity_numbers_by_scale(scale: str, value: int, number: int) -> None:
    row = one("json", f'{{"level":{value}}}', severity={"numbers": scale})
    assert row["severity_number"] == number


def test_severity_words() -> None:
    words = {"Warning": 13, "E": 17, "ERROR2": 18, "crit": 18, "CRITICAL": 21, "notice": 10, "emerg": 21, "what": 0}
    for word, number in words.items():
        row = one("json", f'{{"level":"{word}"}}')
        assert (row["severity_number"], row["severity_text"]) == (number, word)
    own = one("json", '{"level":"Fehler"}', severity={"texts": {"fehler": "ERROR2"}})
    assert own["severity_number"] == 18
    told = one("json", '{"severity_text":"oops","severity_number":21,"level":"info"}')
    assert (told["severity_number"], told["severity_text"]) == (21, "oops")


# --- pairs and CSV ----------------------------------------------------------------------------------------------


def test_logfmt() -> None:
    row = one("logfmt", r'ts=2026-11-20T12:00:00Z level=err msg="a \"q\" é" flag empty= url=/a?b=c n=007')
    assert (row["body"], row["severity_number"]) == ('a "q" é', 17)
    assert row["attributes"] == {"flag": True, "empty": "", "url": "/a?b=c", "n": "007"}
    assert reason("logfmt", "just a sentence with a=1") == "logfmt: the first word is not a pair"
    assert reason("logfmt", 'a="open') == "logfmt: no pair at character 1"
    assert reason("logfmt", "") == "the line is empty"


def test_key_value_with_other_separators() -> None:
    row = one("key_value", 'a: 1 ;b :"x;y";c:z:d;', pair_separator=";", key_value_separator=":")
    assert row["attributes"] == {"a": "1", "b": "x;y", "c": "z:d"}
    spaced = one("key_value", "a->1 | b->two words", pair_separator="|", key_value_separator="->")
    assert spaced["attributes"] == {"a": "1", "b": "two words"}


def test_csv() -> None:
    row = one("csv", '2026-11-20T12:00:00Z,info,"a ""b"", c\nd",', columns=["time", "level", "msg", "x"])
    assert (row["body"], row["severity_number"], row["attributes"]) == ('a "b", c\nd', 9, {})
    assert one("csv", "1\t2\t", columns=["a", "b", "c"], delimiter="\t")["attributes"] == {"a": "1", "b": "2"}
    assert reason("csv", "1,2", columns=["a", "b", "c"]) == "csv: has 2 values where 3 are expected"
    assert reason("csv", '"1,2', columns=["a", "b"]) == "csv: has a quote that is never closed"
    assert reason("csv", '"1"x,2', columns=["a", "b"]) == "csv: has text after a closing quote at character 4"
    assert reason("csv", "a,b", columns=["a", "b"]) == "csv: is the row of column names"


# --- syslog -----------------------------------------------------------------------------------------------------


def test_rfc3164_examples() -> None:
    row = one("syslog_rfc3164", "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8")
    assert (row["host"], row["service"], row["severity_number"]) == ("mymachine", "su", 18)
    assert row["body"] == "'su root' failed for lonvick on /dev/pts/8"
    assert row["attributes"] == {"syslog.facility": "auth"}
    assert row["time"] == datetime(2026, 10, 11, 22, 14, 15, tzinfo=UTC)
    local = one("syslog_rfc3164", "<13>Oct 11 22:14:15 cron[12]: ran")
    assert (local["host"], local["service"], local["attributes"]["process.pid"]) == (None, "cron", 12)
    iso = one("syslog_rfc3164", "2026-11-20T12:00:00.123456+01:00 host app[x]: m")
    assert (iso["time"], iso["attributes"]) == (moment("2026-11-20T12:00:00.123456+01:00"), {"process.pid": "x"})
    bare = one("syslog_rfc3164", "<13>hello  there")
    assert (bare["body"], bare["host"]) == ("hello  there", None)


def test_rfc3164_year_is_that_of_the_record() -> None:
    new_year = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)
    lines = [b"Dec 31 23:59:59 h p: a", b"Jan  1 00:00:04 h p: b", b"Feb 29 00:00:00 h p: c"]
    rows = events(parser({"format": "syslog_rfc3164"}), raw(lines, timestamp=new_year))
    assert [row["time"].year for row in rows] == [2025, 2026, 2024]
    early = datetime(2025, 12, 31, 23, 59, 58, tzinfo=UTC)
    (row,) = events(parser({"format": "syslog_rfc3164"}), raw([b"Jan  1 00:00:01 h p: a"], timestamp=early))
    assert row["time"].year == 2026


def test_rfc5424_examples() -> None:
    row = one(
        "syslog_rfc5424",
        '<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut="3" '
        'eventSource="App\\"l\\]" iut="4"][other@1] \ufeffAn application event',
    )
    assert row["time"] == moment("2003-10-11T22:14:15.003+00:00")
    assert (row["host"], row["service"], row["severity_number"]) == ("mymachine.example.com", "evntslog", 10)
    assert row["body"] == "An application event"
    assert row["attributes"] == {
        "syslog.facility": "local4",
        "syslog.msgid": "ID47",
        "syslog.structured_data": {"exampleSDID@32473": {"iut": ["3", "4"], "eventSource": 'App"l]'}, "other@1": {}},
    }
    empty = one("syslog_rfc5424", "<34>1 - - - - - -")
    assert (empty["time"], empty["host"], empty["body"]) == (NOON, None, "")
    assert one("syslog_rfc5424", "31 <34>1 - h - - - - counted")["body"] == "counted"
    assert reason("syslog_rfc5424", "<999>1 - - - - - -").endswith("the highest valid one is 191")
    assert reason("syslog_rfc5424", "<34>2 - - - - - -") == "syslog_rfc5424: has no syslog header"


def test_body_read_once_more() -> None:
    row = one("syslog_rfc3164", '<34>Oct 11 22:14:15 h app[1]: {"msg":"in","level":"warn","a":1}', body_format="json")
    assert (row["body"], row["severity_number"], row["service"]) == ("in", 13, "app")
    assert row["attributes"]["a"] == 1
    kept = one("syslog_rfc3164", "<34>Oct 11 22:14:15 h app[1]: {broken", body_format="json")
    assert (kept["body"], kept["severity_number"]) == ("{broken", 18)


def test_what_a_body_says_wins_over_what_stands_around_it_under_another_name() -> None:
    """Docker's `time` is when it read the line; the priority of its syslog driver is the same for all lines."""
    inner = {"ts": "2026-11-20T08:00:00Z", "lvl": "error", "msg": "no money", "app": "shop", "host": {"cpu": 1}}
    envelope = {"log": json.dumps(inner), "time": "2026-11-20T09:00:00Z", "severity_number": 9, "hostname": "h", "n": 1}
    row = one("json", json.dumps(envelope), body_format="json")
    assert (row["time"].hour, row["severity_number"], row["service"], row["body"]) == (8, 17, "shop", "no money")
    assert (row["host"], row["attributes"]) == ("h", {"n": 1, "host": {"cpu": 1}})


COMBINED = '192.0.2.7 - ann [20/Nov/2026:12:34:56 +0100] "GET /a?b=1 HTTP/1.1" 503 12 "-" "curl/8"'


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("nginx_access", COMBINED),
        ("access_common", COMBINED.partition(' "-"')[0]),
        ("apache_error", "[Fri Nov 20 12:34:56.789 2026] [core:error] [pid 7:tid 8] [client 192.0.2.7:1] no file"),
        ("nginx_error", "2026/11/20 12:34:56 [warn] 7#8: *9 upstream is slow, client: 192.0.2.7, server: a"),
        ("log4j", "2026-11-20 12:34:56,789 ERROR [main] org.example.Shop - no money"),
        ("zookeeper", "2026-11-20 12:34:56,789 - WARN  [main:QuorumPeer@7] - no leader"),
        ("openstack", "2026-11-20 12:34:56.789 7 ERROR nova.api [req-1 u] no host"),
        ("postgresql", "2026-11-20 12:34:56.789 UTC [7] ann@shop ERROR:  no table"),
        ("dpkg", "2026-11-20 12:34:56 status installed bash:amd64 5.2"),
        ("syslog_rfc3164", "<11>Nov 20 12:34:56 h sshd[7]: no key"),
        ("syslog_rfc5424", "<11>1 2026-11-20T12:34:56.789Z h sshd 7 - - no key"),
    ],
)
def test_a_line_of_a_program_inside_json_says_what_it_says_alone(form: str, line: str) -> None:
    """As agents of containers write it: the line in `log` or `message`, and what they know beside it."""
    alone = one(form, line)
    envelope = {"log": f"{line}\n", "level": "info", "@timestamp": "2026-11-21T00:00:00Z", "kubernetes": {"pod": "p"}}
    row = one("json", json.dumps(envelope), body_format=form)
    said = ("time", "body", "service", "host", "severity_number")
    assert {name: row[name] for name in said if alone[name]} == {name: alone[name] for name in said if alone[name]}
    assert row["attributes"].items() >= {**alone["attributes"], "kubernetes": {"pod": "p"}}.items()
    other = one("json", json.dumps({**envelope, "log": "# no such line"}), body_format=form)
    assert (other["body"], other["severity_number"], other["time"].day) == ("# no such line", 9, 21)


def test_a_body_is_read_by_a_pattern_of_ones_own() -> None:
    pattern = ["%{LOGLEVEL:severity} order %{INT:order:int}: %{GREEDYDATA:body}", "tick %{INT:tick:int}"]
    row = one("json", '{"message": "ERROR order 7: no money", "service": "shop"}', body_pattern=pattern)
    assert (row["body"], row["severity_number"], row["service"]) == ("no money", 17, "shop")
    assert row["attributes"] == {"order": 7}
    assert one("json", '{"message": "tick 8"}', body_pattern=pattern)["attributes"] == {"tick": 8}
    assert one("json", '{"message": "else"}', body_pattern=pattern)["body"] == "else"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("body_format: klog", "body_format: unknown format of a body 'klog'"),
        ("body_format: jsn", "body_format: unknown format of a body 'jsn' (did you mean 'json'?)"),
        ("body_format: text", "body_format: unknown format of a body 'text'"),
        ("body_pattern: '%{NOSUCH:a}'", "body_pattern: pattern "),
        ("body_pattern: []", "body_pattern: is empty"),
        ("body_format: json, body_pattern: '.*'", "body_pattern: says how bodies are read, and so does body_format"),
    ],
)
def test_what_cannot_read_bodies_is_refused(keys: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        compile_pipeline(_with_rule(keys), "p.yaml")
    assert message in str(refused.value)


def test_a_plan_keeps_how_bodies_are_read() -> None:
    plan = compile_pipeline(_with_rule("body_pattern: '%{INT:n:int}'"), "p.yaml")
    assert read_plan(plan.to_json()) == plan


def _with_rule(keys: str) -> str:
    return (
        "name: p\nsources: {s: {type: stream, stream: s}}\nsinks: {k: {type: console, inputs: [x]}}\n"
        f"transforms: {{x: {{type: parse, inputs: [s], rules: [{{format: json, {keys}}}]}}}}\n"
    )


# --- access and error logs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["nginx_access", "apache_access", "access_combined"])
def test_combined(form: str) -> None:
    row = one(
        form,
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=1 HTTP/1.0" 200 2326 '
        '"http://www.example.com/" "Mozilla/4.08 [en] (\\"q\\")"',
    )
    assert row["time"] == moment("2000-10-10T13:55:36-07:00")
    assert (row["body"], row["severity_number"]) == ("GET /a.gif?x=1 HTTP/1.0", 9)
    assert row["attributes"] == {
        "client.address": "127.0.0.1",
        "user.name": "frank",
        "http.request.method": "GET",
        "url.path": "/a.gif",
        "url.query": "x=1",
        "network.protocol.version": "1.0",
        "http.response.status_code": 200,
        "http.response.body.size": 2326,
        "http.request.header.referer": "http://www.example.com/",
        "user_agent.original": 'Mozilla/4.08 [en] (\\"q\\")',
    }


def test_access_lines_that_are_odd() -> None:
    common = one("nginx_access", '::1 - - [10/Oct/2000:13:55:36 -0700] "-" 408 -')
    assert common["attributes"] == {"client.address": "::1", "http.response.status_code": 408}
    assert common["severity_text"] == "WARN"
    probe = one("nginx_access", '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "\\x16\\x03\\x01" 400 166 "-" "-"')
    assert probe["body"] == "\\x16\\x03\\x01"
    vhost = one("apache_access", 'shop.example:443 1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/2.0" 500 -')
    assert (vhost["attributes"]["server.address"], vhost["severity_number"]) == ("shop.example", 17)
    assert "does not have the format %d/%b/%Y" in reason(
        "nginx_access", '1.2.3.4 - - [10/Foo/2000:13:55:36 -0700] "GET /" 200 1'
    )


def test_error_logs() -> None:
    old = one("apache_error", "[Sun Dec 04 04:47:44 2005] [error] [client 1.2.3.4] File does not exist: /x")
    assert (old["body"], old["attributes"]) == ("File does not exist: /x", {"client.address": "1.2.3.4"})
    new = one(
        "apache_error",
        "[Wed Oct 11 14:32:52.123456 2017] [core:crit] [pid 35708:tid 4328636416] [client 72.15.99.187:5000] AH12: m",
    )
    assert new["time"] == datetime(2017, 10, 11, 14, 32, 52, 123456, tzinfo=UTC)
    assert (new["severity_number"], new["attributes"]["module"], new["body"]) == (18, "core", "AH12: m")
    nginx = one(
        "nginx_error",
        '2017/10/11 14:32:52 [error] 123#0: *1 failed, client: 1.2.3.4, server: ex.com, request: "GET / HTTP/1.1"',
        timezone="Europe/Berlin",
    )
    assert nginx["time"] == datetime(2017, 10, 11, 12, 32, 52, tzinfo=UTC)
    assert nginx["attributes"]["client.address"] == "1.2.3.4"
    assert nginx["attributes"]["request"] == "GET / HTTP/1.1"


@pytest.mark.parametrize(
    ("form", "line", "body", "component"),
    [
        ("log4j", "2015-10-18 18:01:47,978 INFO [main] org.apache.App: m", "m", "org.apache.App"),
        ("log4j", "[2020-01-01 00:00:00,000] WARN a b (kafka.server.KafkaServer)", "a b", "kafka.server.KafkaServer"),
        ("log4j", "17/06/09 20:10:40 INFO executor.Backend: m", "m", "executor.Backend"),
        ("log4j", "2019-03-05 10:57:51.112  INFO 45469 --- [  main] o.s.b.Tomcat   : m", "m", "o.s.b.Tomcat"),
        ("log4j", "2020-01-01 12:00:00.123 [main] INFO  c.e.App - m\n\tat x.y(Z.java:1)", None, "c.e.App"),
        ("hdfs", "081109 203615 148 INFO dfs.DataNode$PacketResponder: m", "m", "dfs.DataNode$PacketResponder"),
        ("zookeeper", "2015-07-29 19:04:12,394 - INFO  [/10.1.1.1:3888:Q$L@493] - m", "m", "Q$L"),
        ("openstack", "2017-05-16 00:00:00.008 25746 INFO nova.wsgi [req-1 - -] m", "m", "nova.wsgi"),
    ],
)
def test_java_and_python_layouts(form: str, line: str, body: str | None, component: str) -> None:
    row = one(form, line)
    assert row["attributes"]["component"] == component
    assert row["body"] == (body or "m\n\tat x.y(Z.java:1)")
    assert row["severity_number"] in (9, 13)
    assert row["time"].year in (2008, 2015, 2017, 2019, 2020)


def test_programs_of_a_host() -> None:
    dpkg = one("dpkg", "2026-01-01 10:00:00 status installed libc6:amd64 2.36-9")
    assert (dpkg["attributes"]["action"], dpkg["attributes"]["package"]) == ("status", "libc6")
    klog = one("klog", "E0704 17:18:19.000123   77 server.go:12] broke")
    assert (klog["body"], klog["severity_number"], klog["time"].microsecond) == ("broke", 17, 123)
    redis = one("redis", "1:M 05 Jun 2023 08:09:10.123 * Ready to accept connections")
    assert redis["body"] == "Ready to accept connections"
    postgres = one("postgresql", "2023-06-05 08:09:10.123 UTC [77] app@shop ERROR:  relation missing")
    assert (postgres["severity_number"], postgres["attributes"]["user.name"]) == (17, "app")


@pytest.mark.parametrize(
    ("line", "severity", "component", "body"),
    [
        ("03-17 16:13:38.811  1702  2395 D WindowManager: wtoken = A{1}", 5, "WindowManager", "wtoken = A{1}"),
        ("2026-03-17 16:13:38.811  1702  2395 V Tag     : a: b", 1, "Tag", "a: b"),
        ("03-17 16:13:38.811 u0_a12  1702  2395 I a:b: text", 9, "a:b", "text"),
        ("03-17 16:13:38.811  1702  2395 W Tag     :", 13, "Tag", None),
        ("03-17 16:13:38.811 F/libc    (  702): Fatal signal 11", 21, "libc", "Fatal signal 11"),
        ("E/Unity   (12702): boom", 17, "Unity", "boom"),
    ],
)
def test_logcat_in_its_usual_formats(line: str, severity: int, component: str, body: str | None) -> None:
    row = one("logcat", line)
    assert (row["severity_number"], row["attributes"]["component"]) == (severity, component)
    assert row["body"] == body
    assert row["attributes"]["process.pid"] in (702, 1702, 12702)
    if line[0].isdigit():
        assert (row["time"].month, row["time"].day, row["time"].microsecond) == (3, 17, 811_000)


def test_logcat_names_its_buffers() -> None:
    assert one("logcat", "--------- beginning of main")["body"] == "--------- beginning of main"
    assert "logcat" in reason("logcat", "-----")


# --- patterns ---------------------------------------------------------------------------------------------------


def test_patterns_with_names_types_and_own_groups() -> None:
    pattern = (
        r"%{TIMESTAMP_ISO8601:time} %{LOGLEVEL:level} \[(?P<thread>[^\]]+)\] in %{NUMBER:ms:float} of %{INT:n:int}"
    )
    row = one("pattern", "2026-11-20 12:00:00,5 WARN [t 1] in 1.5 of 7", pattern=pattern)
    assert row["attributes"] == {"thread": "t 1", "ms": 1.5, "n": 7}
    assert (row["severity_number"], row["time"].microsecond) == (13, 500000)
    assert reason("pattern", "no", pattern=pattern, name="mine") == "mine: does not match mine"


def test_patterns_are_tried_in_order_and_empty_groups_are_absent() -> None:
    rows = read("pattern", "a 1", "b 2", "a;", pattern=[r"a (?P<x>\d+)", r"b (?P<y>\d+)|a;(?P<y>\d*)(?P<z>.*)"])
    assert [row["attributes"] for row in rows] == [{"x": "1"}, {"y": "2"}, {}]


def test_a_time_that_is_not_as_the_rule_says_makes_a_line_unreadable() -> None:
    text = reason("pattern", "12:00 x", pattern=r"%{NOTSPACE:time} %{DATA:body}", time_format="%d/%m/%Y")
    assert text == "pattern: the time '12:00' does not have the format %d/%m/%Y"
    row = one("pattern", "03/04/2026 x", pattern=r"%{NOTSPACE:time} %{DATA:body}", time_format="%d/%m/%Y")
    assert row["time"] == datetime(2026, 4, 3, tzinfo=UTC)


def test_text_takes_everything() -> None:
    assert one("text", b"a\xff\0b \r\n")["body"] == "a\ufffd\0b"
    assert reason("text", " ") == "the line is empty"
