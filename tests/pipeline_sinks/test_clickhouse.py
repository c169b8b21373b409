"""The sink `clickhouse` and a real server: rows arrive whole, a refused row dies alone, a crash loses nothing."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline_sinks.harness import Delivering, delivering, edge_batch, event, held_in, pipeline_of, sink_of
from tests.pipeline_sinks.odd_events import NO_OBJECT, assert_reasons, check_all, odd_batch
from tests.pipeline_sinks.server import IN_DOUBT, NOT_TAKEN, Fault, Gateway, Server
from tests.support.clickhouse import PASSWORD, ClickhouseMissingError, ClickhouseServer
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.event.record import read_event
from logboom.pipeline.sinks.bulk.target import GiveUpError, RefusedWholeError, TryAgainError
from logboom.pipeline.sinks.clickhouse import check_answer
from logboom.pipeline.sinks.http.answers import HttpAnswer
from logboom.pipeline.sinks.read_back import milliseconds_of

COUNT = 400
BATCHES = [edge_batch([event(at) for at in range(start, start + 50)], first=start) for start in range(0, COUNT, 50)]
COLUMNS = (
    "columns: {event_id: event_id, time: time, severity_number: severity_number, service: service, body: body, "
    "attributes: attributes, status: attributes.http.status, offset: offset}"
)
TABLE = (
    "CREATE TABLE events (event_id String, time DateTime, severity_number Int32, service String, body String, "
    "attributes String, status Nullable(Int32), offset Int64) ENGINE = MergeTree ORDER BY event_id"
)


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[ClickhouseServer]:
    with skipped_on(ClickhouseMissingError):
        server = ClickhouseServer()
    with server:
        yield server


@pytest.fixture
def table(clickhouse: ClickhouseServer) -> None:
    clickhouse.query("DROP TABLE IF EXISTS events")
    clickhouse.query(TABLE)


def keys_of(clickhouse: ClickhouseServer, more: str = "") -> str:
    return (
        f"type: clickhouse, url: 'http://127.0.0.1:{clickhouse.port}', table: default.events, user: shop, "
        f"password_env: PASSWORD, timeout: 5s, retry_for: 60s, {COLUMNS}{more}"
    )


def batch_of(clickhouse: ClickhouseServer, more: str = "", *, password: str = PASSWORD) -> Delivering:
    return delivering(sink_of(keys_of(clickhouse, more)), password)


@pytest.mark.slow
@pytest.mark.usefixtures("table")
class TestServer:
    def test_events_are_rows(self, clickhouse: ClickhouseServer) -> None:
        text = "a\tb\nc\\ 'é\u2028\U0001f600"
        events = [event(at) for at in range(COUNT)] + [event(COUNT, body=text, service=None, attributes={})]
        batch = batch_of(clickhouse)
        assert batch.attempt([edge_batch(events)]).error is None
        assert clickhouse.query("SELECT count(), uniqExact(event_id) FROM events") == f"{COUNT + 1}\t{COUNT + 1}"
        row = clickhouse.query(
            "SELECT toString(time, 'UTC'), service, status, attributes FROM events WHERE event_id = 'web:0:7'"
        )
        assert row == '2026-11-23 07:00:00\tshop-1\t200\t{"n": 7, "http": {"status": 200}}'
        last = clickhouse.query(
            f"SELECT body, service, isNull(status) FROM events WHERE offset = {COUNT} FORMAT JSONCompact"
        )
        assert text in json.loads(last)["data"][0][0]

    def test_what_a_table_holds_is_read_back(
        self, clickhouse: ClickhouseServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("logboom.pipeline.sinks.clickhouse._PAGE_ROWS", 70)
        early = event(COUNT, time="2026-11-23T06:59:59.999Z")
        odd = event(COUNT + 1, event_id="a'b\\c", service=None)
        events = [*(event(at) for at in range(COUNT)), early, odd]
        assert batch_of(clickhouse).attempt([edge_batch(events)]).error is None
        clickhouse.query("INSERT INTO events SELECT * FROM events WHERE event_id = 'web:0:7'")
        since_ms = milliseconds_of("2026-11-23T07:00:00Z") or 0
        found = Counter(one.event_id for one in held_in(keys_of(clickhouse), since_ms, PASSWORD))
        assert found == {**{f"web:0:{at}": 1 for at in range(COUNT)}, "web:0:7": 2, "a'b\\c": 1}
        with pytest.raises(PipelineError, match=r"out: ClickHouse at .*401"):
            held_in(keys_of(clickhouse), since_ms, "another password")

    def test_odd_events_are_rows_or_dead_letters(self, clickhouse: ClickhouseServer) -> None:
        batch = batch_of(clickhouse)
        batch.until_done([edge_batch(odd_batch())], attempts=1)
        dead = check_all(batch, Counter(clickhouse.query("SELECT event_id FROM events").split()))
        assert_reasons(dead, {**NO_OBJECT, "a time that is none": "Cannot read DateTime"})

    def test_a_row_that_the_server_refuses_dies_alone(self, clickhouse: ClickhouseServer) -> None:
        events = [event(at) for at in range(100)]
        events[30] = event(30, attributes={"http": {"status": "no number"}})
        batch = batch_of(clickhouse)
        assert batch.attempt([edge_batch(events)]).error is None
        assert clickhouse.query("SELECT count() FROM events") == "99"
        (letter,) = batch.letters.refused
        assert letter.offset == 30
        assert "Code: " in letter.reason

    def test_a_server_that_is_killed_and_comes_back_loses_nothing(self, clickhouse: ClickhouseServer) -> None:
        batch = batch_of(clickhouse, ", batch: {max_events: 20}, concurrency: 1")
        killed = threading.Event()
        back = threading.Thread(target=clickhouse.start)

        def batches() -> Iterator[pa.RecordBatch]:
            for number, each in enumerate(BATCHES):
                if number == 3 and not killed.is_set():
                    killed.set()
                    clickhouse.kill9()
                    back.start()
                yield each

        if batch.attempt(batches()).error is not None:
            batch.until_done(BATCHES)
        back.join(WAIT_S)
        assert clickhouse.query("SELECT uniqExact(event_id) FROM events") == str(COUNT)
        # MergeTree knows no tokens: what had no answer may be there twice.
        assert int(clickhouse.query("SELECT count() FROM events")) <= COUNT + 20
        assert not batch.letters.refused

    @pytest.mark.parametrize("fault", [*NOT_TAKEN, *IN_DOUBT])
    def test_a_fault_in_front_of_the_server_loses_nothing(self, clickhouse: ClickhouseServer, fault: Fault) -> None:
        with Server(Gateway(f"http://127.0.0.1:{clickhouse.port}")) as gateway:
            keys = f"type: clickhouse, url: '{gateway.url}', table: default.events, user: shop, password_env: PASSWORD"
            more = "timeout: 1s, retry_for: 60s, concurrency: 1, batch: {max_events: 20}"
            batch = delivering(sink_of(f"{keys}, {more}, {COLUMNS}"), PASSWORD)
            gateway.faults.next += [None, None, fault]  # the first asks for the server's settings
            batch.until_done(BATCHES)
            assert gateway.faults.applied[fault] == 1
        assert clickhouse.query("SELECT uniqExact(event_id) FROM events") == str(COUNT)
        twice = int(clickhouse.query("SELECT count() FROM events")) - COUNT
        assert 0 < twice <= 20 if fault in IN_DOUBT else twice == 0
        assert (batch.rows, batch.letters.refused) == (COUNT, [])

    def test_what_no_attempt_can_change_is_found_by_the_probe(self, clickhouse: ClickhouseServer) -> None:
        target = batch_of(clickhouse).sink.open_target(batch_of(clickhouse).secrets)
        target.probe()
        target.close()
        for batch, words in (
            (batch_of(clickhouse, password="wrong password"), "Code: 19"),
            (_without(clickhouse, "DROP TABLE events"), "doesn't exist|UNKNOWN_TABLE|does not exist"),
        ):
            target = batch.sink.open_target(batch.secrets)
            with pytest.raises(GiveUpError, match=words):
                target.probe()
            target.close()
            report = batch.attempt(BATCHES[:1])
            assert report.error is not None
            assert "wrong password" not in report.error
            assert not batch.letters.refused


def _without(clickhouse: ClickhouseServer, statement: str) -> Delivering:
    clickhouse.query(statement)
    return batch_of(clickhouse)


def _answer(code: int, status: int = 500) -> HttpAnswer:
    return HttpAnswer(
        status, "Error", {"x-clickhouse-exception-code": str(code)}, f"Code: {code}. DB::Exception".encode()
    )


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (_answer(27, 400), RefusedWholeError),
        (_answer(349), RefusedWholeError),
        (_answer(252), TryAgainError),
        (_answer(241), TryAgainError),
        (_answer(242), TryAgainError),
        (_answer(319), TryAgainError),
        (_answer(60, 404), GiveUpError),
        (_answer(516, 403), GiveUpError),
        (HttpAnswer(502, "Bad Gateway", {}, b"proxy"), TryAgainError),
        (HttpAnswer(401, "Unauthorized", {}, b""), GiveUpError),
    ],
    ids=str,
)
def test_an_error_means_what_its_code_says(answer: HttpAnswer, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_answer(answer, "here")


def test_rows_have_what_columns_ask_for_and_requests_a_token_that_repeats() -> None:
    sink: Any = sink_of(f"type: clickhouse, url: 'http://h:8123', table: t, nested: json, {COLUMNS}")
    target = sink.open_target({})
    value = b'{"attributes":{"http":{"status":200}},"event_id":"e","source":"s","stream":"s","partition":0,"offset":7}'
    payload = target.encode(read_event(value), value).payload
    assert payload == b'{"event_id":"e","attributes":{"http":{"status":200}},"status":200,"offset":7}\n'


def test_what_is_wrong_with_its_keys_is_told_at_once() -> None:
    keys = (
        "type: clickhouse, url: 'ftp://h', table: 'a b', columns: {'x`y': bdy}, password_env: P, "
        "settings: {insert_deduplication_token: x}"
    )
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(pipeline_of(keys), "p.yaml")
    text = str(caught.value)
    for words in (
        "is not an address such as",
        "is not TABLE or DATABASE.TABLE",
        "'x`y' is not a valid name",
        "unknown field 'bdy' (did you mean 'body'?)",
        "is set by the sink itself",
        "is missing: a password goes with it",
    ):
        assert words in text
