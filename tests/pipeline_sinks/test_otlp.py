"""The sink `otlp` beyond logs over HTTP: calls of gRPC, and metrics both ways."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.pipeline_sinks.contracts import otlp
from tests.pipeline_sinks.grpc_server import GrpcServer, RefusedCallError, retry_info
from tests.pipeline_sinks.harness import Delivering, delivering, edge_batch, event, pipeline_of, sink_of
from tests.pipeline_sinks.server import Reply, Server
from tests.pipeline_sinks.test_metrics import END_US, HISTOGRAM, QUANTILES, metric
from tests.support.waiting import WAIT_S, until

from logboom.base.settings import SettingsError
from logboom.pipeline.config.compile import compile_pipeline
from logboom.pipeline.sinks.grpc.status import meaning, retry_delay
from logboom.pipeline.sinks.http.protobuf import fields_of

QUICK = "timeout: 2s, retry_for: 20s"
SECRET = otlp.Otlp.secret
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class GrpcOtlp(otlp.Otlp):
    """The same receiver behind gRPC ("OTLP/gRPC" of the specification)."""

    def export(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        if metadata.get("authorization") != f"Bearer {self.secret}":
            raise RefusedCallError(grpc.StatusCode.UNAUTHENTICATED, f"unknown: {metadata.get('authorization')}")
        reply = self.take(request)
        if reply.status == 413:
            details = f"grpc: received message larger than max ({len(request)} vs. {otlp.MAX_BYTES})"
            raise RefusedCallError(grpc.StatusCode.RESOURCE_EXHAUSTED, details)
        if reply.status == 400:
            raise RefusedCallError(grpc.StatusCode.INVALID_ARGUMENT, "a record with poison")
        return reply.body


@pytest.fixture
def contract() -> GrpcOtlp:
    return GrpcOtlp()


@pytest.fixture
def server(contract: GrpcOtlp) -> Iterator[GrpcServer]:
    with GrpcServer({LOGS: contract.export}) as running:
        yield running


def by_grpc(server: GrpcServer, more: str = "", secret: str = SECRET, quick: str = QUICK) -> Delivering:
    keys = f"type: otlp, transport: grpc, url: '{server.url}', token_env: TOKEN, {quick}, batch: {{max_events: 50}}"
    return delivering(sink_of(f"{keys}{more}"), secret)


def test_events_are_log_records_by_grpc(server: GrpcServer, contract: GrpcOtlp) -> None:
    batch = by_grpc(server)
    report = batch.attempt([edge_batch([event(at) for at in range(200)])])
    assert (report.error, report.rows) == (None, 200)
    assert contract.events == {f"web:0:{number}": 1 for number in range(200)}
    resource, record = contract.records[7]
    assert resource == {"service.name": f"shop-{int(record['body'][5:]) % 2}", "host.name": "h1"}


@pytest.mark.parametrize("fault", ["unavailable", "exhausted", "internal", "hang", "lost_answer", "garbage"])
def test_a_fault_of_a_receiver_loses_nothing(server: GrpcServer, contract: GrpcOtlp, fault: Any) -> None:
    server.next += [fault] * 3
    batch = by_grpc(server)
    batch.until_done([edge_batch([event(at) for at in range(300)])])
    assert set(contract.events) == {f"web:0:{number}" for number in range(300)}
    assert server.applied[fault] == 3
    assert not batch.letters.refused
    if fault not in ("lost_answer", "hang"):
        assert max(contract.events.values()) == 1


@pytest.mark.parametrize("fault", ["late", "half_stored", "stored_internal"])
def test_a_call_that_was_carried_out_without_an_answer_is_repeated_and_no_other(
    server: GrpcServer, contract: GrpcOtlp, fault: Any
) -> None:
    """Also one that is carried out when nobody waits for it any more."""
    server.next += [fault]
    batch = by_grpc(server, quick="timeout: 400ms, retry_for: 20s")
    batch.until_done([edge_batch([event(at) for at in range(300)])])
    assert server.applied[fault] == 1
    until(lambda: contract.events.total() == 350, "the call of which nobody knew the outcome is carried out")
    assert set(contract.events) == {f"web:0:{number}" for number in range(300)}
    assert (batch.rows, batch.letters.refused) == (300, [])


def test_an_attempt_that_ends_before_a_late_answer_is_made_good_by_the_next(
    server: GrpcServer, contract: GrpcOtlp
) -> None:
    batch = by_grpc(server, ", concurrency: 1", quick="timeout: 400ms, retry_for: 0")
    server.next += ["late"]
    parts = [edge_batch([event(at) for at in range(300)])]
    assert batch.attempt(parts).error is not None
    batch.until_done(parts)
    until(lambda: contract.events.total() == 350, "and the late one is carried out too")
    assert (set(contract.events), batch.rows) == ({f"web:0:{number}" for number in range(300)}, 300)


def test_a_record_that_is_refused_dies_alone(server: GrpcServer, contract: GrpcOtlp) -> None:
    batch = by_grpc(server)
    batch.until_done([edge_batch([event(at, **({"body": "poison"} if at == 70 else {})) for at in range(100)])])
    (letter,) = batch.letters.refused
    assert (letter.offset, "INVALID_ARGUMENT: a record with poison" in letter.reason) == (70, True)
    assert len(contract.events) == 99


def test_a_request_that_is_too_large_is_cut_and_a_partial_one_dies_with_its_reason(
    server: GrpcServer, contract: GrpcOtlp
) -> None:
    large = [event(at, body="x" * 30_000) for at in range(48)]
    batch = by_grpc(server)
    batch.until_done([edge_batch(large)])
    assert len(contract.events) == 48
    contract.partial = True
    again = by_grpc(server)
    again.until_done([edge_batch([event(100), event(101, body="poison")])])
    assert {letter.offset for letter in again.letters.refused} == {0, 1}
    assert "refused 1 of the 2 records" in again.letters.refused[0].reason


def test_a_credential_that_is_not_taken_is_told_without_it(server: GrpcServer) -> None:
    report = by_grpc(server, secret="expired-credential").attempt([edge_batch([event(0)])])
    assert report.error is not None
    assert "UNAUTHENTICATED" in report.error
    assert "expired-credential" not in report.error
    target = sink_of(f"type: otlp, transport: grpc, url: '{server.url}', token_env: TOKEN").open_target(
        {"env:TOKEN": SECRET}
    )
    target.probe()
    target.close()


def test_a_receiver_that_is_stopped_and_comes_back_gets_every_event(server: GrpcServer, contract: GrpcOtlp) -> None:
    batches = [
        edge_batch([event(at) for at in range(start, start + 100)], first=start) for start in range(0, 1000, 100)
    ]

    def stopping() -> Iterator[Any]:
        for number, each in enumerate(batches):
            if number == 5:
                server.stop()
                server.start()
            yield each

    batch = by_grpc(server)
    batch.attempt(stopping())
    batch.until_done(batches)
    assert set(contract.events) == {f"web:0:{number}" for number in range(1000)}


def test_tls_with_a_certificate_of_ones_own(tmp_path: Path, contract: GrpcOtlp) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=WAIT_S,
    )
    with GrpcServer({LOGS: contract.export}, tls=(key.read_bytes(), certificate.read_bytes())) as server:
        sink = sink_of(f"type: otlp, transport: grpc, url: '{server.url}', token_env: TOKEN, ca_file: ca, {QUICK}")
        trusting = Delivering(sink, {"env:TOKEN": SECRET, "file:ca": certificate.read_text()})
        assert trusting.attempt([edge_batch([event(0)])]).error is None
        wary = sink_of(
            f"type: otlp, transport: grpc, url: '{server.url}', token_env: TOKEN, timeout: 2s, retry_for: 100ms"
        )
        report = delivering(wary, SECRET).attempt([edge_batch([event(1)])])
        assert report.error is not None
    assert contract.events == {"web:0:0": 1}


def test_what_a_status_means() -> None:
    assert retry_delay(retry_info(500_000_000)) == 0.5
    assert retry_delay(b"\xff") is None
    kinds = {
        "UNAVAILABLE": "TryAgainError",
        "DEADLINE_EXCEEDED": "TryAgainError",
        "RESOURCE_EXHAUSTED": "TryAgainError",
        "UNKNOWN": "TryAgainError",
        "INVALID_ARGUMENT": "RefusedWholeError",
        "PERMISSION_DENIED": "GiveUpError",
        "UNIMPLEMENTED": "GiveUpError",
    }
    assert {code: type(meaning("h", code, "", None)).__name__ for code in kinds} == kinds


class MetricsReceiver(otlp.Otlp):
    """Takes metrics, over HTTP and gRPC."""

    def __init__(self) -> None:
        super().__init__()
        self.points: dict[str, tuple[int, dict[int, Any]]] = {}
        """By name of the metric: the field of its kind, and the fields of its data point."""

    def handle(self, request: Any) -> Reply:
        assert request.path == "/v1/metrics"
        return Reply(200, self.export(request.body, {}), {"Content-Type": "application/x-protobuf"})

    def export(self, request: bytes, metadata: Mapping[str, str]) -> bytes:
        for _, resource in fields_of(request):
            scope = dict(fields_of(resource))[2]  # type: ignore[arg-type]
            for field, message in fields_of(scope):  # type: ignore[arg-type]
                if field == 2:
                    parts = dict(fields_of(message))  # type: ignore[arg-type]
                    kind = next(number for number in (5, 7, 9, 11) if number in parts)
                    body = dict(fields_of(parts[kind]))  # type: ignore[arg-type]
                    point = body.pop(1)
                    self.points[parts[1].decode()] = (kind, {**_point(point), -2: body.get(2), -3: body.get(3)})  # type: ignore[union-attr]
        return b""


def _point(message: Any) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for field, value in fields_of(message):
        found[field] = [*found.get(field, []), value]
    return found


def _number(values: list[bytes], form: str = "<d") -> Any:
    return struct.unpack(form, values[0])[0]


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_what_aggregate_makes_are_metrics(transport: str) -> None:
    contract = MetricsReceiver()
    events = [
        metric(1, "count", 5.5, name="requests"),
        metric(2, "sum", -7.0, name="bytes"),
        metric(3, "unique", 3.0, name="users"),
        {**HISTOGRAM, "offset": 4},
        {**QUANTILES, "offset": 5},
        event(9),
    ]
    with Server(contract) as http, GrpcServer({METRICS: contract.export}) as by_call:
        url = http.url if transport == "http" else by_call.url
        batch = delivering(sink_of(f"type: otlp, signal: metrics, transport: {transport}, url: '{url}', {QUICK}"), "")
        report = batch.attempt([edge_batch(events)])
    assert (report.error, report.rows) == (None, 5)
    (letter,) = batch.letters.refused
    assert "is not a metric" in letter.reason
    kind, point = contract.points["requests"]
    assert (kind, _number(point[4]), point[-2], point[-3]) == (7, 5.5, 1, 1), "a sum, delta, that only grows"
    assert _number(point[3], "<Q") == (END_US + 60_000_000) * 1_000
    assert _number(point[2], "<Q") == END_US * 1_000
    labels = {dict(fields_of(pair))[1] for pair in point[7]}
    assert labels == {b"service", b"http.status"}
    kind, point = contract.points["bytes"]
    assert (kind, _number(point[4]), point[-2], point[-3]) == (7, -7.0, 1, None)
    kind, point = contract.points["users"]
    assert (kind, _number(point[4])) == (5, 3.0)
    kind, point = contract.points["ms"]
    assert (kind, _number(point[4], "<Q"), _number(point[5]), point[-2]) == (9, 6, 70.5, 1)
    assert struct.unpack("<3Q", point[6][0]) == (1, 2, 3)
    assert struct.unpack("<2d", point[7][0]) == (10.0, 20.5)
    kind, point = contract.points["size"]
    assert (kind, _number(point[4], "<Q"), _number(point[5])) == (11, 4, 10.0)
    quantiles = [dict(fields_of(each)) for each in point[6]]
    assert [(_number([each[1]]), _number([each[2]])) for each in quantiles] == [(0.5, 2.0), (0.99, -4.0)]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            "preset: grafana_cloud, region: r, auth: {user: u, password_env: P}, transport: grpc",
            "grafana_cloud does not document grpc",
        ),
        ("url: 'http://h:4317/v1/logs', transport: grpc", "has a path"),
        ("url: 'http://h:4317', transport: grpc, compression: zstd", "should be gzip or none"),
    ],
)
def test_what_is_wrong_with_its_keys_is_told(keys: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        compile_pipeline(pipeline_of(f"type: otlp, {keys}"), "p.yaml")
    assert words in str(caught.value)


def test_presets_have_their_own_address_for_grpc() -> None:
    sink = sink_of("type: otlp, preset: new_relic, transport: grpc, token_env: KEY")
    assert (sink.http.url, sink.token_header) == ("https://otlp.nr-data.net:4317", "api-key")
