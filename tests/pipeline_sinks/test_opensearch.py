"""The sink `elasticsearch` with a real OpenSearch: what its mapping refuses, what is there already, and a node that is
killed and comes back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.drivers import DriverMissingError, opensearch
from tests.pipeline_sinks.harness import Delivering, Letters, delivering, edge_batch, event, held_in, sink_of
from tests.pipeline_sinks.odd_events import assert_reasons, check_all, odd_batch
from tests.pipeline_sinks.server import IN_DOUBT, NOT_TAKEN, Gateway, InDoubt, NotTaken, Server
from tests.support.server import free_port
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S

from logboom.pipeline.sinks.read_back import milliseconds_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.skipif(shutil.which("java") is None, reason="OpenSearch needs Java 17 or newer"),
    pytest.mark.xdist_group("opensearch"),
]

START_S = 300


class Node:
    """One node on a port of this machine, whose directory survives it."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self._command = command
        self._directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        command = [*self._command, str(self._directory / "node"), str(self.port)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text(errors="replace")[-2_000:]
            assert time.monotonic() < deadline, "OpenSearch did not start"
            time.sleep(0.3)

    def kill(self) -> None:
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(WAIT_S)
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.loads(answer.read())

    def count(self, index: str) -> int:
        self.ask("POST", f"/{index}/_refresh")
        return int(self.ask("GET", f"/{index}/_count")["count"])

    def _answers(self) -> bool:
        try:
            return bool(self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s")["status"] != "red")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with skipped_on(DriverMissingError):
        command = opensearch()
    running = Node(command, tmp_path_factory.mktemp("opensearch"))
    running.start()
    yield running
    running.kill()


def _sending(node: Node, keys: str) -> Delivering:
    return delivering(sink_of(f"type: elasticsearch, url: '{node.url}', timeout: 60s, retry_for: 300s, {keys}"), "")


def test_documents_arrive_once_and_what_the_mapping_refuses_is_a_dead_letter(node: Node) -> None:
    mapping = {"attributes": {"properties": {"n": {"type": "long"}}}}
    node.ask("PUT", "/shop-2026.11", {"mappings": {"properties": mapping}})
    events = [event(number) for number in range(2_000)]
    events[77]["attributes"] = {"n": "not a number"}
    for _ in range(2):
        batch = _sending(node, "index: 'shop-{time:%Y.%m}', batch: {max_events: 300}")
        batch.until_done([edge_batch(events)])
        assert node.count("shop-2026.11") == 1_999
        (letter,) = batch.letters.refused
        assert "mapper_parsing_exception" in letter.reason
        assert "attributes.n" in letter.reason
    assert (batch.reports[-1].rows, batch.reports[-1].repeats) == (0, 1_999)
    found = node.ask("GET", "/shop-2026.11/_doc/web:0:5")["_source"]
    assert found["@timestamp"] == "2026-11-23T07:00:00.005Z"


def test_a_data_stream_takes_events_and_refuses_those_without_a_time(node: Node) -> None:
    template = {"index_patterns": ["logs-*"], "data_stream": {}, "priority": 10}
    node.ask("PUT", "/_index_template/logs", template)
    events = [event(0), event(1, time=None, observed_time=None), event(2)]
    batch = _sending(node, "index: 'logs-{service}-default'")
    batch.until_done([edge_batch(events)])
    assert node.count("logs-shop-0-default") == 2
    assert batch.letters.ids() == {"web:0:1": 1}


def test_a_closed_index_refuses_by_name(node: Node) -> None:
    node.ask("PUT", "/closed")
    node.ask("POST", "/closed/_close")
    batch = _sending(node, "index: closed")
    batch.until_done([edge_batch([event(0)])])
    assert "index_closed_exception" in batch.letters.refused[0].reason


def test_an_index_that_is_read_only_gets_everything_once_it_is_not(node: Node) -> None:
    node.ask("PUT", "/blocked", {"settings": {"number_of_replicas": 0}})
    node.ask("PUT", "/blocked/_settings", {"index.blocks.write": True})
    sink = sink_of(f"type: elasticsearch, url: '{node.url}', timeout: 60s, retry_for: 1s, index: blocked")
    batch = delivering(sink, "")
    report = batch.attempt([edge_batch([event(number) for number in range(100)])])
    assert "403 cluster_block_exception" in str(report.error)
    assert batch.letters == Letters()
    node.ask("PUT", "/blocked/_settings", {"index.blocks.write": False})
    batch.until_done([edge_batch([event(number) for number in range(100)])])
    assert (node.count("blocked"), batch.letters) == (100, Letters())


def test_a_node_that_is_killed_and_comes_back_has_each_event_once(node: Node) -> None:
    node.ask("PUT", "/killed", {"settings": {"number_of_replicas": 0}})
    batches = [
        edge_batch([event(at) for at in range(start, start + 200)], first=start) for start in range(0, 2_000, 200)
    ]

    def killing() -> Iterator[Any]:
        for number, each in enumerate(batches):
            if number == 5:
                node.kill()
                node.start()
            yield each

    batch = _sending(node, "index: killed, batch: {max_events: 100}")
    batch.attempt(killing())
    batch.until_done(batches)
    assert node.count("killed") == 2_000
    assert batch.letters == Letters()


@pytest.mark.parametrize("retry_for", ["300s", "0"], ids=["same_attempt", "next_attempt"])
@pytest.mark.parametrize("fault", IN_DOUBT)
def test_a_bulk_request_that_was_carried_out_without_an_answer_makes_no_document_twice(
    node: Node, fault: InDoubt, retry_for: str
) -> None:
    index = f"doubt-{fault.replace('_', '-')}-{retry_for}"
    node.ask("PUT", f"/{index}", {"settings": {"number_of_replicas": 0}})
    batches = [edge_batch([event(at) for at in range(start, start + 50)], first=start) for start in range(0, 300, 50)]
    with Server(Gateway(node.url)) as gateway:
        keys = f"type: elasticsearch, url: '{gateway.url}', timeout: 1s, retry_for: {retry_for}, index: {index}"
        batch = delivering(sink_of(f"{keys}, batch: {{max_events: 50}}, concurrency: 1"), "")
        gateway.faults.next += [None, None, fault]
        batch.attempt(batches)
        batch.until_done(batches)
        assert gateway.faults.applied[fault] == 1
    assert node.count(index) == 300
    repeats = sum(report.repeats for report in batch.reports)
    assert (batch.rows + repeats, repeats >= 50) == (300, True)
    assert batch.letters == Letters()


@pytest.mark.parametrize("fault", NOT_TAKEN)
def test_a_node_behind_something_that_fails_has_each_event_once(node: Node, fault: NotTaken) -> None:
    index = f"failing-{fault}"
    node.ask("PUT", f"/{index}", {"settings": {"number_of_replicas": 0}})
    with Server(Gateway(node.url)) as gateway:
        keys = f"type: elasticsearch, url: '{gateway.url}', timeout: 1s, retry_for: 300s, index: {index}"
        batch = delivering(sink_of(f"{keys}, batch: {{max_events: 50}}"), "")
        gateway.faults.next += [None, fault, fault]
        batch.until_done([edge_batch([event(number) for number in range(300)])])
        assert gateway.faults.applied[fault] == 2
    assert node.count(index) == 300
    # On a busy machine a request may take longer than its timeout, and is found to be there the next time.
    repeats = sum(report.repeats for report in batch.reports)
    assert (batch.rows + repeats, batch.letters) == (300, Letters())


@pytest.mark.parametrize("form", ["event", "ecs"])
def test_what_a_node_holds_is_read_back(node: Node, form: str) -> None:
    keys = f"type: elasticsearch, url: '{node.url}', index: '{form}-back-{{service}}', format: {form}, timeout: 60s"
    early = {"observed_time": "2026-11-23T06:59:59.999Z"}
    events = [*(event(number) for number in range(6_000)), event(6_000, **early)]
    delivering(sink_of(keys), "").until_done([edge_batch(events)])
    node.ask("POST", f"/{form}-back-other/_doc", {"observed_time": "2026-11-23T07:00:01Z"})  # no event
    node.ask("POST", f"/{form}-back-*/_refresh")
    found = held_in(keys, milliseconds_of("2026-11-23T07:00:00Z") or 0)
    assert sorted(one.event_id for one in found) == sorted(f"web:0:{number}" for number in range(6_000))
    assert {(one.service, one.observed_ms % 60_000) for one in found} == {("shop-0", 1_000), ("shop-1", 1_000)}


def test_odd_events_are_documents_or_dead_letters(node: Node) -> None:
    node.ask("PUT", "/odd", {"mappings": {"dynamic": True, "properties": {"attributes": {"enabled": False}}}})
    batch = delivering(sink_of(f"type: elasticsearch, url: '{node.url}', index: odd, timeout: 30s, retry_for: 0"), "")
    batch.until_done([edge_batch(odd_batch())], attempts=1)
    node.ask("POST", "/odd/_refresh")
    found = node.ask("GET", "/odd/_search?size=1000&_source=false")["hits"]["hits"]
    dead = check_all(batch, Counter(hit["_id"] for hit in found))
    refused = {
        "5000 digits": "Number value length",
        "a time that is none": "parse date field",
        "a name twice": "Duplicate",
    }
    assert_reasons(dead, refused)
