"""The sink `postgresql` and a real server: each event is one row, whatever is killed, and a refused row dies alone."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import pytest
from tests.pipeline_sinks.harness import Delivering, delivering, edge_batch, event, held_in, pipeline_of, sink_of
from tests.pipeline_sinks.odd_events import assert_reasons, check_all, odd_batch
from tests.support.postgres import PostgresMissingError, PostgresServer, Session
from tests.support.postgres_proxy import CommitFault, PostgresProxy
from tests.support.skipping import skipped_on

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.errors import PipelineError
from logboom.pipeline.sinks.bulk.target import GiveUpError, TryAgainError
from logboom.pipeline.sinks.read_back import milliseconds_of

pytest.importorskip("psycopg")

server_test = pytest.mark.slow

COUNT = 400
BATCHES = [edge_batch([event(at) for at in range(start, start + 50)], first=start) for start in range(0, COUNT, 50)]
TABLE = """
DROP SCHEMA IF EXISTS shop CASCADE;
CREATE SCHEMA shop;
CREATE TABLE shop.events (
    event_id text PRIMARY KEY, time timestamptz, observed_time timestamptz, severity_number int, severity_text text,
    service text, host text, body text CHECK (body <> 'poison'), attributes jsonb, trace_id text, span_id text,
    weight double precision, source text, stream text, partition int, "offset" bigint
);
"""
PASSWORD = "the password of shop"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with skipped_on(PostgresMissingError):
        server = PostgresServer()
    with server:
        with server.session() as session:
            session.run(f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'")
        server.authenticate("shop")
        yield server


@pytest.fixture
def session(postgres: PostgresServer) -> Iterator[Session]:
    with postgres.session() as session:
        session.run(TABLE)
        session.run("GRANT USAGE ON SCHEMA shop TO shop; GRANT SELECT, INSERT ON shop.events TO shop")
        session.run(f"ALTER ROLE shop PASSWORD '{PASSWORD}'")
        yield session


def keys_of(postgres: PostgresServer, more: str = "") -> str:
    return (
        f"type: postgresql, url: 'postgresql://shop@127.0.0.1:{postgres.port}/postgres', password_env: PASSWORD, "
        f"table: shop.events, timeout: 5s, retry_for: 60s{more}"
    )


def batch_of(postgres: PostgresServer, more: str = "") -> Delivering:
    return delivering(sink_of(keys_of(postgres, more)), PASSWORD)


@server_test
def test_each_event_is_a_row_and_a_repeat_is_none(postgres: PostgresServer, session: Session) -> None:
    first = batch_of(postgres)
    assert first.attempt(BATCHES).error is None
    assert first.rows == COUNT
    again = batch_of(postgres).attempt(BATCHES)
    assert (again.error, again.rows, again.repeats) == (None, 0, COUNT)
    assert (
        session.run("SELECT count(*), count(DISTINCT event_id), sum(partition) FROM shop.events")
        == f"{COUNT}|{COUNT}|0"
    )
    row = session.run(
        "SELECT time AT TIME ZONE 'UTC', severity_number, service, attributes->'http'->>'status', weight, \"offset\" "
        "FROM shop.events WHERE event_id = 'web:0:7'"
    )
    assert row == "2026-11-23 07:00:00.007|9|shop-1|200|1|7"


@server_test
@pytest.mark.usefixtures("session")
def test_what_a_table_holds_is_read_back(postgres: PostgresServer) -> None:
    early = event(COUNT, observed_time="2026-11-23T06:59:59.999Z", time=None, service=None)
    assert batch_of(postgres).attempt([*BATCHES, edge_batch([early], first=COUNT)]).error is None
    since_ms = milliseconds_of("2026-11-23T07:00:00Z") or 0
    found = held_in(keys_of(postgres), since_ms, PASSWORD)
    assert sorted(one.event_id for one in found) == sorted(f"web:0:{number}" for number in range(COUNT))
    assert {(one.service, one.observed_ms - since_ms) for one in found} == {("shop-0", 1_000), ("shop-1", 1_000)}
    by_time = held_in(keys_of(postgres, ", columns: {event_id: event_id, time: time}"), since_ms + 100, PASSWORD)
    assert (len(by_time), min(one.time_ms or 0 for one in by_time)) == (COUNT - 100, since_ms + 100)
    with pytest.raises(PipelineError, match=r"out: PostgreSQL: .*password authentication failed"):
        held_in(keys_of(postgres), since_ms, "another password")


@server_test
def test_columns_of_ones_own_with_attributes_and_hostile_texts(postgres: PostgresServer, session: Session) -> None:
    session.run(
        "DROP TABLE shop.events; CREATE TABLE shop.events (id text UNIQUE, msg text, status int, ok boolean, "
        "tags jsonb); GRANT SELECT, INSERT ON shop.events TO shop"
    )
    columns = "{id: event_id, msg: body, status: attributes.http.status, ok: attributes.ok, tags: attributes.tags}"
    texts = ["\\N", "a\tb\nc\rd\\t\\", "'; DROP TABLE shop.events; --", "é\u2028\U0001f600", ""]
    events = [event(at, body=text, attributes={"ok": True, "tags": [text]}) for at, text in enumerate(texts)]
    batch = batch_of(postgres, f", columns: {columns}")
    assert batch.attempt([edge_batch([*events, event(9, body=None)])]).error is None
    found = session.run("SELECT json_agg(json_build_array(msg, tags->>0, ok, status) ORDER BY id) FROM shop.events")
    rows = json.loads(found)
    assert rows[:5] == [[text, text, True, None] for text in texts]
    assert rows[5] == [None, None, None, 200]


@server_test
def test_rows_that_the_database_refuses_die_alone_with_its_reason(postgres: PostgresServer, session: Session) -> None:
    bad = [
        event(3, body="poison"),
        event(70, time="5000000-01-01T00:00:00Z"),
        event(71, body="nul \0"),
        event(150, attributes={"nul": "\0"}),
        event(151, severity_number=2**40),
    ]
    numbers = {one["offset"] for one in bad}
    events = sorted([*bad, *(event(at) for at in range(200) if at not in numbers)], key=lambda one: one["offset"])
    batch = batch_of(postgres)
    assert batch.attempt([edge_batch(events)]).error is None
    assert session.run("SELECT count(*) FROM shop.events") == "195"
    reasons = {one.offset: one.reason for one in batch.letters.refused}
    assert set(reasons) == numbers
    assert "violates check constraint" in reasons[3]
    assert "SQLSTATE 23514" in reasons[3]
    assert "NUL" in reasons[71]
    assert "out of range" in reasons[151] or "not" in reasons[151]
    assert "poison" not in reasons[3]


@server_test
def test_a_server_that_crashes_and_comes_back_has_each_event_once(postgres: PostgresServer, session: Session) -> None:
    batch = batch_of(postgres, ", batch: {max_events: 20}")
    crashed = threading.Event()

    def batches() -> Iterator[object]:
        for number, each in enumerate(BATCHES):
            if number == 3 and not crashed.is_set():
                crashed.set()
                postgres.crash()
                threading.Timer(0.5, postgres.start_again).start()
            yield each

    report = batch.attempt(batches())
    if report.error is not None:
        batch.until_done(BATCHES)
    with postgres.session() as again:
        assert again.run("SELECT count(*), count(DISTINCT event_id) FROM shop.events") == f"{COUNT}|{COUNT}"
    assert not batch.letters.refused


@server_test
@pytest.mark.parametrize("retry_for", ["60s", "0"], ids=["same_attempt", "next_attempt"])
@pytest.mark.parametrize("fault", get_args(CommitFault))
def test_a_commit_without_an_answer_is_made_good_and_no_row_comes_twice(
    postgres: PostgresServer, session: Session, fault: CommitFault, retry_for: str
) -> None:
    with PostgresProxy(postgres.port) as proxy:
        keys = keys_of(postgres, ", batch: {max_events: 50}, concurrency: 1").replace(
            f":{postgres.port}/", f":{proxy.port}/"
        )
        keys = keys.replace("timeout: 5s, retry_for: 60s", f"timeout: 1s, retry_for: {retry_for}")
        batch = delivering(sink_of(keys), PASSWORD)
        proxy.next += [None, None, fault]
        first = batch.attempt(BATCHES)
        assert (first.error is not None) == (retry_for == "0")
        batch.until_done(BATCHES)
        assert proxy.applied == 1
    assert session.run("SELECT count(*), count(DISTINCT event_id) FROM shop.events") == f"{COUNT}|{COUNT}"
    twice = 0 if fault == "cut_before" else 50
    assert (batch.rows, sum(one.repeats for one in batch.reports)) == (COUNT - twice, twice)
    assert not batch.letters.refused


@server_test
def test_an_attempt_that_was_killed_leaves_whole_requests_and_the_next_adds_the_rest(
    postgres: PostgresServer, session: Session
) -> None:
    killed = batch_of(postgres, ", batch: {max_events: 20}, concurrency: 1")
    killed.attempt(BATCHES[:3])
    # Nobody noted what the killed one did: everything is sent again.
    report = batch_of(postgres, ", batch: {max_events: 30}").attempt(BATCHES)
    assert (report.rows, report.repeats) == (COUNT - 150, 150)
    assert session.run("SELECT count(*) FROM shop.events") == str(COUNT)


@server_test
def test_a_locked_table_is_waited_for_within_the_timeout_and_tried_again(
    postgres: PostgresServer, session: Session
) -> None:
    batch = batch_of(postgres).sink
    quick = delivering(sink_of(keys_of(postgres).replace("timeout: 5s", "timeout: 300ms")), PASSWORD)
    session.run("BEGIN; LOCK TABLE shop.events IN ACCESS EXCLUSIVE MODE")
    target = quick.sink.open_target(quick.secrets)
    try:
        with pytest.raises(TryAgainError, match="statement timeout"):
            target.probe()
    finally:
        target.close()
    session.run("COMMIT")
    assert delivering(batch, PASSWORD).attempt(BATCHES).rows == COUNT


@server_test
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER ROLE shop PASSWORD 'another'", "password authentication failed"),
        ("DROP TABLE shop.events", "does not exist"),
        ("REVOKE INSERT ON shop.events FROM shop", "permission denied"),
        ("ALTER TABLE shop.events DROP CONSTRAINT events_pkey", "needs a unique index"),
        ("ALTER TABLE shop.events DROP COLUMN host", "host"),
    ],
)
def test_what_no_attempt_can_change_is_found_by_the_probe_and_kills_no_event(
    postgres: PostgresServer, session: Session, change: str, words: str
) -> None:
    session.run(change)
    batch = batch_of(postgres)
    target = batch.sink.open_target(batch.secrets)
    with pytest.raises(GiveUpError, match=words):
        target.probe()
    target.close()
    report = batch.attempt(BATCHES)
    assert words in (report.error or "")
    assert PASSWORD not in (report.error or "")
    assert not batch.letters.refused


@server_test
def test_a_credential_that_expires_within_an_attempt_loses_nothing(postgres: PostgresServer, session: Session) -> None:
    """Connections end with it. What was taken stays taken, and the next attempt has the password as it is then."""
    batch = batch_of(postgres, ", batch: {max_events: 50}, concurrency: 1")

    def batches() -> Iterator[object]:
        for number, each in enumerate(BATCHES):
            if number == 4:
                session.run("ALTER ROLE shop PASSWORD 'of the next month'")
                session.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'")
            yield each

    report = batch.attempt(batches())
    assert "password authentication failed" in (report.error or "")
    assert PASSWORD not in repr(report)
    had = int(session.run("SELECT count(*) FROM shop.events"))
    assert 0 < had < COUNT
    batch.secrets = dict.fromkeys(batch.secrets, "of the next month")
    assert batch.attempt(BATCHES).error is None
    assert session.run("SELECT count(*), count(DISTINCT event_id) FROM shop.events") == f"{COUNT}|{COUNT}"
    assert (batch.rows, batch.letters.refused) == (COUNT, [])


@server_test
def test_a_probe_that_finds_nothing_wrong_writes_nothing(postgres: PostgresServer, session: Session) -> None:
    batch = batch_of(postgres)
    target = batch.sink.open_target(batch.secrets)
    target.probe()
    target.close()
    assert session.run("SELECT count(*) FROM shop.events") == "0"


def test_nobody_at_the_address_is_tried_again() -> None:
    sink = sink_of("type: postgresql, url: 'postgresql://shop@127.0.0.1:1/x', table: t, retry_for: 0")
    report = delivering(sink, "").attempt(BATCHES[:1])
    assert "refused" in (report.error or "")


def test_what_is_wrong_with_its_keys_is_told_at_once() -> None:
    keys = (
        "type: postgresql, url: 'http://u:secret-word@h/d', table: a.b.c, columns: {a: bdy, b: body}, "
        "password_env: A, password_file: b"
    )
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(pipeline_of(keys), "p.yaml")
    text = str(caught.value)
    assert "secret-word" not in text
    for words in (
        "should be postgresql://",
        "has a password",
        "is not TABLE or SCHEMA.TABLE",
        "unknown field 'bdy' (did you mean 'body'?)",
        "have no column for event_id",
    ):
        assert words in text


@server_test
def test_odd_events_are_rows_or_dead_letters(postgres: PostgresServer, session: Session) -> None:
    batch = batch_of(postgres)
    batch.until_done([edge_batch(odd_batch())], attempts=1)
    dead = check_all(batch, Counter(session.run("SELECT event_id FROM shop.events").split()))
    assert_reasons(dead, {"NUL": "the character NUL"})
