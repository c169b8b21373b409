"""A run whose JVM is killed again and again, and one whose disk for temporary files is full."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from tests.pipeline.support import (
    RouterProcess,
    descendants,
    fill_disk,
    ledger,
    make_stream,
    named_file,
    needs_java,
    publish,
    records,
)
from tests.support.server import BrokerProcess
from tests.support.waiting import until

from logboom.pipeline.checkpoint.spark_log import unfinished_batch
from logboom.pipeline.run.restarts import ENDS_MAX

pytestmark = [pytest.mark.spark, pytest.mark.slow, needs_java]

PIPELINE = """
name: NAME
checkpoint: ./checkpoint
sources:
  web: {type: stream, stream: NAME-web}
transforms:
  parsed: {type: parse, inputs: [web], rules: [{format: json}]}
  once: {type: dedupe, inputs: [parsed], by: [body], window: 1h}
sinks:
  out: {type: stream, inputs: [once], stream: NAME-out}
  archive: {type: parquet, inputs: [once], path: ./archive}
"""
RECORDS = 100_000


def _jvms(router: RouterProcess) -> set[int]:
    """The JVMs that the router has started: the leaders of sessions below it."""
    found = set[int]()
    for pid in descendants(router.process.pid) - {router.process.pid}:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if os.getsid(pid) == pid and Path(f"/proc/{pid}/exe").resolve().name == "java":
                found.add(pid)
    return found


def test_a_run_gives_up_when_its_jvm_has_been_killed_six_times_with_one_batch(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    """It ends with a sentence and code 1, and the next start finishes that batch."""
    file, killed = named_file(tmp_path, "ending", PIPELINE), set[int]()
    query = tmp_path / "checkpoint" / "router"
    make_stream(broker.kafka, "ending-web", 2)
    publish(broker.kafka, "ending-web", [b'{"msg": "m%d"}' % number for number in range(RECORDS)], 2)
    with RouterProcess(file, broker.kafka) as router:
        until(lambda: unfinished_batch(query) is not None or not router.alive(), "a batch begins", every_s=0.02)
        for _ in range(ENDS_MAX):
            until(lambda: bool(_jvms(router) - killed) or not router.alive(), "another JVM", every_s=0.05)
            (jvm,) = _jvms(router) - killed
            os.kill(jvm, signal.SIGKILL)
            killed.add(jvm)
        assert router.wait() == 1, router.log_text()[-3_000:]
        assert f"{ENDS_MAX} times in a row with batch 0 of the router running" in router.log_text()
        assert router.log_text().count("the run restarts Spark in") == ENDS_MAX - 1
    with RouterProcess(file, broker.kafka, "--once") as router:
        assert router.wait() == 0, router.log_text()[-3_000:]
    total = ledger(tmp_path / "checkpoint")["total"]
    assert (total["records_in"], total["dropped"]["once"]) == ({"web": RECORDS}, 0)


def test_a_full_disk_of_temporary_files_stops_no_run(
    broker: BrokerProcess, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches go on, with Python workers that are started meanwhile too; a JVM that starts waits for room, and says
    where."""
    file = named_file(tmp_path, "crowded", PIPELINE)
    monkeypatch.setenv("TMPDIR", str(small_disk))
    make_stream(broker.kafka, "crowded-web", 2)

    def arrived() -> int:
        return len(records(broker.kafka, "crowded-out"))

    with RouterProcess(file, broker.kafka) as router:
        publish(broker.kafka, "crowded-web", [b'{"msg": "before"}'], 2)
        until(lambda: arrived() == 1 or not router.alive(), "the first event", every_s=0.5)
        filler = small_disk / "filler"
        fill_disk(filler)
        (jvm,) = _jvms(router)
        for pid in descendants(jvm) - {jvm}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        publish(broker.kafka, "crowded-web", [b'{"msg": "m%d"}' % number for number in range(20_000)], 2)
        until(lambda: arrived() == 20_001 or not router.alive(), "events on a full disk", every_s=0.5)

        os.kill(jvm, signal.SIGKILL)
        told = f"there is no space for Spark's temporary files in {small_disk} (set TMPDIR to another directory)"
        until(lambda: told in router.log_text() or not router.alive(), "the sentence", every_s=0.2)
        filler.unlink()
        publish(broker.kafka, "crowded-web", [b'{"msg": "behind"}'], 2)
        until(lambda: arrived() == 20_002 or not router.alive(), "the last event", every_s=0.5)
        assert router.sigterm() == 0, router.log_text()[-3_000:]
