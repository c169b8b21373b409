"""Tables over deaths and pauses: of the broker while they write and watch, of a watcher while the log is compacted."""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.support.commands import LogboomProcess
from tests.support.server import BrokerProcess
from tests.support.waiting import WAIT_S, until
from tests.table.conftest import CLEAN_OFTEN
from tests.table.support import Copy, produce, values_of

from logboom.table import Table, VersionConflictError

KILLS = max(2, int(os.environ.get("LOGBOOM_TEST_KILLS", "0")))
SMALL = {"segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01"}


class Counting:
    """Writers that count one key up, each in a view of its own, with a key for the last value it wrote itself."""

    def __init__(self, bootstrap: str, writers: int) -> None:
        self.done = [0] * writers
        self.failed: list[BaseException] = []
        self._stop = threading.Event()
        self._tables = [Table.open(bootstrap, "t", timeout_s=WAIT_S) for _ in range(writers)]
        self._threads = [threading.Thread(target=self._count, args=(number,)) for number in range(writers)]
        for thread in self._threads:
            thread.start()

    def _count(self, number: int) -> None:
        table = self._tables[number]
        try:
            while not self._stop.is_set():
                entry = table.get("sum")
                try:
                    assert entry is not None
                    table.put("sum", b"%d" % (int(entry.value) + 1), expected=entry.version)
                except VersionConflictError:
                    continue
                self.done[number] += 1
                table.put(f"done-{number}", b"%d" % self.done[number])
        except BaseException as error:  # noqa: BLE001  # raised by `finish`
            self.failed.append(error)

    def has_reached(self, count: int) -> bool:
        return sum(self.done) >= count or bool(self.failed)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
        for table in self._tables:
            table.close()
        if self.failed:
            raise self.failed[0]


def test_kill_9_of_the_broker_while_tables_are_written_and_watched(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *CLEAN_OFTEN) as broker:
        Table.create(broker.kafka, "t", partitions=2, settings=SMALL)
        with Table.open(broker.kafka, "t", timeout_s=WAIT_S, check_interval_s=0.5) as table:
            table.put("sum", b"0")
            copy = Copy(table.watch())
            counting = Counting(broker.kafka, 2)
            for _ in range(KILLS):
                wanted_sum = sum(counting.done) + 20
                until(partial(counting.has_reached, wanted_sum))
                broker.kill9()
                broker.start()
            counting.finish()
            wanted = {b"sum": b"%d" % sum(counting.done)}
            wanted |= {b"done-%d" % number: b"%d" % count for number, count in enumerate(counting.done)}
            assert values_of(table) == wanted, "each write that returned counts, and counts once"
            copy.until(wanted)
            versions = [change.version for change in copy.changes if change.key == b"sum"]
            assert versions == sorted(set(versions), key=lambda version: version or 0), "in order, each once"
            copy.close()


class Watching:
    """`logboom tables watch --json` in a process that can be stopped and continued, and the copy made of its lines."""

    def __init__(self, bootstrap: str, stream: str, *arguments: str) -> None:
        self.values: dict[str, str] = {}
        self.lines: list[dict[str, Any]] = []
        command = ["tables", "watch", stream, "--json", "--bootstrap", bootstrap, *arguments]
        self._process = LogboomProcess(command, stdout=subprocess.PIPE)
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            change = json.loads(line)
            self.lines.append(change)
            if change["deleted"]:
                self.values.pop(change["key"], None)
            else:
                self.values[change["key"]] = change["value"]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGINT)
        code = self._process.wait(WAIT_S)
        self._thread.join(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


READER = """
import sys
from logboom.table import Table

with Table.open(sys.argv[1], "t", timeout_s=60) as table:
    print(table.get("k0").value, flush=True)
    sys.stdin.readline()
    print(table.get("k0"), flush=True)
"""


def test_who_was_away_while_tombstones_went_learns_of_the_deletions(tmp_path: Path) -> None:
    """A watcher and a reader were stopped for longer than `delete.retention.ms`, and no record tells them any more."""
    with BrokerProcess(tmp_path / "data", *CLEAN_OFTEN) as broker:
        Table.create(broker.kafka, "t", partitions=1, settings=SMALL | {"delete.retention.ms": "2500"})
        produce(broker.kafka, "t", [(b"k%d" % number, b"1") for number in range(5)])
        watching = Watching(broker.kafka, "t")
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, broker.kafka], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert reader.stdin is not None
        assert reader.stdout is not None
        with reader.stdin, reader.stdout:
            assert reader.stdout.readline() == "b'1'\n"
            until(lambda: len(watching.values) == 5)
            watching.signal(signal.SIGSTOP)
            reader.send_signal(signal.SIGSTOP)
            # The first one goes to the fetches that wait; what comes behind it reaches nobody who is stopped.
            produce(broker.kafka, "t", [(b"k4", b"2")])
            produce(broker.kafka, "t", [(b"k%d" % number, None) for number in range(4)])
            # The tombstones go in the second cleaning after their time, which needs something to clean.
            until(lambda: _filled(broker.kafka) == {b"k4", b"fill"} and not _tombstones(broker.kafka))
            reader.send_signal(signal.SIGCONT)
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == "None\n", "a read is right at once"
            assert reader.wait(WAIT_S) == 0
        watching.signal(signal.SIGCONT)
        until(lambda: set(watching.values) == {"k4", "fill"})
        assert {line["key"] for line in watching.lines if line["deleted"]} == {"k0", "k1", "k2", "k3"}
        assert watching.end() == 0


def _filled(bootstrap: str) -> set[bytes]:
    produce(
        bootstrap, "t", [(b"fill", os.urandom(2_000).hex().encode()) for _ in range(12)], **{"batch.num.messages": 1}
    )
    return {key for key, value in _records(bootstrap) if value is not None}


def _tombstones(bootstrap: str) -> list[bytes]:
    return [key for key, value in _records(bootstrap) if value is None]


def _records(bootstrap: str) -> list[tuple[bytes, bytes | None]]:
    """All records that the log has, tombstones too."""
    options = {"group.id": "records", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found: list[tuple[bytes, bytes | None]] = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        key = message.key()
        assert isinstance(key, bytes)
        value = message.value()
        assert value is None or isinstance(value, bytes)
        found.append((key, value))
    consumer.close()
    return found


@pytest.mark.parametrize("stop", ["sigint", "closed pipe"])
def test_a_watch_command_ends_quietly(tmp_path: Path, stop: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        Table.create(broker.kafka, "t")
        with Table.open(broker.kafka, "t", timeout_s=WAIT_S) as table:
            table.put("k", b"1")
            process = LogboomProcess(
                ["tables", "watch", "t", "--bootstrap", broker.kafka], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"k  0  1\n"
            if stop == "sigint":
                process.send_signal(signal.SIGINT)
            else:
                process.stdout.close()
                table.put("k", b"2")
            assert process.wait(WAIT_S) == 0
            assert process.stderr.read() == b""
            process.stdout.close()
            process.stderr.close()
