"""A router under load through all that stops or kills it, its JVM or its broker: the balance of records holds, and the
archive and files of lines have each event once.

One pipeline goes through all of it, run after run: the start of a router takes longer than anything tested of it here.
"""

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.pipeline.support import (
    RouterProcess,
    all_ended,
    archive_ids,
    descendants,
    header,
    ledger,
    make_stream,
    needs_java,
    records,
)
from tests.support.server import BrokerProcess
from tests.support.thoroughness import TURN
from tests.support.waiting import WAIT_S, until

pytestmark = [pytest.mark.spark, needs_java]

PARTITIONS = 2
BATCH = 200
BROKER_KILLS = 2
PIPELINE = f"""
name: kill
checkpoint: ./checkpoint
batch: {{max_records: {BATCH}, interval: 100ms}}
sources:
  web: {{type: stream, stream: web}}
transforms:
  parsed: {{type: parse, inputs: [web], rules: [{{format: json}}]}}
  clean: {{type: filter, inputs: [parsed], condition: "severity_text <> 'DEBUG'"}}
  masked: {{type: mask, inputs: [clean], rules: [{{kind: email, action: redact}}]}}
  split: {{type: route, inputs: [masked], routes: {{errors: "severity_number >= 17"}}}}
sinks:
  archive: {{type: parquet, inputs: [masked], path: ./archive, on_failure: retry}}
  lines: {{type: file, inputs: [masked], path: ./lines/app.jsonl, on_failure: retry, rotate: {{size: 64KiB}}}}
  errors: {{type: stream, inputs: [split.errors], stream: errors}}
  rest: {{type: stream, inputs: [split.unmatched], stream: rest}}
"""


def _line(number: int) -> bytes:
    if _kind(number) == "dead":
        return b'{"cut": '
    level = ("INFO", "ERROR", "WARN", "DEBUG")[number // PARTITIONS % 4]
    event = {"time": "2026-11-20T12:00:00Z", "level": level, "msg": f"mail to a{number}@example.com", "n": number}
    return json.dumps(event).encode()


def _kind(number: int) -> str:
    if number % 100 == 7:
        return "dead"
    return ("rest", "errors", "rest", "dropped")[number // PARTITIONS % 4]


class Load:
    """Lines for as long as it runs, some batches ahead of the router, one partition after the other."""

    def __init__(self, bootstrap: str, records_in: Callable[[], int]) -> None:
        self.sent = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True, "log_level": 0}
        )
        self._records_in = records_in
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            if self.sent - self._records_in() > 4 * BATCH:
                self._ends.wait(0.02)
                continue
            for number in range(self.sent, self.sent + 100):
                self._producer.produce("web", _line(number), partition=number % PARTITIONS)
            self._producer.poll(0)
            self.sent += 100

    def finish(self) -> int:
        """How many lines there are in all, once all of them are acknowledged."""
        self._ends.set()
        self._thread.join(WAIT_S)
        assert self._producer.flush(WAIT_S) == 0
        return self.sent


class Lives:
    """The lives of one router: each is started, meets what is tested, and ends."""

    def __init__(self, directory: Path, broker: BrokerProcess) -> None:
        self.checkpoint, self.archive = directory / "checkpoint", directory / "archive"
        self._broker = broker
        self._file = directory / "kill.yaml"
        self._file.write_text(PIPELINE)

    def records_in(self) -> int:
        books = self.checkpoint / "ledger"
        return int(ledger(self.checkpoint)["total"]["records_in"]["web"]) if list(books.glob("*.json")) else 0

    def pinned(self) -> int:
        """Batches that have begun: their plan is the first that is written of them."""
        return _count(self.checkpoint / "pins" / "batches")

    def archived(self) -> int:
        """Batches that the archive has committed."""
        return _count(self.archive / "_logboom" / "manifests")

    def start(self, *arguments: str) -> RouterProcess:
        return RouterProcess(self._file, self._broker.kafka, *arguments)

    def await_more(self, router: RouterProcess, count: Callable[[], int], more: int, what: str) -> None:
        goal = count() + more
        until(lambda: count() >= goal or not router.alive(), what)
        assert router.alive(), router.log_text()[-3_000:]

    def broker_is_killed(self, router: RouterProcess) -> None:
        """The router waits for it and goes on by itself, and so do its deliveries."""
        for _ in range(BROKER_KILLS):
            self.await_more(router, self.records_in, 1, "a batch")
            self._broker.kill9()
            self._broker.restart()
        self.await_more(router, self.records_in, 1, "a batch after the broker came back")
        self.await_more(router, self.archived, 1, "a delivery after the broker came back")

    def is_stopped(self, router: RouterProcess) -> None:
        """As a service manager does it, with a signal to each process: the batch that runs comes to its end, and
        nothing outlives the driver. Of what it starts nothing is in the driver's own process group, so a signal to that
        is one to the driver alone."""
        # Not the first batch of a life: on a busy machine that one takes longer than the 20 s that a stop waits for it.
        self.await_more(router, self.pinned, 2, "a batch begins")
        batch, started = self.pinned() - 1, _started_by(router)
        assert router.process.pid not in map(_group_of, started)
        _terminate_each(router.process.pid)
        assert router.wait() == 0, router.log_text()[-2_000:]
        assert (self.checkpoint / "router" / "commits" / str(batch)).exists(), router.log_text()[-2_000:]
        assert " INFO " not in router.log_text(), "Spark is silent where its log was not asked for"
        until(lambda: all_ended(started), "the JVM and its workers have ended")

    def is_killed(self, router: RouterProcess) -> None:
        """Nothing outlives a driver: the JVM and its workers notice that it is gone.

        It is killed while a batch goes through the router, or, in every other turn, behind a commit of the archive.
        """
        moment, what = (self.archived, "the archive commits") if TURN % 2 else (self.pinned, "a batch begins")
        self.await_more(router, self.pinned, 1, "its first batch")
        self.await_more(router, moment, 1, what)
        started = _started_by(router)
        router.kill9(group=False)
        until(lambda: all_ended(started), "the JVM and its workers have ended")

    def jvm_is_killed(self, router: RouterProcess) -> None:
        """The run tells what happened in a sentence, and goes on in the same process with another JVM."""
        started = self._kill_jvm(router)
        until(lambda: _restarts_told(router) == 1, "the sentence")
        until(lambda: all_ended(started), "the JVM's workers have ended")
        self.await_more(router, self.records_in, 1, "a batch after the JVM was killed")
        self.await_more(router, self.archived, 1, "a delivery after the JVM was killed")
        assert '"restarts":1' in router.log_text().splitlines()[-1]

    def is_stopped_without_a_jvm(self, router: RouterProcess) -> None:
        """A stop is heard wherever the process is between two JVMs."""
        self._kill_jvm(router)
        until(lambda: _restarts_told(router) == 2, "the sentence")
        router.process.send_signal(signal.SIGTERM)
        assert router.wait() == 0, router.log_text()[-2_000:]

    def _kill_jvm(self, router: RouterProcess) -> set[int]:
        """What had been started by the router, the JVM among it."""
        started = _started_by(router)
        (jvm,) = filter(_leads_a_session, started)
        os.kill(jvm, signal.SIGKILL)
        return started

    def ends_by_itself(self, router: RouterProcess) -> None:
        """Its JVM stops Spark behind it, and ends too. Spark has told what it did, as `--spark-log INFO` asks it to."""
        until(lambda: bool(_started_by(router)) or not router.alive(), "its JVM")
        started = _started_by(router)
        assert router.wait() == 0, router.log_text()[-3_000:]
        until(lambda: all_ended(started), "its JVM has ended")
        assert " INFO MicroBatchExecution: " in router.log_text()


def _restarts_told(router: RouterProcess) -> int:
    told = "Spark's JVM was killed (the kernel does this when memory runs out); nothing is lost: the run restarts Spark"
    return router.log_text().count(told)


def _count(directory: Path) -> int:
    return max((int(path.stem) + 1 for path in directory.glob("**/*.json") if path.stem.isdigit()), default=0)


def _started_by(router: RouterProcess) -> set[int]:
    return descendants(router.process.pid) - {router.process.pid}


def _group_of(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _leads_a_session(pid: int) -> bool:
    """Of what a router starts, the JVM alone does."""
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid) == pid
    return False


def _terminate_each(pid: int) -> None:
    for one in descendants(pid):
        with contextlib.suppress(ProcessLookupError):  # the JVM runs commands such as chmod, each over in a moment
            os.kill(one, signal.SIGTERM)


def _lines_ids(directory: Path) -> Counter[str]:
    """How often each event stands in files of lines."""
    lines = (line for path in directory.iterdir() for line in path.read_bytes().split(b"\n")[:-1])
    return Counter(json.loads(line)["event_id"] for line in lines)


def test_a_router_killed_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        make_stream(broker.kafka, "web", PARTITIONS)
        lives = Lives(tmp_path, broker)
        load = Load(broker.kafka, lives.records_in)
        with lives.start() as router:
            lives.broker_is_killed(router)
            lives.is_stopped(router)
        with lives.start() as router:
            lives.is_killed(router)
        with lives.start() as router:
            lives.await_more(router, lives.pinned, 2, "a batch begins")
            lives.jvm_is_killed(router)
            lives.is_stopped_without_a_jvm(router)
        lines = load.finish()
        with lives.start("--once", "--spark-log", "INFO") as router:
            lives.ends_by_itself(router)
        found = {stream: records(broker.kafka, stream) for stream in ("errors", "rest", "kill.dead.parsed")}

    wanted = {kind: sum(_kind(number) == kind for number in range(lines)) for kind in map(_kind, range(lines))}
    events = wanted["rest"] + wanted["errors"]
    ids = archive_ids(lives.archive)
    assert len(ids) == events
    assert set(ids.values()) == {1}
    assert _lines_ids(tmp_path / "lines") == ids
    assert len({header(message, "logboom-event-id") for message in found["errors"]}) == wanted["errors"]
    assert len({header(message, "logboom-event-id") for message in found["rest"]}) == wanted["rest"]
    assert len({header(message, "logboom-origin") for message in found["kill.dead.parsed"]}) == wanted["dead"]
    total = ledger(lives.checkpoint)["total"]
    assert total["records_in"] == {"web": lines}
    assert total["dead"]["parsed"] == wanted["dead"]
    assert total["dropped"] == {"clean": wanted["dropped"]}
    assert sum(total["out"].values()) == 2 * events
    assert total["copies"] == events
