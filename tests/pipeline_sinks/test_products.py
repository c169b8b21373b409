"""What is each product's own: how events look there, what it says of single events, what `check` finds in its keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline_sinks.cases import CASES, EXPIRED, SECRET, Case, everywhere
from tests.pipeline_sinks.contracts import elasticsearch, google_cloud_logging, loki, otlp, splunk_hec
from tests.pipeline_sinks.harness import QUICK, Delivering, delivering, edge_batch, event, pipeline_of, sink_of
from tests.pipeline_sinks.server import Contract, Reply, Request, Server
from tests.support.waiting import until

from logboom.base.settings import SettingsError
from logboom.base.units import MIB
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.event.record import read_event
from logboom.pipeline.reshape.schemas import Schema, in_schema
from logboom.pipeline.run.connecting import try_sinks
from logboom.pipeline.sinks.bulk.target import BulkResponse, Item, TryAgainError


def delivered(server: Server, keys: str, events: Sequence[Any]) -> Delivering:
    batch = delivering(sink_of(f"{keys.format(url=server.url)}, {QUICK}"), SECRET)
    batch.until_done([edge_batch(events)])
    return batch


def told(keys: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as raised:
        compile_pipeline(pipeline_of(keys), "p.yaml", environ=environ)
    return str(raised.value)


def test_documents_have_an_index_by_template_and_a_timestamp() -> None:
    with Server(elasticsearch.Elasticsearch()) as server:
        contract = server.contract
        assert isinstance(contract, elasticsearch.Elasticsearch)
        batch = delivered(server, elasticsearch.KEYS, [event(0), event(1, service=None), event(2, service="A/b")])
        assert dict(contract.indexes) == {"logs-shop-0-2026.11": 1, "logs-a_b-2026.11": 1}
        document = contract.documents["web:0:0"]
        assert document["@timestamp"] == "2026-11-23T07:00:00.000Z"
        assert document["attributes"] == {"n": 0, "http": {"status": 200}}
        (letter,) = batch.letters.refused
        assert "lacks a field" in letter.reason


def test_ecs_has_the_names_of_the_schema() -> None:
    with Server(elasticsearch.Elasticsearch()) as server:
        contract = server.contract
        assert isinstance(contract, elasticsearch.Elasticsearch)
        keys = elasticsearch.KEYS.replace("type: elasticsearch", "type: elasticsearch, format: ecs")
        sink = sink_of(f"{keys.format(url=server.url)}, {QUICK}")
        target = sink.open_target({"env:TOKEN": SECRET})
        value = json.dumps(event(3)).encode()
        document = json.loads(target.encode(read_event(value), value).payload.splitlines()[1])
        assert document["service.name"] == "shop-1"
        assert document["message"] == "line 3"
        assert document["http"] == {"status": 200}
        target.close()


def test_items_that_a_full_queue_rejects_are_sent_again_alone() -> None:
    with Server(elasticsearch.Elasticsearch()) as server:
        contract = server.contract
        assert isinstance(contract, elasticsearch.Elasticsearch)
        contract.queue_is_full_for.update({"web:0:3": 2, "web:0:4": 1})
        batch = delivered(server, elasticsearch.KEYS, [event(number) for number in range(10)])
        assert contract.events == {f"web:0:{number}": 1 for number in range(10)}
        assert [len(request.body.splitlines()) // 2 for request in contract.requests] == [10, 2, 1]
        assert batch.rows == 10


def test_items_of_an_index_that_is_read_only_for_a_while_are_sent_again() -> None:
    """Each was a dead letter for what somebody, or a full disk before 7.7, had done to the index."""
    with Server(elasticsearch.Elasticsearch()) as server:
        contract = server.contract
        assert isinstance(contract, elasticsearch.Elasticsearch)
        contract.blocked_for.update({"web:0:3": 2, "web:0:4": 1})
        batch = delivered(server, elasticsearch.KEYS, [event(number) for number in range(10)])
        assert contract.events == {f"web:0:{number}": 1 for number in range(10)}
        assert (batch.rows, batch.dead) == (10, 0)


def test_a_credential_that_may_write_none_of_the_documents_fails_the_attempt_and_one_that_may_write_some_does_not() -> (
    None
):
    with Server(elasticsearch.Elasticsearch()) as server:
        contract = server.contract
        assert isinstance(contract, elasticsearch.Elasticsearch)
        batch = delivering(sink_of(f"{elasticsearch.KEYS.format(url=server.url)}, {QUICK}"), SECRET)
        events = [edge_batch([event(number) for number in range(10)])]
        contract.forbidden = {"logs-shop-0-2026.11", "logs-shop-1-2026.11"}
        report = batch.attempt(events)
        assert "403 security_exception" in str(report.error)
        assert batch.letters.refused == []
        contract.forbidden = {"logs-shop-1-2026.11"}
        batch.until_done(events)
        assert contract.events == {f"web:0:{number}": 1 for number in range(0, 10, 2)}
        assert batch.letters.ids() == {f"web:0:{number}": 1 for number in range(1, 10, 2)}


def test_a_loki_that_keeps_everything_out_has_taken_nothing_though_its_status_is_one_of_success() -> None:
    """260, by default, where `block_ingestion_until` is set: the events were counted as delivered, and lost."""
    with Server(loki.Loki()) as server:
        contract = server.contract
        assert isinstance(contract, loki.Loki)
        contract.blocked_for = 1
        batch = delivering(sink_of(f"{loki.KEYS.format(url=server.url)}, {QUICK}"), SECRET)
        report = batch.attempt([edge_batch([event(number) for number in range(10)])])
        assert "answered 260" in str(report.error)
        assert "ingestion blocked for user shop" in str(report.error)
        assert batch.rows == 0
        batch.until_done([edge_batch([event(number) for number in range(10)])])
        assert contract.events == {f"web:0:{number}": 1 for number in range(10)}
        assert batch.letters.refused == []


def test_an_event_in_two_logs_of_a_project_is_no_repeat_of_itself() -> None:
    """To Cloud Logging entries of one time and `insertId` are, and a query would find one of them alone."""
    with Server(google_cloud_logging.GoogleCloudLogging()) as server:
        for log in ("checkout", "audit", "audit"):
            keys = f"{google_cloud_logging.KEYS.format(url=server.url)}, log: {log}, {QUICK}"
            batch = delivering(sink_of(keys), google_cloud_logging.account(server.url))
            batch.until_done([edge_batch([event(number) for number in range(3)])])
        assert server.contract.events == {f"web:0:{number}": 2 for number in range(3)}


def test_splunk_is_waited_for_until_its_indexer_has_acknowledged() -> None:
    with Server(splunk_hec.SplunkHecWithAcks()) as server:
        contract = server.contract
        assert isinstance(contract, splunk_hec.SplunkHec)
        batch = delivered(server, splunk_hec.ACKS, [event(number) for number in range(120)])
        assert contract.events == {f"web:0:{number}": 1 for number in range(120)}
        acknowledged = [left for mine in contract.acknowledged.values() for left in mine.values()]
        assert acknowledged == [-1, -1, -1]
        assert batch.rows == 120
        assert contract.envelopes[0]["time"] == pytest.approx(1795417200.0)


def test_splunk_is_asked_for_an_acknowledgment_again_where_the_answer_fails() -> None:
    with Server(splunk_hec.SplunkHecWithAcks()) as server:
        server.faults.next += [None, "503", "reset", "garbage", "500", "late"]
        batch = delivered(server, splunk_hec.ACKS, [event(number) for number in range(40)])
        assert server.contract.events == {f"web:0:{number}": 1 for number in range(40)}
        assert batch.rows == 40


def test_a_request_whose_acknowledgment_got_lost_is_sent_again_after_its_time() -> None:
    """Splunk says once that a request is indexed."""
    with Server(splunk_hec.SplunkHecWithAcks()) as server:
        server.faults.next += [None, None, "stored_500"]
        keys = splunk_hec.ACKS.replace("ack_timeout: 30s", "ack_timeout: 2s")
        batch = delivered(server, keys, [event(number) for number in range(40)])
        assert min(server.contract.events[f"web:0:{number}"] for number in range(40)) >= 2
        assert (batch.rows, batch.letters.refused) == (40, [])


def test_what_a_killed_splunk_had_not_acknowledged_is_sent_again() -> None:
    """Its numbers begin anew: the acknowledgment of another request is none of one that was lost."""
    contract = splunk_hec.SplunkHecThatForgets()
    batches = [edge_batch([event(at) for at in range(first, first + 50)], first=first) for first in range(0, 400, 50)]
    keys = splunk_hec.ACKS.replace("ack_timeout: 30s", "ack_timeout: 5s")
    with Server(contract) as server:
        batch = delivering(sink_of(f"{keys.format(url=server.url)}, {QUICK}"), SECRET)

        def killed() -> Iterator[Any]:
            for number, each in enumerate(batches):
                if number == 3:
                    until(lambda: len(contract.in_memory) + len(contract.indexed) // 50 >= 2, "requests arrive")
                    server.kill()
                    contract.forget()
                    server.start()
                yield each

        batch.attempt(killed())
        batch.until_done(batches)
    assert set(contract.indexed) == {f"web:0:{number}" for number in range(400)}
    assert (batch.rows, batch.letters.refused) == (400, [])


def test_splunk_is_waited_for_after_connections_were_ended_under_requests() -> None:
    with Server(splunk_hec.SplunkHecWithAcks()) as server:
        server.faults.next += ["trickle"]
        batch = delivering(sink_of(f"{splunk_hec.ACKS.format(url=server.url)}, {QUICK}"), SECRET)
        target = batch.sink.open_target(batch.secrets)
        value = json.dumps(event(1)).encode()
        item = Item("_p.e/0", 1, value, "web:0:1", target.encode(read_event(value), value).payload)
        with pytest.raises(TryAgainError, match="did not end within"):
            target.send([item])
        target.close()
        assert target.send([item]) == BulkResponse()
        target.close()


@pytest.mark.parametrize("name", ["ecs", "ocsf", "cim"])
def test_documents_of_a_schema_reach_splunk_and_loki_alone(name: str) -> None:
    """`schema` with `into: body`, and `format: body` of the sink: nothing of the event stands around the document."""
    schema = Schema(name, "body", None, "Acme")
    times = {"time": 1_795_417_200_000_000, "observed_time": 1_795_417_201_000_000}
    attributes = [{"http.request.method": "GET", "url.path": f"/{number}"} for number in range(3)]
    bodies = [json.dumps(in_schema(schema, {**event(0), **times}, dict(one))) for one in attributes]
    assert len(set(bodies)) == 3
    events = [event(number, body=body) for number, body in enumerate(bodies)]
    with Server(splunk_hec.SplunkHec()) as server:
        delivered(server, f"{splunk_hec.KEYS}, format: body", events)
        contract = server.contract
        assert isinstance(contract, splunk_hec.SplunkHec)
        assert sorted(one["event"] for one in contract.envelopes) == sorted(bodies)
    with Server(loki.Loki()) as server:
        delivered(server, f"{loki.KEYS}, format: body", events)
        taken = server.contract
        assert isinstance(taken, loki.Loki)
        assert sorted(line.decode() for _, _, line in taken.entries) == sorted(bodies)


def test_equal_lines_of_one_moment_are_different_entries_of_loki() -> None:
    with Server(loki.Loki()) as server:
        contract = server.contract
        assert isinstance(contract, loki.Loki)
        same = [event(0, offset=number, event_id=f"web:0:{number}") for number in range(3)]
        delivered(server, f"{loki.KEYS}, format: event", same)
        assert len(contract.entries) == 3
        (labels,) = {labels for labels, _, _ in contract.entries}
        assert labels == '{service="shop-0", team="shop"}'
        assert set(map(str, contract.entries.values())) == {str({"trace_id": "0" * 32})}


def test_otlp_records_have_their_times_severities_and_values() -> None:
    with Server(otlp.Otlp()) as server:
        contract = server.contract
        assert isinstance(contract, otlp.Otlp)
        values = {"a": [1, -2, None, {"b": True}], "f": 1.5, "big": 10**30}
        delivered(server, otlp.KEYS, [event(7, attributes=values), event(8, time="9999-12-31T00:00:00Z")])
        (resource, record), (_, late) = contract.records[0], contract.records[1]
        if record["body"] != "line 7":
            (resource, record), (_, late) = contract.records[1], contract.records[0]
        assert resource == {"service.name": "shop-1", "host.name": "h1"}
        assert record["time"] == 1795417200_007_000_000
        assert (record["severity"], record["trace_id"]) == (9, bytes.fromhex(f"{7:032x}"))
        assert record["attributes"]["big"] == str(10**30)
        assert late["time"] == 0
        assert late["attributes"]["logboom.time"] == "9999-12-31T00:00:00Z"


def test_a_receiver_that_says_only_how_many_it_refuses_leaves_all_of_the_request_among_the_dead() -> None:
    with Server(otlp.PartialOtlp()) as server:
        events = [event(number, **({"body": "poison"} if number == 3 else {})) for number in range(60)]
        batch = delivered(server, otlp.KEYS, events)
        assert set(server.contract.events) == {f"web:0:{number}" for number in range(60) if number != 3}
        assert batch.letters.ids() == {f"web:0:{number}": 1 for number in range(50)}
        assert "1 of the 50 records" in batch.letters.refused[0].reason
        assert (batch.rows, batch.dead) == (10, 50)


@everywhere
def test_connect_says_whether_a_server_takes_the_credential(case: Case, tmp_path: Path) -> None:
    with Server(case.contract()) as server:
        file = tmp_path / "p.yaml"
        plan = compile_pipeline(pipeline_of(case.keys.format(url=server.url)), str(file))
        names = {ref.env: ref for _, ref in plan.sinks[0].secret_refs}
        good = {str(name): case.credential(server.url, SECRET) for name in names}
        assert list(try_sinks(plan, good)) == []
        ((_, message),) = try_sinks(plan, {str(name): case.credential(server.url, EXPIRED) for name in names})
        assert "401" in message or "403" in message
        assert EXPIRED not in message
        ((_, message),) = try_sinks(plan, {})
        assert "set the environment variable" in message
        assert server.contract.events == {}
        server.kill()
        assert len(list(try_sinks(plan, good))) == 1


class _Page(Contract):
    """A page of a proxy that takes every request."""

    def handle(self, request: Request) -> Reply:
        return Reply(200, b"<html>Sign in</html>")


def test_connect_says_which_sink_is_tried_and_what_is_wrong_as_soon_as_it_is_known(tmp_path: Path) -> None:
    with Server(_Page()) as server:
        sinks = f"""
  one: {{inputs: [parsed], type: webhook, url: 'http://127.0.0.1:1/'}}
  two: {{inputs: [parsed], type: webhook, url: '{server.url}/'}}
  three: {{inputs: [parsed], type: elasticsearch, index: logs, url: '{server.url}'}}"""
        text = pipeline_of("type: console").replace("\n  out: {inputs: [parsed], type: console}", sinks)
        told: list[str] = []
        plan = compile_pipeline(text, str(tmp_path / "p.yaml"))
        for sink, _ in try_sinks(plan, {}, lambda sink: told.append(f"trying {sink.name}")):
            told.append(f"{sink.name} fails")
        assert told == ["trying one", "one fails", "trying two", "trying three", "three fails"]


class _Greeting(Contract):
    """A server of another kind that takes every request."""

    def handle(self, request: Request) -> Reply:
        return Reply(200, b"hello")


def test_connect_does_not_take_another_server_for_elasticsearch(tmp_path: Path) -> None:
    with Server(_Greeting()) as server:
        text = pipeline_of(f"type: elasticsearch, index: logs, url: '{server.url}'")
        ((_, message),) = try_sinks(compile_pipeline(text, str(tmp_path / "p.yaml")), {})
        assert message.endswith("does not answer as Elasticsearch and OpenSearch do: 200 OK: hello")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("type: webhook, url: 'example.com/x'", "is not an address such as"),
        ("type: webhook, url: 'https://ann:pw@example.com/x'", "has a credential in it"),
        ("type: webhook", "needs exactly one of url, url_env and url_file"),
        ("type: webhook, url: 'https://x.com', token: abc", "unknown key 'token' (did you mean 'token_env'?)"),
        ("type: webhook, url: 'https://x.com', headers: {Authorization: abc}", "would be stored in plans"),
        ("type: webhook, url: 'https://x.com', headers: {'a b': c}", "is not a valid name of a header"),
        ("type: webhook, url: 'https://x.com', encoding: json, batch: {max_events: 5}", "has no meaning"),
        ("type: elasticsearch, url: 'https://x.com', index: 'a-{srvice}'", "names 'srvice'"),
        ("type: elasticsearch, url: 'https://x.com', index: 'a-{time:%Q}'", "has %Q"),
        ("type: elasticsearch, url: 'https://x.com', index: 'a-{service'", "has an unpaired brace"),
        (
            "type: elasticsearch, url: 'https://x.com', index: a, api_key_env: A, auth: {user: b, password_env: C}",
            "two",
        ),
        ("type: elasticsearch, url: 'https://x.com', index: a, auth: {user: b}", "password_env is missing"),
        ("type: splunk_hec, url: 'https://x.com'", "name the credential with token_env or token_file"),
        ("type: loki, url: 'https://x.com', labels: {}", "is empty"),
        ("type: loki, url: 'https://x.com', labels: {'a-b': c}", "should be letters, digits and '_'"),
        ("type: otlp", "name the receiver, or a preset"),
        ("type: otlp, preset: honeycomb", "is needed by preset honeycomb"),
        ("type: otlp, preset: signoz, token_env: A", "is needed by preset signoz"),
        ("type: otlp, preset: honeycom, token_env: A", "preset"),
        ("type: google_cloud_logging, project: 'No Project', key_env: A", "is not an id of a project"),
        ("type: sumo_logic", "name the credential with url_env or url_file"),
        ("type: datadog_logs, site: datadog.example, api_key_env: A", "site"),
    ],
)
def test_what_is_wrong_with_the_keys_is_found_with_its_line(keys: str, message: str) -> None:
    found = told(keys)
    assert message in found
    assert "p.yaml:5: sinks.out" in found


@pytest.mark.parametrize("preset", ["axiom", "honeycomb", "new_relic", "new_relic_eu"])
def test_presets_of_otlp_need_a_token_alone(preset: str) -> None:
    sink = sink_of(f"type: otlp, preset: {preset}, token_env: TOKEN")
    assert sink.http.url.startswith("https://")
    assert sink.sending.max_bytes <= (1_000_000 if preset.startswith("new_relic") else 2 * MIB)
    grafana = sink_of("type: otlp, preset: grafana_cloud, region: prod-eu-west-0, auth: {user: '1', password_env: A}")
    assert grafana.http.url == "https://otlp-gateway-prod-eu-west-0.grafana.net/otlp"


@pytest.mark.parametrize(
    ("keys", "warning"),
    [
        ("type: loki, url: 'http://a:1', labels: {a: '{service}', b: '{attributes.x}y'}", "'{service|none}'"),
        ("type: loki, url: 'http://a:1', labels: {a: '{host|}', b: ''}", "'{service|none}'"),
        ("type: loki, url: 'http://a:1', labels: {a: '{host|}', b: '{service|none}'}", None),
        ("type: loki, url: 'http://a:1', labels: {a: '{host}', b: 'prod'}", None),
        ("type: loki, url: 'http://a:1', labels: {a: '{host}', b: '{stream}'}", None),
        ("type: elasticsearch, url: 'http://a:1', index: 'logs-{attributes.team}'", "'{attributes.team|none}'"),
        ("type: elasticsearch, url: 'http://a:1', index: 'logs-{service|x}-{time:%Y}-{source}'", None),
    ],
)
def test_check_warns_of_a_place_that_an_event_may_not_have(keys: str, warning: str | None) -> None:
    found = [(one.where, one.message) for one in compile_pipeline(pipeline_of(keys), "p.yaml").warnings]
    if warning is None:
        assert found == []
        return
    ((where, message),) = found
    assert where in ("sinks.out.labels", "sinks.out.index")
    assert "dead letter" in message
    assert warning in message


def test_an_event_without_a_label_is_a_dead_letter_of_loki() -> None:
    with Server(loki.Loki()) as server:
        contract = server.contract
        assert isinstance(contract, loki.Loki)
        batch = delivered(server, loki.KEYS.replace(", team: shop", ""), [event(0, service=None), event(1)])
        (letter,) = batch.letters.refused
        assert (letter.offset, "has none of the labels" in letter.reason) == (0, True)
        assert len(contract.entries) == 1


def test_check_finds_files_of_credentials_that_are_not_there(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    (tmp_path / "empty").write_text("\n")
    text = pipeline_of("type: webhook, url: 'https://x.com', token_file: FILE")
    for name, message in (("missing", "No such file"), ("empty", "is empty")):
        with pytest.raises(SettingsError, match=message):
            compile_pipeline(text.replace("FILE", name), str(file), environ={})
    (tmp_path / "empty").write_text(f"{SECRET}\n")
    plan = compile_pipeline(text.replace("FILE", "empty"), str(file), environ={})
    assert SECRET not in plan.to_json()
    env = compile_pipeline(pipeline_of("type: webhook, url: 'https://x.com', token_env: TOKEN"), str(file), environ={})
    (warning,) = env.warnings
    assert "TOKEN is not set here" in warning.message
    assert warning.where == "sinks.out.token_env"
    inside = pipeline_of("type: webhook, url: 'https://x.com', auth: {user: a, password_file: missing}")
    with pytest.raises(SettingsError, match=r"sinks\.out\.auth\.password_file: the credential cannot be read"):
        compile_pipeline(inside, str(file), environ={})


def test_every_product_is_among_the_cases() -> None:
    from logboom.pipeline.sinks.http.model import HttpSink
    from logboom.pipeline.sinks.registry import sink_types

    over_http = {kind.name for kind in sink_types().values() if issubclass(kind.node, HttpSink)}
    of_their_own = {"bigquery", "prometheus_remote_write"}
    assert over_http <= {case.name for case in CASES} | of_their_own


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name not in ("webhook", "otlp", "loki", "clickhouse")],
    ids=lambda case: case.name,
)
def test_a_compression_that_a_product_does_not_document_is_told(case: Case) -> None:
    with pytest.raises(SettingsError, match="compression: zstd is not supported; choose one of gzip, none"):
        compile_pipeline(pipeline_of(f"{case.keys.format(url='http://h:1')}, compression: zstd"), "p.yaml")
