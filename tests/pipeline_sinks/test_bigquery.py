"""The sink `bigquery` with `delivery: at_least_once`, its keys and its rows, for a server that holds requests to the
published contract of the Storage Write API."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from tests.pipeline_sinks.contracts import bigquery
from tests.pipeline_sinks.contracts.google_cloud_logging import account
from tests.pipeline_sinks.grpc_server import GrpcServer
from tests.pipeline_sinks.harness import Delivering, delivering, edge_batch, event, pipeline_of, sink_of
from tests.pipeline_sinks.server import Server

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.sinks.bulk.target import GiveUpError

QUICK = "delivery: at_least_once, timeout: 1s, retry_for: 20s, batch: {max_events: 50}"
TYPES = dict.fromkeys(("severity_text", "service", "host", "body", "attributes", "trace_id", "span_id"), 9)
TYPES |= dict.fromkeys(("event_id", "source", "stream"), 9)
TYPES |= dict.fromkeys(("time", "observed_time", "severity_number", "partition", "offset", "status"), 3)
TYPES |= {"weight": 1, "took": 1, "ok": 8, "who": 9}


class Cloud(NamedTuple):
    contract: bigquery.BigQuery
    server: GrpcServer
    tokens: Server

    def batch(self, more: str = "", name: str = "writer") -> Delivering:
        keys = (
            f"type: bigquery, url: '{self.server.url}', project: shop-1234, dataset: logs, table: events, key_env: KEY"
        )
        return delivering(sink_of(f"{keys}, {QUICK}{more}"), account(self.tokens.url, name))

    def ids(self) -> Counter[str]:
        return Counter(row["event_id"] for row in self.contract.rows)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    contract = bigquery.BigQuery(TYPES)
    streams = {bigquery.APPEND: contract.append}
    with GrpcServer(contract.methods, streams) as server, Server(contract.tokens) as tokens:
        yield Cloud(contract, server, tokens)


def test_events_are_rows(cloud: Cloud) -> None:
    batch = cloud.batch()
    report = batch.attempt([edge_batch([event(at) for at in range(120)])])
    assert (report.error, report.rows) == (None, 120)
    assert cloud.ids() == Counter({f"web:0:{number}": 1 for number in range(120)})
    row = next(row for row in cloud.contract.rows if row["event_id"] == "web:0:7")
    assert row["time"] == 1_795_417_200_007_000
    assert (row["severity_number"], row["weight"], row["service"]) == (9, 1.0, "shop-1")
    assert json.loads(row["attributes"]) == {"n": 7, "http": {"status": 200}}


def test_columns_have_types_and_a_value_of_another_type_dies_with_its_reason(cloud: Cloud) -> None:
    columns = (
        ", columns: {event_id: event_id, body: body, status: {field: attributes.http.status, type: long}, "
        "took: {field: attributes.took, type: double}, ok: {field: attributes.ok, type: boolean}, who: attributes.user}"
    )
    batch = cloud.batch(columns)
    events = [
        event(0, attributes={"http": {"status": -404}, "took": 2, "ok": False, "user": {"id": 7}}),
        event(1, attributes={"http.status": "404"}),
        event(2, attributes={"http.status": 1 << 63}),
        event(3, attributes={}, body=None),
        event(4, attributes={"took": 10**400}),
    ]
    batch.until_done([edge_batch(events)])
    first, second = cloud.contract.rows
    assert (first["status"] - (1 << 64), first["took"], first["ok"], first["who"]) == (-404, 2.0, 0, '{"id":7}')
    assert second == {"event_id": "web:0:3"}
    assert {letter.offset for letter in batch.letters.refused} == {1, 2, 4}
    assert "attributes.http.status is not a long, which the column status requires" in batch.letters.refused[0].reason


@pytest.mark.parametrize("fault", ["unavailable", "exhausted", "internal", "hang", "lost_answer", "garbage", "late"])
def test_a_fault_of_the_server_loses_nothing(cloud: Cloud, fault: Any) -> None:
    cloud.server.next += [fault] * 3
    batch = cloud.batch()
    batch.until_done([edge_batch([event(at) for at in range(200)])])
    assert set(cloud.ids()) == {f"web:0:{number}" for number in range(200)}
    assert not batch.letters.refused
    assert cloud.server.applied[fault] == 3


def test_rows_that_are_refused_die_alone_with_their_reason(cloud: Cloud) -> None:
    batch = cloud.batch()
    bad = {3, 4, 77}
    batch.until_done([edge_batch([event(at, **({"body": "poison"} if at in bad else {})) for at in range(100)])])
    assert {letter.offset for letter in batch.letters.refused} == bad
    assert all("BigQuery: a row with poison" in letter.reason for letter in batch.letters.refused)
    assert cloud.ids() == Counter({f"web:0:{number}": 1 for number in range(100) if number not in bad})


def test_a_table_without_a_column_fails_the_attempt_and_kills_nothing(cloud: Cloud) -> None:
    batch = cloud.batch(", columns: {event_id: event_id, nowhere: body}")
    report = batch.attempt([edge_batch([event(0)])])
    assert "INVALID_ARGUMENT: no column nowhere" in str(report.error)
    assert not batch.letters.refused


def test_a_token_that_is_not_taken_is_told_without_it_and_another_is_asked_for(cloud: Cloud) -> None:
    assert cloud.batch(name="stranger").attempt([edge_batch([event(1)])]).error is not None
    batch = cloud.batch()
    target = batch.sink.open_target(batch.secrets)
    target.probe()
    token = cloud.contract.tokens.secret
    cloud.contract.tokens.secret = "another-token"
    with pytest.raises(GiveUpError, match="UNAUTHENTICATED") as caught:
        target.probe()
    assert token not in str(caught.value)
    target.probe()
    target.close()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("project: 'a b', dataset: d, table: t, key_env: K", "is not a valid name of a project: 4 to 63 small letters"),
        ("project: shop-1234, dataset: d, table: t", "name the credential with key_env or key_file"),
        ("project: shop-1234, dataset: d, table: t, key_env: K, columns: {a: nowhere}", "nowhere"),
        ("project: shop-1234, dataset: d, table: t, key_env: K, columns: {a-b: body}", "is not a valid name of a"),
        ("project: shop-1234, dataset: d, table: t, key_env: K, concurrency: 2", "needs `delivery: at_least_once`"),
        ("project: shop-1234, dataset: d, table: t, key_env: K, compression: zstd", "is not supported"),
    ],
)
def test_what_is_wrong_with_its_keys_is_told(keys: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(pipeline_of(f"type: bigquery, {keys}"), "p.yaml")
    assert words in str(caught.value)
