"""What servers say of the events that they hold, for `compare`: page by page, and of the time that is asked for."""

from __future__ import annotations

import pytest
from tests.pipeline_sinks.contracts import elasticsearch, loki
from tests.pipeline_sinks.harness import delivering, edge_batch, event, held_in, sink_of
from tests.pipeline_sinks.server import Server

from logboom.pipeline.errors import PipelineError
from logboom.pipeline.run.sink_contents import hindrance, is_by_time
from logboom.pipeline.sinks.loki import selectors
from logboom.pipeline.sinks.read_back import milliseconds_of

SINCE_MS = milliseconds_of("2026-11-23T07:00:00Z") or 0
EARLY = {"time": "2026-11-23T06:59:59Z", "observed_time": "2026-11-23T06:59:59.999Z"}
FORMS = {
    "event": (elasticsearch.Elasticsearch, elasticsearch.KEYS),
    "ecs": (elasticsearch.Elasticsearch, f"{elasticsearch.KEYS}, format: ecs"),
    "loki": (loki.Loki, loki.KEYS),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_server_is_read_in_pages_from_the_time_on(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.pipeline.sinks.elasticsearch._PAGE_EVENTS", 30)
    monkeypatch.setattr("logboom.pipeline.sinks.loki._PAGE_LINES", 30)
    make, form_keys = FORMS[form]
    contract = make()
    # To Loki the first 70 are of four nanoseconds, in whose midst pages end.
    events = [event(number, time="2026-11-23T07:00:00.5Z", offset=number * 250) for number in range(70)]
    events += [event(number, offset=100_000 + number) for number in range(70, 100)]
    events += [event(100, offset=200_000, **EARLY)]
    with Server(contract) as server:
        keys = form_keys.replace("{url}", server.url).replace("{{", "{").replace("}}", "}")
        delivering(sink_of(keys), contract.secret).until_done([edge_batch(events)])
        assert len(contract.events) == 101
        found = held_in(keys, SINCE_MS)
    assert sorted(one.event_id for one in found) == sorted(f"web:0:{number}" for number in range(100))
    (one,) = (each for each in found if each.event_id == "web:0:71")
    assert (one.service, one.observed_ms) == ("shop-1", milliseconds_of("2026-11-23T07:00:01Z"))
    assert one.time_ms == milliseconds_of("2026-11-23T07:00:00.071Z")


@pytest.mark.parametrize("form", ["event", "loki"])
def test_a_server_that_refuses_is_told_without_the_credential(form: str) -> None:
    make, form_keys = FORMS[form]
    with Server(make()) as server:
        keys = form_keys.replace("{url}", server.url).replace("{{", "{").replace("}}", "}")
        with pytest.raises(PipelineError, match=r"out: .*401") as refused:
            held_in(keys, SINCE_MS, secret="wrong-credential")
    assert "wrong-credential" not in str(refused.value)


def test_lines_that_are_larger_than_a_page_may_be_are_read_in_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.pipeline.sinks.http.client._ANSWER_MAX_BYTES", 100_000)
    contract = loki.Loki()
    with Server(contract) as server:
        keys = loki.KEYS.replace("{url}", server.url).replace("{{", "{").replace("}}", "}")
        events = [event(number, body="x" * 20_000) for number in range(40)]
        delivering(sink_of(keys), contract.secret).until_done([edge_batch(events)])
        assert len(held_in(keys, SINCE_MS)) == 40


def test_more_events_than_can_be_compared_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of them would lack the others."""
    monkeypatch.setattr("logboom.pipeline.run.sink_contents.EVENTS_MAX", 10)
    contract = loki.Loki()
    with Server(contract) as server:
        keys = loki.KEYS.replace("{url}", server.url).replace("{{", "{").replace("}}", "}")
        delivering(sink_of(keys), contract.secret).until_done([edge_batch([event(number) for number in range(11)])])
        with pytest.raises(
            PipelineError, match="out has more than 10 events of that time: choose a shorter time with --since"
        ):
            held_in(keys, SINCE_MS)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("{service: '{service|none}', team: shop}", ['{service=~".+", team="shop"}']),
        ("{job: 'a.b {service|x}'}", [r'{job=~"a\\.b .*"}']),
        ("{service: '{service}', host: '{host}'}", ['{service=~".+"}', '{service="", host=~".+"}']),
    ],
)
def test_selectors_find_every_stream_of_a_sink_once(labels: str, found: list[str]) -> None:
    sink = sink_of(f"type: loki, url: 'http://127.0.0.1:1', labels: {labels}")
    assert selectors(sink) == found
    assert is_by_time(sink)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("type: loki, url: 'http://127.0.0.1:1', labels: {a: b}, format: body", "sends only bodies"),
        ("type: webhook, url: 'http://127.0.0.1:1'", "cannot be read back from here"),
        ("type: clickhouse, url: 'http://127.0.0.1:1', table: t, columns: {b: body}", "has no column for event_id"),
        ("type: clickhouse, url: 'http://127.0.0.1:1', table: t, columns: {i: event_id}", "observed_time or time"),
        ("type: clickhouse, url: 'http://127.0.0.1:1', table: t", None),
    ],
)
def test_a_sink_that_cannot_be_read_back_says_why(keys: str, why: str | None) -> None:
    found = hindrance(sink_of(keys))
    assert found is None if why is None else why in str(found)
