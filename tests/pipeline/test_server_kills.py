"""A router that delivers to real servers through kill -9 of itself and of each server, and through servers that stand
still: nothing is lost, each event is there once where the server can see to it, and no sink waits for another.

One pipeline goes through all of it, life after life: the start of a router takes longer than anything tested of it.
"""

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.drivers import DriverMissingError, opensearch
from tests.pipeline.support import (
    RouterProcess,
    archive_ids,
    descendants,
    ledger,
    make_stream,
    needs_java,
    publish,
    records,
)
from tests.pipeline_sinks.test_opensearch import Node
from tests.support.clickhouse import PASSWORD, ClickhouseMissingError, ClickhouseServer
from tests.support.postgres import PostgresMissingError, PostgresServer
from tests.support.s3 import BUCKET, IDENTITY, S3Server, running_s3
from tests.support.server import BrokerProcess
from tests.support.skipping import skipped_on
from tests.support.waiting import WAIT_S, until

pytest.importorskip("psycopg")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.clients, needs_java]

ROUND = 1_500
"""Lines that are published for each life of the router."""
BATCH = 300
CASES = """
  postgres:
    type: postgresql
    inputs: [parsed]
    url: postgresql://postgres@127.0.0.1:{postgres}/postgres
    table: events
    columns: {{event_id: event_id, body: body}}
    batch: {{max_events: 50}}
    timeout: 5s
    on_failure: retry
  clickhouse:
    type: clickhouse
    inputs: [parsed]
    url: http://127.0.0.1:{clickhouse}
    table: default.events
    user: shop
    password_env: CLICKHOUSE_PASSWORD
    columns: {{event_id: event_id, body: body}}
    batch: {{max_events: 50}}
    timeout: 5s
    on_failure: retry
  cloud:
    type: parquet
    inputs: [parsed]
    path: s3://logs/app
    endpoint: http://127.0.0.1:{s3}
    region: us-east-1
    interval: 500ms
    on_failure: retry
"""
PIPELINE = """
name: {name}
checkpoint: ./checkpoint
batch: {{max_records: {batch}, interval: 100ms}}
sources:
  web: {{type: stream, stream: {name}-web}}
transforms:
  parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}
sinks:
  lines: {{type: file, inputs: [parsed], path: ./lines/app.jsonl}}
"""


def _lines(first: int, count: int) -> list[bytes]:
    return [json.dumps({"msg": f"line {number}"}).encode() for number in range(first, first + count)]


def _of_file(directory: Path) -> Counter[str]:
    found = (line for path in directory.glob("*") for line in path.read_bytes().split(b"\n")[:-1])
    return Counter(json.loads(line)["event_id"] for line in found)


class Still:
    """Processes that stand still (SIGSTOP), with what they have started, while the body runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped: set[int] = set()

    def __enter__(self) -> None:
        while new := descendants(self._pid) - self._stopped:  # those that began meanwhile too
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            self._stopped |= new

    def __exit__(self, *_: object) -> None:
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Shop:
    """A pipeline with a broker's stream behind it, from life to life of its router."""

    def __init__(self, broker: BrokerProcess, directory: Path, name: str, sinks: str) -> None:
        self.bootstrap, self.name, self.published = broker.kafka, name, 0
        self.file, self.lines = directory / f"{name}.yaml", directory / "lines"
        self.file.write_text(PIPELINE.format(name=name, batch=BATCH) + sinks)
        make_stream(self.bootstrap, f"{name}-web", 2)

    def start(self, *arguments: str) -> RouterProcess:
        return RouterProcess(self.file, self.bootstrap, *arguments)

    def publish(self) -> None:
        publish(self.bootstrap, f"{self.name}-web", _lines(self.published, ROUND), 2)
        self.published += ROUND

    def wanted(self) -> set[str]:
        return {f"{self.name}-web:{number % 2}:{number // 2}" for number in range(self.published)}

    def await_lines(self, router: RouterProcess) -> None:
        """Until the sink that nothing happens to has everything."""
        until(lambda: len(_of_file(self.lines)) == self.published or not router.alive(), "the lines", every_s=0.5)
        assert router.alive(), router.log_text()[-3_000:]

    def finish(self) -> None:
        """A run to the end; what came of all lives together."""
        with self.start("--once") as router:
            assert router.wait() == 0, router.log_text()[-3_000:]
        assert _of_file(self.lines) == Counter(self.wanted())
        checkpoint = self.file.parent / "checkpoint"
        assert ledger(checkpoint)["total"]["records_in"] == {"web": self.published}
        sinks = [path.name for path in (checkpoint / "deliveries").iterdir()]
        assert not [one for sink in sinks for one in records(self.bootstrap, f"{self.name}.dead.{sink}")]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with skipped_on(PostgresMissingError):
        server = PostgresServer()
    with server:
        with server.session() as session:
            session.run("CREATE TABLE events (event_id text PRIMARY KEY, body text)")
        yield server


@pytest.fixture(scope="module")
def clickhouse() -> Iterator[ClickhouseServer]:
    with skipped_on(ClickhouseMissingError):
        server = ClickhouseServer()
    with server:
        server.query("CREATE TABLE events (event_id String, body String) ENGINE = MergeTree ORDER BY event_id")
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


def _rows(postgres: PostgresServer) -> int:
    with postgres.session() as session:
        return int(session.run("SELECT count(*) FROM events"))


def _back(kill: Callable[[], None], start: Callable[[], None]) -> threading.Thread:
    """Kills a server at once, and starts it again beside what the caller does next."""
    kill()
    thread = threading.Thread(target=start)
    thread.start()
    return thread


def test_routers_and_servers_may_be_killed_and_stand_still(
    broker: BrokerProcess,
    tmp_path: Path,
    postgres: PostgresServer,
    clickhouse: ClickhouseServer,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {**IDENTITY, "CLICKHOUSE_PASSWORD": PASSWORD}.items():
        monkeypatch.setenv(name, value)
    sinks = CASES.format(postgres=postgres.port, clickhouse=clickhouse.port, s3=s3.port)
    shop = Shop(broker, tmp_path, "servers", sinks)

    def objects() -> int:
        return len(list((s3.bucket / "app").glob("date=*/**/*.parquet")))

    def counted() -> int:
        return int(clickhouse.query("SELECT count() FROM events"))

    def rows() -> int:
        return _rows(postgres)

    counts: tuple[Callable[[], int], ...] = (rows, objects, counted)
    for count in counts:  # each life ends while another sink is at work
        with shop.start() as router:
            before = count()
            shop.publish()
            until(lambda: count() > before or not router.alive(), "a part of the batches", every_s=0.1)  # noqa: B023
            assert router.alive(), router.log_text()[-3_000:]
            router.kill9()

    with shop.start() as router:
        before = rows()
        shop.publish()
        until(lambda: rows() > before or not router.alive(), "rows", every_s=0.1)
        back = [
            _back(postgres.crash, postgres.start_again),
            _back(clickhouse.kill9, clickhouse.start),
            _back(s3.kill9, s3.start),
        ]
        shop.await_lines(router)
        for thread in back:
            thread.join(WAIT_S)
        before = rows()
        with Still(postgres.pid):
            shop.publish()
            shop.await_lines(router)
            seen = shop.published
            until(lambda: counted() >= seen, "what a database that stands still must not delay", every_s=0.5)
        assert router.alive()
        with Still(postgres.pid):  # the router is killed while it waits for the database
            shop.publish()
            shop.await_lines(router)
            router.kill9()
    shop.finish()

    with postgres.session() as session:
        found = session.run("SELECT count(*), count(DISTINCT event_id) FROM events")
    assert found == f"{shop.published}|{shop.published}"
    assert archive_ids(s3.bucket / "app") == Counter(shop.wanted())
    assert s3.bucket.name == BUCKET
    # A MergeTree table knows no repeats: what had no answer may be there twice.
    assert clickhouse.query("SELECT uniqExact(event_id) FROM events") == str(shop.published)


def test_a_search_cluster_that_stands_still_delays_no_other_sink(
    broker: BrokerProcess, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with skipped_on(DriverMissingError):
        node = Node(opensearch(), tmp_path_factory.mktemp("opensearch"))
    node.start()
    try:
        search = (
            f"  search: {{type: elasticsearch, inputs: [parsed], url: '{node.url}', index: still, timeout: 5s, "
            "batch: {max_events: 100}, on_failure: retry}\n"
        )
        shop = Shop(broker, tmp_path, "still", search)
        with shop.start() as router:
            shop.publish()
            shop.await_lines(router)
            until(lambda: _documents(node) > 0, "documents", every_s=0.5)
            with Still(node.pid):
                shop.publish()
                shop.await_lines(router)
            shop.publish()
            until(lambda: _documents(node) == shop.published, "all documents", every_s=0.5)
            with Still(node.pid):
                shop.publish()
                shop.await_lines(router)
                router.kill9()
        shop.finish()
        assert _documents(node) == shop.published
    finally:
        node.kill()


def _documents(node: Node) -> int:
    with contextlib.suppress(OSError):
        return node.count("still")
    return 0
