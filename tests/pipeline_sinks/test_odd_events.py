"""Events as nobody writes them, for every sink that sends requests: each is taken by a server that holds requests to
the product's contract, or is a dead letter with a reason, and the events beside it arrive."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from tests.pipeline_sinks.cases import SECRET, Case, everywhere
from tests.pipeline_sinks.contracts import remote_write
from tests.pipeline_sinks.harness import delivering, edge_batch, sink_of
from tests.pipeline_sinks.odd_events import (
    NAMES,
    NO_OBJECT,
    NO_RECORD,
    NO_TIME,
    ODD,
    assert_reasons,
    check_all,
    odd_batch,
)
from tests.pipeline_sinks.server import Contract, Reply, Request, Server
from tests.pipeline_sinks.test_bigquery import Cloud, cloud
from tests.pipeline_sinks.test_metrics import metric

from logboom.pipeline.event.record import NOT_JSON, read_event
from logboom.pipeline.sinks.bulk.target import UnfitError

__all__ = ["cloud"]
QUICK: Final = "timeout: 20s, retry_for: 1s"

TOO_LARGE: Final = dict.fromkeys(("a body of 10 MB", "attributes of 10 MB"), "413")
DEAD: Final[Mapping[str, Mapping[str, str]]] = {
    "webhook": TOO_LARGE,
    "elasticsearch": TOO_LARGE
    | {"no time at all": "lacks a field of the index name", "a time that is none": "invalid literal for int"},
    "splunk_hec": TOO_LARGE | NO_TIME,
    "clickhouse": {"a body of 10 MB": "Code: 117"},
    "loki": dict.fromkeys(TOO_LARGE, "Max entry size")
    | dict.fromkeys(("the year 1", "the year 9999"), "outside of Loki's range")
    | NO_TIME
    | {"no time at all": "no time, which Loki requires"},
    "otlp": TOO_LARGE | NO_OBJECT | NO_TIME | NO_RECORD,
    "datadog_logs": dict.fromkeys(TOO_LARGE, "Datadog truncates") | NO_OBJECT,
    "new_relic": TOO_LARGE
    | NO_OBJECT
    | NO_TIME
    | {"5000 attributes": "has 5006 attributes", "a name of 1000 characters": "a name of 1000 characters"},
    "sumo_logic": TOO_LARGE,
    "google_cloud_logging": dict.fromkeys(TOO_LARGE, "more than the 256000")
    | NO_OBJECT
    | {"400 digits": "a number that is no double"},
}
"""By product and name of the event: what its reason says, beside what is not an event for any of them."""


@everywhere
def test_every_odd_event_is_taken_or_a_dead_letter_with_a_reason(case: Case) -> None:
    with Server(case.contract()) as server:
        sink = sink_of(f"{case.keys.format(url=server.url)}, {QUICK}")
        batch = delivering(sink, case.credential(server.url, SECRET))
        batch.until_done([edge_batch(odd_batch())], attempts=1)
        dead = check_all(batch, server.contract.events)
    assert_reasons(dead, DEAD[case.name])


def test_odd_events_are_rows_of_bigquery_or_dead_letters(cloud: Cloud) -> None:
    batch = cloud.batch()
    batch.until_done([edge_batch(odd_batch())], attempts=1)
    dead = check_all(batch, cloud.ids())
    assert max(cloud.contract.requests) < 10_000_000
    assert_reasons(dead, dict.fromkeys(TOO_LARGE, "more than BigQuery takes") | dict.fromkeys(NO_TIME, "is not a time"))


@pytest.fixture
def postgres() -> Any:
    """A table of every field, on a server that nobody asks: rows are made without it."""
    return sink_of("type: postgresql, url: 'postgresql://127.0.0.1:1/logs', table: events").open_target({})


def test_odd_events_are_rows_of_copy_or_dead_letters(postgres: Any) -> None:
    dead = {}
    for number, name in enumerate(NAMES):
        value = ODD[name](number) or b""
        try:
            row = postgres.encode(read_event(value), value).payload.decode()
        except (UnfitError, *NOT_JSON) as error:
            dead[name] = str(error)
            continue
        assert "\0" not in row
        assert row.endswith("\n")
        assert row.count("\n") == 1
        assert f"web:0:{number}" in row.removesuffix("\n").split("\t")
    assert_reasons(dead, {"NUL": "the character NUL"})


HUGE: Final = 1.7e308


def odd_metric(kind: str, value: float, **more: Any) -> Any:
    """A metric by its number."""

    def make(number: int) -> Any:
        return metric(number, kind, value, **{"name": f"odd{number}", **more})

    return make


ODD_METRICS: Final[Mapping[str, Any]] = {
    "huge": odd_metric("sum", HUGE),
    "less than nothing": odd_metric("min", -HUGE),
    "names that are none": odd_metric("sum", 1.0, name="\0|:#\n", labels={"\0|,": "\0|,\n", "__name__": "x", "": "y"}),
    "no name": odd_metric("sum", 1.0, name=""),
    "labels that are equal as names": odd_metric("sum", 1.0, labels={"a.b": 1, "a_b": 2, "a-b": [3], "A.B": {"c": 4}}),
    "1000 labels": odd_metric("sum", 1.0, labels={f"label{number}": "x" * 1_000 for number in range(1_000)}),
    "a histogram of huge counts": odd_metric("histogram", 1.0, sum=HUGE, bounds=[0], buckets=[HUGE, HUGE]),
    "a histogram of less than nothing": odd_metric("histogram", -1.0, bounds=[0], buckets=[-1, 0]),
    "a histogram without a bound": odd_metric("histogram", 1.0, bounds=[], buckets=[1]),
    "buckets that go with no bounds": odd_metric("histogram", 1.0, bounds=[1, 2], buckets=[1]),
    "a quantile that is none": odd_metric("quantiles", 1.0, quantiles={"most": 1.0}),
    "less than nothing of quantiles": odd_metric("quantiles", -1.0, quantiles={"0.5": 1.0}),
    "the year 1": odd_metric("sum", 1.0, end=-62_135_596_800_000_000),
    "beyond all years": odd_metric("sum", 1.0, end=10**30),
}


WHOLE: Final = "cannot be encoded for the server"
DEAD_METRICS: Final[Mapping[str, Mapping[str, str]]] = {
    "remote_write": {"buckets that go with no bounds": "not a metric", "beyond all years": "not a metric"},
    "statsd": {
        "1000 labels": "bytes, more than the 65507 of a datagram",
        "a histogram of huge counts": "no number for inf",
        "buckets that go with no bounds": "not a metric",
        "a quantile that is none": WHOLE,
        "beyond all years": "not a metric",
    },
    "otlp": {
        "a histogram of huge counts": WHOLE,
        "a histogram of less than nothing": WHOLE,
        "buckets that go with no bounds": "not a metric",
        "a quantile that is none": WHOLE,
        "less than nothing of quantiles": WHOLE,
        "the year 1": "outside of OTLP's range",
        "beyond all years": "not a metric",
    },
}


class AnyMetrics(Contract):
    """Takes what it is sent."""

    def handle(self, request: Request) -> Reply:
        return Reply(200, b"", {"Content-Type": "application/x-protobuf"})


@pytest.fixture
def metrics_keys() -> Iterator[Mapping[str, str]]:
    with (
        Server(remote_write.RemoteWrite()) as writes,
        Server(AnyMetrics()) as receiver,
        socket.socket(type=socket.SOCK_DGRAM) as statsd,
    ):
        statsd.bind(("127.0.0.1", 0))
        yield {
            "remote_write": remote_write.KEYS.format(url=writes.url),
            "statsd": f"type: statsd, address: '127.0.0.1:{statsd.getsockname()[1]}'",
            "otlp": f"type: otlp, signal: metrics, url: '{receiver.url}'",
        }


@pytest.mark.parametrize("kind", DEAD_METRICS)
def test_odd_metrics_are_sent_or_dead_letters(kind: str, metrics_keys: Mapping[str, str]) -> None:
    batch = delivering(sink_of(f"{metrics_keys[kind]}, timeout: 20s, retry_for: 1s"), SECRET)
    names = list(ODD_METRICS)
    values = [ODD_METRICS[name](number) for number, name in enumerate(names)]
    batch.until_done([edge_batch(values)], attempts=1)
    dead = {names[one.offset]: one.reason for one in batch.letters.refused}
    assert dead.keys() == DEAD_METRICS[kind].keys()
    assert all(words in dead[name] for name, words in DEAD_METRICS[kind].items())
    assert batch.rows == len(names) - len(dead)
